package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/worker"
)

func TestMain(m *testing.M) { servertest.Main(m, servertest.IgnoreServers()) }

// bundle is one test's own Redis namespace, receiver and workers.
type bundle struct {
	t        *testing.T
	server   *servers.Redis
	client   *redis.Client
	store    *redislane.Store
	receiver *receiver
	log      *logrus.Logger
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, servertest.Redis(t))
}

func setupOn(t *testing.T, server *servers.Redis) *bundle {
	t.Helper()
	b := &bundle{t: t, server: server, receiver: newReceiver(), log: logrus.New()}
	b.log.SetOutput(io.Discard)
	opts := redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, PoolSize: 64, MaxRetries: 2, DisableIdentity: true}
	b.client = redis.NewClient(&opts)
	blocking := opts
	blocking.ReadTimeout, blocking.MaxRetries = 10*time.Second, -1
	blockingClient := redis.NewClient(&blocking)
	t.Cleanup(func() { _ = b.client.Close(); _ = blockingClient.Close() })
	var err error
	b.store, err = redislane.New(redislane.Config{
		Client: b.client, Blocking: blockingClient, Namespace: "t" + tasks.NewID(), Lease: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// config is a worker's, with short retries.
func (b *bundle) config() worker.Config {
	return worker.Config{
		Store: b.store, Deliverer: b.receiver, Logger: b.log, Heartbeat: 300 * time.Millisecond,
		Namespace: b.store.Namespace(), Concurrency: 16, Grace: 10 * time.Second,
		Retry: worker.RetryPolicy{InitialDelay: 20 * time.Millisecond, Factor: 1, Jitter: -1},
	}
}

// start runs a worker until the test ends.
func (b *bundle) start(cfg worker.Config) *worker.Worker {
	b.t.Helper()
	w, err := worker.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := w.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := w.Stop(context.Background()); err != nil {
			b.t.Errorf("stop worker: %v", err)
		}
	})
	return w
}

// hook is a webhook hook for afterStep whose URL carries its id.
func hook(id string, change ...func(*tasks.Hook)) tasks.Hook {
	h := tasks.Hook{ID: id, Type: tasks.AfterStep, Webhook: &tasks.Webhook{URL: "https://rx.test/" + id}}
	for _, c := range change {
		c(&h)
	}
	return h
}

func critical(h *tasks.Hook) { h.Webhook.Fallback = tasks.FallbackNone }

func attempts(n, clientErrors int) func(*tasks.Hook) {
	return func(h *tasks.Hook) {
		h.Options = &tasks.HookOptions{Retry: &tasks.RetryOptions{Attempts: n, ClientErrorAttempts: clientErrors}}
	}
}

// item is event n of an operation as a task for hooks.
func (b *bundle) item(op string, n int, hooks ...tasks.Hook) lane.Item {
	b.t.Helper()
	raw, err := tasks.EncodeHooks(hooks)
	if err != nil {
		b.t.Fatal(err)
	}
	event := json.RawMessage(fmt.Sprintf(`{"agentId":"a","operationId":%q,"stepIndex":%d,"userId":"u"}`, op, n))
	task := &tasks.Task{ID: fmt.Sprintf("e%d", n), OperationID: op, Type: tasks.AfterStep, Event: event, Hooks: raw, EnqueuedAt: 1}
	doc, err := task.Encode()
	if err != nil {
		b.t.Fatal(err)
	}
	return lane.Item{ID: task.ID, Doc: doc, Digest: tasks.ContentDigest(task.Type, event)}
}

// events appends events 1..n of an operation.
func (b *bundle) events(op string, n int, hooks ...tasks.Hook) {
	b.t.Helper()
	items := make([]lane.Item, n)
	for i := range items {
		items[i] = b.item(op, i+1, hooks...)
	}
	if _, err := b.store.Append(b.t.Context(), op, items); err != nil {
		b.t.Fatal(err)
	}
}

// timeout bounds every wait of these tests; a wait that ends there is a failure.
const timeout = 30 * time.Second

// eventually polls until the condition holds.
func (b *bundle) eventually(what string, condition func() bool) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(timeout)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			b.t.Fatalf("waited in vain: %s", what)
		}
	}
}

// request is one attempt as the receiver saw it.
type request struct {
	op, hook string
	sequence int64
	attempt  int
	id       string
	// unsettled says that an earlier attempt's publish is not known to have failed.
	unsettled bool
}

// receiver answers deliveries as respond says, 200 by default, and remembers them.
type receiver struct {
	mu       sync.Mutex
	requests []request
	// delivered holds the sequences that were answered 2xx, by "op/hook".
	delivered map[string][]int64
	respond   func(ctx context.Context, r request) webhook.Result
}

var ok = webhook.Result{Delivered: true, Status: 200}

func status(code int) webhook.Result {
	class := tasks.ClassHTTP5xx
	switch {
	case code == 429:
		class = tasks.ClassHTTP429
	case code < 500:
		class = tasks.ClassHTTP4xx
	}
	return webhook.Result{Class: class, Status: code, Message: "Hook HTTP request failed: http_error"}
}

func newReceiver() *receiver { return &receiver{delivered: map[string][]int64{}} }

// Deliver implements worker.Deliverer.
func (r *receiver) Deliver(ctx context.Context, d webhook.Delivery) webhook.Result {
	req := request{op: d.OperationID, hook: d.Hook.ID, sequence: d.Sequence, attempt: d.Attempt, id: d.ID, unsettled: d.Unsettled}
	r.mu.Lock()
	r.requests = append(r.requests, req)
	respond := r.respond
	r.mu.Unlock()
	res := ok
	if respond != nil {
		res = respond(ctx, req)
	}
	if res.Delivered {
		r.mu.Lock()
		key := req.op + "/" + req.hook
		r.delivered[key] = append(r.delivered[key], req.sequence)
		r.mu.Unlock()
	}
	return res
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.requests)
}

// sequences returns what one hook of an operation got, in order.
func (r *receiver) sequences(op, hook string) []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.delivered[op+"/"+hook])
}

// attempted returns the sequences of all attempts at one hook, in order.
func (r *receiver) attempted(op, hook string) []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []int64
	for _, q := range r.requests {
		if q.op == op && q.hook == hook {
			out = append(out, q.sequence)
		}
	}
	return out
}

// upTo is 1..n.
func upTo(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i + 1)
	}
	return out
}

// inOrder reports whether first deliveries came in order, each once or repeated.
func inOrder(seqs []int64) bool {
	next := int64(1)
	for _, s := range seqs {
		switch {
		case s == next:
			next++
		case s > next:
			return false
		}
	}
	return true
}
