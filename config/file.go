package config

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readFile applies a YAML file to the settings. It walks the document itself
// instead of decoding it, so that each problem has its line and none hides the
// others.
func (l *loader) readFile(path string) {
	reader := fileReader{loader: l, path: path}
	root, problem := parseFile(path)
	if problem != nil {
		l.problems = append(l.problems, problem)
		return
	}
	if root != nil {
		reader.section("", root)
	}
}

// parseFile returns the root of the only document in the file; nil means an
// empty one.
func parseFile(path string) (*yaml.Node, *SettingError) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, &SettingError{Path: path, Wrong: "cannot be read: " + cause(err).Error(), Right: "name a readable YAML file"}
	}
	root, err := parseYAML(text)
	if err != nil {
		return nil, &SettingError{Path: path, Wrong: err.Error(), Right: "write one YAML document"}
	}
	return root, nil
}

var errSeveralDocuments = errors.New("holds several YAML documents")

// parseYAML returns the root node of the only document in text, or nil.
func parseYAML(text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, rest yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, yamlError(err)
	}
	if err := decoder.Decode(&rest); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, yamlError(err)
		}
		return nil, errSeveralDocuments
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	return document.Content[0], nil
}

// yamlError says "is not YAML: line 3: …" in the words of the parser.
func yamlError(err error) error {
	return errors.New("is not YAML: " + strings.TrimPrefix(err.Error(), "yaml: "))
}

// cause is the reason of a failed file operation without the path, which the
// problem already has.
func cause(err error) error {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		return pathErr.Err
	}
	return err
}

// fileReader walks the nodes of one file.
type fileReader struct {
	loader *loader
	path   string
}

func (r fileReader) problem(node *yaml.Node, problem SettingError) {
	problem.Source = at(r.path, node.Line)
	r.loader.problems = append(r.loader.problems, &problem)
}

// section applies the mapping under prefix, which is "" or ends with a dot.
func (r fileReader) section(prefix string, node *yaml.Node) {
	name := strings.TrimSuffix(prefix, ".")
	if name == "" {
		name = "settings"
	}
	node = resolve(node)
	if isNull(node) {
		return
	}
	if node.Kind != yaml.MappingNode {
		r.problem(node, SettingError{Path: name, Wrong: "is not a section", Right: "write keys with values under it"})
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		path := prefix + key.Value
		if seen[path] {
			r.problem(key, SettingError{Path: path, Wrong: "stands twice in the file", Right: "keep one of them"})
			continue
		}
		seen[path] = true
		r.entry(path, key, value)
	}
}

func (r fileReader) entry(path string, key, value *yaml.Node) {
	paths := r.loader.paths()
	if slices.ContainsFunc(paths, func(known string) bool { return strings.HasPrefix(known, path+".") }) {
		r.section(path+".", value)
		return
	}
	f, known := r.loader.lookup(path)
	if !known {
		r.problem(key, SettingError{Path: path, Wrong: "is not a setting", Right: suggestPath(path, paths)})
		return
	}
	value = resolve(value)
	origin := at(r.path, value.Line)
	switch {
	case isNull(value):
		r.problem(value, SettingError{Path: path, Wrong: "has no value", Right: "give it one, or remove the key"})
	case value.Kind == yaml.ScalarNode:
		r.loader.assign(f, value.Value, origin)
	case value.Kind == yaml.SequenceNode && f.list():
		r.list(f, value)
	case f.list():
		r.problem(value, SettingError{Path: path, Wrong: "is not a list", Right: "write a list of texts"})
	default:
		r.problem(value, SettingError{Path: path, Wrong: "is not a single value", Right: "write one " + f.kind()})
	}
}

func (r fileReader) list(f field, node *yaml.Node) {
	items := make([]string, 0, len(node.Content))
	for _, item := range node.Content {
		item = resolve(item)
		if item.Kind != yaml.ScalarNode || isNull(item) {
			r.problem(item, SettingError{Path: f.path, Wrong: "holds an item that is not text", Right: "write a list of texts"})
			return
		}
		items = append(items, item.Value)
	}
	r.loader.origin[f.path] = at(r.path, node.Line)
	f.setList(items)
}

// suggestPath finds what an unknown path may have meant: a near spelling, or
// the same key in the section where it belongs.
func suggestPath(path string, paths []string) string {
	key := path[strings.LastIndexByte(path, '.')+1:]
	for _, known := range paths {
		if strings.HasSuffix(known, "."+key) {
			return "did you mean " + known + "?"
		}
	}
	candidates := slices.Clone(paths)
	for _, known := range paths {
		if section, _, nested := strings.Cut(known, "."); nested {
			candidates = append(candidates, section)
		}
	}
	return didYouMean(path, candidates)
}

func resolve(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.Tag == "!!null"
}
