package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/webhook/verify"
	"github.com/gantry-hooks/gantry/worker/taskdoor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	currentKey = "sig_current_0000000000000000"
	nextKey    = "sig_next_00000000000000000000"
	directKey  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	auditKey   = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// world is everything that a function talks to, with no Redis in it.
type world struct {
	*testing.T
	qstash *compat.Server
	env    map[string]string

	mu    sync.Mutex
	heard []string
}

// serve starts a server whose handler is made once its address is known.
func (w *world) serve(handler func(url string) http.Handler) string {
	w.Helper()
	var made atomic.Pointer[http.Handler]
	server := httptest.NewServer(http.HandlerFunc(func(reply http.ResponseWriter, r *http.Request) { (*made.Load()).ServeHTTP(reply, r) }))
	w.Cleanup(server.Close)
	h := handler(server.URL)
	made.Store(&h)
	return server.URL
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	w := &world{T: t}
	audit := w.serve(func(string) http.Handler { return w.audit() })
	door := w.serve(func(url string) http.Handler { return w.door(url) })
	server, err := compat.New(compat.Config{Token: "token", Keys: compat.Keys{Current: currentKey, Next: nextKey}, Speed: 1e7})
	w.check(err)
	w.qstash = server
	t.Cleanup(server.Close)
	w.env = map[string]string{
		"QSTASH_URL": w.serve(func(string) http.Handler { return server }), "QSTASH_TOKEN": "token",
		"GANTRY_TASKS_URL": door + taskdoor.Path, "GANTRY_QSTASH_DIRECT_KEY": directKey, "AUDIT_URL": audit + "/hook",
	}
	return w
}

// audit is the receiver of the hook, which fails once.
func (w *world) audit() http.Handler {
	keys, err := signature.ParseKeys(auditKey)
	w.check(err)
	failed := false
	h, err := verify.Handler(http.HandlerFunc(func(reply http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		defer w.mu.Unlock()
		if !failed {
			failed = true
			reply.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, said, _ := strings.Cut(string(body), `"content":"`)
		said, _, _ = strings.Cut(said, `"`)
		w.heard = append(w.heard, said)
	}), verify.Config{Schemes: []verify.Scheme{verify.StandardWebhooks(keys)}, Store: verify.NewMemory(verify.MemoryConfig{})})
	w.check(err)
	return h
}

// door is the endpoint of a worker without Redis.
func (w *world) door(url string) http.Handler {
	policy := egress.Public()
	policy.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	client, err := egress.New(egress.Config{Policy: policy})
	w.check(err)
	w.Cleanup(client.Close)
	payloads, err := enrich.New(enrich.Config{})
	w.check(err)
	deliverer, err := webhook.New(webhook.Config{
		Callers: client, Payloads: payloads,
		Env: func(name string) (string, bool) { return auditKey, name == "HOOK_AUDIT_KEY" },
	})
	w.check(err)
	keys, err := qstash.ParseKeys(currentKey, nextKey, qstash.Production)
	w.check(err)
	verifier, err := qstash.NewVerifier(qstash.VerifierConfig{Keys: keys})
	w.check(err)
	direct, err := signature.ParseKeys(directKey)
	w.check(err)
	log := logrus.New()
	log.SetOutput(io.Discard)
	door, err := taskdoor.New(taskdoor.Config{
		URL: url + taskdoor.Path, Verifier: verifier, Keys: direct, Deliverer: deliverer,
		Claims: taskdoor.NewMemoryClaims(taskdoor.ClaimsConfig{}), Logger: log,
	})
	w.check(err)
	return door
}

// call makes one step, in a process of its own as far as the function can tell.
func (w *world) call(body string) int {
	w.Helper()
	f, err := newFunction(func(name string) string { return w.env[name] })
	w.check(err)
	defer f.Close()
	reply := httptest.NewRecorder()
	f.ServeHTTP(reply, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	return reply.Code
}

func (w *world) settle() {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
	defer cancel()
	w.check(w.qstash.Settle(ctx))
}

func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.heard)
}

// TestFunction has QStash carry two steps, one of them sent twice, to a receiver
// that fails at first.
func TestFunction(t *testing.T) {
	w := newWorld(t)
	for _, body := range []string{`{"run":"r","step":0,"said":"zero"}`, `{"run":"r","step":0,"said":"zero"}`, `{"run":"r","step":1,"said":"one"}`} {
		if code := w.call(body); code != http.StatusNoContent {
			t.Fatalf("status %d", code)
		}
		w.settle()
	}
	if diff := cmp.Diff([]string{"zero", "one"}, w.told()); diff != "" {
		t.Errorf("the receiver heard (-want +got):\n%s", diff)
	}
}

// TestQStashTakesNothing sends steps straight to the workers, while QStash has a
// limit. The receiver fails at first, and the caller comes again.
func TestQStashTakesNothing(t *testing.T) {
	w := newWorld(t)
	w.check(w.qstash.Inject(compat.Fault{Kind: compat.FaultDailyLimit}))
	for _, want := range []int{http.StatusServiceUnavailable, http.StatusNoContent, http.StatusNoContent} {
		if code := w.call(`{"run":"r","step":0,"said":"zero"}`); code != want {
			t.Errorf("status %d, want %d", code, want)
		}
	}
	if diff := cmp.Diff([]string{"zero"}, w.told()); diff != "" {
		t.Errorf("the receiver heard (-want +got):\n%s", diff)
	}
	delete(w.env, "GANTRY_QSTASH_DIRECT_KEY")
	if code := w.call(`{"run":"r","step":1,"said":"one"}`); code != http.StatusServiceUnavailable {
		t.Errorf("without a second road: status %d", code)
	}
	if code := w.call(`nonsense`); code != http.StatusBadRequest {
		t.Errorf("nonsense: status %d", code)
	}
}
