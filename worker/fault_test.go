package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/worker"
)

// beats counts renewals and sweeps of a store.
type beats struct {
	worker.Store
	renewals, sweeps atomic.Int64
}

func (s *beats) Extend(ctx context.Context, shard int, held []lane.Held) ([]lane.Held, error) {
	lost, err := s.Store.Extend(ctx, shard, held)
	if err == nil {
		s.renewals.Add(1)
	}
	return lost, err
}

func (s *beats) Sweep(ctx context.Context, shard, limit int) (lane.Swept, error) {
	swept, err := s.Store.Sweep(ctx, shard, limit)
	s.sweeps.Add(1)
	return swept, err
}

// A receiver that takes far longer than the lease gets one request: the
// heartbeat holds the lane against a second worker's sweeps.
func TestHeartbeatHoldsALongDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store := &beats{Store: b.store}
	other := &beats{Store: b.store}
	b.receiver.respond = func(ctx context.Context, _ request) webhook.Result {
		// Ten renewals of 300 ms are well past the lease of two seconds.
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for store.renewals.Load()+other.renewals.Load() < 10 {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return webhook.Result{Cancelled: true}
			}
		}
		return ok
	}
	b.events("op", 1, hook("h"))
	cfg := b.config()
	cfg.Store = store
	b.start(cfg)
	cfg.Store = other
	b.start(cfg)
	b.eventually("the delivery", func() bool { return len(b.receiver.sequences("op", "h")) == 1 })
	if n := b.receiver.count(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// A worker that died holding lanes is succeeded when its lease ends, and the
// delivery that was in flight is the only one repeated.
func TestDeadWorkersLanesMoveAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.events("op", 5, hook("h"), hook("i"))
	claims, err := b.store.Claim(t.Context(), 0, 10, 32)
	if err != nil || len(claims) != 1 {
		t.Fatalf("claims = %v, %v", claims, err)
	}
	key := tasks.HookKey(&tasks.Hook{ID: "h", Type: tasks.AfterStep}, 0)
	// The dead worker had settled the first hook of the first event, and no more.
	_, err = b.store.Progress(t.Context(), lane.Step{Queue: claims[0].Queue, Token: claims[0].Token, Actions: []lane.Action{
		{Verb: lane.Delivered, Sequence: 1, TaskID: "e1", Hook: key},
	}})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.start(b.config())
	b.eventually("all deliveries", func() bool {
		return len(b.receiver.sequences("op", "h")) == 4 && len(b.receiver.sequences("op", "i")) == 5
	})
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("recovered after %v, want within the lease of 2s and a sweep", d)
	}
	if diff := cmp.Diff([]int64{2, 3, 4, 5}, b.receiver.sequences("op", "h")); diff != "" {
		t.Errorf("the settled hook (-want +got):\n%s", diff)
	}
	// The dead worker comes back: its token is worth nothing.
	_, err = b.store.Progress(t.Context(), lane.Step{Queue: claims[0].Queue, Token: claims[0].Token, Want: 1})
	if !errors.Is(err, lane.ErrLeaseLost) {
		t.Errorf("stale step = %v, want ErrLeaseLost", err)
	}
}

// Redis is killed and comes back with its data: everything is delivered without
// a worker restart, and readiness says what happened.
func TestRedisRestartWithData(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways})
	b := setupOn(t, server)
	gate := make(chan struct{})
	var once sync.Once
	b.receiver.respond = func(_ context.Context, r request) webhook.Result {
		if r.sequence == 20 {
			once.Do(func() { <-gate })
		}
		return ok
	}
	for i := range 10 {
		b.events(fmt.Sprintf("op-%d", i), 100, hook("h"))
	}
	w := b.start(b.config())
	b.eventually("some deliveries", func() bool { return b.receiver.count() > 50 })
	server.Kill()
	close(gate)
	b.eventually("unready", func() bool { return w.Ready() != nil })
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		op := fmt.Sprintf("op-%d", i)
		b.eventually(op, func() bool {
			seqs := slices.Compact(slices.Sorted(slices.Values(b.receiver.sequences(op, "h"))))
			return len(seqs) == 100
		})
		if !inOrder(b.receiver.sequences(op, "h")) {
			t.Errorf("%s out of order: %v", op, b.receiver.sequences(op, "h"))
		}
	}
	b.eventually("ready", func() bool { return w.Ready() == nil })
}

// Redis comes back empty: the workers go on with new events.
func TestRedisRestartEmpty(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	b := setupOn(t, server)
	var said syncBuffer
	b.log.SetOutput(&said)
	b.events("before", 3, hook("h"))
	w := b.start(b.config())
	b.eventually("the first events", func() bool { return len(b.receiver.sequences("before", "h")) == 3 })
	server.Kill()
	b.eventually("unready", func() bool { return w.Ready() != nil })
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("an append", func() bool {
		_, err := b.store.Append(t.Context(), "after", []lane.Item{b.item("after", 1, hook("h"))})
		return err == nil
	})
	b.eventually("the new event", func() bool { return len(b.receiver.sequences("after", "h")) == 1 })
	b.eventually("a log line about the loss", func() bool { return strings.Contains(said.String(), "redis.data_lost") })
}

// Workers are stopped again and again under load: each ends within its grace
// period, nothing is lost, no attempt is charged, and no delivery is repeated,
// because each one in flight is allowed to finish.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var busy sync.WaitGroup
	b.receiver.respond = func(_ context.Context, r request) webhook.Result {
		busy.Add(1)
		defer busy.Done()
		if r.attempt != 1 {
			t.Errorf("attempt %d of %s %d: a stop charged an attempt", r.attempt, r.op, r.sequence)
		}
		return ok
	}
	const operations, events = 20, 100
	for i := range operations {
		b.events(fmt.Sprintf("op-%d", i), events, hook("h"))
	}
	for stops := 0; b.receiver.count() < operations*events; stops++ {
		if stops > 1000 {
			t.Fatal("no progress over 1000 workers")
		}
		w, err := worker.New(b.config())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := b.receiver.count()
		b.eventually("some work", func() bool { return b.receiver.count() >= min(before+100, operations*events) })
		if err := w.Stop(t.Context()); err != nil {
			t.Fatalf("stop: %v", err)
		}
	}
	busy.Wait()
	for i := range operations {
		op := fmt.Sprintf("op-%d", i)
		if diff := cmp.Diff(upTo(events), b.receiver.sequences(op, "h")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", op, diff)
		}
	}
}

// A delivery that outlasts the grace period is cut off and handed back without
// charging an attempt.
func TestStopCutsOffAfterGrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	started := make(chan struct{}, 1)
	var hang atomic.Bool
	hang.Store(true)
	b.receiver.respond = func(ctx context.Context, _ request) webhook.Result {
		if hang.Load() {
			started <- struct{}{}
			<-ctx.Done()
			return webhook.Result{Cancelled: true}
		}
		return ok
	}
	b.events("op", 2, hook("h"))
	cfg := b.config()
	cfg.Grace = 50 * time.Millisecond
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-started
	if err := w.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	hang.Store(false)
	b.start(b.config())
	b.eventually("both events", func() bool { return len(b.receiver.sequences("op", "h")) == 2 })
	b.receiver.mu.Lock()
	defer b.receiver.mu.Unlock()
	for _, r := range b.receiver.requests {
		if r.attempt != 1 {
			t.Errorf("attempt %d was charged, want 1", r.attempt)
		}
	}
}

// environment is a set of environment hooks that a test changes.
type environment struct {
	mu    sync.Mutex
	hooks []tasks.Hook
	err   error
}

func (e *environment) read() ([]tasks.Hook, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hooks, e.err
}

func (e *environment) set(hooks []tasks.Hook, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hooks, e.err = hooks, err
}

// Environment hooks are read at each event: one that goes while its delivery is
// parked is discarded on the record, and new events do not know it.
func TestEnvironmentHookThatGoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	name := tasks.ReservedIDPrefix + "afterStep"
	env := &environment{hooks: []tasks.Hook{hook(name)}}
	b.receiver.respond = func(_ context.Context, r request) webhook.Result {
		if r.hook == name && r.sequence == 1 {
			env.set(nil, nil)
			return status(500)
		}
		return ok
	}
	b.events("op", 3, hook("h"))
	cfg := b.config()
	cfg.EnvironmentHooks = env.read
	b.start(cfg)
	b.eventually("a discarded delivery", func() bool {
		st, err := b.store.Status(t.Context(), "op", "e1", lane.Waiter{})
		return err == nil && len(st.Outcomes) == 1 && st.Outcomes[0].Standing == lane.StandingDiscarded &&
			st.Outcomes[0].Reason == tasks.ReasonHookRemoved
	})
	b.eventually("the caller's hook", func() bool { return len(b.receiver.sequences("op", "h")) == 3 })
	if got := b.receiver.attempted("op", name); len(got) != 1 {
		t.Errorf("the environment hook got %v, want the first event only", got)
	}
}

// While the environment hooks are invalid nobody knows whom an event must
// reach: work waits, and goes on when they are valid again.
func TestInvalidEnvironmentHoldsWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	env := &environment{}
	cfg := b.config()
	cfg.EnvironmentHooks = env.read
	w := b.start(cfg)
	env.set(nil, errors.New("AGENT_HOOK_WEBHOOK_EVENTS: unknown event"))
	b.eventually("unready", func() bool { return w.Ready() != nil })
	b.events("op", 2, hook("h"))
	if err := w.Ready(); err == nil || !strings.Contains(err.Error(), "AGENT_HOOK_WEBHOOK_EVENTS") {
		t.Errorf("ready = %v, want the variable's name", err)
	}
	if n := b.receiver.count(); n != 0 {
		t.Errorf("%d requests while the environment was invalid", n)
	}
	env.set(nil, nil)
	b.eventually("the held events", func() bool { return len(b.receiver.sequences("op", "h")) == 2 })
	b.eventually("ready", func() bool { return w.Ready() == nil })
}

// Any asynq client may enqueue a serialized task; what is no task is
// quarantined once, not archived.
func TestAsynqDoor(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	b := setupOn(t, server)
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	// asynq reads from a closed client's channel without looking; the worker must
	// stop first, so this comes before its own cleanup.
	t.Cleanup(func() { _ = c.Close() })
	cfg := b.config()
	cfg.Asynq = c
	b.start(cfg)
	client := asynq.NewClientFromRedisClient(c)
	it := b.item("op", 1, hook("h"))
	for _, payload := range [][]byte{it.Doc, it.Doc, []byte(`{"v":1`), []byte(`{"v":1`)} {
		if _, err := client.Enqueue(asynq.NewTask(tasks.TypeHookDispatch, payload), asynq.Queue(cfg.Namespace)); err != nil {
			t.Fatal(err)
		}
	}
	b.eventually("the delivery", func() bool { return len(b.receiver.sequences("op", "h")) == 1 })
	b.eventually("the quarantine", func() bool {
		page, err := b.store.Dead(t.Context(), lane.DeadFilter{})
		return err == nil && len(page.Letters) == 1 && string(page.Letters[0].Poison) == `{"v":1`
	})
	inspector := asynq.NewInspectorFromRedisClient(c)
	b.eventually("an empty asynq queue", func() bool {
		info, err := inspector.GetQueueInfo(cfg.Namespace)
		return err == nil && info.Size == 0
	})
	if n := b.receiver.count(); n != 1 {
		t.Errorf("%d requests, want 1: the second task is a duplicate", n)
	}
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// stuck is a store whose steps never get through.
type stuck struct {
	worker.Store
	steps atomic.Int64
}

func (s *stuck) Progress(context.Context, lane.Step) (lane.Progress, error) {
	s.steps.Add(1)
	return lane.Progress{}, lane.ErrUnavailable
}

// A step that never gets through ends with the worker, although the heartbeat
// keeps the lease: Stop says so, nothing of the worker asks Redis afterwards, and
// another worker takes the lane over.
func TestStopEndsStepsThatNeverGetThrough(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.events("op", 1, hook("h"))
	store := &stuck{Store: b.store}
	cfg := b.config()
	cfg.Store, cfg.Grace = store, 50*time.Millisecond
	w, err := worker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.eventually("a repeated step", func() bool { return store.steps.Load() > 1 })
	if err := w.Stop(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop = %v, want the end of its patience", err)
	}
	steps := store.steps.Load()
	if steps > 20 {
		t.Errorf("%d steps in a few seconds: the worker did not pause between them", steps)
	}
	b.start(b.config())
	b.eventually("the delivery by another worker", func() bool { return len(b.receiver.sequences("op", "h")) == 2 })
	if n := store.steps.Load(); n != steps {
		t.Errorf("%d steps after Stop", n-steps)
	}
}

// A second Stop waits for the first one, and no longer than its own context.
func TestStopTwice(t *testing.T) {
	t.Parallel()
	b := setup(t)
	started, release := make(chan struct{}), make(chan struct{})
	b.receiver.respond = func(context.Context, request) webhook.Result {
		close(started)
		<-release
		return ok
	}
	b.events("op", 1, hook("h"))
	w := b.start(b.config())
	<-started
	first := make(chan error, 1)
	go func() { first <- w.Stop(context.Background()) }()
	b.eventually("the stop", func() bool { return errors.Is(w.Ready(), worker.ErrStopped) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("second stop = %v while the first one waits, want the end of its context", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Errorf("first stop = %v", err)
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Errorf("stop after the stop = %v", err)
	}
}
