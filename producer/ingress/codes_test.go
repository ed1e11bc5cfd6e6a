package ingress_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// reasonsOf reads the constants of a type from a Go file, so that a new code
// without a status fails here and not at a caller.
func reasonsOf(t *testing.T, path, typeName string) []tasks.Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatalf("parse %s: %v", path, err)
	}
	var reasons []tasks.Reason
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		name := ""
		switch named := spec.Type.(type) {
		case *ast.Ident:
			name = named.Name
		case *ast.SelectorExpr:
			name = named.Sel.Name
		}
		if literal, ok := spec.Values[0].(*ast.BasicLit); ok && name == typeName {
			value, _ := strconv.Unquote(literal.Value)
			reasons = append(reasons, tasks.Reason(value))
		}
		return true
	})
	if len(reasons) == 0 {
		t.Fatalf("%s has no %s", path, typeName)
	}
	return reasons
}

func TestEveryCodeHasAStatusAndIsDocumented(t *testing.T) {
	t.Parallel()
	statuses := ingress.Statuses()
	codes := append(reasonsOf(t, "../../tasks/invalid.go", "Reason"), reasonsOf(t, "codes.go", "Reason")...)
	known := map[tasks.Reason]bool{}
	for _, code := range codes {
		known[code] = true
		if statuses[code] == 0 {
			t.Errorf("%s has no status", code)
		}
	}
	page, err := os.ReadFile("../../docs/http-api.md")
	if err != nil {
		t.Fatalf("read docs/http-api.md: %v", err)
	}
	for code, status := range statuses {
		if !known[code] {
			t.Errorf("%s is in the table and is no constant", code)
		}
		row := fmt.Sprintf("| `%s` | %d |", code, status)
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/http-api.md lacks the row %s", row)
		}
	}
}

// TestRefusalsKeepTheirCode passes each code of package tasks through the
// translation.
func TestRefusalsKeepTheirCode(t *testing.T) {
	t.Parallel()
	for _, code := range reasonsOf(t, "../../tasks/invalid.go", "Reason") {
		err := fmt.Errorf("wrapped: %w", &tasks.InvalidError{Code: code, Path: "hooks[0]", Message: "m", Fix: "f"})
		p := ingress.ProblemOf(err)
		if p.Code != code || p.Status != ingress.Statuses()[code] || p.Detail != "hooks[0]: m" || len(p.Faults) != 1 || p.Faults[0].Fix != "f" {
			t.Errorf("%s becomes %+v", code, p)
		}
	}
	p := ingress.ProblemOf(&tasks.InvalidError{Code: "brand_new", Message: "m"})
	if p.Status != http.StatusUnprocessableEntity || p.Code != "brand_new" {
		t.Errorf("an unknown refusal becomes %+v", p)
	}
}

func TestErrorsOfTheStore(t *testing.T) {
	t.Parallel()
	for code, err := range map[tasks.Reason]error{
		ingress.CodeNotFound:     fmt.Errorf("x: %w", lane.ErrNotFound),
		ingress.CodeIDReused:     fmt.Errorf("x: %w", &lane.ReusedError{ID: "e"}),
		ingress.CodeUnavailable:  fmt.Errorf("%w: secret", lane.ErrUnavailable),
		ingress.CodeClientClosed: fmt.Errorf("%w: %w", lane.ErrUnavailable, context.Canceled),
		ingress.CodeInternal:     fmt.Errorf("secret"),
	} {
		p := ingress.ProblemOf(err)
		if p.Code != code || p.Status != ingress.Statuses()[code] || p.Title == "" || strings.Contains(p.Detail, "secret") {
			t.Errorf("%v becomes %+v", err, p)
		}
	}
	if p := ingress.ProblemOf(context.DeadlineExceeded); p.Code != ingress.CodeUnavailable {
		t.Errorf("a deadline becomes %+v", p)
	}
}
