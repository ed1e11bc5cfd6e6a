package toolcall_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/tasks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const operation = "op"

func call() toolcall.Call {
	return toolcall.Call{Context: tasks.ToolContext{
		ToolCallID: "c1", AssistantMessageID: "m", Identifier: "shell", APIName: "run", Args: json.RawMessage(`{"cmd":"ls"}`),
		CallIndex: 1, OperationID: operation, Executor: tasks.ExecutorServer,
	}}
}

// world stands for everything around a Runner and writes one list of what was
// asked of it, in order.
type world struct {
	t      *testing.T
	cancel context.CancelFunc
	// before and after are the answers of the controls.
	before, after func(control.Request) (tasks.Verdict, error)
	mock          *tasks.MockResult
	mockErr       error
	notify        func(context.Context, tasks.Notification) (bool, error)
	attempted     func(context.Context, string) error
	config        toolcall.Config

	mu       sync.Mutex
	log      []string
	requests []control.Request
	sent     []tasks.Notification
	failures []toolcall.Failure
	lines    strings.Builder
}

func allow(control.Request) (tasks.Verdict, error) {
	return tasks.Verdict{Status: tasks.VerdictAllow, Outcome: tasks.OutcomeAllowed}, nil
}

func deny(reason string) func(control.Request) (tasks.Verdict, error) {
	return func(control.Request) (tasks.Verdict, error) {
		return tasks.Verdict{Status: tasks.VerdictBlocked, Outcome: tasks.OutcomeDenied, Reason: reason}, nil
	}
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, before: allow, after: allow}
	w.config = toolcall.Config{Controls: w, Mocks: w, Observer: w, OnFailure: w.failure, Logger: w.logger(), Registerer: prometheus.NewRegistry()}
	return w
}

func (w *world) logger() logrus.FieldLogger {
	log := logrus.New()
	log.SetOutput(writer{w})
	log.SetLevel(logrus.TraceLevel)
	return log
}

type writer struct{ w *world }

func (w writer) Write(line []byte) (int, error) {
	w.w.mu.Lock()
	defer w.w.mu.Unlock()
	return w.w.lines.Write(line)
}

func (w *world) runner() *toolcall.Runner {
	w.t.Helper()
	r, err := toolcall.New(w.config)
	if err != nil {
		w.t.Fatalf("new runner: %v", err)
	}
	w.t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			w.t.Errorf("close: %v", err)
		}
	})
	return r
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) Evaluate(_ context.Context, request control.Request) (tasks.Verdict, error) {
	w.note("ask %s", request.Event.Type)
	w.mu.Lock()
	w.requests = append(w.requests, request)
	w.mu.Unlock()
	if request.Event.Type == tasks.BeforeToolCall {
		return w.before(request)
	}
	return w.after(request)
}

func (w *world) DispatchBeforeToolCall(context.Context, string, *tasks.Event) (*tasks.MockResult, error) {
	w.note("mock")
	return w.mock, w.mockErr
}

func (w *world) Notify(ctx context.Context, n tasks.Notification) (bool, error) {
	w.mu.Lock()
	w.sent = append(w.sent, n)
	w.mu.Unlock()
	if w.notify != nil {
		return w.notify(ctx, n)
	}
	return false, nil
}

func (w *world) Attempted(ctx context.Context, _, id string) error { return w.attempted(ctx, id) }

func (w *world) failure(f toolcall.Failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, f)
}

// want compares the list of steps.
func (w *world) want(steps ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff(steps, w.log); diff != "" {
		w.t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// notifications waits for the Runner and returns what was sent, by type, each
// with a mark for what goes without handlers.
func (w *world) notifications(r *toolcall.Runner) (types []string, last string) {
	w.t.Helper()
	if err := r.Close(w.t.Context()); err != nil {
		w.t.Errorf("close: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.sent {
		name := string(n.Event.Type)
		if n.SkipHandlers {
			name += " without handlers"
		}
		types, last = append(types, name), string(n.Event.Raw)
	}
	return types, last
}

// tool is an Execute that gives one answer after the other.
func (w *world) tool(answers ...any) toolcall.Execute {
	return func(_ context.Context, attempt int) (tasks.ToolResult, error) {
		w.note("execute %d", attempt)
		switch answer := answers[attempt-1].(type) {
		case error:
			return tasks.ToolResult{Content: "must not be seen"}, answer
		case tasks.ToolResult:
			return answer, nil
		default:
			panic(answer)
		}
	}
}

func yes() *bool { b := true; return &b }

func ms(n float64) *float64 { return &n }

var errBoom = errors.New("boom")
