package ingress_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks"
)

// refusal checks that err is one that becomes a 4xx problem.
func refusal(t *testing.T, err error) {
	t.Helper()
	p := ingress.ProblemOf(err)
	if p.Status < 400 || p.Status > 499 || p.Detail == "" || p.Title == "" {
		t.Fatalf("%v becomes %+v", err, p)
	}
}

func FuzzDecodeEvents(f *testing.F) {
	for _, seed := range []string{
		eventJSON(""), "[" + eventJSON(`"id":"x","delay":"5s",`) + "]", `{"events":[` + eventJSON("") + `]}`, eventJSON("") + "\n" + eventJSON(""),
		`{"type":"onComplete","event":{"agentId":"a","userId":"u","n":1e400,"finalState":{},"x":"<&` + "\u2028" + `"}}`, "[]", "{}", "null", "\xff", `[{"type":1}]`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, lines bool) {
		kept := bytes.Clone(raw)
		events, err := ingress.DecodeEvents("op", raw, lines)
		if !bytes.Equal(kept, raw) {
			t.Fatalf("the body was changed")
		}
		if err != nil {
			if events != nil {
				t.Fatalf("events beside an error")
			}
			refusal(t, err)
			return
		}
		for _, e := range events {
			if e.Event.OperationID != "op" || !e.Event.Type.Valid() || tasks.CheckJSON(e.Event.Raw) != nil || e.Delay < 0 {
				t.Fatalf("event is %+v", e)
			}
			// What is stored is what was sent, unless a member had to be added or cut.
			sent := !bytes.Contains(raw, []byte("finalState")) && !bytes.Contains(raw, []byte("mock")) && !bytes.Contains(raw, []byte(`\u`))
			if sent && bytes.Contains(raw, []byte(`"operationId"`)) && len(events) == 1 && !bytes.Contains(raw, e.Event.Raw) &&
				!strings.HasPrefix(string(e.Event.Raw), `{"operationId":"op"`) {
				t.Fatalf("event %s was not in %s", e.Event.Raw, raw)
			}
			task := tasks.Task{ID: "x", OperationID: "op", Type: e.Event.Type, Event: e.Event.Raw, Trace: e.Trace}
			if _, err := task.Encode(); err != nil {
				t.Fatalf("encode: %v", err)
			}
		}
	})
}

func FuzzDecodeHooks(f *testing.F) {
	for _, seed := range []string{
		"[" + hookJSON("a") + "]", `{"hooks":[` + criticalJSON("a") + `]}`, `[{"id":"a","type":"onComplete","handler":"f"}]`, "[]", "{}", `{"hooks":null}`,
		`[{"id":"server-env-webhook:x"}]`, "\xff", `{"hooks":[],"x":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		stored, err := ingress.DecodeHooks(raw)
		if err != nil {
			refusal(t, err)
			return
		}
		hooks, err := tasks.StoredHooks(stored)
		if err != nil {
			t.Fatalf("stored hooks %s: %v", stored, err)
		}
		for _, h := range hooks {
			if h.Webhook == nil || h.Environment() {
				t.Fatalf("hook is %+v", h)
			}
		}
	})
}

func FuzzDecodeReplay(f *testing.F) {
	for _, seed := range []string{`{"ids":["0.x"]}`, `{"filter":{"operation":"a","class":"dns"}}`, `{"all":true}`, `{"all":false}`, "{}", "[]", "\xff", `{"ids":[1]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := ingress.DecodeReplay(raw)
		if err == nil {
			return
		}
		var invalid *tasks.InvalidError
		var problem *ingress.Problem
		if !errors.As(err, &invalid) && !errors.As(err, &problem) {
			t.Fatalf("refused with %v", err)
		}
		refusal(t, err)
	})
}

func FuzzDecodeQuestion(f *testing.F) {
	for _, seed := range []string{
		questionJSON(""), questionJSON(`"id":"q","timeout":"1s","trace":"x",`), questionJSON(`"chain":[{"operationId":"a","hooks":[` + hookJSON("h") + `]}],`),
		questionJSON(`"chain":[],`), `{"type":"afterToolCall","event":{}}`, "[]", "{}", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		q, err := ingress.DecodeQuestion("op", raw)
		if err != nil {
			refusal(t, err)
			return
		}
		if q.ID == "" || q.Event == nil || !q.Event.Type.Controllable() || q.Event.OperationID != "op" || q.Timeout < 0 {
			t.Fatalf("question is %+v", q)
		}
		for _, link := range q.Chain {
			if _, err := tasks.StoredHooks(link.Hooks); err != nil || tasks.CheckOperationID(link.OperationID) != nil {
				t.Fatalf("chain holds %+v: %v", link, err)
			}
		}
	})
}

func FuzzDecodeDeferred(f *testing.F) {
	for _, seed := range []string{
		`{"operationId":"op","state":{"a":1.0},"call":{"toolCallId":"c","recordedCalls":2,"context":{"userId":"u"}}}`,
		`{"result":{"content":"x"},"steps":0,"preserveUsage":true}`, `{"call":null}`, `{"steps":-0}`, "{}", "[]", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := ingress.DecodePlaceholder(raw); err != nil {
			refusal(t, err)
		}
		c, err := ingress.DecodeCompletion(raw)
		if err != nil {
			refusal(t, err)
		} else if _, err := tasks.SplitObject(c.Result); err != nil {
			t.Fatalf("result is %s: %v", c.Result, err)
		}
	})
}
