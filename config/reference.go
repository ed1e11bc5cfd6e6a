package config

import (
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// sectionsSource is the file whose comments are the manual. It is compiled in,
// so that the reference cannot say anything else than the code.
//
//go:embed sections.go
var sectionsSource string

// Reference returns the manual of all settings as Markdown, made from the
// structs and their comments.
func Reference() []byte {
	comments := sourceComments()
	var b strings.Builder
	b.WriteString(referenceHead)
	section := topLevel
	for _, f := range fieldsOf(Defaults()) {
		if name := sectionOf(f.path); name != section {
			section = name
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, comments[f.owner])
		}
		fmt.Fprintf(&b, "\n### `%s`\n\n", f.path)
		fmt.Fprintf(&b, "Variable `%s` · %s · default %s\n\n", f.env, f.kind(), f.defaultText())
		b.WriteString(comments[f.owner+"."+f.name] + "\n")
	}
	return []byte(b.String())
}

const referenceHead = `# Settings

<!-- Generated from the code by "gantry config docs"; change the comments there. -->

A setting comes from the first of these that has it: a flag, an environment variable, the YAML file (` + "`--config`" + `), its
default. Unknown keys and unknown ` + "`GANTRY_`" + ` variables are refused. A variable that is set but empty counts as unset.
Durations are written as ` + "`500ms`, `5s` or `24h`" + `, sizes as ` + "`1MiB`" + ` or a number of bytes, lists in variables with commas.

` + "`gantry config check`" + ` reports every mistake at once and shows the settings in force with secrets masked.

The hooks of the deployment itself are not among the settings: they come from the ` + "`AGENT_HOOK_WEBHOOK_*`" + ` variables, and
the base addresses of application-relative URLs from ` + "`INTERNAL_APP_URL` and `APP_URL`" + `, read whenever they are used.
`

// topLevel is the section of settings without one; it stands first and needs no
// heading.
const topLevel = ""

// sectionOf names the section of a path: its part before the last dot.
func sectionOf(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return topLevel
}

func (f field) defaultText() string {
	text := strings.Join(f.items(), ",")
	if text == "" {
		return "none"
	}
	return "`" + text + "`"
}

// sourceComments returns the comments of the structs by "Type" and
// "Type.Field", each as one paragraph without the leading Go name.
func sourceComments() map[string]string {
	file, err := parser.ParseFile(token.NewFileSet(), "sections.go", sectionsSource, parser.ParseComments)
	if err != nil {
		// The compiler has accepted the same text.
		panic(err)
	}
	comments := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		declaration, ok := node.(*ast.GenDecl)
		if !ok || declaration.Tok != token.TYPE {
			return true
		}
		for _, spec := range declaration.Specs {
			addComments(comments, spec, declaration.Doc)
		}
		return false
	})
	return comments
}

func addComments(comments map[string]string, spec ast.Spec, doc *ast.CommentGroup) {
	named, ok := spec.(*ast.TypeSpec)
	if !ok {
		return
	}
	structure, ok := named.Type.(*ast.StructType)
	if !ok {
		return
	}
	comments[named.Name.Name] = paragraph(doc, named.Name.Name)
	for _, member := range structure.Fields.List {
		for _, name := range member.Names {
			comments[named.Name.Name+"."+name.Name] = paragraph(member.Doc, name.Name)
		}
	}
}

// paragraph turns "Lease is how long …" into "How long …".
func paragraph(doc *ast.CommentGroup, name string) string {
	text := strings.Join(strings.Fields(doc.Text()), " ")
	text = strings.TrimPrefix(text, name+" ")
	text = strings.TrimPrefix(text, "is ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
