package producer_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

func TestEnqueueManyKeepsOrderAndTellsEachFate(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.publish(t)
	register(t, q.Dispatcher, webhookHook("a", ""))
	skipped := eventOf(t, tasks.OnError, `{"agentId":"ag","operationId":"op","userId":"u"}`)
	receipts, err := q.EnqueueMany(t.Context(), operation, []producer.EventRequest{
		{Event: event(t), ID: "1"}, {Event: skipped, ID: "2"}, {Event: event(t), ID: "3"}, {Event: event(t), ID: "1"},
	})
	if err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	want := []producer.Receipt{
		{ID: "1", Sequence: 1}, {ID: "2", Skipped: true}, {ID: "3", Sequence: 2}, {ID: "1", Sequence: 1, Duplicate: true},
	}
	if diff := cmp.Diff(want, receipts); diff != "" {
		t.Fatalf("receipts (-want +got):\n%s", diff)
	}
	worker := work(t, q.store, nil, nil)
	if _, err := q.Await(t.Context(), operation, "3"); err != nil {
		t.Fatalf("await: %v", err)
	}
	worker.calls.want(t, "1/a", "3/a")
}

func TestEnqueueManyStoresNothingOfAnInvalidBatch(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, webhookHook("a", ""))
	bad := producer.EventRequest{Event: event(t), Persisted: json.RawMessage(`[{"id":1}]`)}
	_, err := q.EnqueueMany(t.Context(), operation, []producer.EventRequest{{Event: event(t)}, bad})
	var member *producer.BatchError
	var invalid *tasks.InvalidError
	if !errors.As(err, &member) || member.Index != 1 || !errors.As(err, &invalid) {
		t.Fatalf("enqueue returned %v, want an invalid event 1", err)
	}
	if _, err := q.Enqueue(t.Context(), operation, event(t), producer.WithPersisted(bad.Persisted)); errors.As(err, &member) || err == nil {
		t.Fatalf("enqueue of one returned %v, want an error without an index", err)
	}
	if got := q.waiting(t); got != 0 {
		t.Fatalf("%d events are stored", got)
	}
}

func TestEnqueueManyRefusesABatchOverTheLimit(t *testing.T) {
	t.Parallel()
	q := newQueueAt(t, servertest.FlushedClient(t).Options(), func(c *producer.Config) { c.MaxBatch = 2 })
	events := []producer.EventRequest{{Event: event(t)}, {Event: event(t)}}
	if _, err := q.EnqueueMany(t.Context(), operation, events); err != nil {
		t.Fatalf("enqueue at the limit: %v", err)
	}
	events = append(events, producer.EventRequest{Event: event(t)})
	if _, err := q.EnqueueMany(t.Context(), operation, events); !errors.Is(err, producer.ErrBatchTooLarge) || !errors.Is(err, producer.ErrInvalidRequest) {
		t.Fatalf("enqueue over the limit returned %v", err)
	}
}

// Each event carries its hooks: a batch of small events with many hooks took
// Redis so long that it failed with every repetition.
func TestEnqueueManyRefusesABatchOfTooManyBytes(t *testing.T) {
	t.Parallel()
	const limit = 4096
	q := newQueueAt(t, servertest.FlushedClient(t).Options(), func(c *producer.Config) { c.MaxBatchBytes = limit })
	hooks := []byte(`[{"id":"` + strings.Repeat("h", limit/2) + `","type":"onComplete","webhook":{"url":"https://x.test/"}}]`)
	two := []producer.EventRequest{{Event: event(t), Persisted: hooks}, {Event: event(t), Persisted: hooks}}
	if _, err := q.EnqueueMany(t.Context(), operation, two); !errors.Is(err, producer.ErrBatchTooLarge) {
		t.Fatalf("enqueue over the limit returned %v", err)
	}
	if got := q.waiting(t); got != 0 {
		t.Fatalf("%d events are stored", got)
	}
	for i := range two {
		if _, err := q.EnqueueMany(t.Context(), operation, two[i:i+1]); err != nil {
			t.Fatalf("enqueue one by one: %v", err)
		}
	}
}

func TestEnqueueBatchIsAtomicPerOperation(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	item := func(operationID, id string) producer.BatchItem {
		raw := fmt.Sprintf(`{"agentId":"ag","operationId":%q,"userId":"u"}`, operationID)
		ev, err := tasks.ParseEvent(tasks.OnComplete, operationID, []byte(raw))
		if err != nil {
			t.Fatalf("parse event: %v", err)
		}
		return producer.BatchItem{OperationID: operationID, EventRequest: producer.EventRequest{Event: ev, ID: id}}
	}
	broken := item("op", "x")
	broken.Delay = -1
	results := q.EnqueueBatch(t.Context(), []producer.BatchItem{
		item("good", "1"), item("op", "1"), item("good", "2"), broken, item("other", "1"),
	})
	for i, want := range []producer.BatchResult{
		{Receipt: producer.Receipt{ID: "1", Sequence: 1}},
		{Err: producer.ErrInvalidRequest},
		{Receipt: producer.Receipt{ID: "2", Sequence: 2}},
		{Err: producer.ErrInvalidRequest},
		{Receipt: producer.Receipt{ID: "1", Sequence: 1}},
	} {
		if !errors.Is(results[i].Err, want.Err) || !cmp.Equal(results[i].Receipt, want.Receipt) {
			t.Errorf("item %d: %+v, want %+v", i, results[i], want)
		}
		var member *producer.BatchError
		if want.Err != nil && (!errors.As(results[i].Err, &member) || member.Index != 3) {
			t.Errorf("item %d: %v, want to name item 3", i, results[i].Err)
		}
	}
	if got := q.waiting(t); got != 0 {
		t.Fatalf("%d events of the invalid operation are stored", got)
	}
}

func TestADelayedEventIsNeverEarly(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	register(t, q.Dispatcher, webhookHook("a", ""))
	worker := work(t, q.store, nil, nil)
	start := time.Now()
	receipt, err := q.Enqueue(t.Context(), operation, event(t), producer.WithID("late"), producer.WithDelay(200*time.Millisecond))
	if err != nil || receipt.Sequence != 0 {
		t.Fatalf("enqueue: %+v, %v", receipt, err)
	}
	if err := q.Dispatch(t.Context(), operation, event(t), producer.WithID("now")); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	result, err := q.Await(t.Context(), operation, "late")
	if err != nil || result.Sequence != 2 {
		t.Fatalf("await: %+v, %v", result, err)
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Fatalf("the event came %s after it was enqueued", took)
	}
	worker.calls.want(t, "now/a", "late/a")
}

func TestMetricsCountWhatHappens(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	q := newQueueAt(t, servertest.FlushedClient(t).Options(), func(c *producer.Config) { c.Registerer = registry })
	q.publish(t)
	if _, err := producer.New(producer.Config{Registerer: registry}); err != nil {
		t.Fatalf("a second dispatcher on one registerer: %v", err)
	}
	register(t, q.Dispatcher, webhookHook("a", tasks.FallbackNone))
	work(t, q.store, map[string]ruling{"a": parked(time.Hour)}, nil)
	for range 2 {
		if err := q.Dispatch(t.Context(), operation, event(t), producer.WithID("ev")); !errors.Is(err, producer.ErrCriticalHookDelivery) {
			t.Fatalf("dispatch returned %v", err)
		}
	}
	other := eventOf(t, tasks.OnComplete, `{"agentId":"ag","operationId":"op","userId":"other"}`)
	var reused *lane.ReusedError
	if err := q.Dispatch(t.Context(), operation, other, producer.WithID("ev")); !errors.As(err, &reused) {
		t.Fatalf("dispatch returned %v", err)
	}
	if err := q.Dispatch(t.Context(), operation, eventOf(t, tasks.OnError, string(event(t).Raw))); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	want := map[string]float64{
		"gantry_producer_events_total appended": 1, "gantry_producer_events_total duplicate": 1,
		"gantry_producer_events_total skipped": 1, "gantry_producer_events_total refused": 1,
		"gantry_producer_events_total unavailable": 0, "gantry_producer_dispatches_total queue": 4,
		"gantry_producer_dispatches_total local": 0, "gantry_producer_critical_errors_total": 2,
		"gantry_producer_joins_total": 1, "gantry_producer_waiters": 0,
	}
	if diff := cmp.Diff(want, gathered(t, registry)); diff != "" {
		t.Fatalf("metrics (-want +got):\n%s", diff)
	}
}

// gathered returns counters and gauges by name and label.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := family.GetName()
			for _, label := range metric.GetLabel() {
				name += " " + label.GetValue()
			}
			switch {
			case metric.GetCounter() != nil:
				got[name] = metric.GetCounter().GetValue()
			case metric.GetGauge() != nil:
				got[name] = metric.GetGauge().GetValue()
			}
		}
	}
	return got
}
