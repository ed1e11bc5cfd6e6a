package toolcall_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/tasks"
)

// TestSteps takes the steps one by one, as a runtime with a loop of its own does.
func TestSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.after = deny("hidden")
	r := w.runner()
	ctx := t.Context()
	before, err := r.Before(ctx, call())
	if err != nil || !before.Allowed() {
		t.Fatalf("before: %+v, %v", before, err)
	}
	r.Observe(ctx, call())
	if mock, err := r.Mock(ctx, call()); mock != nil || err != nil {
		t.Fatalf("mock: %v, %v", mock, err)
	}
	result, attempts, err := r.Execute(ctx, w.tool(fine), toolcall.Retry{})
	if err != nil || attempts != 1 {
		t.Fatalf("execute: %d attempts, %v", attempts, err)
	}
	after, err := r.After(ctx, call(), toolcall.Produced{Result: result})
	if err != nil || after.Status != tasks.VerdictBlocked {
		t.Fatalf("after: %+v, %v", after, err)
	}
	r.Notify(ctx, call(), toolcall.Produced{Result: tasks.Denial{Reason: after.Reason}.Replace(result)})
	w.want("ask beforeToolCall", "mock", "execute 1", "ask afterToolCall")
	if types, _ := w.notifications(r); !cmp.Equal(types, []string{observed, "afterToolCall"}) {
		t.Errorf("notifications are %q", types)
	}
	if _, err := r.After(ctx, call(), toolcall.Produced{Result: tasks.ToolResult{Deferred: yes()}}); !errors.Is(err, toolcall.ErrDeferred) {
		t.Errorf("a placeholder is judged: %v", err)
	}
}

// TestExecute says when a tool is tried again.
func TestExecute(t *testing.T) {
	t.Parallel()
	never := func(toolcall.Attempt) bool { return false }
	onResult := func(a toolcall.Attempt) bool { return a.Err == nil }
	for name, row := range map[string]struct {
		answers  []any
		retry    toolcall.Retry
		attempts int
		want     tasks.ToolResult
		err      error
		panics   bool
	}{
		"no retry":           {answers: []any{failing}, attempts: 1, want: failing},
		"success":            {answers: []any{fine}, retry: toolcall.Retry{MaxAttempts: 3, Again: onResult}, attempts: 1, want: fine},
		"until success":      {answers: []any{errBoom, failing, fine}, retry: toolcall.Retry{MaxAttempts: 4}, attempts: 3, want: fine},
		"until the limit":    {answers: []any{failing, errBoom}, retry: toolcall.Retry{MaxAttempts: 2}, attempts: 2, err: errBoom},
		"not worth while":    {answers: []any{failing}, retry: toolcall.Retry{MaxAttempts: 3, Again: never}, attempts: 1, want: failing},
		"results only":       {answers: []any{failing, errBoom}, retry: toolcall.Retry{MaxAttempts: 3, Again: onResult}, attempts: 2, err: errBoom},
		"a panic ends it":    {answers: []any{"value"}, retry: toolcall.Retry{MaxAttempts: 3}, attempts: 1, panics: true},
		"a placeholder does": {answers: []any{tasks.ToolResult{Deferred: yes()}}, retry: toolcall.Retry{MaxAttempts: 3}, attempts: 1, want: tasks.ToolResult{Deferred: yes()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			got, attempts, err := w.runner().Execute(t.Context(), w.tool(row.answers...), row.retry)
			var panicked *toolcall.PanicError
			if errors.As(err, &panicked) != row.panics || !row.panics && !errors.Is(err, row.err) || attempts != row.attempts {
				t.Errorf("%d attempts, %v; want %d, %v", attempts, err, row.attempts, row.err)
			}
			if row.panics && (panicked.Value != "value" || len(panicked.Stack) == 0) {
				t.Errorf("panic is %+v", panicked)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExecuteWaits pauses between attempts, unless the caller goes.
func TestExecuteWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.runner()
		retry := toolcall.Retry{MaxAttempts: 3, Delay: func(a toolcall.Attempt) time.Duration { return time.Duration(a.Number) * time.Minute }}
		start := time.Now()
		if _, attempts, err := r.Execute(t.Context(), w.tool(errBoom, failing, fine), retry); err != nil || attempts != 3 {
			t.Errorf("%d attempts, %v", attempts, err)
		}
		if took := time.Since(start); took != 3*time.Minute {
			t.Errorf("took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, attempts, err := r.Execute(ctx, w.tool(errBoom, fine), retry); attempts != 1 || !errors.Is(err, errBoom) {
			t.Errorf("%d attempts, %v", attempts, err)
		}
		if _, attempts, err := r.Execute(ctx, w.tool(fine), retry); attempts != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d attempts, %v", attempts, err)
		}
	})
}

// TestMockOfAGoneCaller asks nobody.
func TestMockOfAGoneCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if mock, err := w.runner().Mock(ctx, call()); mock != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("mock %v, %v", mock, err)
	}
	w.want()
}
