package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

func TestMain(m *testing.M) {
	// The regular expression engine's clock runs on for a second or two.
	servertest.Main(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// toolEvent is a complete beforeToolCall event of an operation.
func toolEvent(t testing.TB, operation string) *tasks.Event {
	t.Helper()
	ev, err := tasks.ParseEvent(tasks.BeforeToolCall, operation, []byte(`{"toolCallId":"c","assistantMessageId":"m","identifier":"shell","apiName":"run",`+
		`"args":{"n":1.0},"callIndex":1,"stepIndex":0,"executor":"server","mocked":false}`))
	must(t, "parse event", err)
	return ev
}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func fails(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error is %v, want %v", err, target)
	}
}

// judgeFunc answers questions.
type judgeFunc func(ctx context.Context, q tasks.Question) (tasks.Verdict, error)

func (f judgeFunc) Evaluate(ctx context.Context, q tasks.Question) (tasks.Verdict, error) {
	return f(ctx, q)
}

func verdictOf(q tasks.Question, status tasks.VerdictStatus, outcome tasks.VerdictOutcome) tasks.Verdict {
	return tasks.Verdict{Version: tasks.WireVersion, ID: q.ID, Type: q.Type, Status: status, Outcome: outcome, Controls: []tasks.ControlResult{}}
}

// deny denies with a reason that names the question.
func deny(_ context.Context, q tasks.Question) (tasks.Verdict, error) {
	v := verdictOf(q, tasks.VerdictBlocked, tasks.OutcomeDenied)
	v.Reason = "no " + q.ID
	return v, nil
}

func allow(_ context.Context, q tasks.Question) (tasks.Verdict, error) {
	return verdictOf(q, tasks.VerdictAllow, tasks.OutcomeAllowed), nil
}

// hang answers when ctx ends, as an evaluator does.
func hang(ctx context.Context, q tasks.Question) (tasks.Verdict, error) {
	<-ctx.Done()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return verdictOf(q, tasks.VerdictAllow, tasks.OutcomeErrorOpen), nil
	}
	return verdictOf(q, tasks.VerdictCancelled, tasks.OutcomeCancelled), nil
}

// published is a Directory of one worker with the given hooks.
type published []lane.PublishedHook

func (p published) Workers(context.Context) ([]lane.WorkerInfo, error) {
	return []lane.WorkerInfo{{ID: "w", Hooks: p}}, nil
}

// ground is the Redis of one test.
type ground struct {
	addr string
	db   int
}

func newGround(t testing.TB) *ground {
	t.Helper()
	own := servertest.FlushedClient(t).Options()
	return &ground{addr: own.Addr, db: own.DB}
}

func (g *ground) connect(t testing.TB, name string, pool int) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: g.addr, DB: g.db, ClientName: name, PoolSize: pool, ContextTimeoutEnabled: true, DisableIdentity: true, MaxRetries: 2,
		ReadTimeout: 10 * time.Second, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// store makes a process's own store.
func (g *ground) store(t testing.TB, edit ...func(*redisverdict.Config)) *redisverdict.Store {
	t.Helper()
	cfg := redisverdict.Config{Client: g.connect(t, "commands", 8), Blocking: g.connect(t, "blocking", 4)}
	for _, e := range edit {
		e(&cfg)
	}
	s, err := redisverdict.Open(t.Context(), cfg)
	must(t, "open store", err)
	return s
}

// asker makes a client whose environment is known to be empty.
func asker(t testing.TB, exchange control.Exchange, edit ...func(*control.Config)) *control.Client {
	t.Helper()
	cfg := control.Config{Exchange: exchange, Directory: published{}}
	for _, e := range edit {
		e(&cfg)
	}
	c, err := control.New(cfg)
	must(t, "make client", err)
	t.Cleanup(c.Close)
	return c
}

// brisk waits less, so that a worker notices its stop sooner.
type brisk struct{ control.Exchange }

func (b brisk) Claim(ctx context.Context, shard, limit int, wait time.Duration) ([]control.Claim, error) {
	return b.Exchange.Claim(ctx, shard, limit, min(wait, 100*time.Millisecond))
}

// worker makes a running answerer, stopped when t ends.
func worker(t testing.TB, exchange control.Exchange, judge judgeFunc, edit ...func(*control.AnswererConfig)) *control.Answerer {
	t.Helper()
	cfg := control.AnswererConfig{Exchange: brisk{exchange}, Evaluator: judge, Grace: time.Second}
	for _, e := range edit {
		e(&cfg)
	}
	a, err := control.NewAnswerer(cfg)
	must(t, "make answerer", err)
	must(t, "start answerer", a.Start(t.Context()))
	t.Cleanup(func() {
		if err := a.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop answerer: %v", err)
		}
	})
	return a
}

// request asks about a tool call of op, with the given hooks.
func request(t testing.TB, hooks ...string) control.Request {
	t.Helper()
	return control.Request{
		Event: toolEvent(t, "op"), Timeout: 20 * time.Second,
		Chain: []control.OperationHooks{{OperationID: "op", Hooks: list(hooks...)}},
	}
}

// evaluate asks and fails the test on an error.
func evaluate(t testing.TB, c *control.Client, req control.Request) tasks.Verdict {
	t.Helper()
	v, err := c.Evaluate(t.Context(), req)
	must(t, "evaluate", err)
	return v
}

// brief is what tests compare of a verdict.
type brief struct {
	Status    tasks.VerdictStatus
	Outcome   tasks.VerdictOutcome
	By        tasks.VerdictSource
	Reason    string
	Unsettled bool
}

func briefly(v tasks.Verdict) brief {
	return brief{v.Status, v.Outcome, v.By, v.Reason, v.Unsettled}
}

var (
	briefOpen   = brief{Status: tasks.VerdictAllow, Outcome: tasks.OutcomeUnansweredOpen, By: tasks.ByAsker}
	briefClosed = brief{
		Status: tasks.VerdictBlocked, Outcome: tasks.OutcomeUnansweredClosed, By: tasks.ByAsker, Reason: tasks.ReasonControlError,
	}
	briefNone      = brief{Status: tasks.VerdictAllow, Outcome: tasks.OutcomeNone, By: tasks.ByAsker}
	briefAllowed   = brief{Status: tasks.VerdictAllow, Outcome: tasks.OutcomeAllowed, By: tasks.ByWorker}
	briefCancelled = brief{Status: tasks.VerdictCancelled, Outcome: tasks.OutcomeCancelled, By: tasks.ByAsker}
)

// dark is an exchange that can stop answering, as one does for a process that
// was killed or cut off.
type dark struct {
	control.Exchange
	off   atomic.Bool
	posts atomic.Int64
}

var errDark = fmt.Errorf("%w: it is dark", control.ErrUnavailable)

func (d *dark) err() error {
	if d.off.Load() {
		return errDark
	}
	return nil
}

func (d *dark) Post(ctx context.Context, p *control.Posting) (control.Standing, error) {
	d.posts.Add(1)
	if err := d.err(); err != nil {
		return control.Standing{}, err
	}
	return d.Exchange.Post(ctx, p)
}

func (d *dark) Look(ctx context.Context, n control.Name, inbox string) (control.Standing, error) {
	if err := d.err(); err != nil {
		return control.Standing{}, err
	}
	return d.Exchange.Look(ctx, n, inbox)
}

func (d *dark) Settle(ctx context.Context, s *control.Settlement) (control.Settled, error) {
	if err := d.err(); err != nil {
		return control.Settled{}, err
	}
	return d.Exchange.Settle(ctx, s)
}

func (d *dark) Hear(ctx context.Context, shard int, inbox string) ([]control.Notice, error) {
	if err := d.err(); err != nil {
		return nil, err
	}
	notices, err := d.Exchange.Hear(ctx, shard, inbox)
	return notices, errors.Join(err, d.err())
}

func (d *dark) Claim(ctx context.Context, shard, limit int, wait time.Duration) ([]control.Claim, error) {
	if err := d.err(); err != nil {
		return nil, err
	}
	claims, err := d.Exchange.Claim(ctx, shard, limit, wait)
	if d.off.Load() {
		return nil, errDark
	}
	return claims, err
}

func (d *dark) Renew(ctx context.Context, shard int, held []control.Held) ([]control.Held, error) {
	if err := d.err(); err != nil {
		return nil, err
	}
	return d.Exchange.Renew(ctx, shard, held)
}

func (d *dark) Release(ctx context.Context, shard int, held []control.Held) error {
	if err := d.err(); err != nil {
		return err
	}
	return d.Exchange.Release(ctx, shard, held)
}

func (d *dark) Sweep(ctx context.Context, shard int) (control.Swept, error) {
	if err := d.err(); err != nil {
		return control.Swept{}, err
	}
	return d.Exchange.Sweep(ctx, shard)
}

// gate lets questions through one by one and tells what is in it.
type gate struct {
	mu sync.Mutex
	// entered receives the id of each question that is being evaluated.
	entered chan string
	open    chan struct{}
	once    sync.Once
	seen    map[string]int
}

func newGate() *gate {
	return &gate{entered: make(chan string, 4096), open: make(chan struct{}), seen: map[string]int{}}
}

func (g *gate) judge(then judgeFunc) judgeFunc {
	return func(ctx context.Context, q tasks.Question) (tasks.Verdict, error) {
		g.mu.Lock()
		g.seen[q.ID]++
		g.mu.Unlock()
		g.entered <- q.ID
		select {
		case <-g.open:
			return then(ctx, q)
		case <-ctx.Done():
			return hang(ctx, q)
		}
	}
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

// receive waits for a value, or fails.
func receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
		t.Fatalf("%s: nothing came", what)
		panic("unreachable")
	}
}

// asking evaluates in the background.
func asking(t testing.TB, c *control.Client, ctx context.Context, req control.Request) <-chan tasks.Verdict { //nolint:revive // t comes first in every helper
	t.Helper()
	got := make(chan tasks.Verdict, 1)
	go func() {
		v, err := c.Evaluate(ctx, req)
		if err != nil {
			t.Errorf("evaluate: %v", err)
		}
		got <- v
	}()
	return got
}

// hooksOf is a HookSource.
type hooksOf map[string]json.RawMessage

func (h hooksOf) ControlHooks(_ context.Context, operationID string) (json.RawMessage, error) {
	return h[operationID], nil
}
