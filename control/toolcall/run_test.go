package toolcall_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/tasks"
)

const secret = "s3cret-result"

var (
	fine     = tasks.ToolResult{Content: secret, Success: true, ExecutionTime: ms(7), State: json.RawMessage(`{"k":"s3cret-result"}`)}
	failing  = tasks.ToolResult{Content: "later", Error: "busy"}
	observed = "beforeToolCall without handlers"
)

// TestRun takes calls through every way out. What observers get is compared as
// a whole, because it must be what the model sees.
func TestRun(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		arrange func(*world)
		answers []any
		options toolcall.Options
		steps   []string
		want    toolcall.Outcome
		sent    []string
		// last is part of the last event.
		last string
	}{
		"allowed": {
			answers: []any{fine},
			steps:   []string{"ask beforeToolCall", "mock", "execute 1", "ask afterToolCall"},
			want:    toolcall.Outcome{Status: toolcall.StatusExecuted, Result: fine, Attempts: 1},
			sent:    []string{observed, "afterToolCall"}, last: `"mocked":false,"result":{"content":"s3cret-result"`,
		},
		"denied before": {
			arrange: func(w *world) { w.before = deny("no") },
			steps:   []string{"ask beforeToolCall"},
			want:    toolcall.Outcome{Status: toolcall.StatusBlocked, Result: tasks.DeniedCall("no")},
			sent:    []string{"afterToolCall"},
			last:    `"mocked":false,"result":{"content":"no","success":false,"executionTime":0,"error":"hook_denied","state":{"type":"blocked","reason":"no"}}`,
		},
		"denied after": {
			arrange: func(w *world) { w.after = deny("hidden") },
			answers: []any{fine},
			steps:   []string{"ask beforeToolCall", "mock", "execute 1", "ask afterToolCall"},
			want: toolcall.Outcome{
				Status: toolcall.StatusBlocked, Result: tasks.Denial{Reason: "hidden"}.Replace(fine), Attempts: 1,
			},
			sent: []string{observed, "afterToolCall"}, last: `"content":"hidden"`,
		},
		"what a denial keeps": {
			arrange: func(w *world) { w.after = deny("hidden") },
			answers: []any{tasks.ToolResult{Success: true, State: json.RawMessage(`{"totalCost":2}`)}},
			options: toolcall.Options{Denial: tasks.Denial{Reason: "overwritten", Usage: true, Finish: true}},
			steps:   []string{"ask beforeToolCall", "mock", "execute 1", "ask afterToolCall"},
			want: toolcall.Outcome{
				Status: toolcall.StatusBlocked, Attempts: 1,
				Result: tasks.Denial{Reason: "hidden", Usage: true, Finish: true}.Replace(tasks.ToolResult{State: json.RawMessage(`{"totalCost":2}`)}),
			},
			sent: []string{observed, "afterToolCall"}, last: `"totalCost":2`,
		},
		"mocked": {
			arrange: func(w *world) { w.mock = &tasks.MockResult{IsMocked: true} },
			steps:   []string{"ask beforeToolCall", "mock", "ask afterToolCall"},
			want:    toolcall.Outcome{Status: toolcall.StatusExecuted, Mocked: true},
			sent:    []string{observed, "afterToolCall"}, last: `"mocked":true`,
		},
		"mocked and denied": {
			arrange: func(w *world) {
				w.mock, w.after = &tasks.MockResult{IsMocked: true, Result: fine}, deny("hidden")
			},
			steps: []string{"ask beforeToolCall", "mock", "ask afterToolCall"},
			want: toolcall.Outcome{
				Status: toolcall.StatusBlocked, Mocked: true, Result: tasks.Denial{Reason: "hidden"}.Replace(fine),
			},
			sent: []string{observed, "afterToolCall"}, last: `"mocked":true,"result":{"content":"hidden"`,
		},
		"retried": {
			answers: []any{failing, errBoom, fine},
			options: toolcall.Options{Retry: toolcall.Retry{MaxAttempts: 5}},
			steps:   []string{"ask beforeToolCall", "mock", "execute 1", "execute 2", "execute 3", "ask afterToolCall"},
			want:    toolcall.Outcome{Status: toolcall.StatusExecuted, Result: fine, Attempts: 3},
			sent:    []string{observed, "afterToolCall"},
		},
		"a failure is a result": {
			answers: []any{failing, failing},
			options: toolcall.Options{Retry: toolcall.Retry{MaxAttempts: 2}},
			steps:   []string{"ask beforeToolCall", "mock", "execute 1", "execute 2", "ask afterToolCall"},
			want:    toolcall.Outcome{Status: toolcall.StatusExecuted, Result: failing, Attempts: 2},
			sent:    []string{observed, "afterToolCall"}, last: `"success":false`,
		},
		"thrown": {
			answers: []any{errBoom},
			steps:   []string{"ask beforeToolCall", "mock", "execute 1"},
			want:    toolcall.Outcome{Status: toolcall.StatusFailed, Attempts: 1, Err: errBoom, Result: tasks.ToolResult{Error: "boom"}},
			sent:    []string{observed, "onToolCallError"}, last: `"error":"boom"`,
		},
		"deferred": {
			answers: []any{tasks.ToolResult{Success: true, Deferred: yes()}},
			options: toolcall.Options{Retry: toolcall.Retry{MaxAttempts: 3}},
			steps:   []string{"ask beforeToolCall", "mock", "execute 1"},
			want: toolcall.Outcome{
				Status: toolcall.StatusDeferred, Attempts: 1, Result: tasks.ToolResult{Success: true, Deferred: yes()},
			},
			sent: []string{observed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if row.arrange != nil {
				row.arrange(w)
			}
			r := w.runner()
			got, err := r.Run(t.Context(), call(), w.tool(row.answers...), row.options)
			if err != nil {
				t.Fatalf("run: %v", err)
			}
			if got.Before == nil || (got.After != nil) != (row.steps[len(row.steps)-1] == "ask afterToolCall") {
				t.Errorf("verdicts are %+v and %+v", got.Before, got.After)
			}
			got.Before, got.After = nil, nil
			if !errors.Is(got.Err, row.want.Err) {
				t.Errorf("error %v, want %v", got.Err, row.want.Err)
			}
			got.Err, row.want.Err = nil, nil
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			w.want(row.steps...)
			if asked := len(w.requests); asked == 2 {
				event, err := tasks.DecodeAs[tasks.AfterToolCallEvent](w.requests[1].Event)
				if err != nil || event.Mocked != row.want.Mocked {
					t.Errorf("the after control sees %+v, %v", event, err)
				}
			}
			types, last := w.notifications(r)
			if diff := cmp.Diff(row.sent, types); diff != "" {
				t.Errorf("notifications (-want +got):\n%s", diff)
			}
			if !strings.Contains(last, row.last) {
				t.Errorf("last event is %s, want %s in it", last, row.last)
			}
			if got.Status == toolcall.StatusBlocked && (strings.Contains(last, secret) || strings.Contains(w.lines.String(), secret)) {
				t.Errorf("the denied result leaks: %s\n%s", last, w.lines.String())
			}
		})
	}
}

// TestRunArchives has controls see the whole result, and everybody else what is
// left of it.
func TestRunArchives(t *testing.T) {
	t.Parallel()
	archived := tasks.ToolResult{Content: "see archive", Success: true}
	for name, row := range map[string]struct {
		after     func(control.Request) (tasks.Verdict, error)
		want      tasks.ToolResult
		status    toolcall.Status
		archives  int
		published int
	}{
		"allowed": {after: allow, want: archived, status: toolcall.StatusExecuted, archives: 1, published: 1},
		"denied": {
			after: deny("hidden"), want: tasks.Denial{Reason: "hidden"}.Replace(fine), status: toolcall.StatusBlocked, published: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.after = row.after
			r := w.runner()
			archives := 0
			var published []toolcall.Outcome
			got, err := r.Run(t.Context(), call(), w.tool(fine), toolcall.Options{
				Archive: func(_ context.Context, result tasks.ToolResult) (tasks.ToolResult, error) {
					archives++
					if diff := cmp.Diff(fine, result); diff != "" {
						t.Errorf("archive sees (-want +got):\n%s", diff)
					}
					return archived, nil
				},
				Publish: func(_ context.Context, outcome toolcall.Outcome) error {
					published = append(published, outcome)
					return nil
				},
			})
			if err != nil || got.Status != row.status || archives != row.archives || len(published) != row.published {
				t.Fatalf("outcome %+v, %v; %d archived, %d published", got, err, archives, len(published))
			}
			if diff := cmp.Diff(row.want, got.Result); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.want, published[0].Result); diff != "" {
				t.Errorf("published (-want +got):\n%s", diff)
			}
			if asked := string(w.requests[1].Event.Raw); !strings.Contains(asked, secret) {
				t.Errorf("the control does not see the whole result: %s", asked)
			}
			if _, last := w.notifications(r); strings.Contains(last, secret) || !strings.Contains(last, row.want.Content) {
				t.Errorf("observers get %s", last)
			}
		})
	}
}

// TestRunCancelled cancels at every step: nothing is used, and nothing is sent
// late.
func TestRunCancelled(t *testing.T) {
	t.Parallel()
	cancelling := func(w *world, answer func(control.Request) (tasks.Verdict, error)) func(control.Request) (tasks.Verdict, error) {
		return func(request control.Request) (tasks.Verdict, error) {
			w.cancel()
			return answer(request)
		}
	}
	broken := func(control.Request) (tasks.Verdict, error) { return tasks.Verdict{}, context.Canceled }
	for name, row := range map[string]struct {
		arrange  func(*world)
		tool     func(*world) toolcall.Execute
		archive  func(*world)
		attempts int
		sent     []string
	}{
		"before, with an allow that comes after": {arrange: func(w *world) { w.before = cancelling(w, allow) }},
		"before, with a deny that comes after":   {arrange: func(w *world) { w.before = cancelling(w, deny("no")) }},
		"before, with an error":                  {arrange: func(w *world) { w.before = cancelling(w, broken) }},
		"before, by the verdict": {arrange: func(w *world) {
			w.before = func(control.Request) (tasks.Verdict, error) {
				return tasks.Verdict{Status: tasks.VerdictCancelled}, nil
			}
		}},
		"in the execution, which throws": {
			tool: func(w *world) toolcall.Execute {
				return func(ctx context.Context, _ int) (tasks.ToolResult, error) {
					w.cancel()
					return tasks.ToolResult{}, ctx.Err()
				}
			},
			attempts: 1, sent: []string{observed},
		},
		"in the execution, which answers": {
			tool: func(w *world) toolcall.Execute {
				return func(context.Context, int) (tasks.ToolResult, error) { w.cancel(); return fine, nil }
			},
			attempts: 1, sent: []string{observed},
		},
		"after, with an allow": {
			arrange: func(w *world) { w.after = cancelling(w, allow) }, attempts: 1, sent: []string{observed},
		},
		"after, with a deny": {
			arrange: func(w *world) { w.after = cancelling(w, deny("no")) }, attempts: 1, sent: []string{observed},
		},
		"while it is archived": {archive: func(w *world) { w.cancel() }, attempts: 1, sent: []string{observed}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.cancel = cancel
			execute := w.tool(fine)
			if row.arrange != nil {
				row.arrange(w)
			}
			if row.tool != nil {
				execute = row.tool(w)
			}
			r := w.runner()
			got, err := r.Run(ctx, call(), execute, toolcall.Options{
				Retry: toolcall.Retry{MaxAttempts: 3},
				Archive: func(_ context.Context, result tasks.ToolResult) (tasks.ToolResult, error) {
					if row.archive == nil {
						t.Errorf("a cancelled result is archived")
					} else {
						row.archive(w)
					}
					return result, nil
				},
				Publish: func(context.Context, toolcall.Outcome) error {
					t.Errorf("a cancelled result is published")
					return nil
				},
			})
			if err != nil {
				t.Fatalf("run: %v", err)
			}
			got.Before, got.After = nil, nil
			want := toolcall.Outcome{Status: toolcall.StatusCancelled, Attempts: row.attempts}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if types, _ := w.notifications(r); !cmp.Equal(row.sent, types) {
				t.Errorf("notifications are %q, want %q", types, row.sent)
			}
		})
	}
}

// TestRunUndecided has each step fail: the tool does not run without an allow,
// and no result is used without one.
func TestRunUndecided(t *testing.T) {
	t.Parallel()
	fails := func(control.Request) (tasks.Verdict, error) { return tasks.Verdict{}, errBoom }
	silent := func(control.Request) (tasks.Verdict, error) { return tasks.Verdict{}, nil }
	denies := func(context.Context, toolcall.Outcome) error { return errBoom }
	for name, row := range map[string]struct {
		arrange  func(*world)
		call     func(*toolcall.Call)
		answer   tasks.ToolResult
		options  toolcall.Options
		want     error
		attempts int
		sent     []string
	}{
		"before controls": {arrange: func(w *world) { w.before = fails }, want: errBoom},
		"no verdict":      {arrange: func(w *world) { w.before = silent }, want: toolcall.ErrNoVerdict},
		"no context":      {call: func(c *toolcall.Call) { c.Context = tasks.ToolContext{} }},
		"broken hooks": {
			arrange: func(w *world) { w.config.Hooks = hooks{err: errBoom} }, want: errBoom,
		},
		"mocks": {arrange: func(w *world) { w.mockErr = errBoom }, want: errBoom, sent: []string{observed}},
		"after controls": {
			arrange: func(w *world) { w.after = fails }, answer: fine, want: errBoom, attempts: 1, sent: []string{observed},
		},
		"no verdict after": {
			arrange: func(w *world) { w.after = silent }, answer: fine, want: toolcall.ErrNoVerdict, attempts: 1, sent: []string{observed},
		},
		"a result that no control can read": {
			answer: tasks.ToolResult{Success: true, State: json.RawMessage(`[1]`)}, attempts: 1, sent: []string{observed},
		},
		"archive": {
			options: toolcall.Options{Archive: func(context.Context, tasks.ToolResult) (tasks.ToolResult, error) {
				return fine, errBoom
			}},
			answer: fine, want: errBoom, attempts: 1, sent: []string{observed},
		},
		"publish":        {options: toolcall.Options{Publish: denies}, answer: fine, want: errBoom, attempts: 1, sent: []string{observed}},
		"publish a deny": {arrange: func(w *world) { w.before = deny("no") }, options: toolcall.Options{Publish: denies}, want: errBoom},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if row.arrange != nil {
				row.arrange(w)
			}
			c := call()
			if row.call != nil {
				row.call(&c)
			}
			r := w.runner()
			got, err := r.Run(t.Context(), c, w.tool(row.answer), row.options)
			if err == nil || row.want != nil && !errors.Is(err, row.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("error %v, want %v", err, row.want)
			}
			if got.Status != "" || got.Attempts != row.attempts || !cmp.Equal(got.Result, tasks.ToolResult{}) {
				t.Errorf("outcome %+v, want %d attempts and nothing to use", got, row.attempts)
			}
			if types, _ := w.notifications(r); !cmp.Equal(row.sent, types) {
				t.Errorf("notifications are %q, want %q", types, row.sent)
			}
		})
	}
}

// hooks stands for what a dispatcher has registered.
type hooks struct {
	list json.RawMessage
	err  error
}

func (h hooks) CallerHooks(_ string, persisted json.RawMessage) (json.RawMessage, error) {
	if h.list == nil {
		return persisted, h.err
	}
	return h.list, h.err
}

// TestChain says whose controls are asked.
func TestChain(t *testing.T) {
	t.Parallel()
	stored, registered := json.RawMessage(`[{"id":"stored"}]`), json.RawMessage(`[{"id":"registered"}]`)
	given := []control.OperationHooks{{OperationID: "parent"}, {OperationID: operation, Hooks: stored}}
	own := func(list json.RawMessage) []control.OperationHooks {
		return []control.OperationHooks{{OperationID: operation, Hooks: list}}
	}
	for name, row := range map[string]struct {
		hooks toolcall.CallerHooks
		call  toolcall.Call
		want  []control.OperationHooks
	}{
		"nothing is known":       {},
		"the stored list":        {call: toolcall.Call{Persisted: stored}, want: own(stored)},
		"an empty stored list":   {call: toolcall.Call{Persisted: json.RawMessage(`[]`)}, want: own(json.RawMessage(`[]`))},
		"what is registered":     {hooks: hooks{list: registered}, call: toolcall.Call{Persisted: stored}, want: own(registered)},
		"nothing is registered":  {hooks: hooks{}},
		"a chain goes unchanged": {hooks: hooks{list: registered}, call: toolcall.Call{Persisted: stored, Chain: given}, want: given},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.config.Hooks = row.hooks
			row.call.Context, row.call.Trace, row.call.Timeout = call().Context, "trace", 5
			r := w.runner()
			if _, err := r.Run(t.Context(), row.call, w.tool(fine), toolcall.Options{}); err != nil {
				t.Fatalf("run: %v", err)
			}
			if len(w.requests) != 2 {
				t.Fatalf("%d questions, want 2", len(w.requests))
			}
			w.notifications(r)
			for _, n := range w.sent {
				if n.Trace != "trace" || string(n.Persisted) != string(row.call.Persisted) {
					t.Errorf("notification %+v", n)
				}
			}
			for _, request := range w.requests {
				if diff := cmp.Diff(row.want, request.Chain); diff != "" || request.Trace != "trace" || request.Timeout != 5 || request.ID != "" {
					t.Errorf("request %+v, chain (-want +got):\n%s", request, diff)
				}
			}
		})
	}
}

// TestNilParts runs without mocks and observers, and refuses to without controls.
func TestNilParts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Mocks, w.config.Observer = nil, nil
	got, err := w.runner().Run(t.Context(), call(), w.tool(fine), toolcall.Options{})
	if err != nil || got.Status != toolcall.StatusExecuted {
		t.Fatalf("outcome %+v, %v", got, err)
	}
	if _, err := w.runner().Run(t.Context(), call(), nil, toolcall.Options{}); err == nil {
		t.Errorf("a call without a tool is run")
	}
	for _, config := range []toolcall.Config{{}, {Controls: w, MaxBackground: -1}, {Controls: w, BackgroundTimeout: -1}} {
		if _, err := toolcall.New(config); err == nil {
			t.Errorf("configuration %+v is taken", config)
		}
	}
}
