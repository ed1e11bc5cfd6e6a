package gantry_test

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// The limits of files, functions and signatures.
const (
	fileLines     = 600
	testFileLines = 1000
	functionLines = 60
	parameters    = 4
)

// longFunctions lists functions that are over the limit, as "folder.Name" or
// "folder.Type.Name", with their reason. It may only shrink: an entry for a
// function that is short enough is itself a finding.
var longFunctions = map[string]string{}

var shapeRules = []rule{
	{"files stay short", "a file is one thought; past " + strconv.Itoa(fileLines) + " lines (tests " + strconv.Itoa(testFileLines) + ") it is several", longFiles},
	{"functions stay short", "past " + strconv.Itoa(functionLines) + " lines nobody holds a function in the head", longFunctionBodies},
	{"signatures stay short", "past " + strconv.Itoa(parameters) + " parameters a call is a riddle; take a params struct", longSignatures},
	{"exported functions take no bool", "true at a call says nothing; take an option with a name, or write two functions", boolParameters},
	{"every folder has one package comment", "a stranger reads the folder listing first, and finds two answers or none", packageComments},
	{"package names say something", "util, common and their kin gather what belongs elsewhere", vagueNames},
}

func (s source) generated() bool { return ast.IsGenerated(s.file) }

func longFiles(tree []source) (findings []string) {
	for _, s := range tree {
		limit := fileLines
		if s.test {
			limit = testFileLines
		}
		if s.lines > limit && !s.generated() {
			findings = append(findings, s.path+" has "+strconv.Itoa(s.lines)+" lines")
		}
	}
	return findings
}

// functions yields the declared functions of a product file with their names.
func (s source) functions(yield func(string, *ast.FuncDecl) bool) {
	if s.test || s.generated() {
		return
	}
	for _, declaration := range s.file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if !yield(s.dir+"."+receiver(function)+function.Name.Name, function) {
			return
		}
	}
}

func receiver(function *ast.FuncDecl) string {
	if function.Recv == nil || len(function.Recv.List) == 0 {
		return ""
	}
	for node := range ast.Preorder(function.Recv.List[0].Type) {
		if name, ok := node.(*ast.Ident); ok {
			return name.Name + "."
		}
	}
	return ""
}

func longFunctionBodies(tree []source) (findings []string) {
	excused := map[string]bool{}
	for _, s := range tree {
		for name, function := range s.functions {
			first, last := s.fileset.Position(function.Pos()).Line, s.fileset.Position(function.End()).Line
			if last-first+1 <= functionLines {
				continue
			}
			if _, ok := longFunctions[name]; ok {
				excused[name] = true
				continue
			}
			findings = append(findings, s.at(function)+": "+name+" has "+strconv.Itoa(last-first+1)+" lines")
		}
	}
	for name := range longFunctions {
		if !excused[name] {
			findings = append(findings, name+" is short enough: remove it from longFunctions")
		}
	}
	return findings
}

func longSignatures(tree []source) (findings []string) {
	for _, s := range tree {
		for name, function := range s.functions {
			count := 0
			for _, field := range function.Type.Params.List {
				if isSelector(field.Type, "context", "Context") {
					continue
				}
				count += max(1, len(field.Names))
			}
			if count > parameters {
				findings = append(findings, s.at(function)+": "+name+" takes "+strconv.Itoa(count)+" parameters besides ctx")
			}
		}
	}
	return findings
}

func isSelector(expression ast.Expr, pkg, name string) bool {
	selector, ok := expression.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && x.Name == pkg
}

func boolParameters(tree []source) (findings []string) {
	for _, s := range tree {
		for name, function := range s.functions {
			if !function.Name.IsExported() || s.under("cmd") {
				continue
			}
			for _, field := range function.Type.Params.List {
				if kind, ok := field.Type.(*ast.Ident); ok && kind.Name == "bool" {
					findings = append(findings, s.at(function)+": "+name+" takes a bool")
				}
			}
		}
	}
	return findings
}

func packageComments(tree []source) (findings []string) {
	comments := map[string][]string{}
	for _, s := range tree {
		documented := comments[s.dir]
		if s.file.Doc != nil {
			documented = append(documented, s.path)
		}
		comments[s.dir] = documented
	}
	for dir, documented := range comments {
		switch len(documented) {
		case 0:
			findings = append(findings, dir+" has no package comment")
		case 1:
		default:
			findings = append(findings, dir+" has several package comments: "+strings.Join(documented, ", "))
		}
	}
	slices.Sort(findings)
	return findings
}

func vagueNames(tree []source) (findings []string) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "models", "types", "base", "shared", "misc"}
	for _, s := range tree {
		if name := strings.TrimSuffix(s.file.Name.Name, "_test"); slices.Contains(vague, name) {
			findings = append(findings, s.path+" is in package "+name)
		}
	}
	return findings
}
