package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/worker"
)

// An endpoint fails one event twice: later events of the hook wait for it, and
// nothing else does.
func TestFailingEventKeepsItsPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.receiver.respond = func(_ context.Context, r request) webhook.Result {
		if r.op == "slow" && r.sequence == 3 && r.attempt < 3 {
			return status(500)
		}
		return ok
	}
	b.events("slow", 500, hook("h"))
	b.events("quick", 50, hook("h"))
	b.start(b.config())
	b.eventually("500 deliveries", func() bool { return len(b.receiver.sequences("slow", "h")) == 500 })
	want := append([]int64{1, 2, 3, 3}, upTo(500)[2:]...)
	if diff := cmp.Diff(want, b.receiver.attempted("slow", "h")); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(upTo(50), b.receiver.sequences("quick", "h")); diff != "" {
		t.Errorf("the other operation (-want +got):\n%s", diff)
	}
}

// Four workers share a deep backlog with a failing request in a hundred.
func TestManyWorkersNeverInvert(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var n atomic.Int64
	b.receiver.respond = func(_ context.Context, r request) webhook.Result {
		if r.attempt == 1 && n.Add(1)%100 == 0 {
			return status(503)
		}
		return ok
	}
	const operations, events = 50, 100
	for i := range operations {
		b.events(fmt.Sprintf("op-%d", i), events, hook("h"))
	}
	for range 4 {
		b.start(b.config())
	}
	for i := range operations {
		op := fmt.Sprintf("op-%d", i)
		b.eventually(op, func() bool { return len(b.receiver.sequences(op, "h")) >= events })
		if diff := cmp.Diff(upTo(events), b.receiver.sequences(op, "h")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", op, diff)
		}
	}
}

// One endpoint is down: the other hook of the same operation gets everything.
func TestFailingHookHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.receiver.respond = func(_ context.Context, r request) webhook.Result {
		if r.hook == "down" {
			return status(500)
		}
		return ok
	}
	b.events("op", 200, hook("down"), hook("up"))
	cfg := b.config()
	cfg.Retry.InitialDelay, cfg.Retry.MaxDelay = time.Hour, time.Hour
	b.start(cfg)
	b.eventually("the healthy hook", func() bool { return len(b.receiver.sequences("op", "up")) == 200 })
	if diff := cmp.Diff(upTo(200), b.receiver.sequences("op", "up")); diff != "" {
		t.Errorf("healthy hook (-want +got):\n%s", diff)
	}
	if got := b.receiver.attempted("op", "down"); len(got) != 1 {
		t.Errorf("the failing hook was attempted %d times, want 1: the rest waits behind it", len(got))
	}
	info, err := b.store.Lane(t.Context(), "op")
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Parked) != 1 || info.Parked[0].Waiting != 200 || info.Parked[0].Outcome.Class != tasks.ClassHTTP5xx {
		t.Errorf("parked = %+v, want the failing hook with 200 deliveries", info.Parked)
	}
}

// An event that fails for ever becomes a dead letter, and the next goes out.
func TestExhaustedDeliveryGivesWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	blocked := make(chan int64, 100)
	b.receiver.respond = func(ctx context.Context, r request) webhook.Result {
		if r.sequence != 3 {
			return ok
		}
		if c, err := b.store.Counts(ctx, 0); err == nil && r.attempt > 1 {
			blocked <- c.Blocked
		}
		return status(500)
	}
	b.events("op", 6, hook("h", critical, attempts(4, 4)))
	b.start(b.config())
	b.eventually("the events after the dead one", func() bool { return len(b.receiver.sequences("op", "h")) == 5 })
	if diff := cmp.Diff([]int64{1, 2, 3, 3, 3, 3, 4, 5, 6}, b.receiver.attempted("op", "h")); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if n := <-blocked; n != 1 {
		t.Errorf("blocked hooks while it failed = %d, want 1", n)
	}
	page, err := b.store.Dead(t.Context(), lane.DeadFilter{OperationID: "op"})
	if err != nil || len(page.Letters) != 1 {
		t.Fatalf("dead letters = %v, %v; want one", page.Letters, err)
	}
	got := page.Letters[0].Outcome
	want := lane.Outcome{
		HookID: "h", HookType: tasks.AfterStep, Standing: lane.StandingDead, Critical: true, Attempt: 4, Class: tasks.ClassHTTP5xx,
		Status: 500, Reason: tasks.ReasonAttemptsExhausted, Message: "Hook HTTP request failed: http_error",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	b.receiver.respond = nil
	if err := b.store.Replay(t.Context(), page.Letters[0].ID); err != nil {
		t.Fatal(err)
	}
	b.eventually("the replay", func() bool { return slices.Contains(b.receiver.sequences("op", "h"), 3) })
}

// The attempt limit of a class gives exactly that many requests.
func TestAttemptLimits(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 4, 31} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.receiver.respond = func(context.Context, request) webhook.Result { return status(403) }
			b.events("op", 1, hook("h", attempts(40, limit)))
			cfg := b.config()
			cfg.Retry.InitialDelay = time.Millisecond
			b.start(cfg)
			b.eventually("a dead letter", func() bool {
				page, err := b.store.Dead(t.Context(), lane.DeadFilter{})
				return err == nil && len(page.Letters) == 1
			})
			if got := b.receiver.count(); got != limit {
				t.Errorf("%d requests, want %d", got, limit)
			}
		})
	}
}

// Entries that are no tasks are quarantined once; the lane goes on.
func TestPoisonIsQuarantinedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.events("op", 1, hook("h"))
	lanes, err := b.client.Keys(ctx, b.store.Namespace()+":{0}:lane:*").Result()
	if err != nil || len(lanes) != 1 {
		t.Fatalf("lane keys = %v, %v", lanes, err)
	}
	deep := fmt.Sprintf("%s%s", string(slices.Repeat([]byte("["), 50)), string(slices.Repeat([]byte("]"), 50)))
	poison := []any{"\xff{", `"text"`, "null", deep, `{"v":99}`}
	if err := b.client.RPush(ctx, lanes[0], poison...).Err(); err != nil {
		t.Fatal(err)
	}
	b.events("other", 3, hook("h"))
	b.start(b.config())
	b.eventually("the quarantine", func() bool {
		page, err := b.store.Dead(ctx, lane.DeadFilter{})
		return err == nil && len(page.Letters) == len(poison)
	})
	page, err := b.store.Dead(ctx, lane.DeadFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range page.Letters {
		if l.Outcome.Reason != tasks.ReasonPoison || len(l.Poison) == 0 {
			t.Errorf("letter %+v, want poison with its bytes", l)
		}
		if err := b.store.Replay(ctx, l.ID); !errors.Is(err, lane.ErrNotReplayable) {
			t.Errorf("replay of poison = %v, want ErrNotReplayable", err)
		}
	}
	b.eventually("the other lane", func() bool { return len(b.receiver.sequences("other", "h")) == 3 })
	if diff := cmp.Diff([]int64{1}, b.receiver.sequences("op", "h")); diff != "" {
		t.Errorf("the poisoned lane's own event (-want +got):\n%s", diff)
	}
}

// A task whose hooks cannot be read is poison, and who waits for it must not take
// it for delivered: a critical hook may have been among them.
func TestPoisonOfATaskIsAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	it := b.item("op", 1, hook("h"))
	it.Doc = []byte(strings.Replace(string(it.Doc), `"id":"h"`, `"id":7`, 1))
	if _, err := b.store.Append(t.Context(), "op", []lane.Item{it, b.item("op", 2, hook("h"))}); err != nil {
		t.Fatal(err)
	}
	b.start(b.config())
	b.eventually("the next event", func() bool { return slices.Equal(b.receiver.sequences("op", "h"), []int64{2}) })
	st, err := b.store.Status(t.Context(), "op", "e1", lane.Waiter{})
	if err != nil || !st.Settled(lane.WaitFinal) || len(st.Outcomes) != 1 {
		t.Fatalf("status = %+v, %v, want one final outcome", st, err)
	}
	want := lane.Outcome{HookType: tasks.AfterStep, Standing: lane.StandingDead, Critical: true, Reason: tasks.ReasonPoison}
	got := st.Outcomes[0]
	got.Message = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
}

// Hooks of one event run in their order, each settled on its own.
func TestHooksOfAnEventRunInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.events("op", 3, hook("a"), hook("b"), hook("a"))
	b.start(b.config())
	b.eventually("nine deliveries", func() bool { return b.receiver.count() == 9 })
	var got []string
	ids := map[string]bool{}
	b.receiver.mu.Lock()
	for _, r := range b.receiver.requests {
		got = append(got, fmt.Sprintf("%s%d", r.hook, r.sequence))
		ids[r.id] = true
	}
	b.receiver.mu.Unlock()
	want := []string{"a1", "b1", "a1", "a2", "b2", "a2", "a3", "b3", "a3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
	if len(ids) != 9 {
		t.Errorf("%d delivery ids, want 9: equal hook ids are two hooks", len(ids))
	}
}

// A busy lane gives its slot to another when its budget is spent.
func TestBusyLaneYields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.events("busy", 300, hook("h"))
	b.events("small", 1, hook("h"))
	cfg := b.config()
	cfg.Concurrency, cfg.Batch, cfg.DrainEvents = 1, 4, 8
	b.start(cfg)
	b.eventually("both lanes", func() bool {
		return len(b.receiver.sequences("busy", "h")) == 300 && len(b.receiver.sequences("small", "h")) == 1
	})
	b.receiver.mu.Lock()
	defer b.receiver.mu.Unlock()
	at := slices.IndexFunc(b.receiver.requests, func(r request) bool { return r.op == "small" })
	if at > 16 {
		t.Errorf("the small lane waited for %d deliveries of the busy one, want about one budget of 8", at)
	}
}

func TestLeaseUnderThreeHeartbeatsIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cfg := b.config()
	cfg.Heartbeat = time.Second
	if _, err := worker.New(cfg); err == nil {
		t.Error("a lease of 2s with heartbeats of 1s was accepted")
	}
}

// Two workers cannot share a registry: the second one is refused, and says why.
func TestSecondWorkerOfARegistryIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	cfg := b.config()
	cfg.Registerer = prometheus.NewRegistry()
	if _, err := worker.New(cfg); err != nil {
		t.Fatal(err)
	}
	var taken prometheus.AlreadyRegisteredError
	if _, err := worker.New(cfg); !errors.As(err, &taken) {
		t.Errorf("second worker = %v, want AlreadyRegisteredError", err)
	}
}
