package deferred_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/control/deferred/redisdeferred"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

func TestMain(m *testing.M) { servertest.Main(m) }

var errSource = errors.New("source is down")

// policies are hooks by operation.
type policies struct {
	snapshots, records map[string]string
	err                error
	mu                 sync.Mutex
	asked              []string
}

func (p *policies) look(where string, lists map[string]string, operationID string) (json.RawMessage, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, where+" "+operationID)
	list, ok := lists[operationID]
	return json.RawMessage(list), ok, p.err
}

func (p *policies) Snapshot(_ context.Context, operationID string) (json.RawMessage, bool, error) {
	return p.look("snapshot", p.snapshots, operationID)
}

func (p *policies) Durable(_ context.Context, operationID string) (json.RawMessage, bool, error) {
	return p.look("record", p.records, operationID)
}

// controls stand for a client: they say one thing, and remember what they were asked.
type controls struct {
	say func(ctx context.Context, q control.Request) (tasks.Verdict, error)

	mu    sync.Mutex
	asked []control.Request
}

func (c *controls) Evaluate(ctx context.Context, q control.Request) (tasks.Verdict, error) {
	c.mu.Lock()
	c.asked = append(c.asked, q)
	c.mu.Unlock()
	return c.say(ctx, q)
}

func (c *controls) questions() []control.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]control.Request(nil), c.asked...)
}

func verdict(status tasks.VerdictStatus, reason string) func(context.Context, control.Request) (tasks.Verdict, error) {
	return func(context.Context, control.Request) (tasks.Verdict, error) {
		return tasks.Verdict{Status: status, Reason: reason, Outcome: tasks.OutcomeDenied}, nil
	}
}

// notifier remembers what it was told.
type notifier struct {
	err error

	mu   sync.Mutex
	told []tasks.Notification
}

func (n *notifier) Notify(_ context.Context, notification tasks.Notification) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = append(n.told, notification)
	return true, n.err
}

// bundle is a service over a real Redis with fakes around it.
type bundle struct {
	*deferred.Service
	t        *testing.T
	client   *redis.Client
	policies *policies
	controls *controls
	notifier *notifier
}

func setup(t *testing.T, adjust func(cfg *deferred.Config)) *bundle {
	t.Helper()
	client := servertest.FlushedClient(t)
	b := &bundle{
		t: t, client: client, notifier: &notifier{},
		policies: &policies{snapshots: map[string]string{}, records: map[string]string{}},
		controls: &controls{say: verdict(tasks.VerdictAllow, "")},
	}
	b.Service = b.service(adjust)
	return b
}

// service is one more process over the same Redis.
func (b *bundle) service(adjust func(cfg *deferred.Config)) *deferred.Service {
	b.t.Helper()
	cfg := deferred.Config{Store: b.store(), Controls: b.controls, Policies: b.policies, Notifier: b.notifier}
	if adjust != nil {
		adjust(&cfg)
	}
	s, err := deferred.New(cfg)
	check(b.t, "build service", err)
	b.t.Cleanup(s.Close)
	return s
}

func (b *bundle) store() *redisdeferred.Store {
	b.t.Helper()
	store, err := redisdeferred.Open(b.t.Context(), redisdeferred.Config{Client: b.client, Blocking: b.client})
	check(b.t, "open store", err)
	return store
}

func (b *bundle) open(p deferred.Placeholder) {
	b.t.Helper()
	_, err := b.Open(b.t.Context(), p)
	check(b.t, "open", err)
}

func (b *bundle) complete(c deferred.Completion) deferred.Completed {
	b.t.Helper()
	done, err := b.Complete(b.t.Context(), c)
	check(b.t, "complete", err)
	return done
}

// stands compares what a reader of the row sees.
func (b *bundle) stands(id, want string) {
	b.t.Helper()
	row, err := b.Get(b.t.Context(), id)
	check(b.t, "get", err)
	same(b.t, "row", string(row.Document()), want)
}

func check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

const (
	control1 = `{"id":"k","type":"afterToolCall","webhook":{"url":"https://a.test/","responseHandling":"toolCall"}}`
	watcher  = `{"id":"w","type":"afterToolCall","webhook":{"url":"https://w.test/"}}`
	before   = `{"id":"b","type":"beforeToolCall","webhook":{"url":"https://b.test/","responseHandling":"toolCall"}}`
	foreign  = `{"id":"server-env-webhook:afterToolCall","type":"afterToolCall","webhook":{"url":"https://old.test/","responseHandling":"toolCall"}}`
)

func call() *deferred.Call {
	return &deferred.Call{ToolCallID: "c1", AssistantMessageID: "m1", Identifier: "crew", APIName: "delegate", Arguments: `{"a": 1}`}
}

func waiting(adjust func(p *deferred.Placeholder)) deferred.Placeholder {
	p := deferred.Placeholder{ID: "row", OperationID: "op", Call: call()}
	if adjust != nil {
		adjust(&p)
	}
	return p
}

func result(content string) tasks.ToolResult {
	return tasks.ToolResult{Content: content, Success: true}
}
