package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
)

// Hooks are the hooks of a feed, as JSON arrays.
type Hooks struct {
	// every is the list of a file that names no operations; nil otherwise.
	every json.RawMessage
	by    map[string]json.RawMessage
}

// ReadHooks reads a YAML or JSON file with a list of hooks for every operation,
// or with {operations: {ID: [hooks]}}, and checks all of them. Mistakes are
// *config.FileError.
func ReadHooks(path string) (*Hooks, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read hooks file: %w", err)
	}
	operations, found, err := operationsOf(raw, strings.HasSuffix(path, ".json"))
	if err != nil {
		return nil, &config.FileError{File: path, Err: err}
	}
	if !found {
		list, err := config.LoadHooksFile(path)
		return &Hooks{every: list}, err
	}
	return newHooks(path, operations)
}

// ParseHooks reads the JSON of such a file; name stands in messages.
func ParseHooks(name string, raw []byte) (*Hooks, error) {
	operations, found, err := operationsOf(raw, true)
	if err == nil && !found {
		err = errors.New("names no operations")
	}
	if err != nil {
		return nil, &config.FileError{File: name, Err: err}
	}
	return newHooks(name, operations)
}

func newHooks(name string, operations map[string]json.RawMessage) (*Hooks, error) {
	hooks := &Hooks{by: operations}
	for _, id := range hooks.Operations() {
		if err := tasks.CheckOperationID(id); err != nil {
			return nil, &config.FileError{File: name, Err: err}
		}
		// The strict shape: a misspelt key would otherwise be dropped.
		_, err := tasks.ParseHooks(operations[id], tasks.ParseOptions{Mode: tasks.ParseRestore})
		if invalid := (*tasks.InvalidError)(nil); errors.As(err, &invalid) {
			err = invalid.Under("operations." + id)
		}
		if err != nil {
			return nil, &config.FileError{File: name, Err: err}
		}
	}
	return hooks, nil
}

// operationsOf finds {operations: {ID: [...]}}; found is false for anything else.
func operationsOf(raw []byte, isJSON bool) (operations map[string]json.RawMessage, found bool, err error) {
	if !isJSON && !json.Valid(raw) {
		return operationsOfYAML(raw)
	}
	top, notObject := tasks.SplitObject(raw)
	if notObject != nil || len(top) == 0 || top[0].Key != "operations" {
		return nil, false, nil //nolint:nilerr // another shape, which its own reader judges
	}
	if len(top) > 1 {
		return nil, false, errors.New("holds a key beside operations; keep only operations")
	}
	members, err := tasks.SplitObject(top[0].Value)
	if err != nil {
		return nil, false, errors.New("operations is no object; write an operation's id and its list of hooks")
	}
	operations = make(map[string]json.RawMessage, len(members))
	for _, m := range members {
		if _, twice := operations[m.Key]; twice {
			return nil, false, fmt.Errorf("has the operation %q twice", m.Key)
		}
		operations[m.Key] = m.Value
	}
	return operations, true, nil
}

func operationsOfYAML(raw []byte) (map[string]json.RawMessage, bool, error) {
	var document struct {
		Operations map[string]any `yaml:"operations"`
		Others     map[string]any `yaml:",inline"`
	}
	if err := yaml.Unmarshal(raw, &document); err != nil || document.Operations == nil {
		return nil, false, nil //nolint:nilerr // another shape, which its own reader judges
	}
	if len(document.Others) > 0 {
		return nil, false, errors.New("holds a key beside operations; keep only operations")
	}
	operations := make(map[string]json.RawMessage, len(document.Operations))
	for id, list := range document.Operations {
		encoded, err := json.Marshal(list)
		if err != nil {
			return nil, false, fmt.Errorf("operations.%s has a value that JSON cannot hold", id)
		}
		operations[id] = encoded
	}
	return operations, true, nil
}

// Operations are the operations that the file names, sorted.
func (h *Hooks) Operations() []string { return slices.Sorted(maps.Keys(h.by)) }

// For returns the hooks of an operation; ok is false when the file says nothing
// about it.
func (h *Hooks) For(operationID string) (hooks json.RawMessage, ok bool) {
	if h.every != nil {
		return h.every, true
	}
	hooks, ok = h.by[operationID]
	return hooks, ok
}

// Count is the number of hooks in the file.
func (h *Hooks) Count() int {
	n := count(h.every)
	for _, list := range h.by {
		n += count(list)
	}
	return n
}

func count(list json.RawMessage) int {
	var items []json.RawMessage
	if json.Unmarshal(list, &items) != nil { // absent, or checked before
		return 0
	}
	return len(items)
}
