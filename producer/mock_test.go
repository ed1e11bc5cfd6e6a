package producer_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
)

func TestDispatchBeforeToolCall(t *testing.T) {
	t.Parallel()
	one, two := tasks.ToolResult{Content: "one", Success: true}, tasks.ToolResult{}
	type act struct {
		mocks []tasks.ToolResult
		fails bool
	}
	for name, row := range map[string]struct {
		acts    []act
		want    *producer.MockResult
		calls   []string
		returns []bool
		logs    []string
	}{
		"no hooks": {},
		"nobody mocks": {
			acts: []act{{}, {}}, calls: []string{"0", "1"},
		},
		"the first offer ends the asking": {
			acts: []act{{}, {mocks: []tasks.ToolResult{one, two}}, {mocks: []tasks.ToolResult{two}}},
			want: &producer.MockResult{IsMocked: true, Result: one}, calls: []string{"0", "1"}, returns: []bool{true, false},
		},
		"an empty result is a result": {
			acts: []act{{mocks: []tasks.ToolResult{two}}},
			want: &producer.MockResult{IsMocked: true, Result: two}, calls: []string{"0"}, returns: []bool{true},
		},
		"a failing handler is passed over": {
			acts: []act{{fails: true}, {mocks: []tasks.ToolResult{one}}},
			want: &producer.MockResult{IsMocked: true, Result: one}, calls: []string{"0", "1"}, returns: []bool{true},
			logs: []string{"hook.failed hook_id=0"},
		},
		"an offer before the failure counts": {
			acts: []act{{mocks: []tasks.ToolResult{one}, fails: true}, {mocks: []tasks.ToolResult{two}}},
			want: &producer.MockResult{IsMocked: true, Result: one}, calls: []string{"0"}, returns: []bool{true},
			logs: []string{"hook.failed hook_id=0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newLocal(t)
			var returns []bool
			for i, act := range row.acts {
				id := string(rune('0' + i))
				register(t, d.Dispatcher, tasks.Hook{ID: id, Type: tasks.BeforeToolCall, Handler: func(_ context.Context, ev *tasks.Event) error {
					d.calls.add(id)
					for _, result := range act.mocks {
						returns = append(returns, ev.Mock(result))
					}
					if act.fails {
						panic("boom")
					}
					return nil
				}}, tasks.Hook{ID: "w", Type: tasks.BeforeToolCall, Webhook: &tasks.Webhook{URL: "https://rx.test/w"}})
			}
			got, err := d.DispatchBeforeToolCall(t.Context(), operation, toolEvent(t))
			if err != nil {
				t.Fatalf("dispatch: %v", err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Fatalf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.returns, returns); diff != "" {
				t.Fatalf("returns of mock (-want +got):\n%s", diff)
			}
			d.calls.want(t, row.calls...)
			d.logs.want(t, row.logs...)
		})
	}
}

func TestAMockAfterTheCallIsRefused(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	var late func(tasks.ToolResult) bool
	register(t, d.Dispatcher, tasks.Hook{ID: "a", Type: tasks.BeforeToolCall, Handler: func(_ context.Context, ev *tasks.Event) error {
		late = ev.Mock
		return nil
	}})
	if got, err := d.DispatchBeforeToolCall(t.Context(), operation, toolEvent(t)); got != nil || err != nil {
		t.Fatalf("dispatch returned %v, %v", got, err)
	}
	if late(tasks.ToolResult{Content: "late"}) {
		t.Fatal("an offer after the call was taken")
	}
}

func TestMockHonoursMatcherAndCancellation(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	matcher := "^browser/"
	register(t, d.Dispatcher, tasks.Hook{ID: "a", Type: tasks.BeforeToolCall, Matcher: &matcher, Handler: d.calls.handler("a", nil)},
		tasks.Hook{ID: "b", Type: tasks.BeforeToolCall, Handler: d.calls.handler("b", nil)})
	if _, err := d.DispatchBeforeToolCall(t.Context(), operation, toolEvent(t)); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.DispatchBeforeToolCall(ctx, operation, toolEvent(t)); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled dispatch returned %v", err)
	}
	d.calls.want(t, "b:handler")
}

func TestObservationsOfAToolCallLeaveHandlersOut(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	register(t, d.Dispatcher, tasks.Hook{ID: "a", Type: tasks.BeforeToolCall, Handler: d.calls.handler("a", nil)},
		tasks.Hook{ID: "w", Type: tasks.BeforeToolCall, Webhook: &tasks.Webhook{URL: "https://rx.test/w"}})
	if err := d.Dispatch(t.Context(), operation, toolEvent(t), producer.WithoutHandlers()); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	d.calls.want(t, "w:fetch")
}
