package ingress_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// placeholders is a store of deferred results that answers what a test says.
type placeholders struct {
	opened    chan ingress.Placeholder
	completed chan ingress.Completion
	row       ingress.DeferredRow
	done      ingress.Completed
	err       error
}

func (p *placeholders) Open(_ context.Context, placeholder ingress.Placeholder) (ingress.DeferredRow, error) {
	p.opened <- placeholder
	return p.row, p.err
}

func (p *placeholders) Complete(_ context.Context, c ingress.Completion) (ingress.Completed, error) {
	p.completed <- c
	return p.done, p.err
}

func (p *placeholders) Await(context.Context, string) (ingress.DeferredRow, error) {
	return p.row, p.err
}

func deferring(t *testing.T, p *placeholders, adjust ...func(*ingress.Config)) *bundle {
	t.Helper()
	p.opened, p.completed = make(chan ingress.Placeholder, 100), make(chan ingress.Completion, 100)
	b := setup(t, append([]func(*ingress.Config){func(c *ingress.Config) { c.Deferred = p }}, adjust...)...)
	b.token = runtimeToken
	return b
}

func TestOpenDeferred(t *testing.T) {
	t.Parallel()
	p := &placeholders{row: ingress.DeferredRow{ID: "a/b:open", OperationID: "op", Document: json.RawMessage(`{"content":""}`), OpenedAt: 5}}
	b := deferring(t, p)
	a := b.call("POST", "/v1/deferred/a%2Fb%3Aopen:open", `{"operationId":"op","approvedFrom":"first","content":"","bridge":"b","state":{"n":1.0},
		"call":{"toolCallId":"c","assistantMessageId":"m","identifier":"i","apiName":"x","arguments":"{","recordedCalls":2,"steps":3,"context":{"userId":"u"}}}`).want(202)
	want := ingress.Placeholder{
		ID: "a/b:open", OperationID: "op", ApprovedFrom: "first", Bridge: "b", State: json.RawMessage(`{"n":1.0}`),
		Call: &ingress.DeferredCall{
			ToolCallID: "c", AssistantMessageID: "m", Identifier: "i", APIName: "x", Arguments: "{", RecordedCalls: 2, Steps: 3,
			Context: map[string]string{"userId": "u"},
		},
	}
	if diff := cmp.Diff(want, <-p.opened); diff != "" {
		t.Fatalf("placeholder (-want +got):\n%s", diff)
	}
	const shown = `{"id":"a/b:open","operationId":"op","final":false,"denied":false,"result":{"content":""},"openedAt":5}`
	if diff := cmp.Diff(shown, strings.TrimSpace(a.body)); diff != "" {
		t.Fatalf("answer (-want +got):\n%s", diff)
	}
	p.row.Final = true
	b.call("POST", "/v1/deferred/x:open", `{}`).want(200)
	if diff := cmp.Diff(ingress.Placeholder{ID: "x"}, <-p.opened); diff != "" {
		t.Fatalf("placeholder (-want +got):\n%s", diff)
	}
}

func TestCompleteDeferred(t *testing.T) {
	t.Parallel()
	verdict := denied("q")
	p := &placeholders{done: ingress.Completed{
		Outcome: ingress.OutcomePublished, Verdict: &verdict,
		Row: ingress.DeferredRow{ID: "d", OperationID: "op", Final: true, Denied: true, Document: json.RawMessage(`{"content":"no"}`), SettledAt: 9},
	}}
	b := deferring(t, p)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var got ingress.CompletedView
	b.call("POST", "/v1/deferred/d:complete",
		`{"result":{"content":"x","n":1.0},"operationId":"p","bridge":"b","preserveUsage":true,"recordedCalls":0,"steps":4}`,
		"traceparent", trace).want(200).into(&got)
	zero, four := 0, 4
	want := ingress.Completion{
		ID: "d", OperationID: "p", Result: json.RawMessage(`{"content":"x","n":1.0}`), PreserveUsage: true, Bridge: "b",
		RecordedCalls: &zero, Steps: &four, Trace: trace,
	}
	if diff := cmp.Diff(want, <-p.completed); diff != "" {
		t.Fatalf("completion (-want +got):\n%s", diff)
	}
	if got.Outcome != "published" || !got.Final || !got.Denied || got.Verdict == nil || got.Verdict.Reason != "not today" || got.Verdict.OperationID != "op" {
		t.Fatalf("answer is %+v", got)
	}
	p.done = ingress.Completed{Outcome: ingress.OutcomeDuplicate}
	if a := b.call("POST", "/v1/deferred/d:complete", `{"result":{}}`).want(200); strings.Contains(a.body, "verdict") {
		t.Fatalf("answer is %s", a.body)
	}
	p.done = ingress.Completed{Outcome: ingress.OutcomeCancelled}
	b.call("POST", "/v1/deferred/d:complete", `{"result":{}}`).problem(503, "shutting_down")
}

func TestGetDeferred(t *testing.T) {
	t.Parallel()
	p := &placeholders{row: ingress.DeferredRow{ID: "d", Document: json.RawMessage(`{}`)}, err: ingress.ErrPending}
	b := deferring(t, p)
	b.call("GET", "/v1/deferred/d?wait=1ms", "").want(202)
	p.row.Final, p.err = true, nil
	b.call("GET", "/v1/deferred/d", "").want(200)
	p.err = lane.ErrNotFound
	b.call("GET", "/v1/deferred/d", "").problem(404, "not_found")
	b.call("GET", "/v1/deferred/%0A", "").problem(422, "invalid_task_id")
	b.call("GET", "/v1/deferred/d?wait=1", "").problem(422, "invalid_query")
}

func TestDeferredBodiesAreStrict(t *testing.T) {
	t.Parallel()
	p := &placeholders{}
	b := deferring(t, p)
	for name, test := range map[string]struct{ verb, body, code, path string }{
		"no object":    {"open", `[]`, "not_object", ""},
		"unknown":      {"open", `{"operation":"op"}`, "unknown_field", "operation"},
		"operation":    {"open", `{"operationId":5}`, "invalid_field", "operationId"},
		"state":        {"open", `{"state":null}`, "invalid_field", "state"},
		"call":         {"open", `{"call":[]}`, "not_object", "call"},
		"call key":     {"open", `{"call":{"name":"x"}}`, "unknown_field", "call.name"},
		"call number":  {"open", `{"call":{"steps":-1}}`, "invalid_field", "call.steps"},
		"call context": {"open", `{"call":{"context":{"userId":null}}}`, "invalid_field", "call.context.userId"},
		"context":      {"open", `{"call":{"context":[]}}`, "invalid_field", "call.context"},
		"no result":    {"complete", `{}`, "missing_field", "result"},
		"result":       {"complete", `{"result":"x"}`, "invalid_field", "result"},
		"usage":        {"complete", `{"result":{},"preserveUsage":null}`, "invalid_field", "preserveUsage"},
		"usage text":   {"complete", `{"result":{},"preserveUsage":"true"}`, "invalid_field", "preserveUsage"},
		"steps":        {"complete", `{"result":{},"steps":1.5}`, "invalid_field", "steps"},
		"trace":        {"complete", `{"result":{},"trace":"x"}`, "invalid_trace", "trace"},
		"not JSON":     {"complete", `{`, "invalid_json", ""},
	} {
		a := b.call("POST", "/v1/deferred/d:"+test.verb, test.body)
		problem := a.problem(a.status, test.code)
		if a.status/100 != 4 || test.path != "" && (len(problem.Faults) == 0 || problem.Faults[0].Path != test.path) {
			t.Errorf("%s: problem is %s", name, a.body)
		}
	}
	if len(p.opened)+len(p.completed) != 0 {
		t.Fatalf("a bad body went through")
	}
}

func TestDeferredErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err    error
		status int
		code   string
	}{
		{lane.ErrNotFound, 404, "not_found"},
		{&lane.ReusedError{}, 409, "id_reused"},
		{ingress.ErrNoCall, 409, "no_call"},
		{ingress.ErrBridged, 409, "bridged"},
		{lane.ErrUnavailable, 503, "unavailable"},
		{&tasks.InvalidError{Code: tasks.InvalidField, Path: "state"}, 422, "invalid_field"},
		{errors.New("secret"), 500, "internal"},
	} {
		b := deferring(t, &placeholders{err: test.err})
		b.call("POST", "/v1/deferred/d:open", `{}`).problem(test.status, test.code)
		if a := b.call("POST", "/v1/deferred/d:complete", `{"result":{}}`); strings.Contains(a.body, "secret") {
			t.Fatalf("the answer tells too much: %s", a.body)
		} else {
			a.problem(test.status, test.code)
		}
	}
}

func TestVerbsAreNoPartOfIds(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	p := &placeholders{row: ingress.DeferredRow{Document: json.RawMessage(`{}`)}}
	b := deferring(t, p, func(c *ingress.Config) { c.Registerer = registry })
	for _, path := range []string{"/v1/deferred/d", "/v1/deferred/d:", "/v1/deferred/d:opened", "/v1/deferred/d%3Aopen", "/v1/deferred/d:OPEN"} {
		b.call("POST", path, `{}`).problem(404, "route_not_found")
	}
	b.call("POST", "/v1/deferred/:open", `{}`).problem(422, "invalid_query")
	b.call("PUT", "/v1/deferred/d:open", `{}`).problem(405, "method_not_allowed")
	b.call("POST", "/v1/deferred/%25:open", `{}`).want(202)
	if got := <-p.opened; got.ID != "%" {
		t.Fatalf("id is %q", got.ID)
	}
	b.token = ""
	b.call("POST", "/v1/deferred/d:open", `{}`).problem(401, "unauthenticated")
	want := []string{
		"code=202 route=POST /v1/deferred/{id}:open", "code=401 route=POST /v1/deferred/{id}:open", "code=404 route=POST /v1/deferred/{id}",
		"code=405 route=unmatched", "code=422 route=POST /v1/deferred/{id}:open",
	}
	if diff := cmp.Diff(want, gather(t, registry, "gantry_http_requests_total")); diff != "" {
		t.Fatalf("requests (-want +got):\n%s", diff)
	}
}

func TestDeferredNeedsAValidEnvironment(t *testing.T) {
	t.Parallel()
	b := deferring(t, &placeholders{}, func(c *ingress.Config) {
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, errors.New("bad variable") }
	})
	b.call("POST", "/v1/deferred/d:open", `{}`).problem(503, "environment_invalid")
	b.call("POST", "/v1/deferred/d:complete", `{"result":{}}`).problem(503, "environment_invalid")
}
