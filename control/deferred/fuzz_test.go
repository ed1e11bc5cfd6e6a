package deferred_test

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/tasks"
)

// memory is a store for one row, without waiting.
type memory struct {
	mu  sync.Mutex
	row deferred.Row
}

func (m *memory) Open(_ context.Context, o deferred.Opening) (deferred.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.row = deferred.Row{Placeholder: o.Placeholder, Recorded: o.Recorded}
	return m.row, nil
}

func (m *memory) Read(context.Context, string, string) (deferred.Row, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.row, nil
}

func (m *memory) Publish(_ context.Context, p deferred.Publication) (deferred.Row, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.row.Final, m.row.Result, m.row.Denied = true, p.Result, p.Denied
	return m.row, true, nil
}

func (m *memory) Hear(ctx context.Context, _ int, _ string) ([]string, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (m *memory) Shards() int { return 1 }

// FuzzComplete gives callbacks and stored calls of any shape: whatever is
// published was shown to the control before, byte for byte, in an event that the
// contract allows, or is a denial without a trace of it.
func FuzzComplete(f *testing.F) {
	f.Add(`{"content":"secret-c","success":true}`, `{"a":1}`, `{"onComplete":"finish"}`, true, 1, 2)
	f.Add(`{"content":"","success":false,"error":{"n":1e999},"state":{"totalCost":1}}`, `{oops`, ``, false, -1, 0)
	f.Add("{\"content\":\"\xff\",\"success\":true}", "[1]", `[]`, true, 0, -5)
	f.Add(`{"content":"\u0000\ud800","content":"x","success":true,"stop":null}`, `{"a":{}} `, `{}`, false, 0, 0)
	f.Fuzz(func(t *testing.T, result, arguments, state string, deny bool, calls, steps int) {
		store := &memory{}
		var shown json.RawMessage
		judge := &controls{say: func(_ context.Context, q control.Request) (tasks.Verdict, error) {
			if _, err := tasks.ParseEvent(tasks.AfterToolCall, "op", q.Event.Raw); err != nil {
				t.Errorf("event is refused: %v", err)
			}
			shown, _ = q.Event.Field("result")
			if deny {
				return tasks.Verdict{Status: tasks.VerdictBlocked, Reason: "no"}, nil
			}
			return tasks.Verdict{Status: tasks.VerdictAllow}, nil
		}}
		s, err := deferred.New(deferred.Config{Store: store, Controls: judge, Policies: &policies{}})
		check(t, "build service", err)
		defer s.Close()
		p := waiting(func(p *deferred.Placeholder) {
			p.Call.Arguments, p.Call.RecordedCalls, p.Call.Steps = arguments, calls, steps
		})
		if state != "" {
			p.State = json.RawMessage(state)
		}
		if _, err := s.Open(t.Context(), p); err != nil {
			return
		}
		done, err := s.Complete(t.Context(), deferred.Completion{ID: "row", Raw: json.RawMessage(result)})
		switch {
		case err != nil:
			if store.row.Final {
				t.Errorf("published although %v", err)
			}
		case done.Outcome != deferred.Published || shown == nil:
			t.Errorf("outcome is %s, shown %q", done.Outcome, shown)
		case deny == bytes.Equal(bytes.TrimSpace(store.row.Result), shown) || deny != store.row.Denied:
			t.Errorf("published %s after %s was shown", store.row.Result, shown)
		}
	})
}
