package control_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

// unposted loses what is posted, or the answer to it.
type unposted struct{ control.Exchange }

func (unposted) Post(context.Context, *control.Posting) (control.Standing, error) {
	return control.Standing{}, errDark
}

// A second caller takes the id of another question, and cannot learn that because
// Redis does not answer it. Neither may decide about the other's call.
func TestAVerdictCountsForItsContentOnly(t *testing.T) {
	t.Parallel()
	for name, settledFirst := range map[string]bool{"while it is asked": false, "when it is answered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			held := newGate()
			worker(t, g.store(t), held.judge(allow))
			first := asking(t, asker(t, g.store(t)), t.Context(), named(request(t, stored("a", blocks)), "q1"))
			receive(t, "the question", held.entered)
			if settledFirst {
				held.release()
				equal(t, "verdict", briefly(receive(t, "the verdict", first)), briefAllowed)
			}
			other := named(request(t, stored("a", "")), "q1")
			other.Timeout = 400 * time.Millisecond
			v, err := asker(t, unposted{g.store(t)}).Evaluate(t.Context(), other)
			if reused := (*control.ReusedError)(nil); !errors.As(err, &reused) || v.Allowed() {
				t.Fatalf("verdict is %+v, error is %v", v, err)
			}
			if !settledFirst {
				held.release()
				equal(t, "verdict", briefly(receive(t, "the verdict", first)), briefAllowed)
			}
		})
	}
}

// The question of a worker is lost with Redis, and another one has its id when
// the worker is done.
func TestAnAnswerToALostQuestionPermitsNothing(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	slow := newGate()
	w := worker(t, g.store(t), slow.judge(allow), func(cfg *control.AnswererConfig) {
		cfg.Slots, cfg.Heartbeat = 2, time.Minute // it does not notice
	})
	c := asker(t, g.store(t))
	_, _, err := c.Submit(t.Context(), named(request(t, stored("a", "")), "q1"))
	must(t, "submit", err)
	receive(t, "the question", slow.entered)
	must(t, "lose everything", g.connect(t, "flush", 1).FlushDB(t.Context()).Err())
	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(t.Context()) }() // finishes what it has
	for !errors.Is(w.Ready(), control.ErrStopped) {
		runtime.Gosched() // until it answers nothing new
	}
	second := named(request(t, stored("b", blocks)), "q1")
	second.Timeout = 4 * time.Second
	_, _, err = c.Submit(t.Context(), second)
	must(t, "submit", err)
	slow.release()
	must(t, "stop", receive(t, "the stop", stopped))
	v, err := c.Await(t.Context(), "op", "q1")
	must(t, "await", err)
	if v.Allowed() {
		t.Fatalf("verdict is %+v", v)
	}
	equal(t, "status", v.Status, tasks.VerdictBlocked)
}
