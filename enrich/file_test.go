package enrich_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gantry-hooks/gantry/enrich"
)

func TestFileReadsJSONAndYAML(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"emails.json": `{"u-ada":"ada@corp.test","42":"number@corp.test","u-null":null,"u-blank":""}`,
		"emails.yaml": "# people\nu-ada: ada@corp.test\n42: number@corp.test\nu-null: null\nu-blank: \"\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := openFile(t, name, content)
			for user, want := range map[string]struct {
				email string
				found bool
			}{
				"u-ada": {"ada@corp.test", true}, "42": {"number@corp.test", true}, "u-blank": {"", true},
				"u-null": {}, "u-ghost": {}, "U-ADA": {},
			} {
				got, found, err := f.Email(t.Context(), user)
				if got != want.email || found != want.found || err != nil {
					t.Errorf("email of %s: %q, %v, %v", user, got, found, err)
				}
			}
		})
	}
}

func openFile(t *testing.T, name, content string) *enrich.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	writeFile(t, path, content)
	f, err := enrich.NewFile(enrich.FileConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFileReloadKeepsTheOldContentAfterAnError(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "emails.yaml")
	writeFile(t, path, "u1: old@corp.test\n")
	f, err := enrich.NewFile(enrich.FileConfig{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		content, want string
		fails         bool
	}{
		{"u1: new@corp.test\n", "new@corp.test", false},
		{"u1: [broken\n", "new@corp.test", true},
		{"- u1\n", "new@corp.test", true},
		{"", "", false},
	} {
		writeFile(t, path, step.content)
		if err := f.Reload(); (err != nil) != step.fails {
			t.Fatalf("reload of %q: %v", step.content, err)
		}
		if got, _, _ := f.Email(t.Context(), "u1"); got != step.want {
			t.Fatalf("after %q the email is %q, want %q", step.content, got, step.want)
		}
	}
}

func TestNewFileRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "list.json"), `["u1"]`)
	writeFile(t, filepath.Join(dir, "number.json"), `{"u1":1}`)
	for _, name := range []string{"missing.json", "list.json", "number.json"} {
		if _, err := enrich.NewFile(enrich.FileConfig{Path: filepath.Join(dir, name)}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
