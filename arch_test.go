package gantry_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gantry-hooks/gantry"

// source is one parsed Go file of the tree.
type source struct {
	path    string // slash-separated, below the module's root
	dir     string
	test    bool
	lines   int
	fileset *token.FileSet
	file    *ast.File
}

// rule is one law: check returns what breaks it, reason is printed with that.
type rule struct {
	name   string
	reason string
	check  func([]source) []string
}

func TestArchitecture(t *testing.T) {
	tree := parseTree(t)
	if len(tree) < 10 {
		t.Fatalf("found %d Go files: the test does not see the module", len(tree))
	}
	for _, r := range allRules() {
		t.Run(r.name, func(t *testing.T) {
			for _, finding := range r.check(tree) {
				t.Errorf("%s\n\twhy: %s", finding, r.reason)
			}
		})
	}
}

func allRules() []rule {
	return slices.Concat(arrowRules, homeRules, callRules, shapeRules)
}

// parseTree reads every Go file of the module that the go command would see.
func parseTree(t *testing.T) []source {
	t.Helper()
	var tree []source
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if name != "." && (base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_') {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(base) != ".go" || base[0] == '.' || base[0] == '_' {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		parsed, err := parseSource(filepath.ToSlash(name), string(text))
		tree = append(tree, parsed)
		return err
	})
	if err != nil {
		t.Fatalf("parse the module: %v", err)
	}
	return tree
}

func parseSource(name, text string) (source, error) {
	fileset := token.NewFileSet()
	file, err := parser.ParseFile(fileset, name, text, parser.ParseComments)
	return source{
		path:    name,
		dir:     path.Dir(name),
		test:    strings.HasSuffix(name, "_test.go"),
		lines:   strings.Count(text, "\n"),
		fileset: fileset,
		file:    file,
	}, err
}

// at says where node stands, as path:line.
func (s source) at(node ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fileset.Position(node.Pos()).Line)
}

// under reports whether the file lies in one of the folders or below.
func (s source) under(folders ...string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return below(s.dir, folder) })
}

func below(dir, folder string) bool { return dir == folder || strings.HasPrefix(dir, folder+"/") }

// imports yields each import with its path.
func (s source) imports(yield func(*ast.ImportSpec, string) bool) {
	for _, spec := range s.file.Imports {
		if !yield(spec, strings.Trim(spec.Path.Value, `"`)) {
			return
		}
	}
}

// ours returns the folder of an import of this module.
func ours(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// arrow forbids imports within the module. Tests are bound as well, apart from
// those that the rule itself lets pass.
func arrow(name, reason string, forbidden func(from source, to string) bool) rule {
	return rule{name, reason, func(tree []source) (findings []string) {
		for _, s := range tree {
			for spec, importPath := range s.imports {
				if to, ok := ours(importPath); ok && forbidden(s, to) {
					findings = append(findings, fmt.Sprintf("%s: %s imports %s", s.at(spec), s.dir, to))
				}
			}
		}
		return findings
	}}
}

// own reports whether the import is of the package under test itself.
func own(from source, to string) bool { return from.test && from.dir == to }

var arrowRules = []rule{
	arrow("tasks is a leaf", "tasks holds the words that everyone shares; a word that knows a part of the system drags it into all others",
		func(from source, to string) bool {
			return from.dir == "tasks" && !own(from, to) && to != "internal/servers/servertest"
		}),
	arrow("lanes import only tasks", "any store must fit behind the lane's contract, so the contract knows words and nothing else",
		func(from source, to string) bool {
			allowed := below(to, "tasks") || from.test && below(to, "internal/servers")
			return from.under("tasks/lane") && !allowed
		}),
	arrow("producer, worker and control do not know each other",
		"they meet in tasks and tasks/lane; what needs two of them declares small interfaces that cmd/internal/app wires",
		func(from source, to string) bool {
			parts := []string{"producer", "worker", "control"}
			return slices.ContainsFunc(parts, func(part string) bool {
				return from.under(part) && !below(to, part) &&
					slices.ContainsFunc(parts, func(other string) bool { return below(to, other) })
			})
		}),
	arrow("only cmd imports config", "a package that reads the deployment's settings knows the whole world; each takes a small Config of its own",
		func(from source, to string) bool {
			return below(to, "config") && !from.under("cmd", "config", "conformance")
		}),
	arrow("config imports only tasks", "settings are plain data; what they configure must not come along with them",
		func(from source, to string) bool {
			return from.under("config") && !below(to, "config") && to != "tasks"
		}),
	arrow("executors import neither worker nor control nor producer",
		"an executor does one action with the words of tasks; who calls it is not its business",
		func(from source, to string) bool {
			executor := from.under("webhook", "enrich", "control/command", "control/llm", "control/rule")
			caller := below(to, "worker") || below(to, "producer") || to == "control"
			return executor && caller
		}),
	arrow("egress knows only words", "the client that decides what may be dialled is small enough to be read in one sitting",
		func(from source, to string) bool {
			return from.under("webhook/egress") && !below(to, "webhook/egress") && to != "tasks"
		}),
	{"the imitation of QStash is independent", "a publisher and a verifier that are tried against themselves agree with themselves", qstashImitation},
	arrow("nobody imports a command", "a command is where everything is put together; nothing may depend on that",
		func(from source, to string) bool { return below(to, "cmd") && !from.under("cmd", "conformance") }),
	arrow("what all parts share knows only words", "internal holds what producer, worker and control do alike; whatever it knew, all of them would know",
		func(from source, to string) bool {
			allowed := below(to, "internal") || below(to, "tasks")
			return from.under("internal") && !allowed
		}),
	arrow("private servers are for tests and the bench", "a running Gantry never starts a server of its own",
		func(from source, to string) bool {
			return below(to, "internal/servers") && !from.test && !from.under("internal/servers", "cmd", "conformance")
		}),
}

// home keeps a library in the folders where it belongs. Tests may use it
// anywhere, as a contender or a counterpart.
func home(library, reason string, folders ...string) rule {
	return rule{library + " has one home", reason, func(tree []source) (findings []string) {
		for _, s := range tree {
			if s.test || s.under(folders...) {
				continue
			}
			for spec, importPath := range s.imports {
				if below(importPath, library) {
					findings = append(findings, fmt.Sprintf("%s: %s is imported outside of %s", s.at(spec), library, strings.Join(folders, ", ")))
				}
			}
		}
		return findings
	}}
}

const (
	asynqLibrary = "github.com/hibiken/asynq"
	dependency   = "a library with one home can be replaced, upgraded and audited there"
)

var homeRules = []rule{
	home(asynqLibrary, "lanes are the hot path; asynq is the door for its own clients and for background work", "worker", "producer", "cmd"),
	{"one file of producer knows asynq", "the door for asynq clients is one file, so that it cannot grow into the hot path", asynqInProducer},
	home(qstashLibrary, dependency, "webhook/qstash"),
	home("os/exec", "a program that is started is a hole in the wall; there is one place to look for it", "control/command", "internal/servers", "cmd/internal/bench"),
	home("github.com/jackc/pgx", dependency, "enrich"),
	home("database/sql", dependency, "enrich"),
	home("github.com/google/cel-go", dependency, "control/rule"),
	home("github.com/dlclark/regexp2", "a matcher runs under a time limit and ECMAScript's rules, or not at all", "tasks"),
	home("github.com/danielgtaylor/huma", dependency, "producer/ingress"),
	home("github.com/alecthomas/kong", dependency, "cmd"),
	home("github.com/alicebob/miniredis", "the embedded server keeps nothing and must not slip into a deployment", "cmd"),
	home("go.yaml.in/yaml", "people write YAML, machines speak JSON; only what people write is read with it", "config", "enrich", "cmd"),
}

const qstashLibrary = "github.com/upstash/qstash-go"

// qstashImitation lets the tests of the imitation, and nothing of it, know the
// adapter and the official client.
func qstashImitation(tree []source) (findings []string) {
	for _, s := range tree {
		if s.test || !s.under("webhook/qstash/compat", "webhook/qstash/clienttest") {
			continue
		}
		for spec, importPath := range s.imports {
			if to, ok := ours(importPath); below(importPath, qstashLibrary) || ok && to == "webhook/qstash" {
				findings = append(findings, fmt.Sprintf("%s: %s imports %s", s.at(spec), s.dir, importPath))
			}
		}
	}
	return findings
}

func asynqInProducer(tree []source) (findings []string) {
	var files []string
	for _, s := range tree {
		for _, importPath := range s.imports {
			if s.under("producer") && !s.test && below(importPath, asynqLibrary) {
				files = append(files, s.path)
			}
		}
	}
	if len(files) > 1 {
		findings = append(findings, "asynq is imported by "+strings.Join(files, ", "))
	}
	return findings
}
