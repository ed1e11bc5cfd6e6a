package producer_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
)

// toolHook observes beforeToolCall.
func toolHook(id string, fallback tasks.Fallback) tasks.Hook {
	hook := webhookHook(id, fallback)
	hook.Type = tasks.BeforeToolCall
	return hook
}

// TestNotifyLocal runs the webhooks at once, and handlers only if asked to.
func TestNotifyLocal(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	both := toolHook("both", "")
	both.Handler = d.calls.handler("both", nil)
	register(t, d.Dispatcher, both, toolHook("w", tasks.FallbackNone))
	d.sender.results["w"] = webhook.Result{Class: tasks.ClassHTTP5xx, Status: 500}
	for _, skip := range []bool{true, false} {
		pending, err := d.Notify(t.Context(), tasks.Notification{Event: toolEvent(t), ID: "n1", Trace: "trace", SkipHandlers: skip})
		if pending || !errors.Is(err, producer.ErrCriticalHookDelivery) {
			t.Errorf("pending %t, error %v", pending, err)
		}
	}
	d.calls.want(t, "w:fetch", "both:handler", "w:fetch")
	if got := d.sender.deliveries[0]; got.TaskID != "n1" || got.Trace != "trace" {
		t.Errorf("delivery %+v", got)
	}
	if err := d.Attempted(t.Context(), operation, "n1"); err != nil {
		t.Errorf("attempted: %v", err)
	}
	if _, err := d.Notify(t.Context(), tasks.Notification{}); !errors.Is(err, producer.ErrInvalidRequest) {
		t.Errorf("no event: %v", err)
	}
}

// TestNotifyQueue stores the event without waiting, once per id, and tells of its
// first attempts later.
func TestNotifyQueue(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.publish(t)
	nobody := tasks.Notification{Event: toolEvent(t), ID: "n0"}
	if pending, err := q.Notify(t.Context(), nobody); pending || err != nil {
		t.Fatalf("nobody observes: pending %t, %v", pending, err)
	}
	register(t, q.Dispatcher, toolHook("w", tasks.FallbackNone))
	for range 2 {
		pending, err := q.Notify(t.Context(), tasks.Notification{Event: toolEvent(t), ID: "n1", SkipHandlers: true})
		if !pending || err != nil {
			t.Fatalf("pending %t, %v", pending, err)
		}
	}
	if n := q.waiting(t); n != 1 {
		t.Fatalf("%d events in the lane, want 1", n)
	}
	work(t, q.store, map[string]ruling{"w": parked(time.Hour)}, nil)
	var critical *producer.CriticalHookDeliveryError
	if err := q.Attempted(t.Context(), operation, "n1"); !errors.As(err, &critical) || critical.HookID != "w" {
		t.Errorf("attempted: %v", err)
	}
	if err := q.Attempted(t.Context(), operation, "unknown"); !errors.Is(err, lane.ErrNotFound) {
		t.Errorf("attempted unknown: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.Notify(ctx, tasks.Notification{Event: toolEvent(t), ID: "n2"}); !errors.Is(err, context.Canceled) {
		t.Errorf("gone: %v", err)
	}
}

// TestCallerHooks is the table of docs/behaviour.md §4, for controls.
func TestCallerHooks(t *testing.T) {
	t.Parallel()
	handler := func(context.Context, *tasks.Event) error { return nil }
	registered := []tasks.Hook{toolHook("one", ""), {ID: "h", Type: tasks.BeforeToolCall, Handler: handler}, toolHook("two", "")}
	stored := persisted(t, toolHook("stored", ""))
	own := persisted(t, registered...)
	empty := json.RawMessage(`[]`)
	for name, row := range map[string]struct {
		register     bool
		hooks        []tasks.Hook
		passed       json.RawMessage
		local, queue json.RawMessage
	}{
		"nothing is known":             {},
		"registered":                   {register: true, hooks: registered, local: own, queue: own},
		"registered and passed":        {register: true, hooks: registered, passed: stored, local: own, queue: stored},
		"registered, an empty list":    {register: true, hooks: registered, passed: empty, local: own, queue: empty},
		"passed":                       {passed: stored, local: stored, queue: stored},
		"nothing registered":           {register: true, passed: stored, local: empty, queue: stored},
		"nothing registered or passed": {register: true, local: empty, queue: empty},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for mode, d := range map[string]*producer.Dispatcher{"local": newLocal(t).Dispatcher, "queue": newQueue(t).Dispatcher} {
				if row.register {
					register(t, d, row.hooks...)
				}
				want := row.local
				if mode == "queue" {
					want = row.queue
				}
				got, err := d.CallerHooks(operation, row.passed)
				if err != nil {
					t.Fatalf("%s: %v", mode, err)
				}
				if diff := cmp.Diff(string(want), string(got)); diff != "" || (want == nil) != (got == nil) {
					t.Errorf("%s: hooks (-want +got):\n%s", mode, diff)
				}
				if row.passed == nil {
					if again, err := d.ControlHooks(t.Context(), operation); err != nil || string(again) != string(got) {
						t.Errorf("%s: control hooks %s, %v", mode, again, err)
					}
				}
				var invalid *tasks.InvalidError
				if _, err := d.CallerHooks(operation, json.RawMessage(`[{"id":"x"}]`)); !errors.As(err, &invalid) {
					t.Errorf("%s: an invalid list gives %v", mode, err)
				}
			}
		})
	}
}
