package redislane_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var argument = regexp.MustCompile(`(?:ARGV|KEYS)\[\d+\]`)

// The header is the contract of a transition: a reader of the Lua and a writer
// of a client in another language have nothing else.
func TestEveryScriptSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("scripts/*.lua")
	check(t, "list scripts", err)
	if len(files) < 10 {
		t.Fatalf("found %d scripts", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		header, code := split(t, file)
		if !strings.HasPrefix(header, "-- "+name+" ") && !strings.HasPrefix(header, "-- "+name+".lua ") {
			t.Errorf("%s does not start with its own name", file)
		}
		if name == "lib" {
			continue
		}
		for _, part := range []string{"\n-- KEYS[1] ", "\n-- Returns ", "\n-- Atomic"} {
			if !strings.Contains(header, part) {
				t.Errorf("the header of %s has no part %q", file, strings.TrimPrefix(part, "\n-- "))
			}
		}
		for _, used := range argument.FindAllString(code, -1) {
			if !strings.Contains(header, strings.TrimSuffix(used, "]")) {
				t.Errorf("%s reads %s, which its header does not name", file, used)
			}
		}
		for _, named := range argument.FindAllString(header, -1) {
			if !strings.Contains(code, named) && named != "KEYS[1]" {
				t.Errorf("the header of %s names %s, which the script does not read", file, named)
			}
		}
	}
}

// Keys are built from the prefix of lib.lua alone, so that they share its slot.
func TestScriptsBuildKeysFromThePrefix(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("scripts/*.lua")
	check(t, "list scripts", err)
	literal := regexp.MustCompile(`call\('[A-Z]+', '`)
	for _, file := range files {
		_, code := split(t, file)
		if found := literal.FindString(code); found != "" {
			t.Errorf("%s uses a key without the prefix: %s…", file, found)
		}
		if strings.Contains(code, "KEYS[") && filepath.Base(file) != "lib.lua" {
			t.Errorf("%s reads KEYS itself", file)
		}
	}
}

func TestEveryScriptHasAWrapper(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	check(t, "list sources", err)
	var source strings.Builder
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "script.go" {
			continue
		}
		text, err := os.ReadFile(file)
		check(t, "read source", err)
		source.Write(text)
	}
	scripts, err := filepath.Glob("scripts/*.lua")
	check(t, "list scripts", err)
	for _, file := range scripts {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		if name != "lib" && !regexp.MustCompile(`scripts\.`+name+`\b`).MatchString(source.String()) {
			t.Errorf("no Go function runs %s", file)
		}
	}
}

// split parts a script into its header and the code below it.
func split(t *testing.T, file string) (header, code string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	check(t, "read script", err)
	var head []string
	lines := strings.Split(string(raw), "\n")
	for len(lines) > 0 && strings.HasPrefix(lines[0], "--") {
		head, lines = append(head, lines[0]), lines[1:]
	}
	return strings.Join(head, "\n"), strings.Join(lines, "\n")
}
