package gantry_test

import (
	"slices"
	"strings"
	"testing"
)

// TestRulesNoticeViolations gives each rule something that breaks it and
// something close that does not, so that no rule is green because it is blind.
func TestRulesNoticeViolations(t *testing.T) {
	const own = `import "` + module + `/`
	long := "package p\nfunc F() {\n" + strings.Repeat("_ = 1\n", functionLines-2) + "}\n"
	for name, test := range map[string]struct {
		bad, good map[string]string // path → text
	}{
		"tasks is a leaf": {
			map[string]string{"tasks/a.go": "package tasks\n" + own + `worker"`},
			map[string]string{"tasks/a_test.go": "package tasks_test\n" + own + `tasks"`},
		},
		"lanes import only tasks": {
			map[string]string{"tasks/lane/redislane/a.go": "package p\n" + own + `webhook"`},
			map[string]string{"tasks/lane/redislane/a.go": "package p\n" + own + `tasks/lane"`},
		},
		"producer, worker and control do not know each other": {
			map[string]string{"producer/ingress/a_test.go": "package p\n" + own + `control/approval"`},
			map[string]string{"producer/ingress/a.go": "package p\n" + own + `producer"`},
		},
		"only cmd imports config": {
			map[string]string{"worker/a.go": "package p\n" + own + `config"`},
			map[string]string{"cmd/internal/app/a.go": "package p\n" + own + `config"`},
		},
		"config imports only tasks": {
			map[string]string{"config/a.go": "package p\n" + own + `webhook"`},
			map[string]string{"config/a.go": "package p\n" + own + `tasks"`},
		},
		"executors import neither worker nor control nor producer": {
			map[string]string{"control/rule/a.go": "package p\n" + own + `control"`},
			map[string]string{"webhook/a.go": "package p\n" + own + `webhook/egress"`},
		},
		"egress knows only words": {
			map[string]string{"webhook/egress/a.go": "package p\n" + own + `webhook"`},
			map[string]string{"webhook/egress/a.go": "package p\n" + own + `tasks"`},
		},
		"the imitation of QStash is independent": {
			map[string]string{"webhook/qstash/compat/a.go": "package p\n" + own + `webhook/qstash"`},
			map[string]string{
				"webhook/qstash/compat/a_test.go": "package p\nimport \"" + qstashLibrary + `"`,
				"webhook/qstash/a.go":             "package p\nimport \"" + qstashLibrary + `"`,
			},
		},
		"nobody imports a command": {
			map[string]string{"worker/a_test.go": "package p\n" + own + `cmd/internal/app"`},
			map[string]string{"cmd/gantry/a.go": "package p\n" + own + `cmd/internal/app"`},
		},
		"what all parts share knows only words": {
			map[string]string{"internal/inbox/a.go": "package p\n" + own + `control"`},
			map[string]string{"internal/inbox/a.go": "package p\n" + own + `tasks/lane"`},
		},
		"private servers are for tests and the bench": {
			map[string]string{"worker/a.go": "package p\n" + own + `internal/servers"`},
			map[string]string{"worker/a_test.go": "package p\n" + own + `internal/servers"`},
		},
		asynqLibrary + " has one home": {
			map[string]string{"webhook/a.go": "package p\nimport \"" + asynqLibrary + `"`},
			map[string]string{"webhook/a_test.go": "package p\nimport \"" + asynqLibrary + `"`},
		},
		"one file of producer knows asynq": {
			map[string]string{
				"producer/a.go": "package p\nimport \"" + asynqLibrary + `"`,
				"producer/b.go": "package p\nimport \"" + asynqLibrary + `"`,
			},
			map[string]string{"producer/a.go": "package p\nimport \"" + asynqLibrary + `"`},
		},
		"os/exec has one home": {
			map[string]string{"control/a.go": "package p\nimport \"os/exec\""},
			map[string]string{"control/command/a.go": "package p\nimport \"os/exec\""},
		},
		"github.com/jackc/pgx has one home": {
			map[string]string{"worker/a.go": "package p\nimport \"github.com/jackc/pgx/v5/pgxpool\""},
			map[string]string{"enrich/a.go": "package p\nimport \"github.com/jackc/pgx/v5\""},
		},
		"no HTTP client beside egress": {
			map[string]string{"webhook/a.go": "package p\nimport web \"net/http\"\nvar _ = web.DefaultClient"},
			map[string]string{"webhook/a.go": "package p\nimport \"net/http\"\nvar _ = http.Handler.Get"},
		},
		"no HTTP client is built beside egress": {
			map[string]string{"webhook/a.go": "package p\nimport \"net/http\"\nvar _ = &http.Client{}"},
			map[string]string{"webhook/egress/a.go": "package p\nimport \"net/http\"\nvar _ = &http.Client{}"},
		},
		"tests do not sleep": {
			map[string]string{"webhook/a_test.go": "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }"},
			map[string]string{"webhook/a.go": "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }"},
		},
		"only commands print": {
			map[string]string{"webhook/a.go": "package p\nimport \"fmt\"\nfunc f() { fmt.Println() }"},
			map[string]string{"webhook/a.go": "package p\nimport \"fmt\"\nvar _ = fmt.Sprint()"},
		},
		"no global logger": {
			map[string]string{"cmd/a.go": "package p\nimport \"github.com/sirupsen/logrus\"\nfunc f() { logrus.Warnf(\"\") }"},
			map[string]string{"cmd/a.go": "package p\nimport \"github.com/sirupsen/logrus\"\nvar l = logrus.New()"},
		},
		"no standard logger": {
			map[string]string{"worker/a.go": "package p\nimport \"log\"\nfunc f() { log.Printf(\"\") }"},
			map[string]string{"worker/a.go": "package p\nimport \"log\"\nvar l log.Logger"},
		},
		"the standard logger is turned once": {
			map[string]string{"worker/a.go": "package p\nimport \"log\"\nfunc f() { log.SetOutput(nil) }"},
			map[string]string{"cmd/gantry/a.go": "package p\nimport \"log\"\nfunc f() { log.SetOutput(nil) }"},
		},
		"the environment is injected": {
			map[string]string{"worker/a.go": "package p\nimport \"os\"\nvar _ = os.Getenv(\"A\")"},
			map[string]string{"config/a.go": "package p\nimport \"os\"\nvar _ = os.Getenv(\"A\")"},
		},
		"no test is skipped": {
			map[string]string{"worker/a_test.go": "package p\nfunc f(t T) { t.Skip() }"},
			map[string]string{"worker/a_test.go": "package p\nfunc f(t T) { lexer.Skip() }"},
		},
		"files stay short": {
			map[string]string{"worker/a.go": "package p\n" + strings.Repeat("\n", fileLines)},
			map[string]string{"worker/a_test.go": "package p\n" + strings.Repeat("\n", fileLines)},
		},
		"functions stay short": {
			map[string]string{"worker/a.go": strings.Replace(long, "{", "{\n", 1)},
			map[string]string{"worker/a.go": long},
		},
		"signatures stay short": {
			map[string]string{"worker/a.go": "package p\nfunc f(a, b int, c, d, e string) {}"},
			map[string]string{"worker/a.go": "package p\nfunc f(ctx context.Context, a, b int, c, d string) {}"},
		},
		"exported functions take no bool": {
			map[string]string{"worker/a.go": "package p\nfunc (t *T) F(a int, b bool) {}"},
			map[string]string{"worker/a.go": "package p\nfunc (t *T) f(b bool) {}"},
		},
		"every folder has one package comment": {
			map[string]string{"worker/a.go": "// Package p is one.\npackage p", "worker/a_test.go": "// Package p is two.\npackage p_test"},
			map[string]string{"worker/a.go": "// Package p is one.\npackage p", "worker/b.go": "package p"},
		},
		"package names say something": {
			map[string]string{"worker/a.go": "package util"},
			map[string]string{"worker/a.go": "package utility"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(allRules(), func(r rule) bool { return r.name == name })
			if i < 0 {
				t.Fatalf("no rule has this name")
			}
			check := allRules()[i].check
			if len(check(parseAll(t, test.bad))) == 0 {
				t.Errorf("the rule does not see what breaks it")
			}
			if found := check(parseAll(t, test.good)); len(found) != 0 {
				t.Errorf("the rule refuses what is right: %v", found)
			}
		})
	}
}

func parseAll(t *testing.T, files map[string]string) []source {
	t.Helper()
	var tree []source
	for name, text := range files {
		parsed, err := parseSource(name, text)
		if err != nil {
			t.Fatalf("parse %s: %v", name, err)
		}
		tree = append(tree, parsed)
	}
	return tree
}
