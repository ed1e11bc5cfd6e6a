package config_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
)

func TestLoadHooksFile(t *testing.T) {
	const list = `[ {"id":"a","type":"onError","webhook":{"url":"/in","body":{"n":1e400, "é":"\u00e9"}}} ]`
	for name, test := range map[string]struct{ file, text, want string }{
		"JSON list":                    {"h.json", "\n" + list + "\n", list},
		"JSON object":                  {"h.json", `{"hooks":` + list + `}`, list},
		"JSON in a file of other name": {"h.hooks", `{"hooks":` + list + `}`, list},
		"YAML object": {
			"h.yaml", "hooks:\n- id: a\n  type: onError\n  webhook:\n    url: /in\n    timeout: 1.50\n",
			`[{"id":"a","type":"onError","webhook":{"url":"/in","timeout":1.50}}]`,
		},
		"YAML values": {
			"h.yml", "- id: '1'\n  type: onError\n  webhook:\n    url: /in\n    body: {big: 12345678901234567890123, oct: 0o10, hex: 0x1F, " +
				"yes: True, no: ~, day: 2026-01-02, text: \"a\\\"\\n\", float: 1., list: [1, [], {}]}\n",
			`[{"id":"1","type":"onError","webhook":{"url":"/in","body":{"big":12345678901234567890123,"oct":8,"hex":31,` +
				`"yes":true,"no":null,"day":"2026-01-02","text":"a\"\n","float":1,"list":[1,[],{}]}}}]`,
		},
		"YAML aliases": {
			"h.yaml", "hooks:\n- {id: a, type: onError, webhook: &w {url: /in}}\n- {id: b, type: onError, webhook: *w}\n",
			`[{"id":"a","type":"onError","webhook":{"url":"/in"}},{"id":"b","type":"onError","webhook":{"url":"/in"}}]`,
		},
		"no hooks": {"h.yaml", "hooks: []\n", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := config.LoadHooksFile(write(t, test.file, test.text))
			if err != nil {
				t.Fatalf("load: %v", err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Fatalf("JSON differs (-want +got):\n%s", diff)
			}
			if _, err := tasks.ParseHooks(got, tasks.ParseOptions{}); err != nil {
				t.Fatalf("the result does not parse: %v", err)
			}
		})
	}
}

func TestLoadHooksFileErrors(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	bomb := "a: &a [" + strings.Repeat("x,", 50) + "]\n"
	for _, pair := range []string{"ab", "bc", "cd", "de"} {
		bomb += pair[1:] + ": &" + pair[1:] + " [" + strings.Repeat("*"+pair[:1]+",", 50) + "]\n"
	}
	bomb = "- id: a\n  body:\n    " + strings.ReplaceAll(strings.TrimSpace(bomb), "\n", "\n    ") + "\n"
	for name, test := range map[string]struct {
		file, text string
		line       int
		code       tasks.Reason
	}{
		"empty":               {"h.yaml", "# nothing\n", 0, ""},
		"scalar":              {"h.yaml", "\nhooks\n", 2, ""},
		"hooks is no list":    {"h.yaml", "hooks:\n  id: a\n", 2, ""},
		"another key":         {"h.yaml", "hooks: []\nhook: []\n", 2, ""},
		"hooks twice":         {"h.yaml", "hooks: []\nhooks: []\n", 2, ""},
		"YAML syntax":         {"h.yaml", "hooks: [\n", 0, ""},
		"two documents":       {"h.yaml", "[]\n---\n[]\n", 0, ""},
		"key twice":           {"h.yaml", "- id: a\n  id: b\n", 2, ""},
		"key that is no text": {"h.yaml", "- id: a\n  1: b\n", 2, ""},
		"merge key":           {"h.yaml", "- &a {id: a}\n- <<: *a\n", 2, ""},
		"infinity":            {"h.yaml", "- id: a\n  n: .inf\n", 2, ""},
		"custom tag":          {"h.yaml", "- id: !secret a\n", 1, ""},
		"depth":               {"h.yaml", "- id: a\n  x: " + deep + "\n", 2, ""},
		"recursive alias":     {"h.yaml", "- &a\n  x: *a\n", 1, ""},
		"alias bomb":          {"h.yaml", bomb, 0, ""},
		"JSON syntax":         {"h.json", "[\n {]\n", 2, ""},
		"JSON cut short":      {"h.json", "[\n {\n", 0, ""},
		"JSON goes on":        {"h.json", "[]\n[]\n", 0, ""},
		"JSON depth":          {"h.json", deep, 0, ""},
		"YAML hook type":      {"h.yaml", "hooks:\n- id: a\n  type: onPrompt\n  webhook:\n    url: /in\n", 3, tasks.UnknownType},
		"YAML second hook's url": {
			"h.yaml", "- {id: a, type: onError, webhook: {url: /in}}\n- id: b\n  type: onError\n  webhook:\n\n    url: ftp://x\n",
			6, tasks.InvalidURL,
		},
		"YAML unknown key":     {"h.yaml", "- id: a\n  type: onError\n  webhok: {url: /in}\n", 3, tasks.UnknownField},
		"YAML no action":       {"h.yaml", "\n- id: a\n  type: onError\n", 2, tasks.NoAction},
		"JSON timeout":         {"h.json", "[{\"id\":\"a\",\n\"type\":\"onError\",\"webhook\":{\"url\":\"/in\",\n\n\"timeout\":0}}]", 4, tasks.InvalidTimeout},
		"JSON timeout, object": {"h.json", "{\"hooks\":\n[{\"id\":\"a\",\n\"type\":\"onError\",\"webhook\":{\"url\":\"/in\",\n\"timeout\":0}}]}", 4, tasks.InvalidTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := config.LoadHooksFile(write(t, test.file, test.text))
			wrong, ok := errors.AsType[*config.FileError](err)
			if !ok {
				t.Fatalf("got %s and error %v, want a FileError", raw, err)
			}
			if test.line != 0 && wrong.Line != test.line {
				t.Errorf("line %d, want %d: %v", wrong.Line, test.line, err)
			}
			invalid, ok := errors.AsType[*tasks.InvalidError](err)
			if ok != (test.code != "") || ok && invalid.Code != test.code {
				t.Errorf("code differs, want %q: %v", test.code, err)
			}
			if !strings.Contains(err.Error(), test.file+":") {
				t.Errorf("the message does not name the file: %v", err)
			}
		})
	}
}

func TestLoadHooksFileMissing(t *testing.T) {
	if _, err := config.LoadHooksFile("missing.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want fs.ErrNotExist", err)
	}
}
