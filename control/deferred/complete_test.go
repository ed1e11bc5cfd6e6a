package deferred_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

func TestTheFirstResultStands(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status tasks.VerdictStatus
		first  string
		want   string
	}{
		"a result":     {tasks.VerdictAllow, "one", `{"content":"one","success":true}`},
		"an empty one": {tasks.VerdictAllow, "", `{"content":"","success":true}`},
		"a denial":     {tasks.VerdictBlocked, "one", `{"content":"veto","success":false,"error":"hook_denied","state":{"type":"blocked","phase":"afterToolCall","reason":"veto"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.open(waiting(nil))
			b.controls.say = verdict(test.status, "veto")
			done := b.complete(deferred.Completion{ID: "row", Result: result(test.first)})
			same(t, "outcome", done.Outcome, deferred.Published)
			same(t, "denied", done.Row.Denied, test.status == tasks.VerdictBlocked)
			b.controls.say = verdict(tasks.VerdictAllow, "")
			done = b.complete(deferred.Completion{ID: "row", Result: result("two")})
			same(t, "outcome", done.Outcome, deferred.Duplicate)
			same(t, "row", string(done.Row.Document()), test.want)
			b.stands("row", test.want)
			same(t, "questions", len(b.controls.questions()), 1)
		})
	}
}

// The control is asked before anybody can see the result.
func TestNothingIsSeenBeforeTheVerdict(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.open(waiting(nil))
	b.controls.say = func(ctx context.Context, _ control.Request) (tasks.Verdict, error) {
		b.stands("row", `{"content":""}`)
		for _, key := range b.client.Keys(ctx, "*deferred*row*").Val() {
			for field, value := range b.client.HGetAll(ctx, key).Val() {
				if strings.Contains(value, "secret") {
					t.Errorf("%s of %s shows the result", field, key)
				}
			}
		}
		return tasks.Verdict{Status: tasks.VerdictBlocked, Reason: "no"}, nil
	}
	b.complete(deferred.Completion{ID: "row", Result: result("secret")})
}

func TestFailedStartsTakeTheSamePath(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.open(waiting(nil))
	done := b.complete(deferred.Completion{ID: "row", Result: tasks.ToolResult{Content: "could not start", Error: "start_failed"}})
	same(t, "outcome", done.Outcome, deferred.Published)
	same(t, "questions", len(b.controls.questions()), 1)
	b.stands("row", `{"content":"could not start","success":false,"error":"start_failed"}`)
}

func TestDenialsKeepWhatTheServerBuilt(t *testing.T) {
	t.Parallel()
	const blocked = `{"content":"x","success":false,"error":"hook_denied","state":{"type":"blocked","phase":"afterToolCall","reason":"x"`
	for name, test := range map[string]struct {
		placeholder, state string
		usage              bool
		want               string
	}{
		"a tool's own":       {`{}`, `{"totalCost":1,"onComplete":"finish"}`, false, blocked + `}}`},
		"usage":              {`{}`, `{"totalCost":1,"steps":2}`, true, blocked + `,"totalCost":1}}`},
		"a group's":          {`{"onComplete":"finish","members":2}`, `{"totalCost":1}`, false, blocked + `,"onComplete":"finish"}}`},
		"usage of a group":   {`{}`, `{"totalTokens":5,"onComplete":"finish"}`, true, blocked + `,"totalTokens":5,"onComplete":"finish"}}`},
		"another completion": {`{"onComplete":"continue"}`, `{"onComplete":["finish"]}`, true, blocked + `}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.open(waiting(func(p *deferred.Placeholder) { p.State = json.RawMessage(test.placeholder) }))
			b.controls.say = verdict(tasks.VerdictBlocked, "x")
			b.complete(deferred.Completion{
				ID: "row", Raw: json.RawMessage(`{"content":"c","success":true,"images":[1],"state":` + test.state + `}`), PreserveUsage: test.usage,
			})
			b.stands("row", test.want)
		})
	}
}

// A result given as JSON is seen by controls and readers byte for byte.
func TestRawResultsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.open(waiting(nil))
	const raw = `{ "success":true, "content":"<é>", "images":[12345678901234567890], "error":{"n":1.0}, "content":"<last>" }`
	b.complete(deferred.Completion{ID: "row", Raw: json.RawMessage(raw)})
	b.stands("row", raw)
	seen, _ := b.controls.questions()[0].Event.Field("result")
	same(t, "result in the question", string(seen), raw)
}

func TestOperationsAreAskedInOrder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		approvedFrom, placeholder, callback string
		want                                []control.OperationHooks
		event                               string
	}{
		"parent only":     {"", "p", "", []control.OperationHooks{{OperationID: "p", Hooks: json.RawMessage(`[` + watcher + `]`)}}, "p"},
		"callback's":      {"", "x", "p", []control.OperationHooks{{OperationID: "p", Hooks: json.RawMessage(`[` + watcher + `]`)}}, "p"},
		"approved":        {"o", "p", "p", []control.OperationHooks{{OperationID: "o", Hooks: json.RawMessage(`[` + control1 + `]`)}, {OperationID: "p", Hooks: json.RawMessage(`[` + watcher + `]`)}}, "p"},
		"the same twice":  {"o", "", "o", []control.OperationHooks{{OperationID: "o", Hooks: json.RawMessage(`[` + control1 + `]`)}}, "o"},
		"no parent":       {"o", "", "", []control.OperationHooks{{OperationID: "o", Hooks: json.RawMessage(`[` + control1 + `]`)}}, "o"},
		"nobody knows it": {"", "", "n", []control.OperationHooks{{OperationID: "n", Hooks: json.RawMessage(`[]`)}}, "n"},
		"no operation":    {"", "", "", []control.OperationHooks{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.policies.records = map[string]string{"o": `[` + control1 + `]`, "p": `[` + watcher + `]`}
			b.open(waiting(func(p *deferred.Placeholder) { p.ApprovedFrom, p.OperationID = test.approvedFrom, test.placeholder }))
			b.complete(deferred.Completion{ID: "row", OperationID: test.callback, Result: result("c")})
			q := b.controls.questions()[0]
			same(t, "chain", q.Chain, test.want)
			id, _ := q.Event.Field("operationId")
			same(t, "operation of the event", string(id), `"`+test.event+`"`)
			if q.ID != "" {
				t.Errorf("question has the id %q: a repeated callback would read an old verdict", q.ID)
			}
		})
	}
}

func TestSnapshotsComeBeforeRecords(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		snapshot, record map[string]string
		want             string
		asked            []string
	}{
		"a list":              {map[string]string{"op": `[` + watcher + `]`}, map[string]string{"op": `[` + control1 + `]`}, `[` + watcher + `]`, []string{"snapshot op"}},
		"an empty list":       {map[string]string{"op": `[]`}, map[string]string{"op": `[` + control1 + `]`}, `[]`, []string{"snapshot op"}},
		"expired":             {nil, map[string]string{"op": `[` + control1 + `]`}, `[` + control1 + `]`, []string{"snapshot op", "record op"}},
		"record without list": {nil, map[string]string{"op": `null`}, `[]`, []string{"snapshot op", "record op"}},
		"empty record":        {nil, map[string]string{"op": ``}, `[]`, []string{"snapshot op", "record op"}},
		"nothing":             {nil, nil, `[]`, []string{"snapshot op", "record op"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.open(waiting(nil))
			b.policies.snapshots, b.policies.records, b.policies.asked = test.snapshot, test.record, nil
			b.complete(deferred.Completion{ID: "row", Result: result("c")})
			same(t, "hooks", string(b.controls.questions()[0].Chain[0].Hooks), test.want)
			same(t, "asked", b.policies.asked, test.asked)
		})
	}
}

// An operation may end, and its hooks with it, long before the result comes: the
// controls that it had when the row was opened still count.
func TestControlsOutliveTheirOperation(t *testing.T) {
	t.Parallel()
	list := `[` + watcher + `,` + control1 + `,` + before + `,` + foreign + `]`
	for name, test := range map[string]struct {
		later map[string]string
		want  string
	}{
		"nobody knows it":       {nil, `[` + control1 + `]`},
		"a record without list": {map[string]string{"op": "null"}, `[]`},
		"an empty list":         {map[string]string{"op": "[]"}, `[]`},
		"another list":          {map[string]string{"op": `[` + watcher + `]`}, `[` + watcher + `]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.policies.snapshots["op"] = list
			b.open(waiting(nil))
			b.open(waiting(func(p *deferred.Placeholder) { p.ID, p.Call = "bare", nil }))
			b.policies.snapshots, b.policies.records = nil, test.later
			b.open(waiting(nil)) // changes nothing
			b.complete(deferred.Completion{ID: "row", Result: result("c")})
			same(t, "hooks", string(b.controls.questions()[0].Chain[0].Hooks), test.want)
			_, err := b.Complete(t.Context(), deferred.Completion{ID: "bare", Result: result("c")})
			if want := strings.Contains(test.want, "toolCall"); errors.Is(err, deferred.ErrNoCall) != want {
				t.Errorf("a call that cannot be rebuilt: error is %v", err)
			}
			if test.later == nil && b.notifier.told[0].Persisted != nil {
				t.Errorf("observers are %s", b.notifier.told[0].Persisted)
			}
		})
	}
	b := setup(t, nil)
	b.policies.err = errSource
	if _, err := b.Open(t.Context(), waiting(nil)); !errors.Is(err, errSource) {
		t.Errorf("open: error is %v, want that of the source", err)
	}
	if _, err := b.Get(t.Context(), "row"); !errors.Is(err, deferred.ErrNotFound) {
		t.Errorf("get: error is %v, want ErrNotFound", err)
	}
}

// Whatever fails on the way to a verdict, nothing is published, and the callback
// can be repeated.
func TestFailuresPublishNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(b *bundle)
		adjust  func(cfg *deferred.Config)
		want    error
	}{
		"policy store":   {func(b *bundle) { b.policies.err = errSource }, nil, errSource},
		"invalid policy": {func(b *bundle) { b.policies.records["op"] = `[{"id":"x"}]` }, nil, nil},
		"controls": {func(b *bundle) {
			b.controls.say = func(context.Context, control.Request) (tasks.Verdict, error) { return tasks.Verdict{}, errSource }
		}, nil, errSource},
		"no verdict at all": {func(b *bundle) { b.controls.say = verdict("", "") }, nil, nil},
		"unknown verdict":   {func(b *bundle) { b.controls.say = verdict("allowed", "") }, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, test.adjust)
			b.open(waiting(nil))
			test.prepare(b)
			_, err := b.Complete(t.Context(), deferred.Completion{ID: "row", Result: result("c")})
			if err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Fatalf("error is %v, want %v", err, test.want)
			}
			b.stands("row", `{"content":""}`)
			b.policies.err, b.policies.records, b.controls.say = nil, nil, verdict(tasks.VerdictAllow, "")
			same(t, "outcome", b.complete(deferred.Completion{ID: "row", Result: result("c")}).Outcome, deferred.Published)
		})
	}
}

func environment(list string, err error) tasks.EnvironmentHooks {
	hooks, parseErr := tasks.ParseHooks([]byte(list), tasks.ParseOptions{Mode: tasks.ParseRestore})
	if parseErr != nil {
		panic(parseErr)
	}
	return func() ([]tasks.Hook, error) { return hooks, err }
}

type workers struct {
	list []lane.WorkerInfo
	err  error
}

func (w workers) Workers(context.Context) ([]lane.WorkerInfo, error) { return w.list, w.err }

// Without call data it counts whether a control is configured, not whether it
// would match.
func TestCallsThatCannotBeRebuilt(t *testing.T) {
	t.Parallel()
	published := func(h lane.PublishedHook) workers {
		return workers{list: []lane.WorkerInfo{{ID: "w", Hooks: []lane.PublishedHook{{Type: tasks.OnError}, h}}}}
	}
	for name, test := range map[string]struct {
		hooks       string
		environment tasks.EnvironmentHooks
		directory   deferred.Directory
		publishes   bool
		want        error
	}{
		"no hook":                  {`[]`, nil, nil, true, nil},
		"a watcher":                {`[` + watcher + `]`, nil, nil, true, nil},
		"a control of calls":       {`[` + before + `]`, nil, nil, true, nil},
		"a control":                {`[` + watcher + `,` + control1 + `]`, nil, nil, false, deferred.ErrNoCall},
		"a control of other tools": {`[` + strings.Replace(control1, `"type"`, `"matcher":"^mail/","type"`, 1) + `]`, nil, nil, false, deferred.ErrNoCall},
		"an old environment":       {`[` + foreign + `]`, nil, nil, true, nil},
		"the environment":          {`[]`, environment(`[`+control1+`]`, nil), nil, false, deferred.ErrNoCall},
		"a watching environment":   {`[]`, environment(`[`+watcher+`]`, nil), nil, true, nil},
		"a broken environment":     {`[]`, environment(`[]`, errSource), nil, false, errSource},
		"a worker's control":       {`[]`, nil, published(lane.PublishedHook{Type: tasks.AfterToolCall, Control: true}), false, deferred.ErrNoCall},
		"a worker's watcher":       {`[]`, nil, published(lane.PublishedHook{Type: tasks.AfterToolCall}), true, nil},
		"no worker":                {`[]`, nil, workers{}, false, nil},
		"workers without answers":  {`[]`, nil, workers{list: []lane.WorkerInfo{{ID: "w", Silent: true}}}, false, deferred.ErrEnvironmentUnknown},
		"no directory":             {`[]`, nil, workers{err: errSource}, false, errSource},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(cfg *deferred.Config) { cfg.EnvironmentHooks, cfg.Directory = test.environment, test.directory })
			b.policies.records["op"] = test.hooks
			for _, missing := range []func(c *deferred.Call){
				func(c *deferred.Call) { c.ToolCallID = "" }, func(c *deferred.Call) { c.AssistantMessageID = "" },
				func(c *deferred.Call) { c.Identifier = "" }, func(c *deferred.Call) { c.APIName = "" }, nil,
			} {
				p := waiting(func(p *deferred.Placeholder) {
					p.ID = tasks.NewID()
					if missing == nil {
						p.Call = nil
					} else {
						missing(p.Call)
					}
				})
				b.open(p)
				done, err := b.Complete(t.Context(), deferred.Completion{ID: p.ID, Result: result("c")})
				if (err == nil) != test.publishes || test.want != nil && !errors.Is(err, test.want) {
					t.Fatalf("error is %v, want %v", err, test.want)
				}
				if test.publishes {
					same(t, "outcome", done.Outcome, deferred.Published)
					continue
				}
				b.stands(p.ID, `{"content":""}`)
			}
			same(t, "questions", len(b.controls.questions()), 0)
		})
	}
}

func TestCancelledCallbacksPublishNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.open(waiting(nil))
	ctx, cancel := context.WithCancel(t.Context())
	for name, say := range map[string]func(context.Context, control.Request) (tasks.Verdict, error){
		"verdict": func(context.Context, control.Request) (tasks.Verdict, error) {
			return tasks.Verdict{Status: tasks.VerdictCancelled}, nil
		},
		"allowed too late": func(context.Context, control.Request) (tasks.Verdict, error) {
			cancel()
			return tasks.Verdict{Status: tasks.VerdictAllow}, nil
		},
		"error": func(ctx context.Context, _ control.Request) (tasks.Verdict, error) {
			cancel()
			return tasks.Verdict{}, ctx.Err()
		},
		"before": verdict(tasks.VerdictAllow, ""),
	} {
		if name == "before" {
			cancel()
		}
		b.controls.say = say
		done, err := b.Complete(ctx, deferred.Completion{ID: "row", Result: result("c")})
		check(t, name, err)
		same(t, name, done.Outcome, deferred.Cancelled)
		b.stands("row", `{"content":""}`)
		if ctx.Err() != nil {
			ctx, cancel = context.WithCancel(t.Context())
		}
	}
	cancel()
	b.controls.say = verdict(tasks.VerdictAllow, "")
	same(t, "outcome", b.complete(deferred.Completion{ID: "row", Result: result("c")}).Outcome, deferred.Published)
	same(t, "told", len(b.notifier.told), 1)
}

func TestOnlyTheBridgeCompletes(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.open(waiting(func(p *deferred.Placeholder) { p.Bridge = "group-member" }))
	for _, bridge := range []string{"", "sub-agent"} {
		if _, err := b.Complete(t.Context(), deferred.Completion{ID: "row", Bridge: bridge, Result: result("summary")}); !errors.Is(err, deferred.ErrBridged) {
			t.Fatalf("bridge %q: error is %v, want ErrBridged", bridge, err)
		}
	}
	same(t, "questions", len(b.controls.questions()), 0)
	b.stands("row", `{"content":""}`)
	b.complete(deferred.Completion{ID: "row", Bridge: "group-member", Result: result("all done")})
	b.stands("row", `{"content":"all done","success":true}`)
	// A row that nobody owns may be completed by a bridge as well.
	b.open(waiting(func(p *deferred.Placeholder) { p.ID = "free" }))
	b.complete(deferred.Completion{ID: "free", Bridge: "sub-agent", Result: result("c")})
}

func TestMissingRowsFail(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	if _, err := b.Complete(t.Context(), deferred.Completion{ID: "row", Result: result("c")}); !errors.Is(err, deferred.ErrNotFound) {
		t.Fatalf("error is %v, want ErrNotFound", err)
	}
	if _, err := b.Get(t.Context(), "row"); !errors.Is(err, deferred.ErrNotFound) {
		t.Fatalf("error is %v, want ErrNotFound", err)
	}
	// A row that expires under the hands of the control is missing too.
	b.open(waiting(nil))
	b.controls.say = func(ctx context.Context, _ control.Request) (tasks.Verdict, error) {
		return tasks.Verdict{Status: tasks.VerdictAllow}, b.client.FlushDB(ctx).Err()
	}
	if _, err := b.Complete(t.Context(), deferred.Completion{ID: "row", Result: result("c")}); !errors.Is(err, deferred.ErrNotFound) {
		t.Fatalf("error is %v, want ErrNotFound", err)
	}
}

func TestRebuiltCalls(t *testing.T) {
	t.Parallel()
	number := func(n int) *int { return &n }
	for name, test := range map[string]struct {
		adjust     func(c *deferred.Call)
		completion deferred.Completion
		want       string
	}{
		"as stored": {
			func(c *deferred.Call) { c.RecordedCalls, c.Steps = 2, 5 },
			deferred.Completion{},
			`"args":{"a": 1},"callIndex":3,"stepIndex":4,`,
		},
		"as the callback knows": {
			func(c *deferred.Call) { c.RecordedCalls, c.Steps = 2, 5 },
			deferred.Completion{RecordedCalls: number(0), Steps: number(0)},
			`"args":{"a": 1},"callIndex":1,"stepIndex":0,`,
		},
		"no arguments": {func(c *deferred.Call) { c.Arguments = "" }, deferred.Completion{}, `"args":{},"callIndex":1,"stepIndex":0,`},
		"broken":       {func(c *deferred.Call) { c.Arguments = "{oops" }, deferred.Completion{}, `"args":{},"callIndex":1,"stepIndex":0,`},
		"array":        {func(c *deferred.Call) { c.Arguments = "[1]" }, deferred.Completion{}, `"args":{},"callIndex":1,"stepIndex":0,`},
		"null":         {func(c *deferred.Call) { c.Arguments = "null" }, deferred.Completion{}, `"args":{},"callIndex":1,"stepIndex":0,`},
		"trailing":     {func(c *deferred.Call) { c.Arguments = "{} {}" }, deferred.Completion{}, `"args":{},"callIndex":1,"stepIndex":0,`},
		"closing":      {func(c *deferred.Call) { c.Arguments = `{}],[{}` }, deferred.Completion{}, `"args":{},"callIndex":1,"stepIndex":0,`},
		"not UTF-8":    {func(c *deferred.Call) { c.Arguments = "{\"a\":\"\xff\"}" }, deferred.Completion{}, `"args":{},"callIndex":1,"stepIndex":0,`},
		"too deep": {func(c *deferred.Call) {
			c.Arguments = `{"a":` + strings.Repeat("[", 9998) + strings.Repeat("]", 9998) + `}`
		}, deferred.Completion{}, `"args":{},"callIndex":1,"stepIndex":0,`},
		"many braces": {func(c *deferred.Call) { c.Arguments = `{"a":"` + strings.Repeat("{", 9999) + `"}` }, deferred.Completion{}, `"args":{"a":"` + strings.Repeat("{", 9999) + `"},"callIndex":1,"stepIndex":0,`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			b.open(waiting(func(p *deferred.Placeholder) {
				test.adjust(p.Call)
				p.Call.Context = map[string]string{"userId": "u", "topicId": "t"}
			}))
			test.completion.ID, test.completion.Result = "row", result("c")
			b.complete(test.completion)
			want := `{"toolCallId":"c1","assistantMessageId":"m1","identifier":"crew","apiName":"delegate",` + test.want +
				`"operationId":"op","executor":"server","topicId":"t","userId":"u","mocked":false,"result":{"content":"c","success":true}}`
			same(t, "event", string(b.controls.questions()[0].Event.Raw), want)
		})
	}
}

func TestNotifications(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.policies.records["op"] = `[` + watcher + `]`
	b.open(waiting(nil))
	b.controls.say = verdict(tasks.VerdictBlocked, "veto")
	b.notifier.err = errSource // nobody's business but the log's
	b.complete(deferred.Completion{ID: "row", Result: result("secret"), Trace: "00-1-2-01"})
	b.complete(deferred.Completion{ID: "row", Result: result("secret")})
	same(t, "told", len(b.notifier.told), 1)
	n := b.notifier.told[0]
	final, _ := n.Event.Field("result")
	same(t, "result", string(final), `{"content":"veto","success":false,"error":"hook_denied","state":{"type":"blocked","phase":"afterToolCall","reason":"veto"}}`)
	same(t, "hooks", string(n.Persisted), `[`+watcher+`]`)
	same(t, "trace", n.Trace, "00-1-2-01")
	if n.ID == "" || n.Event.OperationID != "op" || n.Event.Type != tasks.AfterToolCall {
		t.Errorf("notification is %+v", n)
	}
	// Nobody can be told of a call that is not known, or has no operation.
	b.open(waiting(func(p *deferred.Placeholder) { p.ID, p.Call = "bare", nil }))
	b.complete(deferred.Completion{ID: "bare", Result: result("c")})
	b.open(waiting(func(p *deferred.Placeholder) { p.ID, p.OperationID = "lost", "" }))
	b.complete(deferred.Completion{ID: "lost", Result: result("c")})
	same(t, "told", len(b.notifier.told), 1)
}

func TestCallsThatCanNeverSucceed(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.open(waiting(nil))
	for name, c := range map[string]deferred.Completion{
		"no id":             {Result: result("c")},
		"bad operation":     {ID: "row", OperationID: "a\nb", Result: result("c")},
		"no content":        {ID: "row", Raw: json.RawMessage(`{"success":true}`)},
		"broken":            {ID: "row", Raw: json.RawMessage(`{"content":"","success":true`)},
		"state is no state": {ID: "row", Result: tasks.ToolResult{State: json.RawMessage(`[]`)}},
	} {
		var invalid *tasks.InvalidError
		if _, err := b.Complete(t.Context(), c); !errors.As(err, &invalid) {
			t.Errorf("%s: error is %v, want an InvalidError", name, err)
		}
	}
	for name, adjust := range map[string]func(p *deferred.Placeholder){
		"no id":         func(p *deferred.Placeholder) { p.ID = "" },
		"operation":     func(p *deferred.Placeholder) { p.ApprovedFrom = "\x00" },
		"state":         func(p *deferred.Placeholder) { p.State = json.RawMessage(`1`) },
		"content":       func(p *deferred.Placeholder) { p.Content = "\xff" },
		"native id":     func(p *deferred.Placeholder) { p.Call.ToolCallID = "\xff" },
		"calls":         func(p *deferred.Placeholder) { p.Call.RecordedCalls = -1 },
		"context":       func(p *deferred.Placeholder) { p.Call.Context = map[string]string{"operationId": "x"} },
		"unknown field": func(p *deferred.Placeholder) { p.Call.Context = map[string]string{"tenant": "x"} },
	} {
		var invalid *tasks.InvalidError
		if _, err := b.Open(t.Context(), waiting(adjust)); !errors.As(err, &invalid) {
			t.Errorf("open with a bad %s: error is %v, want an InvalidError", name, err)
		}
	}
	b.stands("row", `{"content":""}`)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for name, cfg := range map[string]deferred.Config{
		"store":    {Controls: b.controls, Policies: b.policies},
		"controls": {Store: b.store(), Policies: b.policies},
		"policies": {Store: b.store(), Controls: b.controls},
		"timeout":  {Store: b.store(), Controls: b.controls, Policies: b.policies, SettleTimeout: -1},
	} {
		if _, err := deferred.New(cfg); err == nil {
			t.Errorf("a configuration without %s is accepted", name)
		}
	}
}
