package toolcall_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// TestObservationNeverDelays has the observer hang: the call is over all the
// same, and its notification waits for its turn.
func TestObservationNeverDelays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	w.notify = func(context.Context, tasks.Notification) (bool, error) { <-release; return false, nil }
	r := w.runner()
	got, err := r.Run(t.Context(), call(), w.tool(fine), toolcall.Options{})
	if err != nil || got.Status != toolcall.StatusExecuted {
		t.Fatalf("outcome %+v, %v", got, err)
	}
	close(release)
	if types, _ := w.notifications(r); !cmp.Equal(types, []string{observed, "afterToolCall"}) {
		t.Errorf("notifications are %q", types)
	}
}

// TestOrder sends many calls of one operation: they are handed over as they came
// up, one at a time, and another operation does not wait for them.
func TestOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release, other := make(chan struct{}), make(chan struct{})
	running := 0
	w.notify = func(_ context.Context, n tasks.Notification) (bool, error) {
		if n.Event.OperationID != operation {
			close(other)
			return false, nil
		}
		<-release
		if running++; running != 1 {
			t.Errorf("%d hand-overs of one operation run at once", running)
		}
		running--
		return false, nil
	}
	r := w.runner()
	var want []string
	for range 50 {
		r.Observe(t.Context(), call())
		r.Notify(t.Context(), call(), toolcall.Produced{Result: fine})
		want = append(want, observed, "afterToolCall")
	}
	stranger := call()
	stranger.Context.OperationID = "other"
	r.NotifyError(t.Context(), stranger, errBoom)
	<-other
	close(release)
	if err := r.Flush(t.Context(), operation); err != nil {
		t.Fatalf("flush: %v", err)
	}
	types, _ := w.notifications(r)
	for i, n := range w.sent {
		if n.Event.OperationID != operation {
			types = append(types[:i:i], types[i+1:]...)
			break
		}
	}
	if diff := cmp.Diff(want, types); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
}

// TestOutage repeats a notification under its own id until the queue is back.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		attempts := 0
		w.notify = func(context.Context, tasks.Notification) (bool, error) {
			if attempts++; attempts < 8 {
				return false, lane.ErrUnavailable
			}
			return false, nil
		}
		r := w.runner()
		r.Notify(t.Context(), call(), toolcall.Produced{Result: fine})
		if err := r.Flush(t.Context(), operation); err != nil {
			t.Fatalf("flush: %v", err)
		}
		ids := map[string]bool{}
		for _, n := range w.sent {
			ids[n.ID] = true
		}
		if len(w.sent) != 8 || len(ids) != 1 || ids[""] || len(w.failures) != 0 {
			t.Errorf("%d hand-overs under %d ids, failures %v", len(w.sent), len(ids), w.failures)
		}
	})
}

// TestLongOutage gives up after BackgroundTimeout, and says so.
func TestLongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.notify = func(context.Context, tasks.Notification) (bool, error) { return false, lane.ErrUnavailable }
		r := w.runner()
		start := time.Now()
		r.Observe(t.Context(), call())
		if err := r.Flush(t.Context(), operation); err != nil {
			t.Fatalf("flush: %v", err)
		}
		if took := time.Since(start); took != toolcall.DefaultBackgroundTimeout {
			t.Errorf("gave up after %s", took)
		}
		if len(w.failures) != 1 || !errors.Is(w.failures[0].Err, lane.ErrUnavailable) || w.failures[0].Type != tasks.BeforeToolCall {
			t.Errorf("failures are %v", w.failures)
		}
	})
}

// TestFailuresAreReported covers both ways in which a critical observation comes
// back, and that neither changes the call.
func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	critical := errors.New("Critical webhook delivery failed: w")
	for name, arrange := range map[string]func(*world){
		"when it is handed over": func(w *world) {
			w.notify = func(context.Context, tasks.Notification) (bool, error) { return false, critical }
		},
		"when it was attempted": func(w *world) {
			w.notify = func(context.Context, tasks.Notification) (bool, error) { return true, nil }
			w.attempted = func(context.Context, string) error { return critical }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			registry := prometheus.NewRegistry()
			w.config.Registerer = registry
			arrange(w)
			r := w.runner()
			got, err := r.Run(t.Context(), call(), w.tool(fine), toolcall.Options{})
			if err != nil || got.Status != toolcall.StatusExecuted {
				t.Fatalf("outcome %+v, %v", got, err)
			}
			w.notifications(r)
			if len(w.failures) != 2 {
				t.Fatalf("failures are %v, want one of each event", w.failures)
			}
			for i, n := range w.sent {
				want := toolcall.Failure{OperationID: operation, Type: n.Event.Type, ToolCallID: "c1", ID: n.ID}
				at := 0
				if w.failures[0].ID != n.ID {
					at = 1
				}
				failure := w.failures[at]
				if !errors.Is(failure.Err, critical) {
					t.Errorf("error of failure %d is %v", i, failure.Err)
				}
				failure.Err = nil
				if diff := cmp.Diff(want, failure); diff != "" {
					t.Errorf("failure %d (-want +got):\n%s", i, diff)
				}
			}
			if lines := w.lines.String(); strings.Count(lines, "toolcall.notification_failed") != 2 || strings.Contains(lines, secret) {
				t.Errorf("log is %s", lines)
			}
			values := gathered(t, registry)
			for series, want := range map[string]float64{
				"gantry_toolcall_notification_failures_total afterToolCall":   1,
				"gantry_toolcall_notification_failures_total beforeToolCall":  1,
				"gantry_toolcall_notification_failures_total onToolCallError": 0,
				"gantry_toolcall_calls_total executed":                        1,
				"gantry_toolcall_calls_total blocked":                         0,
				"gantry_toolcall_calls_total error":                           0,
				"gantry_toolcall_attempts_total":                              1,
				"gantry_toolcall_background":                                  0,
			} {
				if got, ok := values[series]; !ok || got != want {
					t.Errorf("%s is %v (%t), want %v", series, got, ok, want)
				}
			}
		})
	}
}

// gathered returns each series by its name and its one label.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("gather metrics: %v", err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			values[name] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return values
}

// TestNobodyWaitsUnasked leaves first attempts to the worker when nobody wants to
// hear of them.
func TestNobodyWaitsUnasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.OnFailure = nil
	w.notify = func(context.Context, tasks.Notification) (bool, error) { return true, nil }
	w.attempted = func(context.Context, string) error { t.Errorf("waits for attempts"); return nil }
	r := w.runner()
	r.Observe(t.Context(), call())
	w.notifications(r)
}

// TestClose waits for what runs, cuts it off when its own time is over, and takes
// nothing after that.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.notify = func(ctx context.Context, _ tasks.Notification) (bool, error) {
			<-ctx.Done()
			return false, context.Cause(ctx)
		}
		r := w.runner()
		r.Observe(t.Context(), call())
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Flush(impatient, operation); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("flush: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("close took %s", took)
		}
		r.Observe(t.Context(), call())
		if len(w.failures) != 2 || !errors.Is(w.failures[1].Err, toolcall.ErrClosed) {
			t.Errorf("failures are %v", w.failures)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Errorf("close again: %v", err)
		}
	})
}

// TestBacklog gives up what is too much.
func TestBacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.MaxBackground = 2
	release := make(chan struct{})
	w.notify = func(context.Context, tasks.Notification) (bool, error) { <-release; return false, nil }
	r := w.runner()
	for range 3 {
		r.Observe(t.Context(), call())
	}
	close(release)
	if types, _ := w.notifications(r); len(types) != 2 || len(w.failures) != 1 || !errors.Is(w.failures[0].Err, toolcall.ErrBacklog) {
		t.Errorf("sent %q, failures %v", types, w.failures)
	}
}

// TestBadResult reports a result that no event can hold, without its content.
func TestBadResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.runner()
	r.Notify(t.Context(), call(), toolcall.Produced{Result: tasks.ToolResult{Content: secret, State: []byte(secret)}})
	w.notifications(r)
	if len(w.failures) != 1 || strings.Contains(w.failures[0].Err.Error()+w.lines.String(), secret) {
		t.Errorf("failures %v, log %s", w.failures, w.lines.String())
	}
}

// TestCallerGone sends nothing late, and nothing of a placeholder.
func TestCallerGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.runner()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Notify(ctx, call(), toolcall.Produced{Result: fine})
	r.NotifyError(ctx, call(), errBoom)
	r.Notify(t.Context(), call(), toolcall.Produced{Result: tasks.ToolResult{Deferred: yes()}})
	if types, _ := w.notifications(r); len(types) != 0 {
		t.Errorf("sent %q", types)
	}
}
