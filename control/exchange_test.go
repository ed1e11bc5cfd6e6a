package control_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

// takeoverTime is how soon somebody else must answer for a dead worker.
const takeoverTime = 2 * time.Second

func TestQuestionsOfADeadWorkerAreTakenOver(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	const questions = 100
	doomed := &dark{Exchange: g.store(t)}
	held := newGate()
	worker(t, doomed, held.judge(deny), func(cfg *control.AnswererConfig) { cfg.Slots = 2 * questions })
	c := asker(t, g.store(t))
	var waiting []<-chan tasks.Verdict
	for i := range questions {
		req := request(t, stored("a", blocks))
		req.ID = fmt.Sprint("q", i)
		waiting = append(waiting, asking(t, c, t.Context(), req))
	}
	for range questions {
		receive(t, "a question in hand", held.entered)
	}
	var evaluated sync.Map
	registry := prometheus.NewRegistry()
	worker(t, g.store(t), func(ctx context.Context, q tasks.Question) (tasks.Verdict, error) {
		if _, twice := evaluated.LoadOrStore(q.ID, true); twice {
			t.Errorf("question %s was taken over twice", q.ID)
		}
		return allow(ctx, q)
	}, func(cfg *control.AnswererConfig) { cfg.Registerer = registry })
	doomed.off.Store(true)
	began := time.Now()
	for i, w := range waiting {
		equal(t, fmt.Sprint("verdict ", i), briefly(receive(t, "a verdict", w)), briefAllowed)
	}
	if took := time.Since(began); took > takeoverTime {
		t.Errorf("takeover took %v", took)
	}
	want := fmt.Sprintf("# HELP gantry_control_taken_over_total Questions taken that another worker had in hand before.\n"+
		"# TYPE gantry_control_taken_over_total counter\ngantry_control_taken_over_total %d\n", questions)
	must(t, "compare metrics", testutil.GatherAndCompare(registry, strings.NewReader(want), "gantry_control_taken_over_total"))
	// The dead one comes back and is heard by nobody.
	doomed.off.Store(false)
	held.release()
	equal(t, "verdict that stands", briefly(evaluate(t, c, named(request(t, stored("a", blocks)), "q0"))), briefAllowed)
}

func named(req control.Request, id string) control.Request {
	req.ID = id
	return req
}

func TestStopHandsQuestionsBack(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	held := newGate()
	leaving := worker(t, g.store(t), held.judge(deny), func(cfg *control.AnswererConfig) { cfg.Grace = 50 * time.Millisecond })
	got := asking(t, asker(t, g.store(t)), t.Context(), request(t, stored("a", "")))
	receive(t, "a question in hand", held.entered)
	worker(t, g.store(t), allow)
	began := time.Now()
	must(t, "stop", leaving.Stop(t.Context()))
	equal(t, "verdict", briefly(receive(t, "the verdict", got)), briefAllowed)
	// Less than the lease, which would have ended by itself.
	if took := time.Since(began); took > redisverdict.DefaultLease+100*time.Millisecond {
		t.Errorf("it took %v", took)
	}
	fails(t, leaving.Ready(), control.ErrStopped)
	must(t, "stop again", leaving.Stop(t.Context()))
}

func TestStopLetsEvaluationsFinish(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	held := newGate()
	leaving := worker(t, g.store(t), held.judge(allow), func(cfg *control.AnswererConfig) { cfg.Grace = 10 * time.Second })
	got := asking(t, asker(t, g.store(t)), t.Context(), request(t, stored("a", "")))
	receive(t, "a question in hand", held.entered)
	stopped := make(chan error, 1)
	go func() { stopped <- leaving.Stop(t.Context()) }()
	held.release()
	equal(t, "verdict", briefly(receive(t, "the verdict", got)), briefAllowed)
	must(t, "stop", receive(t, "the stop", stopped))
	equal(t, "evaluations", len(held.seen), 1)
}

// What cannot be evaluated gets its policy at once, and ends no worker.
func TestRefusedQuestions(t *testing.T) {
	t.Parallel()
	for name, judge := range map[string]judgeFunc{
		"invalid environment": func(context.Context, tasks.Question) (tasks.Verdict, error) {
			return tasks.Verdict{Status: tasks.VerdictAllow}, errors.New("environment is invalid")
		},
		"panic":      func(context.Context, tasks.Question) (tasks.Verdict, error) { panic("poison") },
		"no verdict": func(context.Context, tasks.Question) (tasks.Verdict, error) { return tasks.Verdict{}, nil },
		"not asked to": func(_ context.Context, q tasks.Question) (tasks.Verdict, error) {
			return verdictOf(q, tasks.VerdictCancelled, tasks.OutcomeCancelled), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			worker(t, g.store(t), judge)
			c := asker(t, g.store(t))
			began := time.Now()
			equal(t, "closed", briefly(evaluate(t, c, request(t, stored("a", blocks)))), briefClosed)
			equal(t, "open", briefly(evaluate(t, c, request(t, stored("a", "")))), briefOpen)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestCancelledQuestion(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ended := make(chan error, 1)
	entered := make(chan string, 1)
	worker(t, g.store(t), func(ctx context.Context, q tasks.Question) (tasks.Verdict, error) {
		entered <- q.ID
		<-ctx.Done()
		ended <- ctx.Err()
		return allow(ctx, q)
	})
	c := asker(t, g.store(t))
	ctx, cancel := context.WithCancel(t.Context())
	req := named(request(t, stored("a", "")), "q1")
	got := asking(t, c, ctx, req)
	receive(t, "the question", entered)
	cancel()
	began := time.Now()
	equal(t, "verdict", briefly(receive(t, "the verdict", got)), briefCancelled)
	fails(t, receive(t, "the end of the evaluation", ended), context.Canceled)
	if took := time.Since(began); took > time.Second {
		t.Errorf("the worker stopped after %v", took)
	}
	equal(t, "verdict that stands", briefly(evaluate(t, c, req)), briefCancelled)
	v, err := c.Evaluate(ctx, request(t))
	must(t, "evaluate", err)
	equal(t, "verdict without a control", briefly(v), briefCancelled)
}

// A caller who is gone gets no permission, also when the answer was first.
func TestCancellationIsNeverPermission(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	store := g.store(t)
	gone := make(chan context.CancelFunc, 1)
	worker(t, g.store(t), func(ctx context.Context, q tasks.Question) (tasks.Verdict, error) {
		(<-gone)()
		return allow(ctx, q)
	})
	c := asker(t, store)
	for i := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		gone <- cancel
		v, err := c.Evaluate(ctx, named(request(t, stored("a", "")), fmt.Sprint("q", i)))
		must(t, "evaluate", err)
		if v.Allowed() || v.Status != tasks.VerdictCancelled {
			t.Fatalf("verdict is %+v", v)
		}
		cancel()
	}
}

func TestLateVerdictIsDropped(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	held := newGate()
	registry := prometheus.NewRegistry()
	stubborn := func(ctx context.Context, q tasks.Question) (tasks.Verdict, error) {
		return held.judge(allow)(context.WithoutCancel(ctx), q)
	}
	// Without a heartbeat it does not notice that the question is over.
	w := worker(t, g.store(t), stubborn, func(cfg *control.AnswererConfig) { cfg.Heartbeat, cfg.Registerer = time.Minute, registry })
	c := asker(t, g.store(t))
	req := named(request(t, stored("a", blocks)), "q1")
	req.Timeout = 2 * time.Second // a busy machine has to settle in the last twentieth
	equal(t, "verdict", briefly(evaluate(t, c, req)), briefClosed)
	held.release()
	must(t, "stop", w.Stop(t.Context()))
	equal(t, "verdict that stands", briefly(evaluate(t, c, req)), briefClosed)
	// Its lease ended meanwhile, so that it may have answered more than once.
	fates := answers(t, registry)
	if fates["won"] != 0 || fates["late"]+fates["stood"] == 0 {
		t.Errorf("its answers came to %v", fates)
	}
}

// answers returns what became of the verdicts of a worker.
func answers(t testing.TB, registry *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := registry.Gather()
	must(t, "gather", err)
	fates := map[string]int{}
	for _, f := range families {
		if f.GetName() != "gantry_control_answers_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			fates[m.GetLabel()[0].GetValue()] = int(m.GetCounter().GetValue())
		}
	}
	return fates
}

// A reply that comes twice, or to nobody, changes nothing.
func TestDoubledRepliesAreDropped(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	twice := &echo{Exchange: g.store(t)}
	worker(t, g.store(t), deny)
	c := asker(t, twice)
	for i := range 50 {
		id := fmt.Sprint("q", i)
		v := evaluate(t, c, named(request(t, stored("a", "")), id))
		equal(t, "reason", v.Reason, "no "+id)
		equal(t, "id", v.ID, id)
	}
}

// echo hears everything twice, and the last notices again.
type echo struct {
	control.Exchange
	mu   sync.Mutex
	last []control.Notice
}

func (e *echo) Hear(ctx context.Context, shard int, inbox string) ([]control.Notice, error) {
	notices, err := e.Exchange.Hear(ctx, shard, inbox)
	e.mu.Lock()
	defer e.mu.Unlock()
	all := append(append(append([]control.Notice{}, e.last...), notices...), notices...)
	e.last = notices
	return all, err
}

// deaf hears nothing for a while.
type deaf struct {
	control.Exchange
	hears atomic.Bool
}

func (d *deaf) Hear(ctx context.Context, shard int, inbox string) ([]control.Notice, error) {
	notices, err := d.Exchange.Hear(ctx, shard, inbox)
	if d.hears.Load() {
		return notices, err
	}
	return nil, errDark
}

// A verdict whose notice is lost is read when the inbox works again, or at the
// deadline.
func TestLostNotices(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	worker(t, g.store(t), deny)
	d := &deaf{Exchange: g.store(t)}
	c := asker(t, d)
	req := named(request(t, stored("a", blocks)), "q1")
	req.Timeout = time.Second
	equal(t, "reason at the deadline", evaluate(t, c, req).Reason, "no q1")
	began := time.Now()
	got := asking(t, c, t.Context(), named(request(t, stored("a", blocks)), "q2"))
	d.hears.Store(true)
	equal(t, "reason", receive(t, "the verdict", got).Reason, "no q2")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestSubmittedQuestion(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	held := newGate()
	worker(t, g.store(t), held.judge(deny))
	c, other := asker(t, g.store(t)), asker(t, g.store(t))
	ctx := t.Context()
	id, v, err := c.Submit(ctx, request(t, stored("a", "")))
	must(t, "submit", err)
	if v != nil || id == "" {
		t.Fatalf("submit says %q, %+v", id, v)
	}
	receive(t, "the question", held.entered)
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err = other.Await(over, "op", id)
	fails(t, err, control.ErrPending)
	fails(t, err, context.Canceled)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = other.Await(short, "op", id)
	fails(t, err, control.ErrPending)
	got := make(chan tasks.Verdict, 1)
	go func() {
		v, err := other.Await(ctx, "op", id)
		if err != nil {
			t.Errorf("await: %v", err)
		}
		got <- v
	}()
	held.release()
	equal(t, "reason", receive(t, "the verdict", got).Reason, "no "+id)
	again, err := c.Await(over, "op", id)
	must(t, "look once", err)
	equal(t, "reason", again.Reason, "no "+id)
	again, err = c.Cancel(ctx, "op", id)
	must(t, "cancel", err)
	equal(t, "verdict after a cancellation that came late", again.Status, tasks.VerdictBlocked)

	_, err = c.Await(ctx, "op", "none")
	fails(t, err, control.ErrNotFound)
	_, err = c.Cancel(ctx, "op", "none")
	fails(t, err, control.ErrNotFound)
	_, v, err = c.Submit(ctx, request(t))
	must(t, "submit", err)
	equal(t, "verdict without a control", briefly(*v), briefNone)
}

func TestSubmittedQuestionIsCancelled(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	c := asker(t, g.store(t))
	id, _, err := c.Submit(t.Context(), request(t, stored("a", "")))
	must(t, "submit", err)
	v, err := asker(t, g.store(t)).Cancel(t.Context(), "op", id)
	must(t, "cancel", err)
	equal(t, "verdict", briefly(v), briefCancelled)
	equal(t, "type", v.Type, tasks.BeforeToolCall)
	v, err = c.Await(t.Context(), "op", id)
	must(t, "await", err)
	equal(t, "verdict", briefly(v), briefCancelled)
}

// Nobody is there at the deadline of a submitted question, and it is settled all
// the same.
func TestSubmittedQuestionWithoutAnswer(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	c := asker(t, g.store(t))
	req := request(t, stored("a", blocks))
	req.Timeout = 200 * time.Millisecond
	id, _, err := c.Submit(t.Context(), req)
	must(t, "submit", err)
	v, err := c.Await(t.Context(), "op", id)
	must(t, "await", err)
	equal(t, "verdict", briefly(v), briefClosed)
}

func TestClosedClient(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	exchange := &dark{Exchange: g.store(t)}
	c := asker(t, exchange)
	got := asking(t, c, t.Context(), request(t, stored("a", "")))
	for exchange.posts.Load() == 0 {
		runtime.Gosched() // until it waits
	}
	id, _, err := c.Submit(t.Context(), request(t, stored("a", "")))
	must(t, "submit", err)
	awaited := make(chan error, 1)
	go func() {
		_, err := c.Await(t.Context(), "op", id)
		awaited <- err
	}()
	began := time.Now()
	c.Close()
	c.Close()
	if took := time.Since(began); took > time.Second {
		t.Errorf("close took %v", took)
	}
	v := receive(t, "the verdict", got)
	equal(t, "status", v.Status, tasks.VerdictCancelled)
	fails(t, receive(t, "the end of the wait", awaited), control.ErrPending)
	_, err = c.Evaluate(t.Context(), request(t, stored("a", "")))
	fails(t, err, control.ErrClosed)
}

// Redis restarts while a question is in hand: with its data the verdict is heard,
// without them the question is asked again.
func TestRedisRestarts(t *testing.T) {
	t.Parallel()
	for name, fsync := range map[string]servers.AppendFsync{"with data": servers.FsyncAlways, "without data": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: fsync})
			g := &ground{addr: server.Addr()}
			held := newGate()
			worker(t, g.store(t), held.judge(deny))
			c := asker(t, g.store(t))
			req := named(request(t, stored("a", blocks)), "q1")
			req.Timeout = 15 * time.Second
			got := asking(t, c, t.Context(), req)
			receive(t, "the question", held.entered)
			server.Kill()
			held.release()
			must(t, "restart", server.Restart(t.Context()))
			equal(t, "verdict", briefly(receive(t, "the verdict", got)), brief{tasks.VerdictBlocked, tasks.OutcomeDenied, tasks.ByWorker, "no q1", false})
		})
	}
}

// A thousand callers wait at once: few connections, and no goroutine but their own.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	const callers = 1000
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	g := &ground{addr: server.Addr()}
	held := newGate()
	worker(t, g.store(t), held.judge(deny), func(cfg *control.AnswererConfig) { cfg.Slots = callers + 1 })
	own, err := redisverdict.Open(t.Context(), redisverdict.Config{Client: g.connect(t, "asker", 8), Blocking: g.connect(t, "asker", 4)})
	must(t, "open store", err)
	c := asker(t, own)
	before := runtime.NumGoroutine()
	var waiting []<-chan tasks.Verdict
	for i := range callers {
		waiting = append(waiting, asking(t, c, t.Context(), named(request(t, stored("a", "")), fmt.Sprint("q", i))))
	}
	for range callers {
		receive(t, "a question in hand", held.entered)
	}
	// One for the caller itself, one for the evaluation at the other side.
	if n := runtime.NumGoroutine() - before; n > 2*callers+50 {
		t.Errorf("%d goroutines for %d callers and as many evaluations", n, callers)
	}
	clients, err := g.connect(t, "looker", 1).ClientList(t.Context()).Result()
	must(t, "list clients", err)
	n := strings.Count(clients, "name=asker ")
	t.Logf("%d connections for %d callers", n, callers)
	if n > 20 || n == 0 {
		t.Errorf("%d connections for %d callers", n, callers)
	}
	held.release()
	for i, w := range waiting {
		equal(t, "reason", receive(t, "a verdict", w).Reason, fmt.Sprint("no q", i))
	}
}

// Ten thousand queued events use neither the connections nor the slots of
// questions.
func TestQueuedEventsDoNotDelayVerdicts(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	lanes, err := redislane.Open(t.Context(), redislane.Config{Client: g.connect(t, "lanes", 4), Blocking: g.connect(t, "lanes", 2)})
	must(t, "open lanes", err)
	worker(t, g.store(t), allow)
	c := asker(t, g.store(t))
	quiet := slowest(t, c)
	queue(t, lanes, 10_000)
	// All connections for events are taken by workers that wait.
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() { _, _, _ = lanes.Await(t.Context(), 1%lanes.Shards(), 1, 1, time.Second) })
	}
	loaded := slowest(t, c)
	busy.Wait()
	t.Logf("p95 is %v without and %v with queued events", quiet, loaded)
	if loaded > quiet+250*time.Millisecond {
		t.Errorf("verdicts take %v beside queued events, %v without", loaded, quiet)
	}
}

func queue(t *testing.T, lanes *redislane.Store, n int) {
	t.Helper()
	pipe := make([]lane.Item, 0, 1000)
	for i := range n {
		pipe = append(pipe, lane.Item{ID: fmt.Sprint(i), Doc: []byte(`{"v":1}`), Digest: "d"})
		if len(pipe) == cap(pipe) {
			_, err := lanes.Append(t.Context(), fmt.Sprint("lane", i), pipe)
			must(t, "append", err)
			pipe = pipe[:0]
		}
	}
}

// slowest returns the 95th percentile of a few verdicts.
func slowest(t *testing.T, c *control.Client) time.Duration {
	t.Helper()
	var all []time.Duration
	for range 100 {
		began := time.Now()
		equal(t, "verdict", briefly(evaluate(t, c, request(t, stored("a", "")))), briefAllowed)
		all = append(all, time.Since(began))
	}
	return percentile(all, .95)
}
