package conformance_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/tasks"
)

// TestHarnessSeesWrongExpectations changes each expectation of the project's
// cases in turn: a harness that still passes the case does not look at it.
func TestHarnessSeesWrongExpectations(t *testing.T) {
	lab := newLab(t)
	for _, file := range readCases(t, "testdata/cases") {
		if runners[file.File] == nil {
			continue
		}
		t.Run(file.File, func(t *testing.T) {
			for _, raw := range sample(file) {
				t.Run(caseID(raw), func(t *testing.T) {
					t.Parallel()
					for path, changed := range wrong(t, raw) {
						if v := execute(t, lab, file.File, changed); len(v.problems) == 0 && v.unsupported == "" {
							t.Errorf("passes although %s is wrong", path)
						}
					}
				})
			}
		})
	}
}

// sample spreads a fixed number of cases over a file.
func sample(file caseFile) []json.RawMessage {
	const most = 12
	stride := max(1, (len(file.Cases)+most-1)/most)
	var picked []json.RawMessage
	for i := 0; i < len(file.Cases); i += stride {
		picked = append(picked, file.Cases[i])
	}
	return picked
}

// wrong returns copies of a case, each with one expectation changed, by path.
func wrong(t *testing.T, raw json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal(raw, &root); err != nil {
		t.Fatal(err)
	}
	copies := map[string]json.RawMessage{}
	mutate(root, "", strings.HasPrefix, func(path string) {
		changed, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		copies[path] = changed
	})
	return copies
}

// mutate changes one expectation after the other in place, calls visit, and
// changes it back. expects tells which keys hold expectations.
func mutate(value any, path string, expects func(key, prefix string) bool, visit func(path string)) {
	switch node := value.(type) {
	case map[string]any:
		for key, member := range node {
			at := path + "." + key
			if expects(key, "expect") || key == "match" {
				change(member, at, func(v any) { node[key] = v }, visit)
				continue
			}
			mutate(member, at, expects, visit)
		}
	case []any:
		for i, item := range node {
			mutate(item, fmt.Sprintf("%s[%d]", path, i), expects, visit)
		}
	}
}

// change alters a value and each value within it.
func change(value any, path string, set func(any), visit func(path string)) {
	try := func(other any) {
		set(other)
		visit(path)
		set(value)
	}
	switch node := value.(type) {
	case nil:
		try("wrong")
	case bool:
		try(!node)
	case string:
		try(node + "-wrong")
	case float64:
		try(node + 1)
	case []any:
		try(append(slices.Clone(node), "wrong"))
		for i, item := range node {
			change(item, fmt.Sprintf("%s[%d]", path, i), func(v any) { node[i] = v }, visit)
		}
	case map[string]any:
		for key, member := range node {
			change(member, path+"."+key, func(v any) { node[key] = v }, visit)
		}
	}
}

// TestHarnessRefusesUnknownFields adds a field that no convention explains.
func TestHarnessRefusesUnknownFields(t *testing.T) {
	lab := newLab(t)
	r := &run{t: t, lab: lab}
	for _, file := range readCases(t, "testdata/cases") {
		if runners[file.File] == nil {
			continue
		}
		first := file.Cases[0]
		changed := []json.RawMessage{r.withMember(first, "convention_of_tomorrow", json.RawMessage(`true`))}
		if expect := hookMember(first, "expect"); expect != nil && file.File != "payload" {
			expect = r.withMember(expect, "also_new", json.RawMessage(`1`))
			changed = append(changed, r.withMember(first, "expect", expect))
		}
		for _, raw := range changed {
			v := execute(t, lab, file.File, raw)
			if len(v.problems) != 1 || !strings.Contains(v.problems[0], "harness does not understand field") {
				t.Errorf("%s: verdict %+v, want a failure for the unknown field", file.File, v)
			}
		}
	}
}

// TestVerdicts keeps unsupported apart from passed.
func TestVerdicts(t *testing.T) {
	lab := newLab(t)
	for file, reason := range unsupported {
		if v := execute(t, lab, file, json.RawMessage(`{"id":"x"}`)); v.unsupported != reason || len(v.problems) > 0 {
			t.Errorf("%s: verdict %+v, want unsupported", file, v)
		}
	}
	if v := execute(t, lab, "file_of_tomorrow", json.RawMessage(`{"id":"x"}`)); len(v.problems) == 0 {
		t.Errorf("an unknown file passes")
	}
	counts := &tally{file: "f"}
	counts.add("a", verdict{})
	counts.add("b", verdict{unsupported: "later"})
	counts.add("c", verdict{unsupported: "later", problems: []string{"wrong\nin detail"}})
	table := summary([]*tally{counts})
	for _, line := range []string{"f       1       1            1", "failed: f/c: wrong\n", "unsupported: f: b\n"} {
		if !strings.Contains(table, line) {
			t.Errorf("the table lacks %q:\n%s", line, table)
		}
	}
}

// TestReceiversFail makes sure that each fault is one, as the product sees it.
func TestReceiversFail(t *testing.T) {
	delivered, failed, timeout, network := "", "any failure", "timeout", "network_error"
	for name, want := range map[string]string{
		"refused": network, "dns": network, "tls_failure": network, "connect_timeout": timeout, "reset": network, "hang": timeout,
		"not_http": failed, "truncated": delivered, "reset_mid_body": delivered, "timeout_mid_body": delivered, "ok": delivered,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &run{t: t}
			for _, url := range []string{"https://rx.test/a", "http://10.1.2.3:8080/b"} {
				s := r.site(siteConfig{answers: map[string]answer{"h": r.answerOf(json.RawMessage(`"` + name + `"`))}})
				hook := r.hook("h", tasks.AfterStep, json.RawMessage(`{"timeout":0.2,"url":"`+url+`"}`))
				if name == "tls_failure" && strings.HasPrefix(url, "http:") || name == "dns" && strings.Contains(url, "10.") {
					continue
				}
				result := s.deliver(t.Context(), &hook, []byte(`{"operationId":"op"}`))
				if want != failed && codeOf(result) != want || result.Delivered != (want == delivered) {
					t.Errorf("%s: %+v, want code %q", url, result, want)
				}
				if calls := s.rec.called(); !slices.Equal(calls, []string{"h:fetch"}) {
					t.Errorf("%s: calls %v", url, calls)
				}
			}
			if len(r.problems) > 0 {
				t.Errorf("problems: %v", r.problems)
			}
		})
	}
}
