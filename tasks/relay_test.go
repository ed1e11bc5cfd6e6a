package tasks_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]tasks.Relay{
		"whole": {Stream: "01J", Sequence: 3, Hook: "k.0", Retries: 5},
		"plain": {Stream: "s", Sequence: 1},
		"zero":  {},
	} {
		task := &tasks.Task{
			ID: "t", OperationID: "op", Type: tasks.OnError, Event: json.RawMessage(`{}`), Extra: map[string]json.RawMessage{"other": json.RawMessage(`1`)},
		}
		task.SetRelay(want)
		doc, err := task.Encode()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		read, err := tasks.DecodeTask(doc)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := read.TakeRelay()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if diff := cmp.Diff(map[string]json.RawMessage{"other": json.RawMessage(`1`)}, read.Extra); diff != "" {
			t.Errorf("%s: what is left (-want +got):\n%s", name, diff)
		}
	}
}

func TestRelayOfStrangers(t *testing.T) {
	t.Parallel()
	for raw, valid := range map[string]bool{
		`{"stream":"s","sequence":1,"colour":"red"}`: true,
		`{}`:                              true,
		`{"hook":"k.0"}`:                  true,
		`{"retries":9007199254740991}`:    true,
		`null`:                            false,
		`[]`:                              false,
		`{"sequence":1}`:                  false,
		`{"stream":"s","sequence":-1}`:    false,
		`{"stream":"s","sequence":1.5}`:   false,
		`{"stream":"s","sequence":"1"}`:   false,
		`{"stream":1,"sequence":1}`:       false,
		`{"hook":null}`:                   false,
		`{"stream":"s","sequence":1e3}`:   false,
		`{"retries":9223372036854775807}`: false,
		`{"stream":"s","sequence":999999999999999999999}`: false,
	} {
		task := &tasks.Task{Extra: map[string]json.RawMessage{"relay": json.RawMessage(raw)}}
		_, err := task.TakeRelay()
		var invalid *tasks.InvalidError
		if (err == nil) != valid || err != nil && !errors.As(err, &invalid) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if got, err := (&tasks.Task{}).TakeRelay(); got != (tasks.Relay{}) || err != nil {
		t.Errorf("without one: %+v, %v", got, err)
	}
}

func TestCodeOfAPublish(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]tasks.TransportCode{0: tasks.CodeNetworkError, 429: tasks.CodeHTTPError, 502: tasks.CodeHTTPError} {
		if got := tasks.ClassQStash.CodeOf(status); got != want {
			t.Errorf("status %d: %s, want %s", status, got, want)
		}
	}
	for _, class := range tasks.FailureClasses() {
		if class != tasks.ClassQStash && class.CodeOf(503) != class.Code() {
			t.Errorf("%s: the status counts", class)
		}
	}
}
