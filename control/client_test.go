package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// nowhere is an exchange that never answers.
func nowhere() *dark {
	d := &dark{Exchange: shards{}}
	d.off.Store(true)
	return d
}

// shards is what an exchange knows without Redis.
type shards struct{ control.Exchange }

func (shards) Shards() int { return 1 }
func (shards) Name(operation, id string) control.Name {
	return control.Name{Operation: operation, ID: id}
}
func (shards) Rouse(context.Context, int, string) error { return errDark }

type directoryFunc func(ctx context.Context) ([]lane.WorkerInfo, error)

func (f directoryFunc) Workers(ctx context.Context) ([]lane.WorkerInfo, error) { return f(ctx) }

func TestWorkerAnswers(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	worker(t, g.store(t), deny)
	c := asker(t, g.store(t))
	req := request(t, stored("a", ""))
	req.ID = "q1"
	v := evaluate(t, c, req)
	equal(t, "verdict", briefly(v), brief{tasks.VerdictBlocked, tasks.OutcomeDenied, tasks.ByWorker, "no q1", false})
	if v.SettledAt == 0 || v.ID != "q1" || v.Type != tasks.BeforeToolCall {
		t.Errorf("verdict is %+v", v)
	}
	equal(t, "verdict of the same question", evaluate(t, c, req), v)
	req.Chain[0].Hooks = list(stored("a", blocks))
	_, err := c.Evaluate(t.Context(), req)
	if reused, ok := errors.AsType[*control.ReusedError](err); !ok || reused.ID != "q1" {
		t.Fatalf("error is %v, want a ReusedError", err)
	}
}

func TestNothingToAsk(t *testing.T) {
	t.Parallel()
	reserved := strings.ReplaceAll(stored("x", blocks), `"id":"x"`, `"id":"server-env-webhook:x"`)
	for name, test := range map[string]struct {
		hooks     []string
		directory control.Directory
	}{
		"no hooks":           {nil, published{}},
		"only notifications": {[]string{`{"id":"n","type":"beforeToolCall","webhook":{"url":"https://policy.test/n"}}`}, published{}},
		"other phase":        {[]string{strings.ReplaceAll(stored("a", blocks), "before", "after")}, published{}},
		"no match":           {[]string{strings.ReplaceAll(stored("a", blocks), `"webhook"`, `"matcher":"^web/","webhook"`)}, published{}},
		"reserved id":        {[]string{reserved}, published{}},
		"environment without controls": {nil, published{
			{Type: tasks.BeforeToolCall, OnError: tasks.PolicyBlock}, {Type: tasks.AfterToolCall, Control: true},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exchange := nowhere()
			c := asker(t, exchange, func(cfg *control.Config) { cfg.Directory = test.directory })
			v := evaluate(t, c, request(t, test.hooks...))
			equal(t, "verdict", briefly(v), briefNone)
			if v.Controls == nil || v.ID == "" {
				t.Errorf("verdict is %+v", v)
			}
			equal(t, "questions posted", exchange.posts.Load(), int64(0))
		})
	}
}

// Nobody answers: the strictest policy of what matches decides, by the deadline.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	environment := published{{Type: tasks.BeforeToolCall, Control: true}}
	strict := published{{Type: tasks.BeforeToolCall, Control: true, OnError: tasks.PolicyBlock}}
	unknown := directoryFunc(func(context.Context) ([]lane.WorkerInfo, error) { return nil, nil })
	for name, test := range map[string]struct {
		hooks     []string
		directory control.Directory
		unknown   tasks.ErrorPolicy
		want      brief
	}{
		"open":                        {[]string{stored("a", "")}, published{}, "", briefOpen},
		"closed":                      {[]string{stored("a", blocks)}, published{}, "", briefClosed},
		"one of two is closed":        {[]string{stored("a", ""), stored("b", blocks)}, published{}, "", briefClosed},
		"open environment":            {nil, environment, "", briefOpen},
		"closed environment":          {[]string{stored("a", "")}, strict, "", briefClosed},
		"unknown environment":         {nil, unknown, "", briefClosed},
		"unknown environment, open":   {nil, unknown, tasks.PolicyContinue, briefOpen},
		"unknown, own control closed": {[]string{stored("a", blocks)}, unknown, tasks.PolicyContinue, briefClosed},
		"no directory":                {nil, nil, "", briefClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for where, exchange := range map[string]control.Exchange{"no worker": newGround(t).store(t), "no redis": nowhere()} {
				c := asker(t, exchange, func(cfg *control.Config) {
					cfg.Directory, cfg.UnknownEnvironment = test.directory, test.unknown
				})
				req := request(t, test.hooks...)
				// Long enough for a busy machine to settle in time.
				req.Timeout = 2 * time.Second
				began := time.Now()
				v := evaluate(t, c, req)
				took := time.Since(began)
				want := test.want
				want.Unsettled = where == "no redis"
				equal(t, where, briefly(v), want)
				if took < 1800*time.Millisecond || took > 5*time.Second {
					t.Errorf("%s: it took %v", where, took)
				}
			}
		})
	}
}

// A matcher that gives no answer may select the call.
func TestMatcherWithoutAnswerIsAsked(t *testing.T) {
	t.Parallel()
	slow := strings.Replace(stored("slow", blocks), `"type"`, `"matcher":"^(a+)+(?!b)\\1c","type"`, 1)
	ev, err := tasks.DecodeEvent(tasks.BeforeToolCall, "op", []byte(`{"identifier":"`+strings.Repeat("a", 5000)+`","apiName":"x"}`))
	must(t, "decode event", err)
	req := request(t, slow)
	req.Event, req.Timeout = ev, 100*time.Millisecond
	want := briefClosed
	want.Unsettled = true
	c := asker(t, nowhere())
	equal(t, "verdict", briefly(evaluate(t, c, req)), want)
	list, err := c.Controls(t.Context(), req)
	must(t, "list controls", err)
	if len(list) != 1 || list[0].Err == nil {
		t.Errorf("controls are %+v", list)
	}
}

// A directory that hangs uses up the question's own time.
func TestHangingDirectory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := asker(t, nowhere(), func(cfg *control.Config) {
			cfg.Directory = directoryFunc(func(ctx context.Context) ([]lane.WorkerInfo, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		})
		req := request(t)
		req.Timeout = 200 * time.Millisecond
		began := time.Now()
		want := briefClosed
		want.Unsettled = true
		equal(t, "verdict", briefly(evaluate(t, c, req)), want)
		if took := time.Since(began); took > req.Timeout {
			t.Errorf("it took %v", took)
		}
	})
}

func TestVerdictsAreCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	exchange := nowhere()
	c := asker(t, exchange, func(cfg *control.Config) { cfg.Registerer = registry })
	asker(t, exchange, func(cfg *control.Config) { cfg.Registerer = registry })
	evaluate(t, c, request(t))
	req := request(t, stored("a", blocks))
	req.Timeout = 50 * time.Millisecond
	evaluate(t, c, req)
	if n := testutil.CollectAndCount(registry, "gantry_control_verdicts_total"); n != 2*len(tasks.VerdictOutcomes()) {
		t.Errorf("%d series of verdicts", n)
	}
	want := `# HELP gantry_control_unsettled_total Verdicts that the asker decided alone, because Redis did not answer.
# TYPE gantry_control_unsettled_total counter
gantry_control_unsettled_total 1
# HELP gantry_control_waiters Callers that wait for a verdict now.
# TYPE gantry_control_waiters gauge
gantry_control_waiters 0
`
	must(t, "compare metrics", testutil.GatherAndCompare(registry, strings.NewReader(want), "gantry_control_unsettled_total", "gantry_control_waiters"))
}

func TestInvalidRequestIsNotSent(t *testing.T) {
	t.Parallel()
	exchange := nowhere()
	failing := errors.New("store is down")
	for name, test := range map[string]struct {
		edit   func(req *control.Request)
		config func(cfg *control.Config)
		code   tasks.Reason
		err    error
	}{
		"no event":        {func(req *control.Request) { req.Event = nil }, nil, tasks.InvalidEvent, nil},
		"other type":      {func(req *control.Request) { req.Event.Type = tasks.AfterStep }, nil, tasks.ControlEventType, nil},
		"bad id":          {func(req *control.Request) { req.ID = "a\nb" }, nil, tasks.InvalidTaskID, nil},
		"bad timeout":     {func(req *control.Request) { req.Timeout = -1 }, nil, tasks.InvalidTimeout, nil},
		"bad operation":   {func(req *control.Request) { req.Chain[0].OperationID = "" }, nil, tasks.InvalidOperationID, nil},
		"bad hooks":       {func(req *control.Request) { req.Chain[0].Hooks = json.RawMessage(`[{"id":1}]`) }, nil, tasks.InvalidID, nil},
		"hooks no array":  {func(req *control.Request) { req.Chain[0].Hooks = json.RawMessage(`{}`) }, nil, tasks.InvalidHook, nil},
		"bad environment": {nil, func(cfg *control.Config) { cfg.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, failing } }, "", failing},
		"failing source": {func(req *control.Request) { req.Chain = nil }, func(cfg *control.Config) {
			cfg.Hooks = sourceFunc(func() (json.RawMessage, error) { return nil, failing })
		}, "", failing},
	} {
		t.Run(name, func(t *testing.T) {
			c := asker(t, exchange, func(cfg *control.Config) {
				if test.config != nil {
					test.config(cfg)
				}
			})
			req := request(t, stored("a", ""))
			if test.edit != nil {
				test.edit(&req)
			}
			v, err := c.Evaluate(t.Context(), req)
			if test.err != nil {
				fails(t, err, test.err)
			} else if fault, ok := errors.AsType[*tasks.InvalidError](err); !ok || fault.Code != test.code {
				t.Fatalf("error is %v, want %s", err, test.code)
			}
			if v.Allowed() {
				t.Error("an error came with permission")
			}
			_, _, err = c.Submit(t.Context(), req)
			if err == nil {
				t.Error("submit took it")
			}
		})
	}
	equal(t, "questions posted", exchange.posts.Load(), int64(0))
}

type sourceFunc func() (json.RawMessage, error)

func (f sourceFunc) ControlHooks(context.Context, string) (json.RawMessage, error) { return f() }

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]control.Config{
		"nothing":     {},
		"bad timeout": {Exchange: nowhere(), Timeout: -1},
		"bad policy":  {Exchange: nowhere(), UnknownEnvironment: "allow"},
	} {
		if _, err := control.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := control.NewAnswerer(control.AnswererConfig{}); err == nil {
		t.Error("an answerer without anything: no error")
	}
	if _, err := control.NewAnswerer(control.AnswererConfig{Exchange: nowhere(), Evaluator: judgeFunc(allow), Slots: -1}); err == nil {
		t.Error("an answerer without slots: no error")
	}
}

func TestHooksOfTheChain(t *testing.T) {
	t.Parallel()
	matcher := "shell"
	c := asker(t, nowhere(), func(cfg *control.Config) {
		cfg.Hooks = hooksOf{
			"op":    list(stored("own", blocks), strings.ReplaceAll(stored("other tool", ""), `"webhook"`, `"matcher":"^web/","webhook"`)),
			"child": list(stored("child", `,"timeout":5,"onError":"continue"`)),
		}
		cfg.Directory = directoryFunc(func(context.Context) ([]lane.WorkerInfo, error) {
			hook := lane.PublishedHook{Type: tasks.BeforeToolCall, Control: true, Matcher: &matcher}
			strict := hook
			strict.OnError = tasks.PolicyBlock
			return []lane.WorkerInfo{{ID: "1", Hooks: []lane.PublishedHook{hook}}, {ID: "2", Hooks: []lane.PublishedHook{hook, strict}}}, nil
		})
	})
	environment := control.Asked{HookID: "server-env-webhook:beforeToolCall", Environment: true, Matcher: &matcher, OnError: tasks.PolicyContinue}
	strict := environment
	strict.OnError, strict.OnErrorSet = tasks.PolicyBlock, true
	own := control.Asked{HookID: "own", OperationID: "op", OnError: tasks.PolicyBlock, OnErrorSet: true, Timeout: tasks.DefaultTimeout}
	child := control.Asked{HookID: "child", OperationID: "child", OnError: tasks.PolicyContinue, OnErrorSet: true, Timeout: 5 * time.Second}
	given := control.Asked{HookID: "given", OperationID: "op", OnError: tasks.PolicyContinue, Timeout: tasks.DefaultTimeout}
	for name, test := range map[string]struct {
		chain []control.OperationHooks
		want  []control.Asked
	}{
		"own operation": {nil, []control.Asked{own, environment, strict}},
		"nobody's":      {[]control.OperationHooks{}, []control.Asked{environment, strict}},
		"two operations": {
			[]control.OperationHooks{{OperationID: "child"}, {OperationID: "op"}}, []control.Asked{child, own, environment, strict},
		},
		"given": {
			[]control.OperationHooks{{OperationID: "op", Hooks: list(stored("given", ""))}, {OperationID: "child", Hooks: json.RawMessage(`[]`)}},
			[]control.Asked{given, environment, strict},
		},
		"unknown operation": {[]control.OperationHooks{{OperationID: "none"}}, []control.Asked{environment, strict}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.Controls(t.Context(), control.Request{Event: toolEvent(t, "op"), Chain: test.chain})
			must(t, "list controls", err)
			equal(t, "controls", got, test.want)
		})
	}
}

// changing is a Directory whose answer changes.
type changing struct {
	mu      sync.Mutex
	workers []lane.WorkerInfo
	err     error
	looks   int
}

func (c *changing) Workers(context.Context) ([]lane.WorkerInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	return c.workers, c.err
}

// answer changes the answer, lets the client look, and returns how often it did so
// far.
func (c *changing) answer(err error, workers ...lane.WorkerInfo) int {
	c.mu.Lock()
	c.workers, c.err = workers, err
	c.mu.Unlock()
	<-time.After(3 * time.Second)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks
}

// What the workers have is learned in the background, and believed until
// something else is learned.
func TestDirectoryIsReadInTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &changing{err: errDark}
		c := asker(t, nowhere(), func(cfg *control.Config) { cfg.Timeout, cfg.Directory = 100*time.Millisecond, d })
		ask := func() tasks.VerdictOutcome { return evaluate(t, c, control.Request{Event: toolEvent(t, "op")}).Outcome }
		equal(t, "while it fails", ask(), tasks.OutcomeUnansweredClosed)
		d.answer(nil)
		equal(t, "without a worker", ask(), tasks.OutcomeUnansweredClosed)
		d.answer(nil, lane.WorkerInfo{ID: "n", Silent: true})
		equal(t, "with a worker that answers nobody", ask(), tasks.OutcomeUnansweredClosed)
		before := d.answer(nil, lane.WorkerInfo{ID: "w"})
		equal(t, "with a worker", ask(), tasks.OutcomeNone)
		d.mu.Lock()
		equal(t, "looks for a question", d.looks, before)
		d.mu.Unlock()
		d.answer(nil, lane.WorkerInfo{ID: "w", Hooks: []lane.PublishedHook{{Type: tasks.BeforeToolCall, Control: true}}})
		equal(t, "with a control", ask(), tasks.OutcomeUnansweredOpen)
		d.answer(nil)
		equal(t, "after the worker left", ask(), tasks.OutcomeUnansweredOpen)
		d.answer(errDark)
		equal(t, "when it fails again", ask(), tasks.OutcomeUnansweredOpen)
	})
}
