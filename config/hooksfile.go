package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gantry-hooks/gantry/tasks"
)

// FileError is a mistake in a file that people write, with its place.
type FileError struct {
	// File is the path as given and Line counts from 1; 0 means the whole file.
	File string
	Line int
	// Err is the mistake; for a refused hook an *tasks.InvalidError.
	Err error
}

// Error puts file and line before the mistake.
func (e *FileError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Err.Error()
	}
	return at(e.File, e.Line) + ": " + e.Err.Error()
}

// Unwrap returns the mistake.
func (e *FileError) Unwrap() error { return e.Err }

var (
	errNoHooks   = errors.New("holds neither a list of hooks nor an object with hooks; write hooks: followed by a list")
	errOtherKey  = errors.New("holds a key beside hooks; keep only hooks")
	errEmptyFile = errors.New("is empty; write hooks: followed by a list")
	errTooLarge  = errors.New("expands to more than a hooks file may hold")
	errTooDeep   = errors.New("is nested too deeply")
	errKey       = errors.New("has a key that is not text")
	errTwiceKey  = errors.New("has the same key twice in one object")
	errMerge     = errors.New("merges keys with <<; write them out")
	errValue     = errors.New("has a value that JSON cannot hold")
)

// Bounds of a hooks file, so that a few aliases cannot fill the memory.
const (
	maxHooksNodes = 200_000
	maxHooksDepth = 64
)

// LoadHooksFile reads a YAML or JSON file that holds {hooks: [...]} or the list
// alone, checks the hooks, and returns the list as JSON for tasks.ParseHooks. A
// JSON file's list comes back byte for byte. An error is a *FileError with the
// line of the mistake, or says that the file cannot be read.
func LoadHooksFile(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read hooks file: %w", err)
	}
	file := hooksFile{path: path}
	if strings.HasSuffix(path, ".json") || json.Valid(text) {
		return file.fromJSON(text)
	}
	return file.fromYAML(text)
}

type hooksFile struct{ path string }

func (f hooksFile) err(line int, err error) error {
	return &FileError{File: f.path, Line: line, Err: err}
}

func (f hooksFile) fromYAML(text []byte) ([]byte, error) {
	root, err := parseYAML(text)
	if err != nil {
		return nil, f.err(0, err)
	}
	list, err := f.list(root)
	if err != nil {
		return nil, err
	}
	encoder := jsonWriter{file: f}
	if err := encoder.write(list, 0); err != nil {
		return nil, err
	}
	return encoder.out, f.check(encoder.out, list)
}

func (f hooksFile) fromJSON(text []byte) ([]byte, error) {
	root, err := jsonTree(text)
	if err != nil {
		line := 0
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			line = 1 + bytes.Count(text[:min(int(syntax.Offset), len(text))], []byte("\n"))
		}
		return nil, f.err(line, fmt.Errorf("is not JSON: %w", err))
	}
	list, err := f.list(root)
	if err != nil {
		return nil, err
	}
	raw := json.RawMessage(bytes.TrimSpace(text))
	if root.Kind == yaml.MappingNode {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil {
			return nil, f.err(0, fmt.Errorf("is not JSON: %w", err))
		}
		raw = object["hooks"]
	}
	return raw, f.check(raw, list)
}

// list finds the list of hooks in the document.
func (f hooksFile) list(root *yaml.Node) (*yaml.Node, error) {
	if root == nil {
		return nil, f.err(0, errEmptyFile)
	}
	root = resolve(root)
	if root.Kind == yaml.SequenceNode {
		return root, nil
	}
	if root.Kind != yaml.MappingNode || len(root.Content) == 0 {
		return nil, f.err(root.Line, errNoHooks)
	}
	for i := 0; i < len(root.Content); i += 2 {
		if root.Content[i].Value != "hooks" {
			return nil, f.err(root.Content[i].Line, errOtherKey)
		}
		if i > 0 {
			return nil, f.err(root.Content[i].Line, errTwiceKey)
		}
	}
	list := resolve(root.Content[1])
	if list.Kind != yaml.SequenceNode {
		return nil, f.err(list.Line, errNoHooks)
	}
	return list, nil
}

// check applies the product's own rules and gives a refusal its line. The
// strict shape is the right one: a file holds no handler, and a misspelled key
// in it would otherwise be dropped.
func (f hooksFile) check(raw []byte, list *yaml.Node) error {
	_, err := tasks.ParseHooks(raw, tasks.ParseOptions{Mode: tasks.ParseRestore})
	if invalid, ok := errors.AsType[*tasks.InvalidError](err); ok {
		return f.err(lineOf(list, invalid.Path), err)
	}
	if err != nil {
		return f.err(0, err)
	}
	return nil
}

var pathStep = regexp.MustCompile(`^\.?([^.\[\]]+)|^\[(\d+)\]`)

// lineOf follows a path such as hooks[2].webhook.url into the list as far as it
// goes, and returns the line where it ends.
func lineOf(list *yaml.Node, path string) int {
	node, line := list, list.Line
	path = strings.TrimPrefix(path, "hooks")
	for path != "" {
		step := pathStep.FindStringSubmatch(path)
		if step == nil {
			return line
		}
		path = path[len(step[0]):]
		node = resolve(node)
		next, nextLine := descend(node, step[1], step[2])
		if next == nil {
			return line
		}
		node, line = next, nextLine
	}
	return line
}

// descend returns the member of node under key or index and its line; the line
// of a key, because its value may start on the next one.
func descend(node *yaml.Node, key, index string) (*yaml.Node, int) {
	if n, err := strconv.Atoi(index); err == nil && node.Kind == yaml.SequenceNode && n < len(node.Content) {
		return node.Content[n], node.Content[n].Line
	}
	if node.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				return node.Content[i+1], node.Content[i].Line
			}
		}
	}
	return nil, 0
}

// jsonWriter turns YAML nodes into JSON, numbers as they are written.
type jsonWriter struct {
	file  hooksFile
	out   []byte
	nodes int
}

func (w *jsonWriter) write(node *yaml.Node, depth int) error {
	node = resolve(node)
	if w.nodes++; w.nodes > maxHooksNodes {
		return w.file.err(node.Line, errTooLarge)
	}
	if depth > maxHooksDepth {
		return w.file.err(node.Line, errTooDeep)
	}
	switch node.Kind {
	case yaml.SequenceNode:
		return w.sequence(node, depth)
	case yaml.MappingNode:
		return w.mapping(node, depth)
	default:
		return w.scalar(node)
	}
}

func (w *jsonWriter) sequence(node *yaml.Node, depth int) error {
	w.out = append(w.out, '[')
	for i, item := range node.Content {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		if err := w.write(item, depth+1); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

func (w *jsonWriter) mapping(node *yaml.Node, depth int) error {
	w.out = append(w.out, '{')
	var seen []string
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := resolve(node.Content[i])
		switch {
		case key.ShortTag() == "!!merge":
			return w.file.err(key.Line, errMerge)
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			return w.file.err(key.Line, errKey)
		case slices.Contains(seen, key.Value):
			return w.file.err(key.Line, errTwiceKey)
		}
		seen = append(seen, key.Value)
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = append(tasks.AppendString(w.out, key.Value), ':')
		if err := w.write(node.Content[i+1], depth+1); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

func (w *jsonWriter) scalar(node *yaml.Node) error {
	switch tag := node.ShortTag(); {
	case tag == "!!str" || tag == "!!timestamp":
		w.out = tasks.AppendString(w.out, node.Value)
		return nil
	case (tag == "!!int" || tag == "!!float") && jsonNumber.MatchString(node.Value):
		// Verbatim: a large number would lose digits on its way through a float.
		w.out = append(w.out, node.Value...)
		return nil
	case tag == "!!int" || tag == "!!float" || tag == "!!bool" || tag == "!!null":
		var value any
		if err := node.Decode(&value); err != nil {
			return w.file.err(node.Line, errValue)
		}
		text, err := json.Marshal(value)
		if err != nil {
			return w.file.err(node.Line, errValue)
		}
		w.out = append(w.out, text...)
		return nil
	}
	return w.file.err(node.Line, errValue)
}
