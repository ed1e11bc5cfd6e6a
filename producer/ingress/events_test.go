package ingress_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// post posts events of the operation op.
func (b *bundle) post(query, body string, headers ...string) answer {
	b.t.Helper()
	return b.call("POST", "/v1/operations/op/events"+query, body, headers...)
}

// register puts hooks of the operation op.
func (b *bundle) register(hooks ...string) {
	b.t.Helper()
	b.call("PUT", "/v1/operations/op/hooks", "["+strings.Join(hooks, ",")+"]").want(200)
}

// worker publishes a worker without environment hooks, so that the producer
// knows when nothing matches.
func (b *bundle) worker() {
	b.t.Helper()
	if err := b.store.Publish(b.t.Context(), lane.WorkerInfo{ID: "w"}); err != nil {
		b.t.Fatalf("publish worker: %v", err)
	}
}

func TestEventForms(t *testing.T) {
	t.Parallel()
	one := eventJSON("")
	for name, test := range map[string]struct {
		body, contentType string
		want              int
	}{
		"one event":               {one, "application/json", 1},
		"array":                   {"[" + one + "," + one + "]", "application/json; charset=utf-8", 2},
		"object":                  {` {"events": [` + one + `]}`, "application/json", 1},
		"empty array":             {"[]", "application/json", 0},
		"no content-type":         {one, "", 1},
		"suffix type":             {one, "application/vnd.gantry+json", 1},
		"lines":                   {one + "\n\r\n  " + one + "\r\n", "application/x-ndjson", 2},
		"one line without an end": {one, "application/jsonl", 1},
		"no lines":                {"\n", "application/x-ndjson", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.register(hookJSON("h"))
			var got ingress.EventsResult
			b.post("", test.body, "Content-Type", test.contentType).want(202).into(&got)
			if len(got.Receipts) != test.want || got.OperationID != "op" || got.Settled != nil || got.CriticalFailures != nil {
				t.Fatalf("result is %+v", got)
			}
			for i, receipt := range got.Receipts {
				if receipt.ID == "" || receipt.Sequence != int64(i+1) || receipt.Duplicate || receipt.Skipped {
					t.Fatalf("receipt %d is %+v", i, receipt)
				}
			}
		})
	}
}

func TestEventIsStoredWithItsOptions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(hookJSON("h"), `{"id":"other","type":"onError","webhook":{"url":"/x"}}`)
	b.post("", `[`+eventJSON(`"id":"e/1","trace":"`+trace+`",`)+`,`+eventJSON(`"id":"e2",`)+`]`,
		"traceparent", strings.Replace(trace, "b7ad", "b7ae", 1)).want(202)
	docs := b.docs()
	for i, want := range []string{
		`{"v":1,"id":"e/1","operationId":"op","type":"onComplete","event":{"operationId":"op","agentId":"a","userId":"u","reason":"done"},` +
			`"hooks":[{"id":"h","type":"onComplete","webhook":{"url":"https://rx.test/h"}}],"enqueuedAt":`,
		`{"v":1,"id":"e2",`,
	} {
		if !strings.HasPrefix(docs[i], want) {
			t.Fatalf("document %d is %s", i, docs[i])
		}
	}
	if !strings.HasSuffix(docs[0], `"trace":"`+trace+`"}`) || !strings.Contains(docs[1], `-b7ae6b7169203331-01"}`) {
		t.Fatalf("traces are lost: %s", docs)
	}
}

func TestMalformedTraceOfTheRequestIsIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.post("", eventJSON(""), "traceparent", "00-"+strings.Repeat("0", 32)+"-b7ad6b7169203331-01").want(202)
	if doc := b.docs()[0]; strings.Contains(doc, "trace") {
		t.Fatalf("document is %s", doc)
	}
}

func TestDelayedEventWaitsOutsideOfItsLane(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var got ingress.EventsResult
	b.post("", eventJSON(`"id":"e","delay":"1h",`)).want(202).into(&got)
	if got.Receipts[0].Sequence != 0 {
		t.Fatalf("receipt is %+v", got.Receipts[0])
	}
	var view ingress.LaneView
	b.call("GET", "/v1/lanes/op", "").want(200).into(&view)
	if view.Delayed != 1 || view.Waiting != 0 {
		t.Fatalf("lane is %+v", view)
	}
}

// TestJSONFidelity follows bytes that encoding/json would change from the
// request to the stored document.
func TestJSONFidelity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exact := `{ "agentId":"a","userId":"u","operationId":"op", "n":1e400,"big":12345678901234567890,"f":1.10,` +
		`"dup":1,"dup":{"x":[ ]},"Dup":2,"html":"<&>` + "\u2028" + `\u2028\/","esc":"\ud83d\ude00","z":-0.0}`
	hook := `{"id":"<&` + "\u2028" + `","type":"onComplete","webhook":{"url":"/h","body":{"n":1e400,"a":12345678901234567890,"a":"<&>"}}}`
	b.register(hook)
	b.post("", `{"type":"onComplete","event":`+exact+`}`).want(202)
	doc := b.docs()[0]
	if !strings.Contains(doc, `"event":`+exact+`,"hooks"`) {
		t.Fatalf("event changed: %s", doc)
	}
	if !strings.Contains(doc, `"body":{"n":1e400,"a":12345678901234567890,"a":"<&>"}`) || !strings.Contains(doc, `"id":"<&`+"\u2028"+`"`) {
		t.Fatalf("hook changed: %s", doc)
	}
	if got := b.call("GET", "/v1/operations/op/hooks", "").want(200); !strings.Contains(got.body, `"body":{"n":1e400,"a":12345678901234567890,"a":"<&>"}`) {
		t.Fatalf("hooks are %s", got.body)
	}
}

func TestOneInvalidEventRefusesTheBatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(hookJSON("h"))
	good := eventJSON("")
	bad := `{"type":"beforeCompact","event":{"stepIndex":"1","messageCount":1,"tokenCount":1}}`
	p := b.post("", `{"events":[`+good+`,`+good+`,`+good+`,`+bad+`,{"type":"nope","event":{}},`+good+`]}`).problem(422, "invalid_field")
	want := []ingress.Fault{
		{Path: "events[3].event.stepIndex", Code: tasks.InvalidField, Message: "stepIndex has the wrong type", Fix: "send a number"},
		{Path: "events[4].type", Code: tasks.UnknownType, Message: "type is not known", Fix: "send one of the hook types of docs/events.md"},
	}
	if diff := cmp.Diff(want, p.Faults); diff != "" {
		t.Fatalf("faults (-want +got):\n%s", diff)
	}
	if p.Detail != "events[3].event.stepIndex: stepIndex has the wrong type (and 1 more)" {
		t.Fatalf("detail is %q", p.Detail)
	}
	b.call("GET", "/v1/lanes/op", "").problem(404, "not_found")
}

func TestInvalidEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := strings.Repeat("x", 513)
	for name, test := range map[string]struct {
		body   string
		status int
		code   string
		path   string
	}{
		"empty body":       {"", 400, "invalid_json", ""},
		"broken":           {`{"type":`, 400, "invalid_json", ""},
		"trailing":         {eventJSON("") + "x", 400, "invalid_json", ""},
		"nan":              {`{"type":"onComplete","event":{"a":NaN}}`, 400, "invalid_json", ""},
		"utf8":             {"{\"type\":\"onComplete\",\"event\":{\"a\":\"\xff\"}}", 400, "invalid_utf8", ""},
		"surrogate bytes":  {"[\"\xed\xa0\x80\"]", 400, "invalid_utf8", ""},
		"string":           {`"x"`, 422, "invalid_request", ""},
		"null":             {`null`, 422, "invalid_request", ""},
		"events no array":  {`{"events":{}}`, 422, "invalid_request", "events"},
		"events and more":  {`{"events":[],"type":"onComplete"}`, 422, "unknown_field", "type"},
		"member no object": {`[1]`, 422, "invalid_event", "events[0]"},
		"type missing":     {`{"event":{}}`, 422, "missing_field", "type"},
		"type null":        {`{"type":null,"event":{}}`, 422, "invalid_field", "type"},
		"type unknown":     {`{"type":"OnComplete","event":{}}`, 422, "unknown_type", "type"},
		"key case":         {`{"Type":"onComplete","event":{}}`, 422, "unknown_field", "Type"},
		"event missing":    {`{"type":"onComplete"}`, 422, "missing_field", "event"},
		"event null":       {`{"type":"onComplete","event":null}`, 422, "invalid_event", "event"},
		"event array":      {`{"type":"onComplete","event":[]}`, 422, "invalid_event", "event"},
		"field missing":    {`{"type":"onComplete","event":{"agentId":"a"}}`, 422, "missing_field", "event.userId"},
		"field null":       {`[{"type":"onComplete","event":{"agentId":"a","userId":"u","reason":null}}]`, 422, "invalid_field", "events[0].event.reason"},
		"other operation":  {`{"type":"onComplete","event":{"agentId":"a","userId":"u","operationId":"x"}}`, 422, "operation_mismatch", "event.operationId"},
		"unknown key":      {eventJSON(`"x":1,`), 422, "unknown_field", "x"},
		"id empty":         {eventJSON(`"id":"",`), 422, "invalid_task_id", "id"},
		"id long":          {eventJSON(`"id":"` + long + `",`), 422, "invalid_task_id", "id"},
		"id control":       {eventJSON(`"id":"a\u0000",`), 422, "invalid_task_id", "id"},
		"id number":        {eventJSON(`"id":1,`), 422, "invalid_field", "id"},
		"id null":          {eventJSON(`"id":null,`), 422, "invalid_field", "id"},
		"delay negative":   {eventJSON(`"delay":"-1s",`), 422, "invalid_delay", "delay"},
		"delay words":      {eventJSON(`"delay":"soon",`), 422, "invalid_delay", "delay"},
		"delay number":     {eventJSON(`"delay":5,`), 422, "invalid_field", "delay"},
		"trace":            {eventJSON(`"trace":"x\r\nY: z",`), 422, "invalid_trace", "trace"},
		"trace version ff": {eventJSON(`"trace":"ff` + trace[2:] + `",`), 422, "invalid_trace", "trace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := (&bundle{t: t, url: b.url, token: b.token}).post("", test.body).problem(test.status, test.code)
			if len(p.Faults) != 1 || p.Faults[0].Path != test.path || string(p.Faults[0].Code) != test.code {
				t.Fatalf("faults are %+v, want path %q", p.Faults, test.path)
			}
		})
	}
}

func TestBrokenLineIsNamed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.post("", eventJSON("")+"\n\n{\"type\":\n"+eventJSON(""), "Content-Type", "application/x-ndjson").problem(400, "invalid_json")
	if p.Faults[0].Path != "events[1]" || !strings.HasSuffix(p.Faults[0].Message, "(line 3)") {
		t.Fatalf("faults are %+v", p.Faults)
	}
}

func TestTooManyEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ingress.Config) { c.MaxEvents = 1 })
	b.post("", "["+eventJSON("")+"]").want(202)
	if p := b.post("", "[{},{}]").problem(413, "batch_too_large"); !strings.Contains(p.Detail, "limit of 1 event") {
		t.Fatalf("detail is %q", p.Detail)
	}
	b.post("", "{}\n{}", "Content-Type", "application/x-ndjson").problem(413, "batch_too_large")
}

func TestDuplicateAndReusedID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var got ingress.EventsResult
	b.post("", eventJSON(`"id":"e",`)).want(202)
	b.post("", eventJSON(`"id":"e",`)).want(202).into(&got)
	if !got.Receipts[0].Duplicate || got.Receipts[0].Sequence != 1 {
		t.Fatalf("receipt is %+v", got.Receipts[0])
	}
	other := `{"type":"onComplete","id":"e","event":{"agentId":"b","userId":"u"}}`
	b.post("", "["+eventJSON(`"id":"e2",`)+","+other+"]").problem(409, "id_reused")
	if docs := b.docs(); len(docs) != 1 {
		t.Fatalf("lane holds %d events, want 1", len(docs))
	}
}

func TestAbsentHooksAreNotEmptyHooks(t *testing.T) {
	t.Parallel()
	var seen []producer.EventRequest
	b := setup(t, func(c *ingress.Config) { c.Events = spy{c.Events, &seen} })
	b.post("", eventJSON("")).want(202)
	b.register()
	b.post("", eventJSON("")).want(202)
	if seen[0].Persisted != nil || string(seen[1].Persisted) != "[]" {
		t.Fatalf("persisted lists are %q and %q", seen[0].Persisted, seen[1].Persisted)
	}
}

// spy shows what is enqueued.
type spy struct {
	ingress.Events
	seen *[]producer.EventRequest
}

func (s spy) EnqueueMany(ctx context.Context, operationID string, events []producer.EventRequest) ([]producer.Receipt, error) {
	*s.seen = append(*s.seen, events...)
	return s.Events.EnqueueMany(ctx, operationID, events)
}

func TestEventOfAnUnknownOperationCostsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker()
	keys := func() int64 {
		n, err := b.redis.DBSize(t.Context()).Result()
		if err != nil {
			t.Fatalf("count keys: %v", err)
		}
		return n
	}
	before := keys()
	var got ingress.EventsResult
	b.post("?await=30s&awaitMode=final", "["+eventJSON("")+","+eventJSON(`"id":"mine",`)+"]").want(200).into(&got)
	if !got.Receipts[0].Skipped || !got.Receipts[1].Skipped || !*got.Settled || got.Receipts[1].ID != "mine" {
		t.Fatalf("result is %+v", got)
	}
	if after := keys(); after != before {
		t.Fatalf("%d keys were written", after-before)
	}
	b.call("GET", "/v1/operations/op/events/mine", "").problem(404, "not_found")
}

func TestAwaitTellsWhatBecameOfEachHook(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode     string
		verb     lane.Verb
		critical bool
		status   int
		standing lane.Standing
	}{
		"delivered":             {"final", lane.Delivered, false, 200, ""},
		"first, parked":         {"first", lane.Park, false, 200, lane.StandingParked},
		"first, critical":       {"first", lane.Park, true, 200, lane.StandingParked},
		"final, dead, critical": {"final", lane.Bury, true, 200, lane.StandingDead},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			hook := hookJSON("h")
			if test.critical {
				hook = criticalJSON("h")
			}
			b.register(hook)
			answers := make(chan answer, 1)
			go func() { answers <- b.post("?await=30s&awaitMode="+test.mode, eventJSON(`"id":"e",`)) }()
			b.ready()
			b.settle(test.verb)
			var got ingress.EventsResult
			(<-answers).want(test.status).into(&got)
			receipt := got.Receipts[0]
			if !*got.Settled || !*receipt.Settled {
				t.Fatalf("result is %+v", got)
			}
			if test.standing == "" {
				if len(*receipt.Outcomes) != 0 {
					t.Fatalf("outcomes are %+v", *receipt.Outcomes)
				}
				return
			}
			outcome := (*receipt.Outcomes)[0]
			if test.standing == lane.StandingParked && outcome.DueAt == 0 {
				t.Fatalf("dueAt is missing: %+v", outcome)
			}
			outcome.DueAt = 0
			want := ingress.Outcome{
				HookID: "h", HookType: tasks.OnComplete, Standing: test.standing, Critical: test.critical, Attempt: 1,
				Class: tasks.ClassHTTP5xx, Status: 503,
			}
			if diff := cmp.Diff(want, outcome); diff != "" {
				t.Fatalf("outcome (-want +got):\n%s", diff)
			}
			if critical := len(*got.CriticalFailures) == 1; critical != test.critical {
				t.Fatalf("critical failures are %+v", *got.CriticalFailures)
			}
			if test.critical && (*got.CriticalFailures)[0].EventID != "e" {
				t.Fatalf("critical failures are %+v", *got.CriticalFailures)
			}
		})
	}
}

// ready waits until a lane is ready for a worker.
func (b *bundle) ready() {
	b.t.Helper()
	if _, _, err := b.store.Await(b.t.Context(), 0, 0, 1, 20*time.Second); err != nil {
		b.t.Errorf("wait for a lane: %v", err)
	}
}

func TestAwaitThatRunsOutTellsWhatIsKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(criticalJSON("h"))
	var got ingress.EventsResult
	b.post("?await=1ms", eventJSON(`"id":"e",`)).want(202).into(&got)
	if *got.Settled || *got.Receipts[0].Settled || got.Receipts[0].Sequence != 1 {
		t.Fatalf("result is %+v", got)
	}
	b.settle(lane.Park)
	b.post("?await=0s&awaitMode=final", eventJSON(`"id":"e",`)).want(202).into(&got)
	if *got.Settled || !got.Receipts[0].Duplicate || len(*got.CriticalFailures) != 1 {
		t.Fatalf("result is %+v", got)
	}
	var status ingress.EventStatus
	b.call("GET", "/v1/operations/op/events/e?wait=1ms", "").want(200).into(&status)
	if status.Settled || !status.Attempted || len(status.Outcomes) != 1 || len(status.CriticalFailures) != 1 {
		t.Fatalf("status is %+v", status)
	}
	b.call("GET", "/v1/operations/op/events/e?mode=first&wait=30s", "").want(200).into(&status)
	if !status.Settled {
		t.Fatalf("status is %+v", status)
	}
	b.call("GET", "/v1/operations/op/events/other?wait=30s", "").problem(404, "not_found")
}

// TestEndingARequestEndsTheWaitingOnly ends a request in the middle of its
// wait; the event stays.
func TestEndingARequestEndsTheWaitingOnly(t *testing.T) {
	t.Parallel()
	waiting, ended := make(chan struct{}), make(chan error, 1)
	b := setup(t, func(c *ingress.Config) { c.Events = watched{c.Events, waiting, ended} })
	b.register(hookJSON("h"))
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/operations/op/events?await=5m", strings.NewReader(eventJSON(`"id":"e",`)))
	if err != nil {
		t.Fatalf("build request: %v", err)
	}
	request.Header.Set("Authorization", "Bearer "+runtimeToken)
	done := make(chan error, 1)
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			response.Body.Close()
		}
		done <- err
	}()
	<-waiting
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("request ended with %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("wait ended with %v", err)
	}
	if docs := b.docs(); len(docs) != 1 {
		t.Fatalf("lane holds %d events, want 1", len(docs))
	}
}

// watched tells when a wait starts and how it ends.
type watched struct {
	ingress.Events
	waiting chan struct{}
	ended   chan error
}

func (w watched) AwaitFirst(ctx context.Context, operationID, taskID string) (producer.Result, error) {
	close(w.waiting)
	result, err := w.Events.AwaitFirst(ctx, operationID, taskID)
	w.ended <- err
	return result, err
}

func TestDrainAnswersThoseWhoWait(t *testing.T) {
	t.Parallel()
	waiting, ended := make(chan struct{}), make(chan error, 1)
	b := setup(t, func(c *ingress.Config) { c.Events = watched{c.Events, waiting, ended} })
	b.register(hookJSON("h"))
	answers := make(chan answer, 1)
	go func() { answers <- b.post("?await=5m", eventJSON(`"id":"e",`)) }()
	<-waiting
	b.api.Drain()
	b.api.Drain()
	var got ingress.EventsResult
	(<-answers).want(202).into(&got)
	if *got.Settled || got.Receipts[0].ID != "e" {
		t.Fatalf("result is %+v", got)
	}
	b.call("GET", "/readyz", "").problem(503, "not_ready")
	b.call("GET", "/healthz", "").want(200)
}

func TestAwaitOfManyEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(hookJSON("h"))
	var body strings.Builder
	for i := range 40 {
		fmt.Fprintln(&body, eventJSON(fmt.Sprintf(`"id":"e%d",`, i)))
	}
	var got ingress.EventsResult
	b.post("?await=1ms", body.String(), "Content-Type", "application/x-ndjson").want(202).into(&got)
	if len(got.Receipts) != 40 || *got.Settled {
		t.Fatalf("result is %+v", got)
	}
	for i, receipt := range got.Receipts {
		if receipt.ID != fmt.Sprintf("e%d", i) || receipt.Outcomes == nil || *receipt.Settled {
			t.Fatalf("receipt %d is %+v", i, receipt)
		}
	}
}

func TestInvalidWaits(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ingress.Config) { c.MaxWait = time.Minute })
	for _, query := range []string{"?await=30", "?await=-1s", "?await=61s", "?await=1s&await=2s", "?awaitMode=last", "?awiat=1s", "?await=x"} {
		if p := b.post(query, eventJSON("")).problem(422, "invalid_query"); !strings.HasPrefix(p.Faults[0].Path, "query.aw") {
			t.Fatalf("%s: faults are %+v", query, p.Faults)
		}
	}
	b.call("GET", "/v1/operations/op/events/e?wait=2m", "").problem(422, "invalid_query")
	b.call("GET", "/v1/operations/op/events/e?mode=x", "").problem(422, "invalid_query")
	if keys, err := b.redis.DBSize(t.Context()).Result(); err != nil || keys != 0 {
		t.Fatalf("%d keys were written (%v)", keys, err)
	}
}
