package producer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

var (
	_ producer.Relay  = (*qstash.Publisher)(nil)
	_ producer.Direct = (*producer.DirectSender)(nil)
)

const tasksEndpoint = "https://gantry.test/v1/qstash/tasks"

// relay is a relay that says one thing after the other, and then takes everything.
type relay struct {
	mu    sync.Mutex
	says  []webhook.PublishResult
	calls [][]webhook.Publication
	hold  func(ctx context.Context)
}

var (
	relayTakes   = webhook.PublishResult{Outcome: webhook.PublishAccepted, Status: 200, MessageID: "m"}
	relayKnows   = webhook.PublishResult{Outcome: webhook.PublishAccepted, Status: 202, MessageID: "m", Duplicate: true}
	relayUnknown = webhook.PublishResult{Outcome: webhook.PublishUnknown, Message: "QStash publish failed (outcome unknown: timeout)"}
	relayRefuses = webhook.PublishResult{Outcome: webhook.PublishRejected, Status: 412}
	relayFails   = webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 502}
	relayBusy    = webhook.PublishResult{Outcome: webhook.PublishThrottled, Status: 429}
	relayUnsent  = webhook.PublishResult{Outcome: webhook.PublishNotSent, Message: "QStash publish failed (not sent: dns)"}
)

func (r *relay) Publish(ctx context.Context, p webhook.Publication) webhook.PublishResult {
	return r.PublishBatch(ctx, []webhook.Publication{p})[0]
}

func (r *relay) PublishBatch(ctx context.Context, ps []webhook.Publication) []webhook.PublishResult {
	r.mu.Lock()
	r.calls = append(r.calls, ps)
	results := make([]webhook.PublishResult, len(ps))
	for i := range results {
		results[i] = relayTakes
		if len(r.says) > 0 {
			results[i], r.says = r.says[0], r.says[1:]
		}
	}
	hold := r.hold
	r.mu.Unlock()
	if hold != nil {
		hold(ctx)
	}
	return results
}

// sent are the documents of all publications in their order.
func (r *relay) sent(t testing.TB) []sentTask {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []sentTask
	for _, p := range slices.Concat(r.calls...) {
		all = append(all, readSent(t, p.Body))
	}
	return all
}

// sentTask is what a message says.
type sentTask struct {
	id    string
	hooks []string
	relay tasks.Relay
}

func readSent(t testing.TB, doc []byte) sentTask {
	t.Helper()
	task, err := tasks.DecodeTask(doc)
	if err != nil {
		t.Fatalf("decode message: %v", err)
	}
	sent := sentTask{id: task.ID}
	if sent.relay, err = task.TakeRelay(); err != nil {
		t.Fatalf("decode message: %v", err)
	}
	hooks, err := tasks.StoredHooks(task.Hooks)
	if err != nil {
		t.Fatalf("decode message: %v", err)
	}
	for _, h := range hooks {
		sent.hooks = append(sent.hooks, h.ID)
	}
	return sent
}

// direct is the endpoint itself.
type direct struct {
	err error
	ids []string
}

func (d *direct) Send(_ context.Context, id string, doc []byte) error {
	task, err := tasks.DecodeTask(doc)
	if err != nil {
		return err
	}
	d.ids = append(d.ids, task.ID+" "+id)
	return d.err
}

func newRelayed(t testing.TB, r *relay, edit func(*producer.Config)) *producer.Dispatcher {
	t.Helper()
	config := producer.Config{Mode: producer.ModeQStash, Namespace: "ns", QStash: producer.QStashConfig{Endpoint: tasksEndpoint, Relay: r}}
	if edit != nil {
		edit(&config)
	}
	d, err := producer.New(config)
	if err != nil {
		t.Fatalf("new dispatcher: %v", err)
	}
	t.Cleanup(d.Close)
	return d
}

func TestRelayedEvent(t *testing.T) {
	t.Parallel()
	r := &relay{}
	d := newRelayed(t, r, func(c *producer.Config) { c.Now = func() time.Time { return time.UnixMilli(7) } })
	register(t, d, webhookHook("a", ""), webhookHook("b", tasks.FallbackNone))
	if err := d.Dispatch(t.Context(), operation, event(t), producer.WithID("e1"), producer.WithTrace("00-a-b-01")); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	receipt, err := d.Enqueue(t.Context(), operation, event(t), producer.WithID("e2"))
	if diff := cmp.Diff(producer.Receipt{ID: "e2"}, receipt); diff != "" || err != nil {
		t.Fatalf("receipt: %v (-want +got):\n%s", err, diff)
	}
	sent := r.sent(t)
	stream := sent[0].relay.Stream
	want := []sentTask{
		{id: "e1", hooks: []string{"a", "b"}, relay: tasks.Relay{Stream: stream, Sequence: 1, Retries: 5}},
		{id: "e2", hooks: []string{"a", "b"}, relay: tasks.Relay{Stream: stream, Sequence: 2, Retries: 5}},
	}
	if diff := cmp.Diff(want, sent, cmp.AllowUnexported(sentTask{})); diff != "" || stream == "" {
		t.Fatalf("messages (-want +got):\n%s", diff)
	}
	got := r.calls[0][0]
	got.Body = nil
	publication := webhook.Publication{
		URL: tasksEndpoint, Header: http.Header{"Content-Type": {"application/json"}}, Timeout: 30 * time.Second,
		DeliveryID: tasks.DeliveryID("ns", operation, "e1", "tasks"), OperationID: operation, Type: tasks.OnComplete,
		Retry: &tasks.RetryOptions{Attempts: 6},
	}
	if diff := cmp.Diff(publication, got); diff != "" {
		t.Errorf("publication (-want +got):\n%s", diff)
	}
	var doc struct {
		EnqueuedAt int64  `json:"enqueuedAt"`
		Trace      string `json:"trace"`
	}
	if err := json.Unmarshal(r.calls[0][0].Body, &doc); err != nil || doc.EnqueuedAt != 7 || doc.Trace != "00-a-b-01" {
		t.Errorf("document: %+v, %v", doc, err)
	}
}

// One message for each hook carries that hook alone, under the id of its
// delivery, and no hook stands in the way of another.
func TestRelayedHooks(t *testing.T) {
	t.Parallel()
	r := &relay{}
	env := webhookHook(tasks.ReservedIDPrefix+"onComplete", "")
	slow := webhookHook("a", "")
	slow.Webhook.Timeout = 100
	slow.Options = &tasks.HookOptions{Retry: &tasks.RetryOptions{Attempts: 3, Factor: 2}}
	d := newRelayed(t, r, func(c *producer.Config) {
		c.QStash.Split, c.QStash.Retries, c.QStash.Timeout = producer.SplitHooks, 7, time.Second
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return []tasks.Hook{env}, nil }
	})
	register(t, d, slow, webhookHook("a", ""))
	for _, id := range []string{"e1", "e2"} {
		if err := d.Dispatch(t.Context(), operation, event(t), producer.WithID(id)); err != nil {
			t.Fatalf("dispatch: %v", err)
		}
	}
	keys := []string{tasks.HookKey(&slow, 0), tasks.HookKey(&slow, 1), tasks.HookKey(&env, 0)}
	sent := r.sent(t)
	stream := sent[0].relay.Stream
	var want []sentTask
	for n, id := range []string{"e1", "e2"} {
		for i, hooks := range [][]string{{"a"}, {"a"}, nil} {
			retries := []int{2, 7, 7}[i]
			want = append(want, sentTask{id: id, hooks: hooks, relay: tasks.Relay{Stream: stream, Sequence: int64(n + 1), Hook: keys[i], Retries: retries}})
		}
	}
	if diff := cmp.Diff(want, sent, cmp.AllowUnexported(sentTask{})); diff != "" {
		t.Fatalf("messages (-want +got):\n%s", diff)
	}
	flows := map[string]bool{}
	for i, p := range r.calls[0] {
		flows[p.OperationID] = true
		if p.DeliveryID != tasks.DeliveryID("ns", operation, "e1", keys[i]) {
			t.Errorf("message %d has the id %s", i, p.DeliveryID)
		}
	}
	first := r.calls[0][0]
	if len(flows) != 3 || first.Timeout != 101*time.Second || !cmp.Equal(*first.Retry, tasks.RetryOptions{Attempts: 3, Factor: 2}) {
		t.Errorf("%d flows, publication %+v, %+v", len(flows), first, first.Retry)
	}
}

func TestRelayedSkips(t *testing.T) {
	t.Parallel()
	for _, split := range []producer.Split{producer.SplitTasks, producer.SplitHooks} {
		r := &relay{}
		d := newRelayed(t, r, func(c *producer.Config) { c.QStash.Split = split })
		register(t, d, tasks.Hook{ID: "f", Type: tasks.OnComplete, Handler: func(context.Context, *tasks.Event) error { return nil }})
		receipt, err := d.Enqueue(t.Context(), operation, event(t), producer.WithID("e"))
		if !receipt.Skipped || receipt.Duplicate || err != nil || len(r.calls) != 0 {
			t.Errorf("%s: %+v, %v after %d calls", split, receipt, err, len(r.calls))
		}
	}
}

// What surely did not reach QStash is brought to the endpoint once; what may have
// is not.
func TestRelayedFallback(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		says      []webhook.PublishResult
		noDirect  bool
		directErr error
		publishes int
		sends     int
		want      webhook.PublishOutcome // "" means success
	}{
		"accepted":                 {publishes: 1},
		"known already":            {says: []webhook.PublishResult{relayKnows}, publishes: 1},
		"rejected":                 {says: []webhook.PublishResult{relayRefuses}, publishes: 1, sends: 1},
		"throttled":                {says: []webhook.PublishResult{relayBusy}, publishes: 1, sends: 1},
		"failed":                   {says: []webhook.PublishResult{relayFails}, publishes: 1, sends: 1},
		"not sent":                 {says: []webhook.PublishResult{relayUnsent}, publishes: 1, sends: 1},
		"unknown, then accepted":   {says: []webhook.PublishResult{relayUnknown, relayKnows}, publishes: 2},
		"unknown, then failed":     {says: []webhook.PublishResult{relayUnknown, relayFails}, publishes: 2, sends: 1},
		"unknown twice":            {says: []webhook.PublishResult{relayUnknown, relayUnknown}, publishes: 2, want: webhook.PublishUnknown},
		"no word":                  {says: []webhook.PublishResult{{}, {}}, publishes: 2, want: webhook.PublishUnknown},
		"rejected, no fallback":    {says: []webhook.PublishResult{relayRefuses}, noDirect: true, publishes: 1, want: webhook.PublishRejected},
		"rejected, endpoint fails": {says: []webhook.PublishResult{relayRefuses}, directErr: &producer.DirectError{Status: 503}, publishes: 1, sends: 1, want: webhook.PublishRejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, straight := &relay{says: test.says}, &direct{err: test.directErr}
			d := newRelayed(t, r, func(c *producer.Config) {
				if !test.noDirect {
					c.QStash.Direct = straight
				}
			})
			register(t, d, webhookHook("a", ""))
			_, err := d.Enqueue(t.Context(), operation, event(t), producer.WithID("e"))
			var refusal *producer.RelayError
			var unavailable *producer.UnavailableError
			switch {
			case test.want == "" && err != nil:
				t.Errorf("enqueue: %v", err)
			case test.want != "" && (!errors.As(err, &refusal) || refusal.Outcome != test.want || !errors.As(err, &unavailable)):
				t.Errorf("enqueue: %v, want outcome %s", err, test.want)
			case test.directErr != nil && !errors.Is(err, test.directErr):
				t.Errorf("enqueue: %v lacks %v", err, test.directErr)
			}
			if len(r.calls) != test.publishes || len(straight.ids) != test.sends {
				t.Errorf("%d publishes and %d sends, want %d and %d", len(r.calls), len(straight.ids), test.publishes, test.sends)
			}
			sent := r.sent(t)
			for _, again := range sent[1:] {
				if diff := cmp.Diff(sent[0], again, cmp.AllowUnexported(sentTask{})); diff != "" {
					t.Errorf("a second publish differs:\n%s", diff)
				}
			}
		})
	}
}

// A number that nobody will see is given out again; a repeated call keeps the
// number of the first, because QStash drops the repetition.
func TestRelayedNumbers(t *testing.T) {
	t.Parallel()
	r := &relay{}
	d := newRelayed(t, r, nil)
	register(t, d, webhookHook("a", ""))
	enqueue := func(id string, says ...webhook.PublishResult) {
		r.says = says
		_, _ = d.Enqueue(t.Context(), operation, event(t), producer.WithID(id))
	}
	enqueue("e1")
	enqueue("e2", relayRefuses)               // 2 is free again
	enqueue("e3", relayUnknown, relayUnknown) // may have 2
	enqueue("e4")                             // 3
	enqueue("e3", relayKnows)                 // keeps 2
	enqueue("e1", relayKnows)                 // keeps 1
	enqueue("e2")                             // 4
	var got []string
	for _, s := range r.sent(t) {
		got = append(got, fmt.Sprintf("%s:%d", s.id, s.relay.Sequence))
	}
	want := []string{"e1:1", "e2:2", "e3:2", "e3:2", "e4:3", "e3:2", "e1:1", "e2:4"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("numbers (-want +got):\n%s", diff)
	}
	stream := r.sent(t)[0].relay.Stream
	if err := d.Unregister(t.Context(), operation); err != nil {
		t.Fatal(err)
	}
	register(t, d, webhookHook("a", ""))
	enqueue("e5")
	sent := r.sent(t)
	if last := sent[len(sent)-1].relay; last.Sequence != 1 || last.Stream == stream {
		t.Errorf("after the operation's end: %+v", last)
	}
}

func TestRelayedBatch(t *testing.T) {
	t.Parallel()
	r, straight := &relay{says: []webhook.PublishResult{relayTakes, relayUnknown, relayUnsent, relayKnows, relayUnknown, relayRefuses}}, &direct{}
	d := newRelayed(t, r, func(c *producer.Config) { c.QStash.Direct = straight })
	register(t, d, webhookHook("a", ""))
	requests := make([]producer.EventRequest, 4)
	for i := range requests {
		requests[i] = producer.EventRequest{Event: event(t), ID: fmt.Sprintf("e%d", i+1)}
	}
	receipts, err := d.EnqueueMany(t.Context(), operation, requests)
	var unavailable *producer.UnavailableError
	if !errors.As(err, &unavailable) || !slices.Equal(unavailable.EventIDs, []string{"e2"}) {
		t.Errorf("error: %v", err)
	}
	want := []producer.Receipt{{ID: "e1"}, {ID: "e2"}, {ID: "e3"}, {ID: "e4", Duplicate: true}}
	if diff := cmp.Diff(want, receipts); diff != "" {
		t.Errorf("receipts (-want +got):\n%s", diff)
	}
	var second []string
	for _, p := range r.calls[1] {
		second = append(second, readSent(t, p.Body).id)
	}
	if len(r.calls) != 2 || !slices.Equal(second, []string{"e2", "e3"}) {
		t.Errorf("%d calls, the second with %v", len(r.calls), second)
	}
	if len(straight.ids) != 1 || !strings.HasPrefix(straight.ids[0], "e3 ") {
		t.Errorf("sent directly: %v", straight.ids)
	}
	r.says = []webhook.PublishResult{relayUnknown, relayTakes, relayUnknown}
	results := d.EnqueueBatch(t.Context(), []producer.BatchItem{
		{OperationID: operation, EventRequest: producer.EventRequest{Event: event(t), ID: "e5"}},
		{OperationID: operation, EventRequest: producer.EventRequest{Event: event(t), ID: "e6"}},
	})
	if results[0].Err == nil || results[1].Err != nil || results[1].Receipt.ID != "e6" {
		t.Errorf("results: %+v", results)
	}
}

// What one publish of a call may have taken keeps its number, whatever the next
// one says: another event under the same number would overtake it.
func TestRelayedNumberInDoubt(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]webhook.PublishResult{"known": relayKnows, "refused": relayRefuses} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &relay{says: []webhook.PublishResult{relayUnknown, second}}
			d := newRelayed(t, r, nil)
			register(t, d, webhookHook("a", ""))
			if _, err := d.Enqueue(t.Context(), operation, event(t), producer.WithID("e1")); (err != nil) != (name == "refused") {
				t.Errorf("enqueue e1: %v", err)
			}
			if _, err := d.Enqueue(t.Context(), operation, event(t), producer.WithID("e2")); err != nil {
				t.Errorf("enqueue e2: %v", err)
			}
			var got []int64
			for _, s := range r.sent(t) {
				got = append(got, s.relay.Sequence)
			}
			if diff := cmp.Diff([]int64{1, 1, 2}, got); diff != "" {
				t.Errorf("numbers (-want +got):\n%s", diff)
			}
		})
	}
}

// A delayed event has no place in the order, and is not brought early by another
// road.
func TestRelayedDelay(t *testing.T) {
	t.Parallel()
	r, straight := &relay{says: []webhook.PublishResult{relayTakes, relayRefuses}}, &direct{}
	d := newRelayed(t, r, func(c *producer.Config) { c.QStash.Direct = straight })
	register(t, d, webhookHook("a", ""))
	if _, err := d.Enqueue(t.Context(), operation, event(t), producer.WithDelay(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if p := r.calls[0][0]; p.Delay != time.Minute || r.sent(t)[0].relay.Sequence != 0 {
		t.Errorf("publication: %+v", p)
	}
	if _, err := d.Enqueue(t.Context(), operation, event(t), producer.WithDelay(time.Minute)); err == nil || len(straight.ids) != 0 {
		t.Errorf("refused: %v, sent directly %v", err, straight.ids)
	}
}

// Calls for one operation publish one after the other, in the order in which they
// came; another operation does not wait for them.
func TestRelayedOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := &relay{hold: func(context.Context) { <-release }}
		d := newRelayed(t, r, nil)
		register(t, d, webhookHook("a", ""))
		var group sync.WaitGroup
		enqueue := func(ctx context.Context, id string) {
			group.Go(func() {
				if _, err := d.Enqueue(ctx, operation, event(t), producer.WithID(id)); err != nil && ctx.Err() == nil {
					t.Errorf("enqueue %s: %v", id, err)
				}
			})
			synctest.Wait()
		}
		enqueue(t.Context(), "e1")
		enqueue(t.Context(), "e2")
		gone, cancel := context.WithCancel(t.Context())
		enqueue(gone, "e3")
		cancel()
		synctest.Wait()
		if len(r.calls) != 1 {
			t.Errorf("%d publishes at once", len(r.calls))
		}
		close(release)
		group.Wait()
		var got []string
		for _, s := range r.sent(t) {
			got = append(got, fmt.Sprintf("%s:%d", s.id, s.relay.Sequence))
		}
		if diff := cmp.Diff([]string{"e1:1", "e2:2"}, got); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	})
}

// QStash mode hears nothing of outcomes, and says so.
func TestRelayedHearsNothing(t *testing.T) {
	t.Parallel()
	d := newRelayed(t, &relay{}, nil)
	register(t, d, webhookHook("a", ""))
	if _, err := d.Await(t.Context(), operation, "e"); !errors.Is(err, producer.ErrNoOutcome) {
		t.Errorf("await: %v", err)
	}
	if _, err := d.AwaitFirst(t.Context(), operation, "e"); !errors.Is(err, producer.ErrNoOutcome) {
		t.Errorf("await first: %v", err)
	}
	if err := d.Attempted(t.Context(), operation, "e"); err != nil {
		t.Errorf("attempted: %v", err)
	}
	if pending, err := d.Notify(t.Context(), tasks.Notification{Event: event(t)}); pending || err != nil {
		t.Errorf("notify: pending %t, %v", pending, err)
	}
	for hookType, want := range map[tasks.HookType]bool{tasks.OnComplete: true, tasks.OnError: false} {
		if can, err := d.CanDeliver(t.Context(), operation, hookType); can != want || err != nil {
			t.Errorf("can deliver %s: %t, %v", hookType, can, err)
		}
	}
	if mock, err := d.DispatchBeforeToolCall(t.Context(), operation, toolEvent(t)); mock != nil || err != nil {
		t.Errorf("mock: %v, %v", mock, err)
	}
	stored := persisted(t, webhookHook("p", ""))
	if raw, err := d.CallerHooks(operation, stored); string(raw) != string(stored) || err != nil {
		t.Errorf("caller hooks: %s, %v", raw, err)
	}
}

func TestRelayedConfig(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]producer.QStashConfig{
		"no endpoint":  {Relay: &relay{}},
		"no URL":       {Relay: &relay{}, Endpoint: "gantry.test/tasks"},
		"no relay":     {Endpoint: tasksEndpoint},
		"split":        {Endpoint: tasksEndpoint, Relay: &relay{}, Split: "events"},
		"time runs up": {Endpoint: tasksEndpoint, Relay: &relay{}, Timeout: -1},
	} {
		if _, err := producer.New(producer.Config{Mode: producer.ModeQStash, QStash: config}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The direct request is signed over what is sent, and tells nothing in its errors.
func TestDirectSender(t *testing.T) {
	t.Parallel()
	keys, err := signature.ParseKeys("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body := make([]byte, req.ContentLength)
		if _, err := req.Body.Read(body); err != nil && len(body) == 0 {
			t.Errorf("read: %v", err)
		}
		if err := keys.Verify(req.Header, body, time.Now()); err != nil || req.Header.Get("webhook-id") != "msg_1" {
			t.Errorf("verify: %v", err)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	client, err := egress.New(egress.Config{Policy: egress.Trusted()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	sender, err := producer.NewDirect(producer.DirectConfig{Endpoint: server.URL + "/s3cr3t", Client: client, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	if err := sender.Send(t.Context(), "msg_1", []byte(`{"v":1}`)); err != nil {
		t.Errorf("send: %v", err)
	}
	var failure *producer.DirectError
	for _, status = range []int{307, 401, 489, 503} {
		if err := sender.Send(t.Context(), "msg_1", []byte(`{"v":1}`)); !errors.As(err, &failure) || failure.Status != status {
			t.Errorf("status %d: %v", status, err)
		}
	}
	server.Close()
	if err := sender.Send(t.Context(), "msg_1", []byte(`{"v":1}`)); !errors.As(err, &failure) || failure.Error() != "send to the workers: refused" {
		t.Errorf("server gone: %v", err)
	}
	for name, config := range map[string]producer.DirectConfig{
		"no endpoint": {Client: client, Keys: keys}, "no client": {Endpoint: server.URL, Keys: keys},
		"no keys": {Endpoint: server.URL, Client: client}, "time runs up": {Endpoint: server.URL, Client: client, Keys: keys, Timeout: -1},
	} {
		if _, err := producer.NewDirect(config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
