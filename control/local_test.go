package control_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// localClient answers in this process.
func localClient(t testing.TB, answer func(ctx context.Context, req webhook.ControlRequest) webhook.ControlReply) *control.Client {
	t.Helper()
	e, err := control.NewEvaluator(control.EvaluatorConfig{Asker: askerFunc(answer)})
	must(t, "make evaluator", err)
	c, err := control.New(control.Config{Evaluator: e})
	must(t, "make client", err)
	t.Cleanup(c.Close)
	return c
}

// slow replies when ctx ends, as the network does.
func slow(ctx context.Context, _ webhook.ControlRequest) webhook.ControlReply {
	<-ctx.Done()
	if webhook.Cancelled(ctx) {
		return webhook.ControlReply{Cancelled: true}
	}
	return webhook.ControlReply{Class: tasks.ClassTimeout}
}

func TestLocalClient(t *testing.T) {
	t.Parallel()
	c := localClient(t, func(context.Context, webhook.ControlRequest) webhook.ControlReply {
		return webhook.ControlReply{Status: 200, Body: []byte(`{"decision":"deny","reason":"no"}`)}
	})
	equal(t, "verdict", briefly(evaluate(t, c, request(t, stored("a", "")))),
		brief{Status: tasks.VerdictBlocked, Outcome: tasks.OutcomeDenied, By: tasks.ByAsker, Reason: "no"})
	equal(t, "verdict without a control", briefly(evaluate(t, c, request(t))), briefNone)
	_, _, err := c.Submit(t.Context(), request(t))
	fails(t, err, control.ErrLocal)
	_, err = c.Await(t.Context(), "op", "q")
	fails(t, err, control.ErrLocal)
	_, err = c.Cancel(t.Context(), "op", "q")
	fails(t, err, control.ErrLocal)
}

// The deadline is the policy's, the caller's end is a cancellation, also when it
// is a deadline of the caller's own.
func TestLocalClientKeepsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := localClient(t, slow)
		for policy, want := range map[string]brief{
			"":     {Status: tasks.VerdictAllow, Outcome: tasks.OutcomeErrorOpen, By: tasks.ByAsker},
			blocks: {Status: tasks.VerdictBlocked, Outcome: tasks.OutcomeErrorClosed, By: tasks.ByAsker, Reason: tasks.ReasonControlError},
		} {
			began := time.Now()
			equal(t, "verdict", briefly(evaluate(t, c, request(t, stored("a", policy)))), want)
			equal(t, "time", time.Since(began), 20*time.Second)
		}
		for name, end := range map[string]func() (context.Context, context.CancelFunc){
			"deadline": func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) },
			"cancel": func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				return ctx, cancel
			},
		} {
			ctx, cancel := end()
			v, err := c.Evaluate(ctx, request(t, stored("a", "")))
			must(t, name, err)
			equal(t, name, briefly(v), briefCancelled)
			cancel()
		}
	})
}

// An asker may leave its question to others: it goes on.
func TestDetachedQuestion(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	held := newGate()
	worker(t, g.store(t), held.judge(deny))
	c := asker(t, g.store(t))
	ctx, leave := context.WithCancelCause(t.Context())
	req := named(request(t, stored("a", "")), "q1")
	failed := make(chan error, 1)
	go func() {
		_, err := c.Evaluate(ctx, req)
		failed <- err
	}()
	receive(t, "the question", held.entered)
	leave(tasks.ErrDetached)
	fails(t, receive(t, "the end of the wait", failed), control.ErrPending)
	held.release()
	equal(t, "reason", evaluate(t, c, req).Reason, "no q1")
	_, err := c.Evaluate(ctx, named(req, "q2"))
	fails(t, err, control.ErrPending)
	v, err := c.Await(t.Context(), "op", "q2")
	must(t, "await what was left at once", err)
	equal(t, "reason", v.Reason, "no q2")
}

// The embedded Redis carries questions too.
func TestEmbeddedRedis(t *testing.T) {
	t.Parallel()
	server := miniredis.NewMiniRedis()
	must(t, "start miniredis", server.Start())
	t.Cleanup(server.Close)
	g := &ground{addr: server.Addr()}
	store := g.store(t, func(cfg *redisverdict.Config) { cfg.Embedded = true })
	worker(t, store, deny)
	c := asker(t, store)
	for i := range 20 {
		id := fmt.Sprint("q", i)
		equal(t, "reason", evaluate(t, c, named(request(t, stored("a", "")), id)).Reason, "no "+id)
	}
	req := request(t, stored("a", blocks))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, err := c.Evaluate(ctx, req)
	must(t, "evaluate", err)
	equal(t, "verdict", briefly(v), briefCancelled)
}

// Several shards have one listener, one inbox and one heartbeat each.
func TestShards(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	shards := func(cfg *redisverdict.Config) { cfg.Shards = 4 }
	worker(t, g.store(t, shards), deny, func(cfg *control.AnswererConfig) { cfg.Slots = 2 })
	c := asker(t, g.store(t, shards))
	var waiting []<-chan tasks.Verdict
	for i := range 40 {
		req := named(request(t, stored("a", "")), fmt.Sprint("q", i))
		req.Event = toolEvent(t, fmt.Sprint("op", i))
		waiting = append(waiting, asking(t, c, t.Context(), req))
	}
	for i, w := range waiting {
		equal(t, "reason", receive(t, "a verdict", w).Reason, fmt.Sprint("no q", i))
	}
}
