package gantry_test

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
)

// call forbids uses of names of a package: "net/http" with `Get|Post` finds
// http.Get under whatever name the file imports it.
func call(name, reason, importPath, names string, allowed func(source) bool) rule {
	pattern := regexp.MustCompile(`^(` + names + `)$`)
	return rule{name, reason, func(tree []source) (findings []string) {
		for _, s := range tree {
			local := s.localName(importPath)
			if local == "" || allowed(s) {
				continue
			}
			for node := range ast.Preorder(s.file) {
				selector, ok := node.(*ast.SelectorExpr)
				if !ok || !pattern.MatchString(selector.Sel.Name) {
					continue
				}
				// An identifier with an object is a variable that hides the package.
				if x, ok := selector.X.(*ast.Ident); ok && x.Name == local && x.Obj == nil {
					findings = append(findings, s.at(node)+": uses "+local+"."+selector.Sel.Name)
				}
			}
		}
		return findings
	}}
}

// localName returns the name under which the file knows the package, or "".
func (s source) localName(importPath string) string {
	for spec, found := range s.imports {
		if found != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

var callRules = []rule{
	call("no HTTP client beside egress",
		"what dials an address chosen by somebody else goes through the client that checks it; the default one follows redirects and reaches everything",
		"net/http", "DefaultClient|DefaultTransport|Get|Head|Post|PostForm",
		func(s source) bool { return s.test || s.under("webhook/egress", "cmd") }),
	{
		"no HTTP client is built beside egress", "a client of one's own has no egress policy and no limits", builtClients,
	},
	call("tests do not sleep", "a sleep is either too short on a slow machine or too long on every other; wait for a signal or use synctest",
		"time", "Sleep", func(s source) bool { return !s.test }),
	call("only commands print", "a package returns or logs; what it prints lands in somebody's protocol",
		"fmt", "Print|Printf|Println", func(s source) bool { return s.test || s.under("cmd") }),
	call("no global logger", "a logger is handed in with its fields and its level; the package's own has neither",
		"github.com/sirupsen/logrus",
		"(Trace|Debug|Info|Print|Warn|Warning|Error|Fatal|Panic)(f|ln|Fn)?|With(Error|Context|Field|Fields|Time)|StandardLogger|Set(Level|Output|Formatter|ReportCaller)|AddHook",
		func(s source) bool { return s.test }),
	call("no standard logger", "two loggers in one process give two formats and lose the fields",
		"log", "(Print|Fatal|Panic)(f|ln)?|Default", func(source) bool { return false }),
	call("the standard logger is turned once", "libraries write to it, so the command leads it into our log, and nobody else may lead it away",
		"log", "Set(Output|Flags|Prefix)", func(s source) bool { return s.under("cmd/gantry") }),
	call("the environment is injected", "a variable that is read directly cannot be changed by a reload or set by a test",
		"os", "Getenv|LookupEnv|Environ|ExpandEnv",
		func(s source) bool {
			return s.test || s.under("cmd", "config", "internal/servers", "conformance", "examples")
		}),
	{"no test is skipped", "a skipped test is green and proves nothing; what it needs is brought by make test", skippedTests},
}

func builtClients(tree []source) (findings []string) {
	for _, s := range tree {
		local := s.localName("net/http")
		if local == "" || s.test || s.under("webhook/egress", "cmd") {
			continue
		}
		for node := range ast.Preorder(s.file) {
			literal, ok := node.(*ast.CompositeLit)
			if !ok {
				continue
			}
			if selector, ok := literal.Type.(*ast.SelectorExpr); ok && selector.Sel.Name == "Client" {
				if x, ok := selector.X.(*ast.Ident); ok && x.Name == local {
					findings = append(findings, s.at(node)+": builds a client")
				}
			}
		}
	}
	return findings
}

// skippedTests leaves out files with property tests, where Skip discards a
// generated case, not the test.
func skippedTests(tree []source) (findings []string) {
	skips := []string{"Skip", "Skipf", "SkipNow"}
	for _, s := range tree {
		if !s.test || s.localName("pgregory.net/rapid") != "" {
			continue
		}
		for node := range ast.Preorder(s.file) {
			called, ok := node.(*ast.CallExpr)
			if !ok {
				continue
			}
			selector, ok := called.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(skips, selector.Sel.Name) {
				continue
			}
			if x, ok := selector.X.(*ast.Ident); ok && slices.Contains([]string{"t", "b", "f", "tb"}, x.Name) {
				findings = append(findings, s.at(node)+": skips")
			}
		}
	}
	return findings
}
