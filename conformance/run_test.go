package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
)

// common are the fields that a case of any file may have.
type common struct {
	ID       string          `json:"id"`
	Why      string          `json:"why"`
	Source   json.RawMessage `json:"source"`
	Note     json.RawMessage `json:"note"`
	Inferred bool            `json:"inferred"`
	// JSRegexOnly marks what only an ECMAScript engine can do, which Gantry has.
	JSRegexOnly bool `json:"js_regex_only"`
}

// verdict is what a case came to: passed unless one of these is set. Problems
// outweigh what is unsupported.
type verdict struct {
	why         string
	problems    []string
	unsupported string
	notes       []string
}

func (v verdict) report(t *testing.T) {
	t.Helper()
	for _, note := range v.notes {
		t.Logf("note: %s", note)
	}
	switch {
	case len(v.problems) > 0:
		t.Errorf("failed (%s):\n%s", v.why, strings.Join(v.problems, "\n"))
	case v.unsupported != "":
		t.Logf("unsupported: %s", v.unsupported)
	}
}

// run is one case on its way to a verdict.
type run struct {
	verdict
	t   *testing.T
	lab *lab
	raw json.RawMessage
}

// abort ends a case whose problem leaves nothing to go on with.
type abort struct{}

// execute runs one case.
func execute(t *testing.T, lab *lab, file string, raw json.RawMessage) verdict {
	r := &run{t: t, lab: lab, raw: raw}
	var c common
	if err := json.Unmarshal(raw, &c); err != nil {
		r.problemf("case is no object: %v", err)
		return r.verdict
	}
	r.why = c.Why
	runner, known := runners[file]
	switch reason, later := unsupported[file]; {
	case later:
		r.unsupported = reason
	case !known:
		r.problemf("harness does not understand file %q", file)
	default:
		r.guard(func() { runner(r) })
	}
	return r.verdict
}

// guard runs part of a case; a panic of the product is a problem of the case.
func (r *run) guard(part func()) {
	defer func() {
		cause := recover()
		if _, ended := cause.(abort); cause == nil || ended {
			return
		}
		r.problemf("panic: %v\n%s", cause, debug.Stack())
	}()
	part()
}

func (r *run) problemf(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *run) notef(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// fatalf notes a problem and ends the case.
func (r *run) fatalf(format string, args ...any) {
	r.problemf(format, args...)
	panic(abort{})
}

// notUnderstood ends the case, because passing it would say nothing.
func (r *run) notUnderstood(what string, value any) {
	r.fatalf("harness does not understand %s %v", what, value)
}

// decode reads the whole case; a field that v does not have fails it.
func (r *run) decode(v any) { r.decodePart(r.raw, v) }

func (r *run) decodePart(raw json.RawMessage, v any) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		if field, found := strings.CutPrefix(err.Error(), "json: unknown field "); found {
			r.notUnderstood("field", field)
		}
		r.fatalf("harness does not understand the case: %v", err)
	}
}

// equal notes a difference between two values.
func equal[T any](r *run, what string, want, got T) {
	if diff := cmp.Diff(want, got); diff != "" {
		r.problemf("%s (-want +got):\n%s", what, diff)
	}
}

// equalJSON compares JSON without regard to the order of keys; numbers are
// compared by value, without rounding.
func (r *run) equalJSON(what string, want, got json.RawMessage) {
	w, err := exact(want)
	if err != nil {
		r.fatalf("harness cannot read the expected %s: %v", what, err)
	}
	g, err := exact(got)
	if err != nil {
		r.problemf("%s is no good JSON: %v\n%s", what, err, got)
		return
	}
	equal(r, what, w, g)
}

// number is a JSON number in a form that two spellings share.
type number string

// exact decodes JSON, refusing duplicate keys, which would hide half of what
// is sent.
func exact(raw json.RawMessage) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	value, err := exactValue(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return value, nil
}

func exactValue(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return exactObject(d)
		}
		return exactArray(d)
	case json.Number:
		if r, ok := new(big.Rat).SetString(token.String()); ok && len(token) < 100 && !strings.ContainsAny(token.String(), "eE") {
			return number(r.RatString()), nil
		}
		return number(token), nil
	}
	return token, nil
}

func exactObject(d *json.Decoder) (any, error) {
	object := map[string]any{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		if _, twice := object[name]; twice {
			return nil, fmt.Errorf("key %q stands twice", name)
		}
		if object[name], err = exactValue(d); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

func exactArray(d *json.Decoder) (any, error) {
	array := []any{}
	for d.More() {
		value, err := exactValue(d)
		if err != nil {
			return nil, err
		}
		array = append(array, value)
	}
	_, err := d.Token()
	return array, err
}

// withoutFunctions drops the members of an object that stand for functions,
// which no JSON holds.
func (r *run) withoutFunctions(raw json.RawMessage) json.RawMessage {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		r.fatalf("harness does not understand the event: %v", err)
	}
	kept := members[:0]
	for _, m := range members {
		if string(m.Value) != `"<function>"` {
			kept = append(kept, m)
		}
	}
	return tasks.AppendObject(nil, kept)
}

// environment is a complete environment.
func environment(vars map[string]string) tasks.Environment {
	return func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	}
}

// strs is a string or a list of strings.
type strs []string

func (s *strs) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*s = strs{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(s))
}

// optional tells an absent field from a null one.
type optional[T any] struct {
	set   bool
	null  bool
	value T
}

func (o *optional[T]) UnmarshalJSON(raw []byte) error {
	o.set = true
	if string(raw) == "null" {
		o.null = true
		return nil
	}
	return json.Unmarshal(raw, &o.value)
}
