package config_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/config"
)

func TestEnvFileSyntax(t *testing.T) {
	path := write(t, "vars", strings.Join([]string{
		"# comment", "", "PLAIN=a b # not a comment", "export EXPORTED = x=y ", `DOUBLE="a\n\t\"\\\x"`, `SINGLE='a\n"'`, "EMPTY=",
		`QUOTED_EMPTY=""`, "DOLLAR=$PLAIN",
	}, "\r\n"))
	base, _ := variables("PLAIN=base", "BASE=base")
	file, err := config.OpenEnvFile(path, base)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	want := map[string]string{
		"PLAIN": "a b # not a comment", "EXPORTED": "x=y", "DOUBLE": "a\n\t\"\\\\x", "SINGLE": `a\n"`, "EMPTY": "",
		"QUOTED_EMPTY": "", "DOLLAR": "$PLAIN", "BASE": "base",
	}
	got := map[string]string{}
	for name := range want {
		if value, ok := file.Lookup(name); ok {
			got[name] = value
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("variables differ (-want +got):\n%s", diff)
	}
	if _, ok := file.Lookup("ABSENT"); ok {
		t.Fatalf("found a variable that nobody set")
	}
}

func TestEnvFileRefusesBadLines(t *testing.T) {
	for name, line := range map[string]string{
		"no equals sign": "s3cret", "bad name": "1A=s3cret", "no name": "=s3cret", "unfinished double": `A="s3cret`,
		"text after double": `A="s3cret" x`, "trailing backslash": `A="s3cret\`, "unfinished single": "A='s3cret",
		"quote in single": "A='s3'cret'", "lone quote": `A='`, "NUL": "A=s3cret\x00", "twice": "FIRST=s3cret",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.OpenEnvFile(write(t, "vars", "FIRST=1\n"+line+"\n"), nil)
			if err == nil || !strings.Contains(err.Error(), "vars:2: ") || strings.Contains(err.Error(), "s3cret") {
				t.Fatalf("got %v, want an error at line 2 without the value", err)
			}
		})
	}
}

func TestEnvFileReload(t *testing.T) {
	path := write(t, "vars", "A=1\nB=1\n")
	base, _ := variables("B=base")
	file, err := config.OpenEnvFile(path, base)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	rewrite := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatalf("rewrite: %v", err)
		}
	}
	expect := func(step, a, b string) {
		t.Helper()
		gotA, _ := file.Lookup("A")
		gotB, _ := file.Lookup("B")
		if gotA != a || gotB != b {
			t.Fatalf("%s: A=%q B=%q, want %q and %q", step, gotA, gotB, a, b)
		}
	}
	rewrite("A=2\n")
	expect("before the reload", "1", "1")
	if err := file.Reload(); err != nil {
		t.Fatalf("reload: %v", err)
	}
	expect("after the reload", "2", "base")
	rewrite("A=3\nAGENT_HOOK_WEBHOOK_EVENTS=nope\n")
	if err := file.Reload(); err == nil {
		t.Fatalf("switched to invalid environment hooks")
	}
	expect("after invalid hooks", "2", "base")
	if err := os.Remove(path); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if err := file.Reload(); err == nil {
		t.Fatalf("switched to a missing file")
	}
	expect("after a missing file", "2", "base")
}

func TestEnvFileWithoutPathIsItsBase(t *testing.T) {
	t.Setenv("SOME_VARIABLE", "x")
	file, err := config.OpenEnvFile("", nil)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if value, ok := file.Lookup("SOME_VARIABLE"); !ok || value != "x" {
		t.Fatalf("got %q, %v", value, ok)
	}
}

func TestEnvFileLooksUpWhileItReloads(t *testing.T) {
	file, err := config.OpenEnvFile(write(t, "vars", "A=1\n"), nil)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				if value, _ := file.Lookup("A"); value != "1" {
					t.Errorf("A=%q during a reload", value)
				}
			}
		})
		group.Go(func() {
			for range 5 {
				if err := file.Reload(); err != nil {
					t.Errorf("reload: %v", err)
				}
			}
		})
	}
	group.Wait()
}
