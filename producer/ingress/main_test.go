package ingress_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

func TestMain(m *testing.M) { servertest.Main(m) }

var (
	_ ingress.Store  = (*redislane.Store)(nil)
	_ ingress.Events = (*producer.Dispatcher)(nil)
)

const (
	runtimeToken  = "runtime-token-0123456789"
	operatorToken = "operator-token-0123456789"
)

// bundle is an API over a real store and a real dispatcher.
type bundle struct {
	t      *testing.T
	url    string
	api    *ingress.API
	store  *redislane.Store
	redis  *redis.Client
	events *producer.Dispatcher
	logs   *logtest.Hook
	// token is sent with each request; "" sends none.
	token string
}

// setup starts a server; adjust changes its configuration before.
func setup(t *testing.T, adjust ...func(*ingress.Config)) *bundle {
	t.Helper()
	client := servertest.FlushedClient(t)
	blocking := redis.NewClient(&redis.Options{Addr: client.Options().Addr, DB: client.Options().DB})
	t.Cleanup(func() { _ = blocking.Close() })
	store, err := redislane.New(redislane.Config{Client: client, Blocking: blocking})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	events, err := producer.New(producer.Config{Mode: producer.ModeQueue, Store: store})
	if err != nil {
		t.Fatalf("build dispatcher: %v", err)
	}
	t.Cleanup(events.Close)
	b := &bundle{t: t, store: store, redis: client, events: events, token: operatorToken}
	b.serve(ingress.Config{Events: events, Store: store}, adjust...)
	return b
}

// serve completes config and starts a server of it.
func (b *bundle) serve(config ingress.Config, adjust ...func(*ingress.Config)) {
	b.t.Helper()
	logger, logs := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	b.logs = logs
	config.Logger = logger
	config.Tokens = []ingress.Token{
		{Role: ingress.RoleRuntime, Value: runtimeToken}, {Role: ingress.RoleOperator, Value: operatorToken},
	}
	for _, change := range adjust {
		change(&config)
	}
	api, err := ingress.New(config)
	if err != nil {
		b.t.Fatalf("build api: %v", err)
	}
	server := httptest.NewServer(api.Handler())
	b.t.Cleanup(server.Close)
	b.api, b.url = api, server.URL
}

// answer is what a request came to.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// call sends a request; headers are pairs.
func (b *bundle) call(method, path, body string, headers ...string) answer {
	b.t.Helper()
	return b.send(b.t.Context(), method, path, strings.NewReader(body), headers...)
}

func (b *bundle) send(ctx context.Context, method, path string, body io.Reader, headers ...string) answer {
	b.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, b.url+path, body)
	if err != nil {
		b.t.Fatalf("build request: %v", err)
	}
	if b.token != "" {
		request.Header.Set("Authorization", "Bearer "+b.token)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		b.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatalf("read answer: %v", err)
	}
	return answer{t: b.t, status: response.StatusCode, header: response.Header, body: string(raw)}
}

// want checks the status.
func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status is %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// into decodes the body.
func (a answer) into(value any) answer {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.body), value); err != nil {
		a.t.Fatalf("decode %s: %v", a.body, err)
	}
	return a
}

// problem checks that the answer is a problem document of a code.
func (a answer) problem(status int, code string) ingress.Problem {
	a.t.Helper()
	a.want(status)
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		a.t.Fatalf("content-type is %q: %s", got, a.body)
	}
	var p ingress.Problem
	a.into(&p)
	if string(p.Code) != code || p.Status != status || p.Title == "" || p.Detail == "" {
		a.t.Fatalf("problem is %+v, want code %s and status %d", p, code, status)
	}
	if p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		a.t.Fatalf("request id is %q, header %q", p.RequestID, a.header.Get("X-Request-Id"))
	}
	return p
}

// hookJSON is an onComplete hook with a webhook.
func hookJSON(id string) string {
	return `{"id":"` + id + `","type":"onComplete","webhook":{"url":"https://rx.test/` + id + `"}}`
}

// criticalJSON is an onComplete hook that is critical.
func criticalJSON(id string) string {
	return `{"id":"` + id + `","type":"onComplete","webhook":{"url":"https://rx.test/` + id + `","fallback":"none"}}`
}

// eventJSON is an onComplete event without an operation.
func eventJSON(members string) string {
	return `{` + members + `"type":"onComplete","event":{"agentId":"a","userId":"u","reason":"done"}}`
}

// claim takes the one lane that is ready, as a worker does.
func (b *bundle) claim() lane.Claim {
	b.t.Helper()
	claims, err := b.store.Claim(b.t.Context(), 0, 1, 100)
	if err != nil {
		b.t.Fatalf("claim lane: %v", err)
	}
	if len(claims) != 1 {
		b.t.Fatalf("claimed %d lanes, want 1", len(claims))
	}
	return claims[0]
}

// docs returns the raw task documents of the one lane that is ready.
func (b *bundle) docs() []string {
	b.t.Helper()
	var docs []string
	for _, entry := range b.claim().Entries {
		docs = append(docs, string(entry.Doc))
	}
	return docs
}

// settle plays the worker for the head of the one ready lane: its first hook
// comes to verb, and the head is done.
func (b *bundle) settle(verb lane.Verb) {
	b.t.Helper()
	claim := b.claim()
	task, err := tasks.DecodeTask(claim.Entries[0].Doc)
	if err != nil {
		b.t.Fatalf("decode task: %v", err)
	}
	hooks, err := tasks.StoredHooks(task.Hooks)
	if err != nil {
		b.t.Fatalf("read hooks: %v", err)
	}
	hook := hooks[0]
	action := lane.Action{Verb: verb, Sequence: claim.Entries[0].Sequence, TaskID: task.ID, Hook: tasks.HookKey(&hook, 0)}
	if verb != lane.Delivered {
		action.Attempt, action.Delay, action.DeadID = 1, time.Hour, tasks.NewID()
		action.Outcome = &lane.Outcome{
			HookID: hook.ID, HookType: hook.Type, Critical: hook.Critical(), Attempt: 1, Status: 503, Class: tasks.ClassHTTP5xx,
		}
	}
	pop := lane.Action{Verb: lane.Pop, Sequence: action.Sequence, TaskID: task.ID}
	_, err = b.store.Progress(b.t.Context(), lane.Step{
		Queue: claim.Queue, Token: claim.Token, Actions: []lane.Action{action, pop}, Release: true,
	})
	if err != nil {
		b.t.Fatalf("progress: %v", err)
	}
}

// gather reads one counter of a registry.
func gather(t *testing.T, registry *prometheus.Registry, name string) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	var lines []string
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			line := ""
			for _, label := range m.GetLabel() {
				line += label.GetName() + "=" + label.GetValue() + " "
			}
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}
