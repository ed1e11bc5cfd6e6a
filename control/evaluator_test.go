package control_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

const event = `{"toolCallId":"c","identifier":"shell","apiName":"run","args":{"n":1.0}}`

// askerFunc answers for every control, and remembers what it was asked.
type askerFunc func(ctx context.Context, req webhook.ControlRequest) webhook.ControlReply

func (f askerFunc) Ask(ctx context.Context, req webhook.ControlRequest) webhook.ControlReply {
	return f(ctx, req)
}

// panel answers by the id of the hook: a body, a number, or the name of a class.
type panel struct {
	answers map[string]string
	asked   []webhook.ControlRequest
}

func (p *panel) Ask(_ context.Context, req webhook.ControlRequest) webhook.ControlReply {
	p.asked = append(p.asked, req)
	answer := p.answers[req.Hook.ID]
	switch {
	case answer == "cancelled":
		return webhook.ControlReply{Cancelled: true}
	case strings.HasPrefix(answer, "class:"):
		return webhook.ControlReply{Class: tasks.FailureClass(answer[6:]), Message: "safe", Elapsed: 1500 * time.Microsecond}
	case answer == "":
		return webhook.ControlReply{Status: 204}
	}
	return webhook.ControlReply{Status: 200, Body: []byte(answer), Elapsed: 20 * time.Millisecond}
}

func (p *panel) ids() []string {
	ids := []string{}
	for _, req := range p.asked {
		ids = append(ids, req.Hook.ID)
	}
	return ids
}

// stored is a stored control; extra adds members to its webhook.
func stored(id, extra string) string {
	return `{"id":"` + id + `","type":"beforeToolCall","webhook":{"url":"https://policy.test/` + id + `","responseHandling":"toolCall"` + extra + `}}`
}

const blocks = `,"onError":"block"`

func list(hooks ...string) json.RawMessage {
	return json.RawMessage("[" + strings.Join(hooks, ",") + "]")
}

// ask is a question with one round.
func ask(hooks ...string) tasks.Question {
	return tasks.Question{
		ID: "q1", OperationID: "op", Type: tasks.BeforeToolCall, Event: json.RawMessage(event),
		Rounds: []tasks.Round{{OperationID: "op", Hooks: list(hooks...)}},
	}
}

func environmentControl(policy tasks.ErrorPolicy) tasks.Hook {
	return tasks.Hook{ID: tasks.ReservedIDPrefix + "beforeToolCall", Type: tasks.BeforeToolCall, Webhook: &tasks.Webhook{
		URL: "https://gate.test/", ResponseHandling: tasks.HandleToolCall, OnError: policy,
	}}
}

func newEvaluator(t testing.TB, asker control.Asker, edit func(*control.EvaluatorConfig)) *control.Evaluator {
	t.Helper()
	cfg := control.EvaluatorConfig{Asker: asker, Namespace: "test"}
	if edit != nil {
		edit(&cfg)
	}
	e, err := control.NewEvaluator(cfg)
	if err != nil {
		t.Fatalf("new evaluator: %v", err)
	}
	return e
}

const (
	yes = `{"decision":"allow"}`
	no  = `{"decision":"deny","reason":"no"}`
)

func TestEvaluate(t *testing.T) {
	t.Parallel()
	type row struct {
		class tasks.ControlClass
		code  tasks.TransportCode
	}
	ok, deny, note := row{class: tasks.ControlAllow}, row{class: tasks.ControlDeny}, row{class: tasks.ControlNotification}
	timeout := row{tasks.ControlError, tasks.CodeTimeout}
	for name, test := range map[string]struct {
		hooks   []string
		answers map[string]string
		status  tasks.VerdictStatus
		reason  string
		outcome tasks.VerdictOutcome
		rows    []row
	}{
		"nobody matches":           {[]string{`{"id":"n","type":"beforeToolCall","webhook":{"url":"/n"}}`}, nil, "allow", "", "no_control", nil},
		"all allow":                {[]string{stored("a", ""), stored("b", blocks)}, map[string]string{"a": yes, "b": yes}, "allow", "", "allowed", []row{ok, ok}},
		"first deny ends":          {[]string{stored("a", ""), stored("b", ""), stored("c", "")}, map[string]string{"a": yes, "b": no, "c": yes}, "blocked", "no", "denied", []row{ok, deny}},
		"notification goes on":     {[]string{stored("a", blocks), stored("b", "")}, map[string]string{"b": no}, "blocked", "no", "denied", []row{note, deny}},
		"notifications only":       {[]string{stored("a", blocks)}, nil, "allow", "", "allowed", []row{note}},
		"error is open by default": {[]string{stored("a", ""), stored("b", "")}, map[string]string{"a": "class:timeout", "b": yes}, "allow", "", "error_open", []row{timeout, ok}},
		"error then deny":          {[]string{stored("a", ""), stored("b", "")}, map[string]string{"a": "class:timeout", "b": no}, "blocked", "no", "denied", []row{timeout, deny}},
		"error is closed":          {[]string{stored("a", blocks), stored("b", "")}, map[string]string{"a": "class:timeout", "b": yes}, "blocked", "hook_control_error", "error_closed", []row{timeout}},
		"open, then closed": {
			[]string{stored("a", `,"onError":"continue"`), stored("b", blocks)},
			map[string]string{"a": "class:http_5xx", "b": "class:refused"},
			"blocked", "hook_control_error", "error_closed",
			[]row{{tasks.ControlError, tasks.CodeHTTPError}, {tasks.ControlError, tasks.CodeNetworkError}},
		},
		"a word that is none": {
			[]string{stored("a", blocks)},
			map[string]string{"a": `{"decision":"denied"}`},
			"blocked", "hook_control_error", "error_closed",
			[]row{{tasks.ControlError, tasks.CodeInvalidResponse}},
		},
		"the control is cancelled": {[]string{stored("a", blocks), stored("b", "")}, map[string]string{"a": "cancelled"}, "cancelled", "", "cancelled", []row{{class: tasks.ControlCancelled}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &panel{answers: test.answers}
			v, err := newEvaluator(t, p, nil).Evaluate(t.Context(), ask(test.hooks...))
			if err != nil {
				t.Fatalf("evaluate: %v", err)
			}
			want := tasks.Verdict{Version: 1, ID: "q1", Type: tasks.BeforeToolCall, Status: test.status, Reason: test.reason, Outcome: test.outcome, By: tasks.ByWorker}
			var rows []row
			for _, c := range v.Controls {
				rows = append(rows, row{c.Class, c.Code})
			}
			if v.Controls == nil {
				t.Errorf("controls are nil")
			}
			v.Controls = nil
			if diff := cmp.Diff(want, v); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.rows, rows, cmp.AllowUnexported(row{})); diff != "" {
				t.Errorf("controls (-want +got):\n%s", diff)
			}
			if v.Allowed() != (test.status == "allow") || len(p.asked) != len(rows) {
				t.Errorf("allowed %v, %d asked", v.Allowed(), len(p.asked))
			}
		})
	}
}

// A zero reply, as of an Asker that is broken, permits nothing.
func TestReplyThatIsNone(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]webhook.ControlReply{
		"zero": {}, "no status": {Body: []byte(yes)}, "failure": {Class: tasks.ClassHTTP5xx, Status: 200, Body: []byte(yes)},
		"unknown class": {Class: "tomorrow", Status: 200, Body: []byte(yes)}, "status": {Status: 500, Body: []byte(yes)},
		"too much": {Status: 200, Body: []byte(yes + strings.Repeat(" ", 1<<16))},
	} {
		asker := askerFunc(func(context.Context, webhook.ControlRequest) webhook.ControlReply { return reply })
		v, err := newEvaluator(t, asker, nil).Evaluate(t.Context(), ask(stored("a", blocks)))
		if err != nil || v.Status != tasks.VerdictBlocked || v.Outcome != tasks.OutcomeErrorClosed {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

func TestControlResults(t *testing.T) {
	t.Parallel()
	env := environmentControl(tasks.PolicyBlock)
	q := ask(stored("a", ""))
	q.Rounds = append(q.Rounds, tasks.Round{OperationID: "parent", Hooks: list(stored("b", blocks))})
	p := &panel{answers: map[string]string{"a": "class:reset", "b": yes, env.ID: "class:egress_denied"}}
	v, err := newEvaluator(t, p, func(cfg *control.EvaluatorConfig) {
		cfg.EnvironmentHooks = func() ([]tasks.Hook, error) { return []tasks.Hook{env}, nil }
	}).Evaluate(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	want := []tasks.ControlResult{
		{HookID: "a", OperationID: "op", Class: tasks.ControlError, Code: tasks.CodeNetworkError, Failure: tasks.ClassReset, OnError: tasks.PolicyContinue, ElapsedMS: 1},
		{HookID: "b", OperationID: "parent", Class: tasks.ControlAllow, OnError: tasks.PolicyBlock, Status: 200, ElapsedMS: 20},
		{HookID: env.ID, Class: tasks.ControlError, Code: tasks.CodeConfiguration, Failure: tasks.ClassEgressDenied, OnError: tasks.PolicyBlock, ElapsedMS: 1},
	}
	if diff := cmp.Diff(want, v.Controls); diff != "" {
		t.Errorf("controls (-want +got):\n%s", diff)
	}
}

// Each round sees the same event; hooks are not told apart by their id alone, and
// each is asked under an id of its own that stays the same.
func TestWhatControlsAreAsked(t *testing.T) {
	t.Parallel()
	q := ask(stored("a", ""), stored("a", ""), `{"id":"`+tasks.ReservedIDPrefix+`beforeToolCall","type":"nope"}`)
	q.Trace = "trace"
	q.Rounds = append(q.Rounds, tasks.Round{OperationID: "parent", Hooks: list(stored("a", ""), stored("m", ""))}, tasks.Round{OperationID: "empty"})
	env := environmentControl("")
	var all [2][]webhook.ControlRequest
	for i := range all {
		p := &panel{}
		e := newEvaluator(t, p, func(cfg *control.EvaluatorConfig) {
			cfg.EnvironmentHooks = func() ([]tasks.Hook, error) { return []tasks.Hook{env}, nil }
		})
		if _, err := e.Evaluate(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "a", "a", "m", env.ID}, p.ids()); diff != "" {
			t.Fatalf("asked (-want +got):\n%s", diff)
		}
		all[i] = p.asked
	}
	seen := map[string]bool{}
	for i, req := range all[0] {
		if string(req.Event) != event || req.Type != tasks.BeforeToolCall || req.QuestionID != "q1" || req.OperationID != "op" || req.Trace != "trace" {
			t.Errorf("control %d is asked %+v", i, req)
		}
		if seen[req.ID] || req.ID != all[1][i].ID || req.ID == tasks.DeliveryID("test", "op", "q1", tasks.HookKey(req.Hook, 0)) {
			t.Errorf("control %d is asked under %s", i, req.ID)
		}
		seen[req.ID] = true
	}
}

// Nothing is sent for a question that is wrong anywhere.
func TestEvaluateRefuses(t *testing.T) {
	t.Parallel()
	broken := errors.New("AGENT_HOOK_WEBHOOK_EVENTS is wrong")
	for name, test := range map[string]struct {
		edit func(*tasks.Question)
		env  error
		code tasks.Reason
		path string
	}{
		"no id":        {func(q *tasks.Question) { q.ID = "" }, nil, tasks.InvalidTaskID, "id"},
		"no operation": {func(q *tasks.Question) { q.OperationID = "" }, nil, tasks.InvalidOperationID, "operationId"},
		"other phase":  {func(q *tasks.Question) { q.Type = tasks.OnToolCallError }, nil, tasks.ControlEventType, "type"},
		"event":        {func(q *tasks.Question) { q.Event = json.RawMessage("[]") }, nil, tasks.InvalidEvent, ""},
		"broken event": {func(q *tasks.Question) { q.Event = json.RawMessage("{") }, nil, tasks.InvalidJSON, ""},
		"hooks of a late round": {func(q *tasks.Question) {
			q.Rounds = append(q.Rounds, tasks.Round{OperationID: "x", Hooks: list(`{"id":"b","type":"onError"}`)})
		}, nil, tasks.NoAction, "rounds[1].hooks[0]"},
		"hook of another type": {func(q *tasks.Question) {
			q.Rounds[0].Hooks = list(stored("a", ""), `{"id":"b","type":"onError","webhook":{"url":"nope"}}`)
		}, nil, tasks.InvalidURL, "rounds[0].hooks[1].webhook.url"},
		"environment": {func(*tasks.Question) {}, broken, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &panel{}
			q := ask(stored("a", ""))
			test.edit(&q)
			e := newEvaluator(t, p, func(cfg *control.EvaluatorConfig) {
				cfg.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, test.env }
			})
			v, err := e.Evaluate(t.Context(), q)
			fault, isFault := errors.AsType[*tasks.InvalidError](err)
			switch {
			case err == nil || v.Status != "" || v.Allowed():
				t.Errorf("evaluated to %+v, %v", v, err)
			case test.env != nil && !errors.Is(err, test.env):
				t.Errorf("error %v", err)
			case test.env == nil && (!isFault || fault.Code != test.code || test.path != "" && fault.Path != test.path):
				t.Errorf("error %v, want %s at %s", err, test.code, test.path)
			}
			if len(p.asked) != 0 {
				t.Errorf("asked %v", p.ids())
			}
		})
	}
	if _, err := control.NewEvaluator(control.EvaluatorConfig{}); err == nil {
		t.Errorf("an evaluator without an Asker")
	}
}

func TestEnvironmentIsReadAnew(t *testing.T) {
	t.Parallel()
	hooks := []tasks.Hook{}
	p := &panel{answers: map[string]string{tasks.ReservedIDPrefix + "beforeToolCall": no}}
	e := newEvaluator(t, p, func(cfg *control.EvaluatorConfig) {
		cfg.EnvironmentHooks = func() ([]tasks.Hook, error) { return hooks, nil }
	})
	q := ask()
	q.Rounds = nil
	for _, want := range []tasks.VerdictStatus{tasks.VerdictAllow, tasks.VerdictBlocked} {
		v, err := e.Evaluate(t.Context(), q)
		if err != nil || v.Status != want {
			t.Fatalf("%+v, %v, want %s", v, err, want)
		}
		hooks = append(hooks, environmentControl(""))
	}
}

// A matcher that gives no answer is the error of its control, at its place.
func TestMatcherWithoutAnswer(t *testing.T) {
	t.Parallel()
	slow := strings.Replace(stored("slow", ""), `"type"`, `"matcher":"^(a+)+(?!b)\\1c","type"`, 1)
	closed := strings.Replace(slow, `"responseHandling"`, `"onError":"block","responseHandling"`, 1)
	q := ask(slow, stored("b", ""))
	q.Event = json.RawMessage(`{"identifier":"` + strings.Repeat("a", 5000) + `","apiName":"x"}`)
	p := &panel{answers: map[string]string{"b": yes}}
	e := newEvaluator(t, p, nil)
	v, err := e.Evaluate(t.Context(), q)
	want := tasks.ControlResult{
		HookID: "slow", OperationID: "op", Class: tasks.ControlError, Code: tasks.CodeConfiguration, Failure: tasks.ClassConfiguration, OnError: tasks.PolicyContinue,
	}
	if err != nil || v.Outcome != tasks.OutcomeErrorOpen || len(v.Controls) != 2 || v.Controls[0] != want {
		t.Errorf("open: %+v, %v", v, err)
	}
	q.Rounds[0].Hooks = list(stored("b", ""), closed, stored("c", ""))
	if v, err = e.Evaluate(t.Context(), q); err != nil || v.Outcome != tasks.OutcomeErrorClosed || v.Reason != tasks.ReasonControlError {
		t.Errorf("closed: %+v, %v", v, err)
	}
	if diff := cmp.Diff([]string{"b", "b"}, p.ids()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// One line a control, without a word of the control's; the counters tell an open
// error apart.
func TestEvaluatorLogsAndCounts(t *testing.T) {
	t.Parallel()
	log, lines := logtest.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	registry := prometheus.NewRegistry()
	p := &panel{answers: map[string]string{"a": "class:reset", "b": yes, "c": `{"decision":"deny","reason":"secret words"}`, "d": yes}}
	configure := func(cfg *control.EvaluatorConfig) { cfg.Logger, cfg.Registerer = log, registry }
	for _, e := range []*control.Evaluator{newEvaluator(t, p, configure), newEvaluator(t, p, configure)} {
		for _, q := range []tasks.Question{ask(stored("a", ""), stored("b", "")), ask(stored("b", ""), stored("c", "")), ask()} {
			if _, err := e.Evaluate(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := []string{}
	for _, line := range lines.AllEntries()[:4] {
		text, err := line.String()
		if err != nil || strings.Contains(text, "secret words") || strings.Contains(text, "policy.test") {
			t.Errorf("line: %s %v", text, err)
		}
		got = append(got, fmt.Sprintf("%s %s %v %v %v %v %v %v", line.Level, line.Message, line.Data["question_id"], line.Data["hook_id"], line.Data["decision"], line.Data["code"], line.Data["class"], line.Data["on_error"]))
	}
	want := []string{
		"warning control.asked q1 a error network_error reset continue", "debug control.asked q1 b allow <nil> <nil> continue",
		"debug control.asked q1 b allow <nil> <nil> continue", "info control.asked q1 c deny <nil> <nil> continue",
	}
	if diff := cmp.Diff(want, got); diff != "" || len(lines.AllEntries()) != 8 {
		t.Errorf("%d lines (-want +got):\n%s", len(lines.AllEntries()), diff)
	}
	err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP gantry_control_evaluations_total Questions evaluated in this process, by what they came to.
# TYPE gantry_control_evaluations_total counter
gantry_control_evaluations_total{outcome="allowed"} 0
gantry_control_evaluations_total{outcome="cancelled"} 0
gantry_control_evaluations_total{outcome="denied"} 2
gantry_control_evaluations_total{outcome="error_closed"} 0
gantry_control_evaluations_total{outcome="error_open"} 2
gantry_control_evaluations_total{outcome="no_control"} 2
gantry_control_evaluations_total{outcome="unanswered_closed"} 0
gantry_control_evaluations_total{outcome="unanswered_open"} 0
# HELP gantry_control_failed_open_total Controls that failed and let the tool call through, by code.
# TYPE gantry_control_failed_open_total counter
gantry_control_failed_open_total{code="configuration"} 0
gantry_control_failed_open_total{code="http_error"} 0
gantry_control_failed_open_total{code="invalid_response"} 0
gantry_control_failed_open_total{code="network_error"} 2
gantry_control_failed_open_total{code="response_too_large"} 0
gantry_control_failed_open_total{code="timeout"} 0
`), "gantry_control_evaluations_total", "gantry_control_failed_open_total")
	if err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "gantry_control_reply_seconds"); err != nil || n != 10 {
		t.Errorf("%d labels of reply_seconds, %v", n, err)
	}
}

// BenchmarkEvaluate is the overhead of an evaluation over a direct request, in
// whose place "wire" stands.
func BenchmarkEvaluate(b *testing.B) {
	instant := askerFunc(func(context.Context, webhook.ControlRequest) webhook.ControlReply {
		return webhook.ControlReply{Status: 200, Body: []byte(yes)}
	})
	for name, hooks := range map[string][]string{"none": nil, "one": {stored("a", "")}, "five": {
		stored("a", ""), stored("b", ""), stored("c", ""), stored("d", ""), stored("e", ""),
	}} {
		b.Run(name, func(b *testing.B) { benchmark(b, newEvaluator(b, instant, nil), ask(hooks...)) })
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, yes) }))
	b.Cleanup(server.Close)
	client, err := egress.New(egress.Config{Policy: egress.Trusted()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	builder, err := enrich.New(enrich.Config{})
	if err != nil {
		b.Fatal(err)
	}
	deliverer, err := webhook.New(webhook.Config{
		Env: func(string) (string, bool) { return "", false }, Callers: client, Operator: client, Payloads: builder,
	})
	if err != nil {
		b.Fatal(err)
	}
	hook := strings.Replace(stored("a", ""), "https://policy.test/a", server.URL, 1)
	b.Run("http", func(b *testing.B) { benchmark(b, newEvaluator(b, deliverer, nil), ask(hook)) })
	b.Run("wire", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			resp, err := client.HTTPClient().Post(server.URL, "application/json", strings.NewReader(event))
			if err != nil {
				b.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	})
}

func benchmark(b *testing.B, e *control.Evaluator, q tasks.Question) {
	b.ReportAllocs()
	for b.Loop() {
		if v, err := e.Evaluate(b.Context(), q); err != nil || !v.Allowed() {
			b.Fatalf("%+v, %v", v, err)
		}
	}
}
