package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/tasks"
)

// e2e is one runtime process with a whole Gantry behind it.
type e2e struct {
	deployment
	runner *toolcall.Runner
}

func newE2E(t *testing.T, l *lab, mode string, s func(*run) (*site, []tasks.Hook)) *e2e {
	t.Helper()
	r := &run{t: t, lab: l}
	site, environment := s(r)
	d := r.deployment(site, mode, always(environment))
	return &e2e{deployment: d, runner: d.runner(r)}
}

// toolCall is a call of rm in an operation.
func toolCall(operation, id string) toolcall.Call {
	return toolcall.Call{Context: tasks.ToolContext{
		ToolCallID: id, AssistantMessageID: "m", Identifier: "shell", APIName: "rm", Args: json.RawMessage(`{"path":"/"}`),
		CallIndex: 1, OperationID: operation, Executor: tasks.ExecutorServer,
	}}
}

func hookOf(id string, t tasks.HookType, handling tasks.ResponseHandling) tasks.Hook {
	return tasks.Hook{ID: id, Type: t, Webhook: &tasks.Webhook{URL: "https://rx.test/" + id, ResponseHandling: handling}}
}

// TestDeniedToolFromEveryRun is report V4: whoever calls the denied tool, and
// however often, the policy is asked and the tool does not run.
func TestDeniedToolFromEveryRun(t *testing.T) {
	l := newLab(t)
	deny := answer{status: 200, body: []byte(`{"decision":"deny","reason":"never"}`)}
	policy := hookOf("policy", tasks.BeforeToolCall, tasks.HandleToolCall)
	operators := policy
	operators.ID = tasks.ReservedIDPrefix + "beforeToolCall"
	for name, environment := range map[string][]tasks.Hook{"caller": nil, "environment": {operators}} {
		for _, mode := range []string{"local", "queue"} {
			t.Run(name+", "+mode, func(t *testing.T) {
				t.Parallel()
				// Two processes know the same deployment, and the second has registered nothing.
				var world *site
				shared := func(r *run) (*site, []tasks.Hook) {
					if world == nil {
						world = r.site(siteConfig{answers: map[string]answer{policy.ID: deny, operators.ID: deny}})
					}
					return world, environment
				}
				first, second := newE2E(t, l, mode, shared), newE2E(t, l, mode, shared)
				var persisted json.RawMessage
				if environment == nil {
					if err := first.dispatcher.Register(t.Context(), "run", []tasks.Hook{policy}); err != nil {
						t.Fatalf("register: %v", err)
					}
					var err error
					if persisted, err = tasks.EncodeHooks([]tasks.Hook{policy}); err != nil {
						t.Fatalf("encode: %v", err)
					}
				}
				sub := toolCall("child", "c2")
				parent := "run"
				sub.Context.ParentOperationID = &parent
				sub.Chain = []control.OperationHooks{{OperationID: "run"}, {OperationID: "child"}}
				resumed := toolCall("run", "c1")
				row := "row-1"
				resumed.Context.ToolMessageID, resumed.Persisted = &row, persisted
				for _, step := range []struct {
					who  string
					in   *e2e
					call toolcall.Call
				}{
					{"main run", first, toolCall("run", "c1")},
					{"sub-agent", first, sub},
					{"resumed run", second, resumed},
					{"retried run", first, toolCall("run", "c1")},
				} {
					got, err := step.in.runner.Run(t.Context(), step.call, func(context.Context, int) (tasks.ToolResult, error) {
						t.Errorf("%s: the tool runs", step.who)
						return tasks.ToolResult{}, nil
					}, toolcall.Options{})
					if err != nil {
						t.Fatalf("%s: %v", step.who, err)
					}
					if diff := cmp.Diff(tasks.DeniedCall("never"), got.Result); diff != "" || got.Status != toolcall.StatusBlocked || got.Attempts != 0 {
						t.Errorf("%s: %s after %d attempts, result (-want +got):\n%s", step.who, got.Status, got.Attempts, diff)
					}
				}
				first.finish(t)
				second.finish(t)
				id := policy.ID
				if environment != nil {
					id = operators.ID
				}
				want := []string{"run c1", "child c2", "run c1", "run c1"}
				if got := askedBy(t, world, id); !slices.Equal(got, want) {
					t.Errorf("the policy was asked by %q, want %q", got, want)
				}
			})
		}
	}
}

func (e *e2e) finish(t *testing.T) {
	t.Helper()
	if err := e.runner.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// askedBy lists the operation and the call of each request that a hook got.
func askedBy(t *testing.T, s *site, hook string) []string {
	t.Helper()
	var asked []string
	for _, request := range s.rec.received() {
		if request.hook != hook {
			continue
		}
		var body struct{ OperationID, ToolCallID string }
		if err := json.Unmarshal(request.body, &body); err != nil {
			t.Fatalf("payload: %v", err)
		}
		asked = append(asked, body.OperationID+" "+body.ToolCallID)
	}
	return asked
}

// TestToolCallsReachObserversInOrder has each call's observation, its result and
// the operation's end arrive as they came up, whatever the mode.
func TestToolCallsReachObserversInOrder(t *testing.T) {
	l := newLab(t)
	for _, mode := range []string{"local", "queue"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := newE2E(t, l, mode, func(r *run) (*site, []tasks.Hook) { return r.site(siteConfig{}), nil })
			err := e.dispatcher.Register(t.Context(), "run", []tasks.Hook{
				hookOf("w", tasks.BeforeToolCall, ""), hookOf("n", tasks.AfterToolCall, ""),
				hookOf("e", tasks.OnToolCallError, ""), hookOf("z", tasks.OnComplete, ""),
			})
			if err != nil {
				t.Fatalf("register: %v", err)
			}
			var want []string
			for i := range 20 {
				execute := func(context.Context, int) (tasks.ToolResult, error) { return tasks.ToolResult{Success: true}, nil }
				want = append(want, "w:fetch", "n:fetch")
				if i%5 == 4 {
					execute = func(context.Context, int) (tasks.ToolResult, error) { panic("boom") }
					want[len(want)-1] = "e:fetch"
				}
				if _, err := e.runner.Run(t.Context(), toolCall("run", fmt.Sprint(i)), execute, toolcall.Options{}); err != nil {
					t.Fatalf("run: %v", err)
				}
			}
			if err := e.runner.Flush(t.Context(), "run"); err != nil {
				t.Fatalf("flush: %v", err)
			}
			end, err := tasks.NewEvent(tasks.StepEvent{Type: tasks.OnComplete, AgentID: "a", OperationID: "run", UserID: "u"})
			if err != nil {
				t.Fatalf("event: %v", err)
			}
			if err := e.dispatcher.Dispatch(t.Context(), "run", end); err != nil {
				t.Fatalf("dispatch: %v", err)
			}
			e.finish(t)
			if diff := cmp.Diff(append(want, "z:fetch"), e.site.rec.called()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSlowObserversHoldNobodyUp has the receiver of an observation hang: the call
// is over all the same.
func TestSlowObserversHoldNobodyUp(t *testing.T) {
	l := newLab(t)
	for _, mode := range []string{"local", "queue"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			release := make(chan struct{})
			e := newE2E(t, l, mode, func(r *run) (*site, []tasks.Hook) {
				s := r.site(siteConfig{})
				s.rec.arrived = func(hook string) {
					if hook == "w" {
						<-release
					}
				}
				return s, nil
			})
			if err := e.dispatcher.Register(t.Context(), "run", []tasks.Hook{
				hookOf("w", tasks.BeforeToolCall, ""), hookOf("c", tasks.BeforeToolCall, tasks.HandleToolCall),
				hookOf("k", tasks.AfterToolCall, tasks.HandleToolCall),
			}); err != nil {
				t.Fatalf("register: %v", err)
			}
			for i := range 3 {
				got, err := e.runner.Run(t.Context(), toolCall("run", fmt.Sprint(i)), func(context.Context, int) (tasks.ToolResult, error) {
					return tasks.ToolResult{Content: "done", Success: true}, nil
				}, toolcall.Options{})
				if err != nil || got.Status != toolcall.StatusExecuted || got.Result.Content != "done" {
					t.Fatalf("outcome %+v, %v", got, err)
				}
			}
			close(release)
			e.finish(t)
			calls := strings.Join(e.site.rec.called(), " ")
			if strings.Count(calls, "w:fetch") != 3 || strings.Count(calls, "c:fetch") != 3 || strings.Count(calls, "k:fetch") != 3 {
				t.Errorf("calls: %s", calls)
			}
		})
	}
}
