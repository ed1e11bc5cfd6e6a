package tasks_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
)

func TestLastFields(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 60000) + strings.Repeat("]", 60000)
	mixed := strings.Repeat(`{"a":[`, 5000) + `1,{}` + strings.Repeat("]}", 5000)
	for raw, want := range map[string][]string{
		`{}`:                            {"", ""},
		` { "a" : 1 , "b" : [ 1 ] } `:   {"1", "[ 1 ]"},
		`{"a":1,"A":2,"a":"x"}`:         {`"x"`, ""},
		`{"\u0061":{"b":1}}`:            {`{"b":1}`, ""},
		`{"a":1e999,"b":-0}`:            {"1e999", "-0"},
		`{"b":null,"x":` + deep + `}`:   {"", "null"},
		`{"a":` + mixed + `,"b":false}`: {mixed, "false"},
	} {
		values, err := tasks.LastFields([]byte(raw), "a", "b")
		if err != nil {
			t.Errorf("%.40s: %v", raw, err)
			continue
		}
		got := []string{string(values[0]), string(values[1])}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.40s (-want +got):\n%s", raw, diff)
		}
	}
	for raw, code := range map[string]tasks.Reason{
		``: tasks.InvalidJSON, `{`: tasks.InvalidJSON, `{"a":1,}`: tasks.InvalidJSON, `{"a":[1,]}`: tasks.InvalidJSON,
		`{"a":[}`: tasks.InvalidJSON, `{"a":{]}`: tasks.InvalidJSON, `{"a":[1}]`: tasks.InvalidJSON, `{"a":01}`: tasks.InvalidJSON,
		`{"a":1}{}`: tasks.InvalidJSON, `{"a" 1}`: tasks.InvalidJSON, `{a:1}`: tasks.InvalidJSON, `{"a":{"b"}}`: tasks.InvalidJSON,
		`{"a":{"b":}}`: tasks.InvalidJSON, `[{}`: tasks.InvalidJSON, "{\"a\":\"\t\"}": tasks.InvalidJSON, "\u00a0{}": tasks.InvalidJSON,
		`[]`: tasks.NotObject, ` null `: tasks.NotObject, `[{"a":1}]`: tasks.NotObject, `"{}"`: tasks.NotObject, deep: tasks.NotObject,
		"{\"a\":\"\xff\"}": tasks.InvalidUTF8,
	} {
		_, err := tasks.LastFields([]byte(raw), "a")
		wantCode(t, err, code)
	}
}

// FuzzLastFields compares with encoding/json, as far as that goes deep enough.
func FuzzLastFields(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"a":[{},[],{"b":[1,2,{"c":null}]}],"\u0061":2}`, `[{"a":1}]`, `{"a":1,}`, `{"a":"\ud800"}`, "{}\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if strings.Count(string(raw), "[")+strings.Count(string(raw), "{") >= tasks.MaxNesting {
			return
		}
		values, err := tasks.LastFields(raw, "a", "b")
		var object map[string]json.RawMessage
		valid := utf8.Valid(raw) && json.Unmarshal(raw, &object) == nil && object != nil
		if valid != (err == nil) {
			t.Fatalf("%q: %v, encoding/json says %v", raw, err, valid)
		}
		if !valid {
			return
		}
		for i, name := range []string{"a", "b"} {
			if string(values[i]) != string(object[name]) {
				t.Fatalf("%q: %s is %q, encoding/json says %q", raw, name, values[i], object[name])
			}
		}
	})
}
