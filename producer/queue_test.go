package producer_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

func TestQueueDispatchRaisesCriticalFailuresInRegistrationOrder(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	dual := webhookHook("dual", "")
	dual.Handler = func(context.Context, *tasks.Event) error { panic("handlers do not run in queue mode") }
	register(t, q.Dispatcher, webhookHook("ok", tasks.FallbackNone), webhookHook("z", tasks.FallbackNone), dual,
		tasks.Hook{ID: "local", Type: tasks.OnComplete, Handler: dual.Handler},
		webhookHook("m", ""), webhookHook("a", tasks.FallbackNone))
	worker := work(t, q.store, map[string]ruling{"z": parked(time.Hour), "m": parked(time.Hour), "a": buried()}, nil)

	err := q.Dispatch(t.Context(), operation, event(t), producer.WithID("ev-1"))
	var critical *producer.CriticalHookDeliveryError
	if !errors.As(err, &critical) {
		t.Fatalf("dispatch returned %v, want a critical error", err)
	}
	want := []producer.HookFailure{
		{HookID: "z", Standing: lane.StandingParked, Class: tasks.ClassHTTP5xx, Status: 503, Attempt: 1, Message: "status 503"},
		{
			HookID: "a", Standing: lane.StandingDead, Class: tasks.ClassHTTP4xx, Status: 410, Attempt: 1,
			Reason: tasks.ReasonEndpointGone, Message: "status 410",
		},
	}
	if diff := cmp.Diff(want, critical.Causes, cmpopts.IgnoreFields(producer.HookFailure{}, "DueAt")); diff != "" {
		t.Fatalf("causes (-want +got):\n%s", diff)
	}
	if due := time.Until(critical.Causes[0].DueAt); due < 50*time.Minute || due > 70*time.Minute {
		t.Fatalf("parked hook is due in %s, want about an hour", due)
	}
	worker.calls.want(t, "ev-1/ok", "ev-1/z", "ev-1/dual", "ev-1/m", "ev-1/a")

	// The repeated call joins: it raises the same and delivers nothing again.
	again := q.Dispatch(t.Context(), operation, event(t), producer.WithID("ev-1"))
	var joined *producer.CriticalHookDeliveryError
	if !errors.As(again, &joined) {
		t.Fatalf("repeated dispatch returned %v, want a critical error", again)
	}
	if diff := cmp.Diff(critical.Causes, joined.Causes); diff != "" {
		t.Fatalf("causes of the repeated dispatch (-first +second):\n%s", diff)
	}
	worker.calls.want(t, "ev-1/ok", "ev-1/z", "ev-1/dual", "ev-1/m", "ev-1/a")
	q.logs.want(t) // the worker logs failures, nobody logs them twice
}

func TestQueueDispatchBehindAParkedHookIsNotDelivered(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, webhookHook("a", tasks.FallbackNone))
	worker := work(t, q.store, map[string]ruling{"a": {verb: lane.Behind, outcome: lane.Outcome{Standing: lane.StandingWaiting}}}, nil)
	worker.mu.Lock()
	worker.rulings["a"] = parked(time.Hour)
	worker.mu.Unlock()
	if err := q.Dispatch(t.Context(), operation, event(t)); !errors.Is(err, producer.ErrCriticalHookDelivery) {
		t.Fatalf("first dispatch returned %v", err)
	}
	worker.mu.Lock()
	worker.rulings["a"] = ruling{verb: lane.Behind, outcome: lane.Outcome{Standing: lane.StandingWaiting}}
	worker.mu.Unlock()
	err := q.Dispatch(t.Context(), operation, event(t))
	var cause *producer.HookFailureError
	if !errors.As(err, &cause) || cause.Standing != lane.StandingWaiting {
		t.Fatalf("second dispatch returned %v, want one that waits", err)
	}
}

func TestConcurrentDispatchesOfOneEventDeliverOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, webhookHook("a", ""))
	worker := work(t, q.store, nil, nil)
	var group sync.WaitGroup
	errs := make(chan error, 50)
	for range 50 {
		group.Go(func() { errs <- q.Dispatch(t.Context(), operation, event(t), producer.WithID("same")) })
	}
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatalf("dispatch: %v", err)
		}
	}
	worker.calls.want(t, "same/a")
}

func TestQueueDispatchRefusesAReusedID(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, webhookHook("a", ""))
	work(t, q.store, nil, nil)
	if err := q.Dispatch(t.Context(), operation, event(t), producer.WithID("ev")); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	other := eventOf(t, tasks.OnComplete, `{"agentId":"ag","operationId":"op","userId":"someone else"}`)
	var reused *lane.ReusedError
	if err := q.Dispatch(t.Context(), operation, other, producer.WithID("ev")); !errors.As(err, &reused) || reused.ID != "ev" {
		t.Fatalf("dispatch returned %v, want a reused id", err)
	}
}

func TestAnEventThatMatchesNothingIsNotStored(t *testing.T) {
	t.Parallel()
	matcher := "^browser/"
	for name, row := range map[string]struct {
		prepare func(t *testing.T, q *queue)
		event   func(testing.TB) *tasks.Event
		options []producer.EventOption
		stored  bool
	}{
		"no hooks anywhere": {prepare: func(t *testing.T, q *queue) { q.publish(t) }, event: event},
		"only another type, a control and another tool": {
			prepare: func(t *testing.T, q *queue) {
				q.publish(t, lane.PublishedHook{Type: tasks.OnError}, lane.PublishedHook{Type: tasks.BeforeToolCall, Control: true},
					lane.PublishedHook{Type: tasks.BeforeToolCall, Matcher: &matcher})
			},
			event: toolEvent,
		},
		"an empty persisted list beside a registration": {
			prepare: func(t *testing.T, q *queue) { q.publish(t); register(t, q.Dispatcher, webhookHook("a", "")) },
			event:   event, options: []producer.EventOption{producer.WithPersisted(json.RawMessage(`[]`))},
		},
		"only a handler": {
			prepare: func(t *testing.T, q *queue) {
				q.publish(t)
				register(t, q.Dispatcher, tasks.Hook{ID: "h", Type: tasks.OnComplete, Handler: (&calls{}).handler("h", nil)})
			},
			event: event,
		},
		"a worker's environment hook": {
			prepare: func(t *testing.T, q *queue) { q.publish(t, lane.PublishedHook{Type: tasks.OnComplete}) }, event: event, stored: true,
		},
		"no worker is known": {prepare: func(*testing.T, *queue) {}, event: event, stored: true},
		"a persisted hook": {
			prepare: func(t *testing.T, q *queue) { q.publish(t) }, event: event, stored: true,
			options: []producer.EventOption{producer.WithPersisted(json.RawMessage(`[{"id":"p","type":"onComplete","webhook":{"url":"/x"}}]`))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			row.prepare(t, q)
			receipt, err := q.Enqueue(t.Context(), operation, row.event(t), row.options...)
			if err != nil {
				t.Fatalf("enqueue: %v", err)
			}
			want := int64(0)
			if row.stored {
				want = 1
			}
			if got := q.waiting(t); got != want || receipt.Skipped == row.stored {
				t.Fatalf("%d events stored, receipt %+v; want %d", got, receipt, want)
			}
			if !row.stored {
				if err := q.Dispatch(t.Context(), operation, row.event(t), row.options...); err != nil {
					t.Fatalf("dispatch: %v", err)
				}
			}
		})
	}
}

func TestATaskCarriesOnlyTheMatchingCallerHooks(t *testing.T) {
	t.Parallel()
	q := newQueueAt(t, servertest.FlushedClient(t).Options(), func(c *producer.Config) {
		c.Now = func() time.Time { return time.UnixMilli(12345) }
		c.EnvironmentHooks = func() ([]tasks.Hook, error) {
			return []tasks.Hook{{ID: tasks.ReservedIDPrefix + "x", Type: tasks.BeforeToolCall, Webhook: &tasks.Webhook{URL: "https://env.test/"}}}, nil
		}
	})
	shell, browser := "^shell/", "^browser/"
	hook := func(id string, matcher *string, handling tasks.ResponseHandling) tasks.Hook {
		return tasks.Hook{ID: id, Type: tasks.BeforeToolCall, Matcher: matcher, Webhook: &tasks.Webhook{
			URL: "https://rx.test/" + id, ResponseHandling: handling,
		}}
	}
	register(t, q.Dispatcher, hook("match", &shell, ""), hook("miss", &browser, ""), hook("control", nil, tasks.HandleToolCall), webhookHook("type", ""))
	ev := toolEvent(t)
	receipt, err := q.Enqueue(t.Context(), operation, ev, producer.WithTrace("00-11111111111111111111111111111111-2222222222222222-01"))
	if err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	claims, err := q.store.Claim(t.Context(), 0, 1, 1)
	if err != nil || len(claims) != 1 {
		t.Fatalf("claim: %d, %v", len(claims), err)
	}
	task, err := tasks.DecodeTask(claims[0].Entries[0].Doc)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	want := &tasks.Task{
		ID: receipt.ID, OperationID: operation, Type: tasks.BeforeToolCall, Event: ev.Raw, EnqueuedAt: 12345,
		Hooks: persisted(t, hook("match", &shell, "")), Trace: "00-11111111111111111111111111111111-2222222222222222-01",
	}
	if diff := cmp.Diff(want, task, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("task (-want +got):\n%s", diff)
	}
}

func TestQueueDispatchRefusesAnInvalidPersistedListBeforeAnythingIsStored(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, webhookHook("a", ""))
	err := q.Dispatch(t.Context(), operation, event(t), producer.WithPersisted(json.RawMessage(`[{"id":"p","type":"onComplete"}]`)))
	var invalid *tasks.InvalidError
	if !errors.As(err, &invalid) || q.waiting(t) != 0 {
		t.Fatalf("dispatch returned %v with %d events stored", err, q.waiting(t))
	}
}

func TestAnEventAppendedBeforeUnregisterIsDelivered(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, webhookHook("a", ""))
	receipt, err := q.Enqueue(t.Context(), operation, event(t), producer.WithID("ev"))
	if err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	if err := q.Unregister(t.Context(), operation); err != nil {
		t.Fatalf("unregister: %v", err)
	}
	worker := work(t, q.store, nil, nil)
	result, err := q.Await(t.Context(), operation, receipt.ID)
	if err != nil || !result.Delivered() {
		t.Fatalf("await: %+v, %v", result, err)
	}
	worker.calls.want(t, "ev/a")
	if q.HasHooks(operation) {
		t.Fatal("hooks are still registered")
	}
}

// blockedConnections counts the connections that wait in a blocking pop now.
func blockedConnections(t *testing.T, q *queue) int {
	t.Helper()
	list, err := q.client.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatalf("list clients: %v", err)
	}
	n := 0
	for line := range strings.Lines(list) {
		if strings.Contains(line, " name="+blockingName+" ") && strings.Contains(line, " cmd=blpop ") &&
			strings.Contains(line, " db="+databaseOf(q)+" ") {
			n++
		}
	}
	return n
}

func TestManyWaitersShareOneBlockingConnection(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, webhookHook("a", ""))
	hold := make(chan struct{})
	var group sync.WaitGroup
	errs := make(chan error, 100)
	for range 100 {
		group.Go(func() { errs <- q.Dispatch(t.Context(), operation, event(t)) })
	}
	for q.waiting(t) < 100 {
		if t.Context().Err() != nil {
			t.Fatal("events were not appended")
		}
	}
	// Between two waits the connection is idle for a moment.
	ears := 0
	for ears == 0 && t.Context().Err() == nil {
		ears = blockedConnections(t, q)
	}
	if ears != 1 {
		t.Fatalf("100 waiters hold %d blocking connections, want 1", ears)
	}
	work(t, q.store, nil, hold)
	close(hold)
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatalf("dispatch: %v", err)
		}
	}
}

func TestRedisAwayIsAClearErrorWithinTheDeadline(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways})
	q := newQueueAt(t, options(server.Addr()), nil)
	register(t, q.Dispatcher, webhookHook("a", ""))
	server.Kill()

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := q.Dispatch(ctx, operation, event(t), producer.WithID("ev"))
	if took := time.Since(start); took > 2*time.Second {
		t.Fatalf("dispatch took %s with a deadline of 500ms", took)
	}
	var unavailable *producer.UnavailableError
	if !errors.As(err, &unavailable) || !errors.Is(err, lane.ErrUnavailable) || !cmp.Equal(unavailable.EventIDs, []string{"ev"}) {
		t.Fatalf("dispatch returned %v, want an unavailable error with the id", err)
	}
	if _, err := q.Enqueue(t.Context(), operation, event(t)); !errors.As(err, &unavailable) || len(unavailable.EventIDs) != 1 {
		t.Fatalf("enqueue returned %v, want an unavailable error with the drawn id", err)
	}

	if err := server.Restart(t.Context()); err != nil {
		t.Fatalf("restart: %v", err)
	}
	work(t, q.store, nil, nil)
	if err := q.Dispatch(t.Context(), operation, event(t), producer.WithID("ev")); err != nil {
		t.Fatalf("repeated dispatch: %v", err)
	}
}

func TestAWaitOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways})
	q := newQueueAt(t, options(server.Addr()), nil)
	register(t, q.Dispatcher, webhookHook("a", ""))
	// The append must have been answered: one that is cut off is an error, rightly.
	if _, err := q.Enqueue(t.Context(), operation, event(t), producer.WithID("ev")); err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := q.Await(t.Context(), operation, "ev")
		done <- err
	}()
	server.Kill()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatalf("restart: %v", err)
	}
	work(t, q.store, nil, nil)
	if err := <-done; err != nil {
		t.Fatalf("await: %v", err)
	}
}

func TestAwaitKnowsNothingOfAnUnknownEvent(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	if _, err := q.Await(t.Context(), operation, "never"); !errors.Is(err, lane.ErrNotFound) {
		t.Fatalf("await returned %v", err)
	}
}

func TestAwaitWaitsForTheFinalOutcome(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, webhookHook("a", tasks.FallbackNone), webhookHook("b", ""), webhookHook("d", tasks.FallbackNone))
	work(t, q.store, map[string]ruling{"a": parked(20 * time.Millisecond), "b": buried()}, nil)
	receipt, err := q.Enqueue(t.Context(), operation, event(t))
	if err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	result, err := q.Await(t.Context(), operation, receipt.ID)
	if err != nil {
		t.Fatalf("await: %v", err)
	}
	want := []producer.HookFailure{{
		HookID: "b", Standing: lane.StandingDead, Class: tasks.ClassHTTP4xx, Status: 410, Attempt: 1,
		Reason: tasks.ReasonEndpointGone, Message: "status 410",
	}}
	if diff := cmp.Diff(want, result.Failures); diff != "" || result.Delivered() || result.Err() != nil || result.Sequence != 1 {
		t.Fatalf("result %+v, err %v (-want +got):\n%s", result, result.Err(), diff)
	}
	first, err := q.AwaitFirst(t.Context(), operation, receipt.ID)
	if err != nil || len(first.Failures) != 1 {
		t.Fatalf("await first: %+v, %v", first, err)
	}
}

func TestQueueModeNeverMocks(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, tasks.Hook{ID: "a", Type: tasks.BeforeToolCall, Handler: func(_ context.Context, ev *tasks.Event) error {
		ev.Mock(tasks.ToolResult{Content: "one"})
		return nil
	}})
	if got, err := q.DispatchBeforeToolCall(t.Context(), operation, toolEvent(t)); got != nil || err != nil {
		t.Fatalf("dispatch returned %v, %v", got, err)
	}
}

func TestCanDeliverInQueueModeCountsWebhooksAndPublishedHooks(t *testing.T) {
	t.Parallel()
	unknown := newQueue(t)
	if can, err := unknown.CanDeliver(t.Context(), operation, tasks.AfterStep); err != nil || !can {
		t.Fatalf("without a known worker: %v, %v; want true", can, err)
	}
	q := newQueue(t)
	q.publish(t, lane.PublishedHook{Type: tasks.OnError})
	register(t, q.Dispatcher, webhookHook("a", ""), tasks.Hook{ID: "h", Type: tasks.AfterStep, Handler: (&calls{}).handler("h", nil)})
	for hookType, want := range map[tasks.HookType]bool{
		tasks.OnComplete: true, tasks.OnError: true, tasks.AfterStep: false, tasks.BeforeStep: false,
	} {
		if got, err := q.CanDeliver(t.Context(), operation, hookType); err != nil || got != want {
			t.Errorf("can deliver %s: %v, %v; want %v", hookType, got, err, want)
		}
	}
}
