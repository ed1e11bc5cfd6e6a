package control_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// waiting answers like the panel after some time, and as a deliverer does when
// that is too long.
func waiting(p *panel, times map[string]time.Duration) control.Asker {
	return askerFunc(func(ctx context.Context, req webhook.ControlRequest) webhook.ControlReply {
		reply := p.Ask(ctx, req)
		select {
		case <-time.After(times[req.Hook.ID]):
			return reply
		case <-ctx.Done():
		}
		if webhook.Cancelled(ctx) {
			return webhook.ControlReply{Cancelled: true}
		}
		return webhook.ControlReply{Class: tasks.ClassTimeout}
	})
}

// What the deadline leaves no time for is an error of each control, by its own
// policy: running out of time is never permission where a control blocks.
func TestDeadlineOfTheChain(t *testing.T) {
	t.Parallel()
	type row struct {
		id    string
		class tasks.ControlClass
		code  tasks.TransportCode
	}
	late := func(id string) row { return row{id, tasks.ControlError, tasks.CodeTimeout} }
	for name, test := range map[string]struct {
		hooks   []string
		times   map[string]time.Duration
		outcome tasks.VerdictOutcome
		rows    []row
		asked   []string
	}{
		"in time": {
			[]string{stored("a", ""), stored("b", blocks)},
			map[string]time.Duration{"a": 4 * time.Second, "b": 5 * time.Second},
			tasks.OutcomeAllowed,
			[]row{{"a", tasks.ControlAllow, ""}, {"b", tasks.ControlAllow, ""}},
			[]string{"a", "b"},
		},
		"all are open": {
			[]string{stored("a", ""), stored("b", ""), stored("c", "")},
			map[string]time.Duration{"a": 4 * time.Second, "b": 7 * time.Second},
			tasks.OutcomeErrorOpen,
			[]row{{"a", tasks.ControlAllow, ""}, late("b"), late("c")},
			[]string{"a", "b"},
		},
		"one that was not reached blocks": {
			[]string{stored("a", ""), stored("b", ""), stored("c", blocks), stored("d", "")},
			map[string]time.Duration{"a": time.Minute},
			tasks.OutcomeErrorClosed,
			[]row{late("a"), late("b"), late("c")},
			[]string{"a"},
		},
		"the slow one blocks": {
			[]string{stored("a", blocks), stored("b", "")},
			map[string]time.Duration{"a": time.Minute},
			tasks.OutcomeErrorClosed,
			[]row{late("a")},
			[]string{"a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &panel{answers: map[string]string{"a": yes, "b": yes, "c": yes, "d": no}}
				ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("the chain is over"))
				defer cancel()
				v, err := newEvaluator(t, waiting(p, test.times), nil).Evaluate(ctx, ask(test.hooks...))
				if err != nil || v.Outcome != test.outcome || v.Allowed() != (test.outcome != tasks.OutcomeErrorClosed) {
					t.Errorf("%+v, %v, want %s", v, err, test.outcome)
				}
				var rows []row
				for _, c := range v.Controls {
					rows = append(rows, row{c.HookID, c.Class, c.Code})
				}
				if diff := cmp.Diff(test.rows, rows, cmp.AllowUnexported(row{})); diff != "" {
					t.Errorf("controls (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.asked, p.ids()); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Whoever goes away gets a cancelled verdict, whatever was answered, and nobody
// is asked afterwards.
func TestEvaluationIsCancelled(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hooks []string
		// at is when the asker goes away; 0 means before.
		at    time.Duration
		asked []string
	}{
		"before, nobody matches": {nil, 0, []string{}},
		"before":                 {[]string{stored("a", blocks)}, 0, []string{}},
		"during":                 {[]string{stored("a", ""), stored("b", blocks), stored("c", "")}, 3 * time.Second, []string{"a", "b"}},
		"with the deadline near": {[]string{stored("a", ""), stored("b", blocks), stored("c", "")}, 3999 * time.Millisecond, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &panel{answers: map[string]string{"a": yes, "b": no, "c": yes}}
				whole, stop := context.WithTimeout(t.Context(), 4*time.Second)
				defer stop()
				ctx, cancel := context.WithCancel(whole)
				if test.at == 0 {
					cancel()
				} else {
					time.AfterFunc(test.at, cancel)
				}
				e := newEvaluator(t, waiting(p, map[string]time.Duration{"a": time.Second, "b": time.Minute}), nil)
				v, err := e.Evaluate(ctx, ask(test.hooks...))
				if err != nil || v.Status != tasks.VerdictCancelled || v.Outcome != tasks.OutcomeCancelled || v.Reason != "" || v.Allowed() {
					t.Errorf("%+v, %v", v, err)
				}
				if diff := cmp.Diff(test.asked, p.ids()); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A decision that comes with the cancellation does not stand.
func TestDecisionAfterTheCancellation(t *testing.T) {
	t.Parallel()
	for _, body := range []string{yes, no, "", `{"decision":"ask"}`} {
		ctx, cancel := context.WithCancel(t.Context())
		asker := askerFunc(func(context.Context, webhook.ControlRequest) webhook.ControlReply {
			cancel()
			return webhook.ControlReply{Status: 200, Body: []byte(body)}
		})
		v, err := newEvaluator(t, asker, nil).Evaluate(ctx, ask(stored("a", blocks), stored("b", "")))
		if err != nil || v.Status != tasks.VerdictCancelled || v.Reason != "" || len(v.Controls) != 1 {
			t.Errorf("%q: %+v, %v", body, v, err)
		}
	}
}
