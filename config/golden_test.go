package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing")

// golden compares got with the file, or writes it under -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatalf("write golden file: %v", err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read golden file (run with -update to write it): %v", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Fatalf("%s differs (-want +got), run with -update if that is meant:\n%s", path, diff)
	}
}

// variables makes an environment of "NAME=value" lines.
func variables(lines ...string) (env tasks.Environment, names []string) {
	values := map[string]string{}
	for _, line := range lines {
		name, value, found := strings.Cut(line, "=")
		if !found {
			continue
		}
		values[name] = value
		names = append(names, name)
	}
	return func(name string) (string, bool) { value, ok := values[name]; return value, ok }, names
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return strings.Split(strings.TrimRight(string(text), "\n"), "\n")
}

// TestBadSettings has one tiny file per rule, of YAML or of variables, with the
// exact complaint beside it.
func TestBadSettings(t *testing.T) {
	t.Chdir("testdata/bad")
	files, err := filepath.Glob("*.*")
	if err != nil {
		t.Fatalf("list bad files: %v", err)
	}
	tested := 0
	for _, file := range files {
		extension := filepath.Ext(file)
		if extension != ".yaml" && extension != ".env" {
			continue
		}
		tested++
		t.Run(file, func(t *testing.T) {
			sources := config.Sources{}
			sources.Env, sources.Names = variables()
			if extension == ".yaml" {
				sources.File = file
			} else {
				sources.Env, sources.Names = variables(lines(t, file)...)
			}
			loaded, err := config.Load(sources)
			if err == nil {
				t.Fatalf("loaded %+v, want an error", loaded)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Fatalf("the error shows a secret: %v", err)
			}
			golden(t, strings.TrimSuffix(file, extension)+".golden", []byte(err.Error()+"\n"))
		})
	}
	if tested < 40 {
		t.Fatalf("found %d bad files, want every rule's", tested)
	}
}

func TestReferenceIsCheckedIn(t *testing.T) {
	golden(t, "../docs/config.md", config.Reference())
}

func TestRedactedDefaults(t *testing.T) {
	golden(t, "testdata/defaults.golden.yaml", config.Defaults().Redacted())
}
