package qstash_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/webhook/qstash"
)

const (
	apiToken     = "s3cr3t-token"
	secretHeader = "s3cr3t-header"
	secretQuery  = "s3cr3t-query"
	secretRemote = "s3cr3t-remote-text"
)

// seen is one call as the service saw it.
type seen struct {
	method, uri, host string
	header            http.Header
	body              string
}

// service stands for QStash.
type service struct {
	*httptest.Server

	mu    sync.Mutex
	calls []seen
	conns int
}

func newService(t testing.TB, answer http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		s.mu.Lock()
		s.calls = append(s.calls, seen{method: r.Method, uri: r.RequestURI, host: r.Host, header: r.Header.Clone(), body: string(body)})
		s.mu.Unlock()
		answer(w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.mu.Lock()
			s.conns++
			s.mu.Unlock()
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *service) seen() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.calls...)
}

// says answers with a status, headers and a body.
func says(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header()[header[i]] = []string{header[i+1]}
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

var takes = says(http.StatusOK, `{"messageId":"msg_7"}`)

func newPublisher(t testing.TB, url string, edit func(*qstash.PublisherConfig)) *qstash.Publisher {
	t.Helper()
	client, err := egress.New(egress.Config{Policy: egress.Trusted()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	cfg := qstash.PublisherConfig{Client: client, URL: url, Token: func() string { return apiToken }}
	if edit != nil {
		edit(&cfg)
	}
	p, err := qstash.NewPublisher(cfg)
	if err != nil {
		t.Fatalf("new publisher: %v", err)
	}
	return p
}

func publication(edit func(*webhook.Publication)) webhook.Publication {
	p := webhook.Publication{
		URL: "https://rx.test/a%2Fb?x=1&y=%2F&q=" + secretQuery, Body: []byte(`{"n":1}`), DeliveryID: "msg_abc-1",
		Header: http.Header{"Content-Type": {"application/json"}, "X-API-key": {secretHeader}},
	}
	if edit != nil {
		edit(&p)
	}
	return p
}

// checkSafe fails if a result shows what it must not.
func checkSafe(t *testing.T, got webhook.PublishResult) {
	t.Helper()
	for _, secret := range []string{apiToken, secretHeader, secretQuery, secretRemote, "rx.test", `"n"`} {
		if strings.Contains(got.Message, secret) {
			t.Errorf("message %q shows %s", got.Message, secret)
		}
	}
	if accepted := got.Outcome == webhook.PublishAccepted; accepted != (got.Message == "") && got.Status == 0 {
		t.Errorf("%+v has no message", got)
	}
}

// What leaves is exactly this, whatever the environment says about QStash.
func TestPublishRequest(t *testing.T) {
	t.Setenv("QSTASH_URL", "http://127.0.0.1:1/elsewhere")
	t.Setenv("QSTASH_TOKEN", "another")
	s := newService(t, takes)
	p := newPublisher(t, s.URL+"/", func(cfg *qstash.PublisherConfig) {
		cfg.Namespace, cfg.Label = "prod", "team"
		cfg.Backoff = qstash.Backoff{Initial: 5 * time.Second, Factor: 3, Max: 6 * time.Hour}
	})
	got := p.Publish(t.Context(), publication(func(p *webhook.Publication) {
		p.OperationID, p.Type, p.Timeout, p.Delay = "op:1", tasks.OnComplete, 1500*time.Millisecond, time.Millisecond
	}))
	if diff := cmp.Diff(webhook.PublishResult{Outcome: webhook.PublishAccepted, Status: 200, MessageID: "msg_7"}, got); diff != "" {
		t.Fatalf("result (-want +got):\n%s", diff)
	}
	host := strings.TrimPrefix(s.URL, "http://")
	want := []seen{{
		method: "POST", uri: "/v2/publish/https://rx.test/a%2Fb?x=1&y=%2F&q=" + secretQuery, host: host, body: `{"n":1}`,
		header: http.Header{
			"Authorization": {"Bearer " + apiToken}, "Content-Type": {"application/json"}, "Content-Length": {"7"},
			"Accept-Encoding": nil, "User-Agent": {"Go-http-client/1.1"},
			"Upstash-Method": {"POST"}, "Upstash-Retries": {"5"}, "Upstash-Timeout": {"2s"}, "Upstash-Delay": {"1s"},
			"Upstash-Deduplication-Id": {"msg_abc-1"}, "Upstash-Label": {"team,onComplete"},
			"Upstash-Retry-Delay":      {"min(21600000,5000*pow(3,retried))"},
			"Upstash-Flow-Control-Key": {"gantry." + tasks.OperationHash("prod\nop:1")}, "Upstash-Flow-Control-Value": {"parallelism=1"},
			"Upstash-Forward-X-Api-Key": {secretHeader},
		},
	}}
	delete(want[0].header, "Accept-Encoding")
	if diff := cmp.Diff(want, s.seen(), cmp.AllowUnexported(seen{})); diff != "" {
		t.Fatalf("request (-want +got):\n%s", diff)
	}
}

// The subject that QStash signs is the destination as it was given, whatever a
// URL parser would make of it.
func TestPublishKeepsTheDestination(t *testing.T) {
	t.Parallel()
	s := newService(t, takes)
	p := newPublisher(t, s.URL, nil)
	for given, want := range map[string]string{
		"https://rx.test/a%20b%2Fc":               "https://rx.test/a%20b%2Fc",
		"https://rx.test//double//slash/":         "https://rx.test//double//slash/",
		"https://rx.test/a/../b":                  "https://rx.test/a/../b",
		"https://rx.test?":                        "https://rx.test?",
		"https://rx.test/?a=b&c=%2F%3A|x":         "https://rx.test/?a=b&c=%2F%3A|x",
		"https://rx.test/x#fragment":              "https://rx.test/x",
		"http://[::1]:8080/v2/publish/https://b/": "http://[::1]:8080/v2/publish/https://b/",
	} {
		before := len(s.seen())
		got := p.Publish(t.Context(), publication(func(p *webhook.Publication) { p.URL = given }))
		calls := s.seen()
		if got.Outcome != webhook.PublishAccepted || len(calls) != before+1 {
			t.Errorf("%s: %+v", given, got)
			continue
		}
		if uri := calls[before].uri; uri != "/v2/publish/"+want {
			t.Errorf("%s: sent to %s", given, uri)
		}
	}
}

func TestPublishOptions(t *testing.T) {
	t.Parallel()
	s := newService(t, takes)
	for name, test := range map[string]struct {
		config func(*qstash.PublisherConfig)
		edit   func(*webhook.Publication)
		header string
		want   []string
	}{
		"id with a colon": {
			edit: func(p *webhook.Publication) { p.DeliveryID = "run:hook:1" }, header: "Upstash-Deduplication-Id",
			want: []string{"sha256.DNADtuogVTk2kUgZivzPVq9lVNGFUjINJZtVfPUcJho"},
		},
		"long id":             {edit: func(p *webhook.Publication) { p.DeliveryID = strings.Repeat("a", 129) }, header: "Upstash-Deduplication-Id", want: []string{"sha256.wSywJKLlVRzKDgj86PHF4xRVXMP-9jKe6ZSj23UhZq4"}},
		"no id":               {edit: func(p *webhook.Publication) { p.DeliveryID = "" }, header: "Upstash-Deduplication-Id"},
		"no operation":        {header: "Upstash-Flow-Control-Key"},
		"no timeout":          {header: "Upstash-Timeout"},
		"no delay":            {header: "Upstash-Delay"},
		"no backoff":          {header: "Upstash-Retry-Delay"},
		"label":               {header: "Upstash-Label", want: []string{"gantry"}},
		"retries":             {header: "Upstash-Retries", want: []string{"5"}},
		"configured retries":  {config: func(c *qstash.PublisherConfig) { c.Retries = 2 }, header: "Upstash-Retries", want: []string{"2"}},
		"no retries":          {config: func(c *qstash.PublisherConfig) { c.Retries = -1 }, header: "Upstash-Retries", want: []string{"0"}},
		"retries of the hook": {edit: func(p *webhook.Publication) { p.Retry = &tasks.RetryOptions{Attempts: 1} }, header: "Upstash-Retries", want: []string{"0"}},
		"backoff of the hook": {
			config: func(c *qstash.PublisherConfig) {
				c.Backoff = qstash.Backoff{Initial: time.Minute, Factor: 2, Max: time.Hour}
			},
			edit: func(p *webhook.Publication) {
				p.Retry = &tasks.RetryOptions{InitialDelaySeconds: .5, Factor: 1.5, MaxDelaySeconds: 10}
			},
			header: "Upstash-Retry-Delay", want: []string{"min(10000,500*pow(1.5,retried))"},
		},
		"flat backoff":      {config: func(c *qstash.PublisherConfig) { c.Backoff = qstash.Backoff{Initial: time.Second} }, header: "Upstash-Retry-Delay", want: []string{"1000"}},
		"unbounded backoff": {config: func(c *qstash.PublisherConfig) { c.Backoff = qstash.Backoff{Initial: time.Second, Factor: 2} }, header: "Upstash-Retry-Delay", want: []string{"1000*pow(2,retried)"}},
		"content type": {
			edit:   func(p *webhook.Publication) { p.Header = http.Header{"content-TYPE": {"application/cloudevents+json"}} },
			header: "Content-Type", want: []string{"application/cloudevents+json"},
		},
		"content type, not twice": {edit: func(p *webhook.Publication) { p.Header = http.Header{"content-TYPE": {"a/b"}} }, header: "Upstash-Forward-Content-Type"},
		"authorization of the hook": {
			edit:   func(p *webhook.Publication) { p.Header = http.Header{"Authorization": {"Bearer hook"}} },
			header: "Upstash-Forward-Authorization", want: []string{"Bearer hook"},
		},
		"authorization of the call": {
			edit:   func(p *webhook.Publication) { p.Header = http.Header{"Authorization": {"Bearer hook"}} },
			header: "Authorization", want: []string{"Bearer " + apiToken},
		},
	} {
		p := newPublisher(t, s.URL, test.config)
		before := len(s.seen())
		if got := p.Publish(t.Context(), publication(test.edit)); got.Outcome != webhook.PublishAccepted {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		if diff := cmp.Diff(test.want, s.seen()[before].header[http.CanonicalHeaderKey(test.header)]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPublishOutcomes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	const failed = "QStash publish failed"
	remote := `{"error":"` + secretRemote + `"}`
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		want   webhook.PublishResult
	}{
		"accepted":            {takes, webhook.PublishResult{Outcome: webhook.PublishAccepted, Status: 200, MessageID: "msg_7"}},
		"accepted with 201":   {says(201, `{"messageId":"m"}`), webhook.PublishResult{Outcome: webhook.PublishAccepted, Status: 201, MessageID: "m"}},
		"known already":       {says(202, `{"messageId":"m","deduplicated":true}`), webhook.PublishResult{Outcome: webhook.PublishAccepted, Status: 202, MessageID: "m", Duplicate: true}},
		"no message id":       {says(200, `{}`), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 200, Message: failed + " (HTTP 200 without a message id)"}},
		"empty message id":    {says(200, `{"messageId":""}`), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 200, Message: failed + " (HTTP 200 without a message id)"}},
		"success in HTML":     {says(200, `<html>`+secretRemote), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 200, Message: failed + " (HTTP 200 without a message id)"}},
		"success without any": {says(204, ""), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 204, Message: failed + " (HTTP 204 without a message id)"}},
		"group of URLs":       {says(200, `[{"messageId":"m","url":"u"}]`), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 200, Message: failed + " (HTTP 200 without a message id)"}},
		"bad request":         {says(400, remote), webhook.PublishResult{Outcome: webhook.PublishRejected, Status: 400}},
		"bad token":           {says(401, remote), webhook.PublishResult{Outcome: webhook.PublishRejected, Status: 401}},
		"limit of the plan":   {says(412, remote), webhook.PublishResult{Outcome: webhook.PublishRejected, Status: 412}},
		"refused in HTML":     {says(403, `<html>`), webhook.PublishResult{Outcome: webhook.PublishRejected, Status: 403}},
		"request timeout":     {says(408, remote), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 408}},
		"server error":        {says(500, remote), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 500}},
		"proxy in HTML":       {says(502, `<html>`+secretRemote), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 502}},
		"redirect":            {says(307, "", "Location", "https://evil.test/"), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 307}},
		"busy":                {says(503, "", "Retry-After", "7"), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 503, RetryAfter: 7 * time.Second}},
		"busy until a date":   {says(503, "", "Retry-After", now.Add(time.Minute).UTC().Format(http.TimeFormat)), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 503, RetryAfter: time.Minute}},
		"busy for too long":   {says(503, "", "Retry-After", "999999999"), webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 503, RetryAfter: 24 * time.Hour}},
		"throttled":           {says(429, remote), webhook.PublishResult{Outcome: webhook.PublishThrottled, Status: 429}},
		"throttled by a burst": {
			says(429, remote, "Burst-RateLimit-Limit", "10", "Burst-RateLimit-Remaining", "0", "Burst-RateLimit-Reset", strconv.FormatInt(now.Unix()+3, 10)),
			webhook.PublishResult{
				Outcome: webhook.PublishThrottled, Status: 429, RetryAfter: 3 * time.Second,
				Limit: &webhook.RelayLimit{Limit: 10, Remaining: 0, Reset: now.Add(3 * time.Second)},
			},
		},
		"throttled by the day": {
			says(429, remote, "RateLimit-Limit", "1000", "RateLimit-Reset", strconv.FormatInt(now.Unix()+7200, 10), "Burst-RateLimit-Limit", "10", "Burst-RateLimit-Reset", "1"),
			webhook.PublishResult{
				Outcome: webhook.PublishThrottled, Status: 429, RetryAfter: 2 * time.Hour,
				Limit: &webhook.RelayLimit{Daily: true, Limit: 1000, Remaining: -1, Reset: now.Add(2 * time.Hour)},
			},
		},
		"endless answer": {
			func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					if _, err := io.WriteString(w, strings.Repeat(" ", 4096)); err != nil {
						return
					}
				}
			},
			webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 200, Message: failed + " (HTTP 200 without a message id)"},
		},
		"cut in its answer": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, `{"messageId":"m"}`)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			},
			webhook.PublishResult{Outcome: webhook.PublishUnknown, Status: 200, Message: failed + " (outcome unknown: reset)"},
		},
		"refusal cut short": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "100")
				w.WriteHeader(http.StatusBadRequest)
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			},
			webhook.PublishResult{Outcome: webhook.PublishUnknown, Status: 400, Message: failed + " (outcome unknown: reset)"},
		},
		"cut before its answer": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			webhook.PublishResult{Outcome: webhook.PublishUnknown, Message: failed + " (outcome unknown: reset)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, test.answer)
			p := newPublisher(t, s.URL, func(cfg *qstash.PublisherConfig) { cfg.Now = func() time.Time { return now } })
			got := p.Publish(t.Context(), publication(nil))
			checkSafe(t, got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if n := len(s.seen()); n != 1 {
				t.Errorf("service saw %d calls", n)
			}
		})
	}
}

type resolver struct{ err error }

func (r resolver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return nil, r.err
}

func TestPublishNotSent(t *testing.T) {
	t.Parallel()
	gone := newService(t, takes)
	gone.Close()
	secure := httptest.NewUnstartedServer(takes)
	secure.Config.ErrorLog = quiet
	secure.StartTLS()
	t.Cleanup(secure.Close)
	there := newService(t, takes)
	egressOf := func(cfg egress.Config) func(*qstash.PublisherConfig) {
		return func(p *qstash.PublisherConfig) {
			client, err := egress.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			p.Client = client
		}
	}
	for name, test := range map[string]struct {
		url    string
		config func(*qstash.PublisherConfig)
		edit   func(*webhook.Publication)
		class  tasks.FailureClass
		want   string
	}{
		"refused": {url: gone.URL, want: "QStash publish failed (not sent: refused)"},
		"no such name": {
			url: "https://qstash.test", config: egressOf(egress.Config{Resolver: resolver{&net.DNSError{Err: "no such host"}}}),
			want: "QStash publish failed (not sent: dns)",
		},
		"unknown certificate": {url: secure.URL, want: "QStash publish failed (not sent: tls)"},
		"denied":              {url: there.URL, config: egressOf(egress.Config{}), want: "QStash publish failed (not sent: egress_denied)"},
		"no connection in time": {
			url: "https://192.0.2.1", want: "QStash publish failed (not sent: connect_timeout)",
			config: egressOf(egress.Config{
				Policy: egress.Trusted(), ConnectTimeout: 20 * time.Millisecond,
				DialTCP: func(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
					<-ctx.Done()
					return nil, context.Cause(ctx)
				},
			}),
		},
		"no token": {
			url: there.URL, config: func(cfg *qstash.PublisherConfig) { cfg.Token = func() string { return "" } },
			class: tasks.ClassConfiguration, want: "QSTASH_TOKEN not available",
		},
		"too large": {
			url: there.URL, config: func(cfg *qstash.PublisherConfig) { cfg.MaxBody = 6 },
			class: tasks.ClassConfiguration, want: "QStash publish failed: body is larger than 6 bytes",
		},
		"destination is a group": {
			url: there.URL, edit: func(p *webhook.Publication) { p.URL = "group" },
			class: tasks.ClassConfiguration, want: "QStash publish failed: destination is no absolute http or https URL",
		},
		"line break in the destination": {
			url: there.URL, edit: func(p *webhook.Publication) { p.URL = "https://rx.test/ HTTP/1.1\r\nX: y" },
			class: tasks.ClassConfiguration, want: "QStash publish failed: destination is no absolute http or https URL",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newPublisher(t, test.url, test.config).Publish(t.Context(), publication(test.edit))
			checkSafe(t, got)
			want := webhook.PublishResult{Outcome: webhook.PublishNotSent, Class: test.class, Message: test.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
	t.Cleanup(func() {
		if n := len(there.seen()); n != 0 {
			t.Errorf("service saw %d calls", n)
		}
	})
}

// A query that would turn the delivery into something else is never sent.
func TestPublishDestinationWithOptions(t *testing.T) {
	t.Parallel()
	s := newService(t, takes)
	p := newPublisher(t, s.URL, nil)
	for _, query := range []string{
		"upstash-method=DELETE", "a=1&upstash-callback=https://evil.test", "Upstash-Retries=0", "%75pstash-delay=1d", "qstash_token=x",
		"a;upstash-cron=*", "upstash%2Dmethod=PUT", "UPSTASH-forward-x",
	} {
		got := p.Publish(t.Context(), publication(func(p *webhook.Publication) { p.URL = "https://rx.test/?" + query }))
		if got.Outcome != webhook.PublishNotSent || got.Class != tasks.ClassConfiguration {
			t.Errorf("%s: %+v", query, got)
		}
		checkSafe(t, got)
	}
	for _, query := range []string{"a=upstash-method", "upstash=1", "x-upstash-method=1", "a=%"} {
		if got := p.Publish(t.Context(), publication(func(p *webhook.Publication) { p.URL = "https://rx.test/?" + query })); got.Outcome != webhook.PublishAccepted {
			t.Errorf("%s: %+v", query, got)
		}
	}
	if n := len(s.seen()); n != 4 {
		t.Errorf("service saw %d calls", n)
	}
}

// The caller's deadline, and the publisher's own, reach a request that the SDK
// would wait for without end.
func TestPublishHangs(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	s := newService(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	got := newPublisher(t, s.URL, func(cfg *qstash.PublisherConfig) { cfg.Timeout = 50 * time.Millisecond }).Publish(t.Context(), publication(nil))
	if want := (webhook.PublishResult{Outcome: webhook.PublishUnknown, Message: "QStash publish failed (outcome unknown: timeout)"}); !cmp.Equal(want, got) {
		t.Errorf("own timeout: %+v", got)
	}
	<-arrived
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-arrived; cancel(errors.New("caller is gone")) }()
	if got := newPublisher(t, s.URL, nil).Publish(ctx, publication(nil)); got.Outcome != webhook.PublishUnknown {
		t.Errorf("caller's end: %+v", got)
	}
}

// One connection serves many publishes, because each answer is read and closed.
func TestPublishReusesItsConnection(t *testing.T) {
	t.Parallel()
	for _, answer := range []http.HandlerFunc{takes, says(500, `{"error":"x"}`), says(429, "")} {
		s := newService(t, answer)
		p := newPublisher(t, s.URL, nil)
		for range 20 {
			p.Publish(t.Context(), publication(nil))
		}
		s.mu.Lock()
		if s.conns != 1 || len(s.calls) != 20 {
			t.Errorf("%d connections for %d calls", s.conns, len(s.calls))
		}
		s.mu.Unlock()
	}
}

func TestNewPublisherRefuses(t *testing.T) {
	t.Parallel()
	client, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	good := func() qstash.PublisherConfig {
		return qstash.PublisherConfig{Client: client, Token: func() string { return apiToken }}
	}
	for name, edit := range map[string]func(*qstash.PublisherConfig){
		"no client":          func(c *qstash.PublisherConfig) { c.Client = nil },
		"no token source":    func(c *qstash.PublisherConfig) { c.Token = nil },
		"no address":         func(c *qstash.PublisherConfig) { c.URL = "qstash.upstash.io" },
		"token in the clear": func(c *qstash.PublisherConfig) { c.URL = "http://qstash.test" },
		"credentials":        func(c *qstash.PublisherConfig) { c.URL = "https://u:" + apiToken + "@qstash.test" },
		"query":              func(c *qstash.PublisherConfig) { c.URL = "https://qstash.test/?a" },
		"label":              func(c *qstash.PublisherConfig) { c.Label = "a,b" },
		"timeout":            func(c *qstash.PublisherConfig) { c.Timeout = -1 },
		"backoff":            func(c *qstash.PublisherConfig) { c.Backoff.Factor = .5 },
	} {
		cfg := good()
		edit(&cfg)
		if _, err := qstash.NewPublisher(cfg); err == nil || strings.Contains(err.Error(), apiToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, edit := range map[string]func(*qstash.PublisherConfig){
		"defaults":                func(*qstash.PublisherConfig) {},
		"old path":                func(c *qstash.PublisherConfig) { c.URL = "https://qstash.test/v2/publish/" },
		"this machine":            func(c *qstash.PublisherConfig) { c.URL = "http://localhost:8080" },
		"another, in development": func(c *qstash.PublisherConfig) { c.URL, c.Policy = "http://qstash:8080", qstash.Development },
	} {
		cfg := good()
		edit(&cfg)
		if _, err := qstash.NewPublisher(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An environment in which the SDK cannot work is found at the start.
func TestNewPublisherProbesTheSDK(t *testing.T) {
	client, err := egress.New(egress.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	t.Setenv("QSTASH_URL", "http://%zz")
	if _, err := qstash.NewPublisher(qstash.PublisherConfig{Client: client, Token: func() string { return "x" }}); err == nil {
		t.Error("no error")
	}
}
