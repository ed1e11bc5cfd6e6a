package ingress_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

func TestBodyLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ingress.Config) { c.MaxBody = 200 })
	fits := eventJSON("")
	fits += strings.Repeat(" ", 200-len(fits))
	b.post("", fits).want(202)
	for name, body := range map[string]io.Reader{
		"declared": strings.NewReader(fits + " "),
		"chunked":  struct{ io.Reader }{strings.NewReader(fits + " ")},
	} {
		for _, path := range []string{"/v1/operations/op/events", "/v1/operations/op/hooks", "/v1/dead-letters:replay"} {
			p := b.send(t.Context(), "POST", path, body).problem(413, "body_too_large")
			if p.Detail != "the body is larger than the limit of 200 bytes" {
				t.Fatalf("%s: detail is %q", name, p.Detail)
			}
			body = struct{ io.Reader }{strings.NewReader(fits + " ")}
		}
	}
}

func TestDefaultBodyLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.post("", strings.Repeat(" ", 1<<20+1)).problem(413, "body_too_large")
	if !strings.Contains(p.Detail, "limit of 1048576 bytes") {
		t.Fatalf("detail is %q", p.Detail)
	}
}

func TestMediaTypes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, contentType := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", "json", ";", "x+json"} {
		b.post("", eventJSON(""), "Content-Type", contentType).problem(415, "unsupported_media_type")
		b.call("PUT", hooksPath, "[]", "Content-Type", contentType).problem(415, "unsupported_media_type")
	}
	b.call("PUT", hooksPath, "[]", "Content-Type", "application/x-ndjson").problem(415, "unsupported_media_type")
	for _, encoding := range []string{"gzip", "br", "identity, gzip"} {
		b.post("", eventJSON(""), "Content-Encoding", encoding).problem(415, "unsupported_encoding")
	}
	b.post("", eventJSON(""), "Content-Encoding", "identity").want(202)
}

// halfBody sends a request whose body is shorter than it says.
func halfBody(t *testing.T, b *bundle, finish func(net.Conn)) *http.Response {
	t.Helper()
	address := strings.TrimPrefix(b.url, "http://")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "POST /v1/operations/op/events HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: 100\r\n\r\n{", address, runtimeToken)
	finish(conn)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

func TestBodyThatEndsEarlyOrNever(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ingress.Config) { c.BodyTimeout = 20 * time.Millisecond })
	for code, test := range map[string]struct {
		finish func(net.Conn)
		status int
	}{
		"body_timeout": {func(net.Conn) {}, 408},
		"body_incomplete": {func(c net.Conn) {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
		}, 400},
	} {
		response := halfBody(t, b, test.finish)
		raw, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != test.status || !strings.Contains(string(raw), `"code":"`+code+`"`) {
			t.Fatalf("answer is %d %s (%v), want %s", response.StatusCode, raw, err, code)
		}
		if !response.Close {
			t.Fatalf("%s: the connection is kept", code)
		}
	}
}

// behind puts the API behind a server with short timeouts.
func (b *bundle) behind(timeout time.Duration) {
	server := httptest.NewUnstartedServer(b.api.Handler())
	server.Config.ReadTimeout, server.Config.WriteTimeout = timeout, timeout
	server.Start()
	b.t.Cleanup(server.Close)
	b.url = server.URL
}

// TestWaitOutlastsTheServersTimeouts runs behind a server whose timeouts are
// shorter than the wait.
func TestWaitOutlastsTheServersTimeouts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(hookJSON("h"))
	b.behind(100 * time.Millisecond)
	start := time.Now()
	b.post("?await=400ms", eventJSON(`"id":"e",`)).want(202)
	b.call("GET", "/v1/operations/op/events/e?wait=400ms", "").want(200)
	if elapsed := time.Since(start); elapsed < 800*time.Millisecond {
		t.Fatalf("both waits took %s together", elapsed)
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	fault := map[string]error{}
	check := func(name string) ingress.Check { return func(context.Context) error { return fault[name] } }
	b := setup(t, func(c *ingress.Config) {
		c.CheckTimeout = 20 * time.Millisecond
		c.Checks = map[string]ingress.Check{
			"redis": check("redis"), "worker": check("worker"),
			"slow": func(ctx context.Context) error {
				if fault["slow"] == nil {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}
	})
	b.token = ""
	var health ingress.Health
	b.call("GET", "/readyz", "").want(200).into(&health)
	if diff := cmp.Diff(ingress.Health{Status: "ready", Checks: []string{"redis", "slow", "worker"}}, health); diff != "" {
		t.Fatalf("health (-want +got):\n%s", diff)
	}
	fault["redis"] = fmt.Errorf("%w: dial tcp 10.1.2.3:6379", lane.ErrUnavailable)
	fault["slow"] = errors.New("any")
	a := b.call("GET", "/readyz", "")
	p := a.problem(503, "not_ready")
	want := []ingress.Fault{
		{Path: "redis", Code: "not_ready", Message: "lane store unavailable", Fix: "see the log of this request"},
		{Path: "slow", Code: "not_ready", Message: "no answer within 20ms", Fix: "see the log of this request"},
	}
	if diff := cmp.Diff(want, p.Faults); diff != "" {
		t.Fatalf("faults (-want +got):\n%s", diff)
	}
	if strings.Contains(a.body, "10.1.2.3") {
		t.Fatalf("the answer holds an address: %s", a.body)
	}
	fault["worker"] = errors.New("secret")
	if p := b.call("GET", "/readyz", "").problem(503, "not_ready"); p.Faults[2].Message != "check failed" {
		t.Fatalf("faults are %+v", p.Faults)
	}
	b.call("GET", "/healthz", "").want(200)
}

func TestMetricsAndLogLine(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	b := setup(t, func(c *ingress.Config) {
		c.Registerer, c.Metrics = registry, promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	})
	if _, err := ingress.New(ingress.Config{
		Events: b.events, Store: b.store, Registerer: registry, AllowAnonymousLoopback: true,
	}); err != nil {
		t.Fatalf("second api on one registerer: %v", err)
	}
	sent := b.call("PUT", "/v1/operations/a%2Fb/hooks", "[]", "X-Request-Id", "mine-1").want(200)
	if got := sent.header.Get("X-Request-Id"); got != "mine-1" {
		t.Fatalf("request id is %q", got)
	}
	b.call("GET", "/nowhere", "").problem(404, "route_not_found")
	b.token = ""
	b.call("GET", "/v1/lanes", "").problem(401, "unauthenticated")
	want := []string{"code=200 route=PUT /v1/operations/{op}/hooks", "code=401 route=GET /v1/lanes", "code=404 route=unmatched"}
	if diff := cmp.Diff(want, gather(t, registry, "gantry_http_requests_total")); diff != "" {
		t.Fatalf("requests (-want +got):\n%s", diff)
	}
	if a := b.call("GET", "/metrics", "").want(200); !strings.Contains(a.body, "gantry_http_request_seconds_count") {
		t.Fatalf("metrics are %s", a.body)
	}
	line := b.logs.AllEntries()[0]
	if line.Message != "http.request" || line.Level != logrus.InfoLevel {
		t.Fatalf("line is %q at %s", line.Message, line.Level)
	}
	if _, ok := line.Data["elapsed_ms"].(int64); !ok {
		t.Fatalf("elapsed_ms is %v", line.Data["elapsed_ms"])
	}
	delete(line.Data, "elapsed_ms")
	wantLine := logrus.Fields{
		"request_id": "mine-1", "method": "PUT", "route": "PUT /v1/operations/{op}/hooks", "status": 200, "bytes": int64(len(sent.body)),
	}
	if diff := cmp.Diff(wantLine, line.Data); diff != "" {
		t.Fatalf("line (-want +got):\n%s", diff)
	}
	if last := b.logs.LastEntry(); last.Level != logrus.DebugLevel {
		t.Fatalf("a probe is logged at %s", last.Level)
	}
}

func TestRequestIDsThatAreNotTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{"a b", "a\"b", "é", strings.Repeat("x", 129), "<script>"} {
		if got := b.call("GET", "/healthz", "", "X-Request-Id", id).header.Get("X-Request-Id"); got == id || len(got) != 26 {
			t.Fatalf("%q becomes %q", id, got)
		}
	}
}

// broken is a store and a producer that fail with err, or panic without one.
type broken struct {
	ingress.Store
	ingress.Events
	err error
}

func (b broken) Lanes(context.Context, int) ([]lane.Info, error) {
	if b.err == nil {
		panic("secret panic")
	}
	return nil, b.err
}

func (b broken) EnqueueMany(context.Context, string, []producer.EventRequest) ([]producer.Receipt, error) {
	return nil, b.err
}

func TestErrorsOfUnknownOriginAreNotShown(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"error": errors.New("secret dial 10.1.2.3"), "panic": nil} {
		b := setup(t, func(c *ingress.Config) { c.Store = broken{Store: c.Store, err: err} })
		a := b.call("GET", "/v1/lanes", "")
		p := a.problem(500, "internal")
		if strings.Contains(a.body, "secret") {
			t.Fatalf("%s: the answer tells too much: %s", name, a.body)
		}
		found := false
		for _, entry := range b.logs.AllEntries() {
			text, _ := entry.String()
			found = found || strings.Contains(text, "secret") && entry.Data["request_id"] == p.RequestID && entry.Level == logrus.ErrorLevel
		}
		if !found {
			t.Fatalf("%s: the log does not tell what happened", name)
		}
	}
}

func TestErrorsOfTheProducer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
		detail string
	}{
		"unavailable": {
			&producer.UnavailableError{OperationID: "op", EventIDs: []string{"e1", "e2"}, Err: lane.ErrUnavailable},
			503, "unavailable", "the store did not answer; the events may be stored or not: repeat the request with these ids",
		},
		"closed":  {producer.ErrClosed, 503, "shutting_down", "the server is shutting down; repeat the request"},
		"request": {fmt.Errorf("%w: too many", producer.ErrInvalidRequest), 422, "invalid_request", "invalid request: too many"},
		"local":   {producer.ErrNotQueued, 500, "internal", "something went wrong that is not the caller's fault; the log names the request"},
	} {
		b := setup(t, func(c *ingress.Config) { c.Events = broken{Events: c.Events, err: test.err} })
		a := b.post("", eventJSON(""))
		p := a.problem(test.status, test.code)
		if p.Detail != test.detail {
			t.Fatalf("%s: detail is %q", name, p.Detail)
		}
		if retry := a.header.Get("Retry-After"); (retry == "1") != (test.status == 503) {
			t.Fatalf("%s: retry-after is %q", name, retry)
		}
		if name == "unavailable" && !cmp.Equal(p.EventIDs, []string{"e1", "e2"}) {
			t.Fatalf("event ids are %v", p.EventIDs)
		}
	}
}

// TestRedisIsAway calls each route while nothing listens at the address of Redis.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redislane.New(redislane.Config{Client: client, Blocking: client})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	events, err := producer.New(producer.Config{Mode: producer.ModeQueue, Store: store})
	if err != nil {
		t.Fatalf("build dispatcher: %v", err)
	}
	t.Cleanup(events.Close)
	b := &bundle{t: t, store: store, events: events, token: operatorToken}
	b.serve(ingress.Config{Events: events, Store: store, Checks: map[string]ingress.Check{"redis": store.Ping}})
	for route, body := range map[string]string{
		"PUT /v1/operations/op/hooks": "[]", "POST /v1/operations/op/hooks": "[]", "GET /v1/operations/op/hooks": "", "DELETE /v1/operations/op/hooks": "",
		"POST /v1/operations/op/events?await=1s": eventJSON(""), "GET /v1/operations/op/events/e": "", "GET /v1/lanes": "", "GET /v1/lanes/op": "",
		"GET /v1/dead-letters": "", "GET /v1/dead-letters/0.x": "", "POST /v1/dead-letters:replay": `{"all":true}`,
	} {
		method, path, _ := strings.Cut(route, " ")
		a := b.call(method, path, body)
		if a.problem(503, "unavailable"); a.header.Get("Retry-After") != "1" || strings.Contains(a.body, address) {
			t.Fatalf("%s: answer is %s", route, a.body)
		}
	}
	b.call("GET", "/readyz", "").problem(503, "not_ready")
}

// lostStatus is a store that stores events and then cannot be read.
type lostStatus struct{ ingress.Store }

func (lostStatus) Status(context.Context, string, string, lane.Waiter) (lane.Status, error) {
	return lane.Status{}, lane.ErrUnavailable
}

// TestReceiptsSurviveAnOutage stores an event whose status cannot be read: the
// caller must learn that it is stored.
func TestReceiptsSurviveAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ingress.Config) { c.Store = lostStatus{c.Store} })
	b.register(hookJSON("h"))
	var got ingress.EventsResult
	b.post("?await=1ms", eventJSON(`"id":"e",`)).want(202).into(&got)
	if got.Receipts[0].ID != "e" || got.Receipts[0].Sequence != 1 || *got.Settled || got.Receipts[0].Outcomes != nil {
		t.Fatalf("result is %+v", got)
	}
	if docs := b.docs(); len(docs) != 1 {
		t.Fatalf("lane holds %d events", len(docs))
	}
}

func TestAnswersAreNotCachedOrSniffed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/v1/lanes", "/healthz", "/nowhere", "/openapi.json"} {
		header := b.call("GET", path, "").header
		if header.Get("Cache-Control") != "no-store" || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Fatalf("%s: headers are %v", path, header)
		}
	}
	var document any
	if err := json.Unmarshal(b.api.OpenAPI(), &document); err != nil {
		t.Fatalf("decode document: %v", err)
	}
}
