package tasks_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
)

func encodeResult(t *testing.T, r tasks.ToolResult) string {
	t.Helper()
	raw, err := tasks.EncodeToolResult(r)
	if err != nil {
		t.Fatalf("encode result: %v", err)
	}
	return string(raw)
}

func TestDeniedCall(t *testing.T) {
	t.Parallel()
	got := encodeResult(t, tasks.DeniedCall("no <b> & \u2028"))
	want := `{"content":"no <b> & \u2028","success":false,"executionTime":0,"error":"hook_denied",` +
		`"state":{"type":"blocked","reason":"no <b> & ` + "\u2028" + `"}}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestDenialReplaces(t *testing.T) {
	t.Parallel()
	const blocked = `"state":{"type":"blocked","phase":"afterToolCall","reason":"r"`
	for name, test := range map[string]struct {
		denial    tasks.Denial
		old, want string
	}{
		"everything is gone": {
			tasks.Denial{},
			`{"content":"c","success":true,"error":{"a":1},"state":{"totalCost":1,"onComplete":"finish","type":"x"},"deferred":true,"workRegistration":{"type":"skill"},"images":[1]}`,
			`{"content":"r","success":false,"error":"hook_denied",` + blocked + `}}`,
		},
		"times and stop stay": {
			tasks.Denial{},
			`{"content":"c","success":true,"executionTime":88.5,"deviceExecutionTime":0,"stop":false}`,
			`{"content":"r","success":false,"executionTime":88.5,"deviceExecutionTime":0,"error":"hook_denied",` + blocked + `},"stop":false}`,
		},
		"finite usage": {
			tasks.Denial{Usage: true},
			`{"content":"c","success":true,"state":{"totalTokens":7,"totalTokens":9,"totalCost":1e999,"totalInputTokens":"1","totalOutputTokens":null,"totalToolCalls":-0.50,"totalSteps":4}}`,
			`{"content":"r","success":false,"error":"hook_denied",` + blocked + `,"totalToolCalls":-0.50,"totalTokens":9}}`,
		},
		"usage of no state": {
			tasks.Denial{Usage: true, Finish: true},
			`{"content":"","success":false}`,
			`{"content":"r","success":false,"error":"hook_denied",` + blocked + `,"onComplete":"finish"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, err := tasks.ParseToolResult(json.RawMessage(test.old))
			if err != nil {
				t.Fatalf("parse result: %v", err)
			}
			test.denial.Reason = "r"
			if diff := cmp.Diff(test.want, encodeResult(t, test.denial.Replace(old))); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseToolResult(t *testing.T) {
	t.Parallel()
	const raw = ` {"success":true, "content":"é\n", "error":{"n":12345678901234567890}, "state":{ "a" : 1 }, "stop":true, "deferred":false, "workRegistration":{}, "executionTime":1, "Content":"x", "extra":null} `
	r, err := tasks.ParseToolResult(json.RawMessage(raw))
	if err != nil {
		t.Fatalf("parse result: %v", err)
	}
	want := `{"content":"é\n","success":true,"executionTime":1,"error":{"n":12345678901234567890},"state":{"a":1},"stop":true,"deferred":false,"workRegistration":{}}`
	if diff := cmp.Diff(want, encodeResult(t, r)); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestResultsAreRefused(t *testing.T) {
	t.Parallel()
	for raw, code := range map[string]tasks.Reason{
		``:                        tasks.InvalidJSON,
		`{"content":"","success"`: tasks.InvalidJSON,
		`[]`:                      tasks.NotObject,
		"{\"content\":\"\xff\",\"success\":true}":             tasks.InvalidUTF8,
		`{"success":true}`:                                    tasks.MissingField,
		`{"content":""}`:                                      tasks.MissingField,
		`{"content":"","success":"true"}`:                     tasks.InvalidField,
		`{"content":null,"success":true}`:                     tasks.InvalidField,
		`{"content":"","success":true,"state":null}`:          tasks.InvalidField,
		`{"content":"","success":true,"state":[]}`:            tasks.InvalidField,
		`{"content":"","success":true,"executionTime":1e999}`: tasks.InvalidField,
		`{"content":"","success":true,"error":` + strings.Repeat("[", 9999) + strings.Repeat("]", 9999) + `}`: tasks.InvalidJSON,
	} {
		var invalid *tasks.InvalidError
		if _, err := tasks.ParseToolResult(json.RawMessage(raw)); !errors.As(err, &invalid) || invalid.Code != code {
			t.Errorf("%.60q: error is %v, want %s", raw, err, code)
		}
	}
}

func TestResultsThatJSONCannotHold(t *testing.T) {
	t.Parallel()
	endless := math.Inf(1)
	for _, r := range []tasks.ToolResult{
		{ExecutionTime: &endless}, {State: json.RawMessage(`{`)}, {State: json.RawMessage(`"text"`)}, {Error: func() {}},
	} {
		if raw, err := tasks.EncodeToolResult(r); err == nil {
			t.Errorf("%+v is encoded as %s", r, raw)
		}
	}
}

// FuzzParseToolResult makes sure that what is read is written as what was read.
func FuzzParseToolResult(f *testing.F) {
	f.Add(`{"content":"c","success":true,"executionTime":1e3,"error":{"a":[1]},"state":{"k":"\u2028"},"stop":false}`)
	f.Add(`{"content":"\ud800","success":false,"error":"\u0000","workRegistration":{}}`)
	f.Add(`{"content":"a","content":"b","success":true,"Success":false}`)
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := tasks.ParseToolResult(json.RawMessage(raw))
		if err != nil {
			return
		}
		again, err := tasks.ParseToolResult(json.RawMessage(encodeResult(t, r)))
		if err != nil {
			t.Fatalf("encoded result is refused: %v", err)
		}
		if encodeResult(t, again) != encodeResult(t, r) {
			t.Errorf("%s is read as %+v and then as %+v", raw, r, again)
		}
		denied := encodeResult(t, tasks.Denial{Reason: "no", Usage: true, Finish: true}.Replace(r))
		if _, err := tasks.ParseToolResult(json.RawMessage(denied)); err != nil {
			t.Errorf("replacement %s is refused: %v", denied, err)
		}
	})
}
