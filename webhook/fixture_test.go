package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// Secrets that must never show up in a result, an error or a log line.
const (
	secretHeader = "s3cr3t-header-value"
	secretQuery  = "s3cr3t-query-value"
	secretRemote = "s3cr3t-remote-text"
	secretEvent  = "s3cr3t-event-content"
	secretKey    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// payloads returns the event as it is, or what build returns.
type payloads struct {
	build func(ctx context.Context, del webhook.Delivery) ([]byte, error)
}

func (p payloads) Build(ctx context.Context, del webhook.Delivery) ([]byte, error) {
	if p.build != nil {
		return p.build(ctx, del)
	}
	return del.Event, nil
}

func (p payloads) BuildControl(ctx context.Context, hookID string, hookType tasks.HookType, event json.RawMessage) ([]byte, error) {
	if p.build != nil {
		return p.build(ctx, webhook.Delivery{Hook: &tasks.Hook{ID: hookID}, Type: hookType, Event: event})
	}
	return event, nil
}

func environment(vars map[string]string) tasks.Environment {
	return func(name string) (string, bool) { value, ok := vars[name]; return value, ok }
}

var standardVars = map[string]string{"HOOK_TOKEN": secretHeader, "HOOK_KEY": secretKey}

func newEgress(t testing.TB, policy egress.Policy) *egress.Client {
	t.Helper()
	client, err := egress.New(egress.Config{Policy: policy})
	if err != nil {
		t.Fatalf("new egress client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// newDeliverer builds a deliverer whose callers may reach loopback; edit changes
// its configuration.
func newDeliverer(t testing.TB, edit func(*webhook.Config)) *webhook.Deliverer {
	t.Helper()
	client := newEgress(t, egress.Trusted())
	cfg := webhook.Config{
		Env: environment(standardVars), Callers: client, Operator: client, Payloads: payloads{},
		UserAgent: "Gantry/test", Registerer: prometheus.NewRegistry(),
	}
	if edit != nil {
		edit(&cfg)
	}
	d, err := webhook.New(cfg)
	if err != nil {
		t.Fatalf("new deliverer: %v", err)
	}
	return d
}

// delivery is an attempt at url with a secret header; edit changes its webhook.
func delivery(url string, edit func(*tasks.Webhook)) webhook.Delivery {
	w := &tasks.Webhook{
		URL: url, Headers: map[string]string{"X-API-key": "Bearer ${HOOK_TOKEN}"}, AllowedEnvVars: []string{"HOOK_TOKEN"},
	}
	if edit != nil {
		edit(w)
	}
	return webhook.Delivery{
		Hook: &tasks.Hook{ID: "h1", Type: tasks.OnComplete, Webhook: w}, Type: tasks.OnComplete,
		Event: json.RawMessage(`{"content":"` + secretEvent + `"}`), ID: "msg_1", TaskID: "task1", OperationID: "op1", Attempt: 1,
	}
}

// checkSafe fails if a result shows what it must not.
func checkSafe(t *testing.T, result webhook.Result) {
	t.Helper()
	shown := result.Message + "\n" + result.Publish
	checkText(t, shown)
	if result.Class != "" && result.Message == "" {
		t.Errorf("class %s without a message", result.Class)
	}
}

func checkText(t *testing.T, shown string) {
	t.Helper()
	for _, secret := range []string{secretHeader, secretQuery, secretRemote, secretEvent, secretKey, secretKey[6:]} {
		if strings.Contains(shown, secret) {
			t.Errorf("%q shows a secret", shown)
		}
	}
}

// received is one request as a receiver saw it.
type received struct {
	header http.Header
	target string
	body   string
}

// receiver records requests and answers each with respond; nil answers 200.
type receiver struct {
	*httptest.Server
	mu   sync.Mutex
	seen []received
}

func newReceiver(t testing.TB, respond http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Errorf("read request: %v", err)
		}
		header := maps.Clone(req.Header)
		r.mu.Lock()
		r.seen = append(r.seen, received{header: header, target: req.RequestURI, body: string(body)})
		r.mu.Unlock()
		if respond != nil {
			respond(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.seen...)
}

// only returns the one request that was made.
func (r *receiver) only(t *testing.T) received {
	t.Helper()
	seen := r.requests()
	if len(seen) != 1 {
		t.Fatalf("receiver saw %d requests, want 1", len(seen))
	}
	return seen[0]
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// serveRaw hands each connection to handle, which speaks bytes; it ends with the test.
func serveRaw(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	listener := listen(t)
	var running sync.WaitGroup
	done := make(chan struct{})
	t.Cleanup(func() { _ = listener.Close(); close(done); running.Wait() })
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				over := make(chan struct{})
				go func() {
					select {
					case <-done:
					case <-over:
					}
					_ = conn.Close()
				}()
				handle(conn)
				close(over)
			})
		}
	})
	return "http://" + listener.Addr().String()
}
