package ingress_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// questions is a control path that answers what a test says and remembers what
// it was asked.
type questions struct {
	asked    chan ingress.Question
	evaluate func(context.Context, ingress.Question) (tasks.Verdict, error)
	submit   func(ingress.Question) (*tasks.Verdict, error)
	await    func(ctx context.Context, operationID, id string) (tasks.Verdict, error)
	cancel   func(operationID, id string) (tasks.Verdict, error)
	controls []ingress.ControlInfo
}

func (q *questions) Evaluate(ctx context.Context, asked ingress.Question) (tasks.Verdict, error) {
	q.asked <- asked
	return q.evaluate(ctx, asked)
}

func (q *questions) Submit(_ context.Context, asked ingress.Question) (*tasks.Verdict, error) {
	q.asked <- asked
	return q.submit(asked)
}

func (q *questions) Controls(_ context.Context, asked ingress.Question) ([]ingress.ControlInfo, error) {
	q.asked <- asked
	return q.controls, nil
}

func (q *questions) Await(ctx context.Context, operationID, id string) (tasks.Verdict, error) {
	return q.await(ctx, operationID, id)
}

func (q *questions) Cancel(_ context.Context, operationID, id string) (tasks.Verdict, error) {
	return q.cancel(operationID, id)
}

// asking starts an API over q.
func asking(t *testing.T, q *questions, adjust ...func(*ingress.Config)) *bundle {
	t.Helper()
	q.asked = make(chan ingress.Question, 100)
	return setup(t, append([]func(*ingress.Config){func(c *ingress.Config) { c.Questions = q }}, adjust...)...)
}

const evaluatePath = "/v1/operations/op/tool-calls:evaluate"

// toolEvent is a beforeToolCall event of the operation op.
const toolEvent = `{"operationId":"op","toolCallId":"c1","assistantMessageId":"m1","identifier":"mail","apiName":"send","args":{"n":1.0},` +
	`"callIndex":1,"stepIndex":0,"executor":"server"}`

// questionJSON is a question with more members.
func questionJSON(members string) string {
	return `{` + members + `"type":"beforeToolCall","event":` + toolEvent + `}`
}

// denied is a worker's verdict.
func denied(id string) tasks.Verdict {
	return tasks.Verdict{
		Version: tasks.WireVersion, ID: id, Type: tasks.BeforeToolCall, Status: tasks.VerdictBlocked, Reason: "not today",
		Outcome: tasks.OutcomeDenied, By: tasks.ByWorker, SettledAt: 7,
		Controls: []tasks.ControlResult{{
			HookID: "gate", OperationID: "op", Class: tasks.ControlDeny, OnError: tasks.PolicyContinue, Status: 200, ElapsedMS: 3,
		}},
	}
}

func answers(_ context.Context, q ingress.Question) (tasks.Verdict, error) { return denied(q.ID), nil }

func TestEvaluateAnswersWithTheVerdict(t *testing.T) {
	t.Parallel()
	q := &questions{evaluate: answers}
	b := asking(t, q)
	b.token = runtimeToken
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var got ingress.VerdictView
	b.call("POST", evaluatePath, questionJSON(`"id":"q1","timeout":"2s",`), "traceparent", trace).want(200).into(&got)
	want := ingress.VerdictView{
		OperationID: "op", ID: "q1", Type: tasks.BeforeToolCall, Status: tasks.VerdictBlocked, Reason: "not today", Outcome: tasks.OutcomeDenied,
		By: tasks.ByWorker, SettledAt: 7,
		Controls: []ingress.ControlAnswer{{
			HookID: "gate", OperationID: "op", Class: tasks.ControlDeny, OnError: tasks.PolicyContinue, Status: 200, ElapsedMS: 3,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("verdict (-want +got):\n%s", diff)
	}
	asked := <-q.asked
	if string(asked.Event.Raw) != toolEvent {
		t.Fatalf("the event is %s", asked.Event.Raw)
	}
	asked.Event = nil
	if diff := cmp.Diff(ingress.Question{ID: "q1", Timeout: 2 * time.Second, Trace: trace}, asked); diff != "" {
		t.Fatalf("question (-want +got):\n%s", diff)
	}
}

func TestEvaluateReadsChains(t *testing.T) {
	t.Parallel()
	hook := `{"id":"h","type":"beforeToolCall","webhook":{"url":"https://rx.test/h","responseHandling":"toolCall"}}`
	stored := `[{"id":"h","type":"beforeToolCall","webhook":{"url":"https://rx.test/h","responseHandling":"toolCall"}}]`
	for name, test := range map[string]struct {
		members string
		want    []ingress.ChainLink
	}{
		"absent":     {"", nil},
		"empty":      {`"chain":[],`, []ingress.ChainLink{}},
		"registered": {`"chain":[{"operationId":"a"},{"operationId":"op"}],`, []ingress.ChainLink{{OperationID: "a"}, {OperationID: "op"}}},
		"with hooks": {`"chain":[{"hooks":[` + hook + `],"operationId":"a/b"}],`, []ingress.ChainLink{{OperationID: "a/b", Hooks: []byte(stored)}}},
		"no hooks":   {`"chain":[{"operationId":"a","hooks":[]}],`, []ingress.ChainLink{{OperationID: "a", Hooks: []byte("[]")}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &questions{evaluate: answers}
			b := asking(t, q)
			b.call("POST", evaluatePath, questionJSON(test.members)).want(200)
			asked := <-q.asked
			if diff := cmp.Diff(test.want, asked.Chain); diff != "" {
				t.Fatalf("chain (-want +got):\n%s", diff)
			}
			if len(asked.ID) != 26 {
				t.Fatalf("the drawn id is %q", asked.ID)
			}
		})
	}
}

func TestBadQuestionsAreNotAsked(t *testing.T) {
	t.Parallel()
	q := &questions{}
	b := asking(t, q)
	for name, test := range map[string]struct{ body, code, path string }{
		"no JSON":          {`{`, "invalid_json", ""},
		"no object":        {`[]`, "not_object", ""},
		"unknown key":      {questionJSON(`"wait":"1s",`), "unknown_field", "wait"},
		"no type":          {`{"event":` + toolEvent + `}`, "missing_field", "type"},
		"other type":       {`{"type":"afterStep","event":{}}`, "control_event_type", "type"},
		"unknown type":     {`{"type":"beforetoolcall","event":{}}`, "control_event_type", "type"},
		"no event":         {`{"type":"beforeToolCall"}`, "missing_field", "event"},
		"null event":       {`{"type":"beforeToolCall","event":null}`, "invalid_event", "event"},
		"event field":      {`{"type":"beforeToolCall","event":` + strings.Replace(toolEvent, `"c1"`, "5", 1) + `}`, "invalid_field", "event.toolCallId"},
		"other operation":  {`{"type":"beforeToolCall","event":` + strings.Replace(toolEvent, `"op"`, `"po"`, 1) + `}`, "operation_mismatch", "event.operationId"},
		"id":               {questionJSON(`"id":"",`), "invalid_task_id", "id"},
		"id type":          {questionJSON(`"id":5,`), "invalid_field", "id"},
		"timeout":          {questionJSON(`"timeout":"0s",`), "invalid_timeout", "timeout"},
		"timeout too long": {questionJSON(`"timeout":"61m",`), "invalid_timeout", "timeout"},
		"timeout number":   {questionJSON(`"timeout":5,`), "invalid_field", "timeout"},
		"trace":            {questionJSON(`"trace":"x",`), "invalid_trace", "trace"},
		"chain":            {questionJSON(`"chain":{},`), "invalid_request", "chain"},
		"chain item":       {questionJSON(`"chain":["op"],`), "invalid_request", "chain[0]"},
		"chain key":        {questionJSON(`"chain":[{"operationId":"op"},{"operation":"op"}],`), "unknown_field", "chain[1].operation"},
		"chain operation":  {questionJSON(`"chain":[{"operationId":""}],`), "invalid_operation_id", "chain[0].operationId"},
		"chain without":    {questionJSON(`"chain":[{"hooks":[]}],`), "missing_field", "chain[0].operationId"},
		"chain hooks":      {questionJSON(`"chain":[{"operationId":"op","hooks":null}],`), "invalid_request", "chain[0].hooks"},
		"chain hook": {
			questionJSON(`"chain":[{"operationId":"op","hooks":[{"id":"h","type":"beforeToolCall","webhook":{"url":"ftp://x"}}]}],`),
			"invalid_url", "chain[0].hooks[0].webhook.url",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := b.call("POST", evaluatePath, test.body)
			p := a.problem(a.status, test.code)
			if a.status/100 != 4 || test.path != "" && (len(p.Faults) == 0 || p.Faults[0].Path != test.path) {
				t.Fatalf("problem is %s", a.body)
			}
		})
	}
	long := `"chain":[` + strings.Repeat(`{"operationId":"a"},`, 32) + `{"operationId":"a"}],`
	b.call("POST", evaluatePath, questionJSON(long)).problem(413, "batch_too_large")
	b.call("POST", "/v1/operations/%0A/tool-calls:evaluate", questionJSON("")).problem(422, "invalid_operation_id")
	b.call("POST", evaluatePath+"?wait=6m", questionJSON("")).problem(422, "invalid_query")
	b.call("POST", evaluatePath+"?await=1s", questionJSON("")).problem(422, "invalid_query")
	b.call("POST", evaluatePath, questionJSON(""), "Content-Type", "text/plain").problem(415, "unsupported_media_type")
	if len(q.asked) != 0 {
		t.Fatalf("a bad question was asked: %+v", <-q.asked)
	}
}

func TestQuestionsNeedAToken(t *testing.T) {
	t.Parallel()
	b := asking(t, &questions{})
	b.token = ""
	for route, body := range map[string]string{
		"POST " + evaluatePath: questionJSON(""), "POST /v1/operations/op/tool-calls:explain": questionJSON(""),
		"GET /v1/operations/op/verdicts/q": "", "DELETE /v1/operations/op/verdicts/q": "",
	} {
		method, path, _ := strings.Cut(route, " ")
		b.call(method, path, body).problem(401, "unauthenticated")
	}
}

func TestQuestionsAreLeftOutWithoutAControlPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.call("POST", evaluatePath, questionJSON("")).problem(404, "route_not_found")
	if bytes.Contains(b.api.OpenAPI(), []byte("tool-calls")) {
		t.Fatalf("the document tells of routes that do not exist")
	}
}

func TestAnInvalidEnvironmentIsNoPermission(t *testing.T) {
	t.Parallel()
	b := asking(t, &questions{}, func(c *ingress.Config) {
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, errors.New("bad variable") }
	})
	b.call("POST", evaluatePath, questionJSON("")).problem(503, "environment_invalid")
}

func TestQuestionsThatAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ query, prefer, applied string }{
		"no wait":   {"?wait=0s", "", ""},
		"preferred": {"", "handling=lenient, Respond-Async; wait=5", "respond-async"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := denied("a/b")
			verdict := (*tasks.Verdict)(nil)
			q := &questions{submit: func(ingress.Question) (*tasks.Verdict, error) { return verdict, nil }}
			b := asking(t, q)
			a := b.call("POST", evaluatePath+test.query, questionJSON(`"id":"a/b",`), "Prefer", test.prefer).want(202)
			var got ingress.VerdictView
			a.into(&got)
			if got.Status != "pending" || got.ID != "a/b" || got.OperationID != "op" || got.Controls == nil {
				t.Fatalf("answer is %s", a.body)
			}
			if at := a.header.Get("Location"); at != "/v1/operations/op/verdicts/a%2Fb" {
				t.Fatalf("location is %q", at)
			}
			if applied := a.header.Get("Preference-Applied"); applied != test.applied {
				t.Fatalf("applied is %q", applied)
			}
			verdict = &known
			b.call("POST", evaluatePath+test.query, questionJSON(`"id":"a/b",`), "Prefer", test.prefer).want(200).into(&got)
			if got.Status != tasks.VerdictBlocked {
				t.Fatalf("a known verdict is not shown: %+v", got)
			}
		})
	}
}

// TestAWaitThatEndsLeavesTheQuestion bounds a wait, by the caller or by the end
// of the server: the question goes on, and its caller hears where.
func TestAWaitThatEndsLeavesTheQuestion(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{"bounded": "?wait=1ms", "drained": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan error, 1)
			q := &questions{evaluate: func(ctx context.Context, q ingress.Question) (tasks.Verdict, error) {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return tasks.Verdict{}, ingress.ErrPending
			}}
			b := asking(t, q)
			if name == "drained" {
				go func() { q.asked <- <-q.asked; b.api.Drain() }()
			}
			a := b.call("POST", evaluatePath+query, questionJSON(`"id":"q",`)).want(202)
			if !strings.Contains(a.body, `"status":"pending"`) || a.header.Get("Location") == "" {
				t.Fatalf("answer is %s", a.body)
			}
			if err := <-ended; !errors.Is(err, tasks.ErrDetached) {
				t.Fatalf("the question was cancelled: %v", err)
			}
		})
	}
}

func TestACallerThatGoesAwayTakesItsQuestionAlong(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	q := &questions{evaluate: func(ctx context.Context, q ingress.Question) (tasks.Verdict, error) {
		<-ctx.Done()
		ended <- ctx.Err()
		return tasks.Verdict{Status: tasks.VerdictCancelled}, nil
	}}
	b := asking(t, q)
	ctx, leave := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+evaluatePath, strings.NewReader(questionJSON("")))
	if err != nil {
		t.Fatalf("build request: %v", err)
	}
	request.Header.Set("Authorization", "Bearer "+b.token)
	go func() { <-q.asked; leave() }()
	if response, err := http.DefaultClient.Do(request); err == nil {
		_ = response.Body.Close()
		t.Fatalf("the request was answered with %d", response.StatusCode)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("the question ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("the question goes on without its caller")
	}
}

func TestEvaluateOutlastsTheServersTimeouts(t *testing.T) {
	t.Parallel()
	q := &questions{evaluate: func(ctx context.Context, q ingress.Question) (tasks.Verdict, error) {
		select {
		case <-time.After(300 * time.Millisecond):
			return denied(q.ID), nil
		case <-ctx.Done():
			return tasks.Verdict{}, ctx.Err()
		}
	}}
	b := asking(t, q)
	b.behind(100 * time.Millisecond)
	b.call("POST", evaluatePath, questionJSON("")).want(200)
}

func TestRefusedQuestions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"reused":      {&lane.ReusedError{}, 409, "id_reused"},
		"stored":      {ingress.StoredHooksError(errors.New("bad")), 409, "stored_hooks_invalid"},
		"unavailable": {lane.ErrUnavailable, 503, "unavailable"},
		"other":       {errors.New("secret"), 500, "internal"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := &questions{
				evaluate: func(context.Context, ingress.Question) (tasks.Verdict, error) { return tasks.Verdict{}, test.err },
				submit:   func(ingress.Question) (*tasks.Verdict, error) { return nil, test.err },
			}
			b := asking(t, q)
			for _, query := range []string{"", "?wait=0s"} {
				if a := b.call("POST", evaluatePath+query, questionJSON("")); strings.Contains(a.body, "secret") {
					t.Fatalf("the answer tells too much: %s", a.body)
				} else {
					a.problem(test.status, test.code)
				}
			}
		})
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	q := &questions{
		await: func(ctx context.Context, operationID, id string) (tasks.Verdict, error) {
			switch {
			case operationID != "a/b" || id == "none":
				return tasks.Verdict{}, lane.ErrNotFound
			case id == "open":
				<-ctx.Done()
				return tasks.Verdict{}, ingress.ErrPending
			}
			return denied(id), nil
		},
		cancel: func(operationID, id string) (tasks.Verdict, error) {
			if id == "none" {
				return tasks.Verdict{}, lane.ErrNotFound
			}
			return tasks.Verdict{ID: id, Type: tasks.BeforeToolCall, Status: tasks.VerdictCancelled, Outcome: tasks.OutcomeCancelled, By: tasks.ByAsker}, nil
		},
	}
	b := asking(t, q)
	b.token = runtimeToken
	const path = "/v1/operations/a%2Fb/verdicts/"
	var got ingress.VerdictView
	b.call("GET", path+"q1?wait=30s", "").want(200).into(&got)
	if got.ID != "q1" || got.OperationID != "a/b" || got.Reason != "not today" {
		t.Fatalf("verdict is %+v", got)
	}
	for _, query := range []string{"", "?wait=10ms"} {
		got = ingress.VerdictView{}
		if b.call("GET", path+"open"+query, "").want(202).into(&got); got.Status != "pending" || got.ID != "open" {
			t.Fatalf("answer is %+v", got)
		}
	}
	b.call("GET", path+"none", "").problem(404, "not_found")
	b.call("GET", path+"%0A", "").problem(422, "invalid_task_id")
	b.call("DELETE", path+"q1", "").want(200).into(&got)
	if got.Status != tasks.VerdictCancelled || got.OperationID != "a/b" {
		t.Fatalf("verdict is %+v", got)
	}
	b.call("DELETE", path+"none", "").problem(404, "not_found")
}

func TestExplainListsControls(t *testing.T) {
	t.Parallel()
	matcher := "^mail/"
	q := &questions{controls: []ingress.ControlInfo{
		{HookID: "gate", OperationID: "op", Matcher: &matcher, OnError: tasks.PolicyContinue, Timeout: 1500 * time.Millisecond},
		{Environment: true, OnError: tasks.PolicyBlock, OnErrorSet: true},
	}}
	b := asking(t, q)
	a := b.call("POST", "/v1/operations/op/tool-calls:explain", questionJSON("")).want(200)
	const want = `{"operationId":"op","type":"beforeToolCall","controls":[` +
		`{"hookId":"gate","operationId":"op","environment":false,"matcher":"^mail/","onError":"continue","onErrorSet":false,"timeoutSeconds":1.5},` +
		`{"environment":true,"onError":"block","onErrorSet":true}]}`
	if diff := cmp.Diff(want, strings.TrimSpace(a.body)); diff != "" {
		t.Fatalf("controls (-want +got):\n%s", diff)
	}
	q.controls = nil
	if a := b.call("POST", "/v1/operations/op/tool-calls:explain", questionJSON("")).want(200); !strings.Contains(a.body, `"controls":[]`) {
		t.Fatalf("answer is %s", a.body)
	}
}
