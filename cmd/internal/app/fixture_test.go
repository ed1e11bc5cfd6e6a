package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/cmd/internal/app"
	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// patience is far more than anything here takes.
const patience = 20 * time.Second

// request is what the receiver saw of one delivery.
type request struct {
	path    string
	header  http.Header
	payload map[string]any
}

// receiver takes deliveries and hands them to the test.
type receiver struct {
	*httptest.Server
	arrived chan request

	mu sync.Mutex
	// answer picks the status; nil answers 204.
	answer func(request) int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{arrived: make(chan request, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	got := request{path: req.URL.Path, header: req.Header}
	raw, err := io.ReadAll(req.Body)
	if err != nil || json.Unmarshal(raw, &got.payload) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	status := http.StatusNoContent
	r.mu.Lock()
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		status = answer(got)
	}
	w.WriteHeader(status)
	r.arrived <- got
}

// next waits for a delivery.
func (r *receiver) next(t *testing.T) request {
	t.Helper()
	select {
	case got := <-r.arrived:
		return got
	case <-time.After(patience):
		t.Fatalf("no delivery arrived within %s", patience)
		return request{}
	}
}

// settings are defaults on an empty private database, with ports of their own.
func settings(t *testing.T) *config.Config {
	t.Helper()
	cfg := config.Defaults()
	cfg.Redis.URL = config.RedisURL(servertest.URL(servertest.FlushedClient(t)))
	cfg.API.Listen = "127.0.0.1:0"
	cfg.API.Tokens = []config.Secret{"operator:op-token", "runtime:rt-token"}
	cfg.API.ShutdownTimeout, cfg.Worker.Grace = 5*time.Second, 5*time.Second
	cfg.Retry.Initial, cfg.Retry.Jitter = 50*time.Millisecond, 0
	cfg.Webhook.EgressAllow = []string{"127.0.0.0/8"}
	return cfg
}

// envFile writes a file of variables and opens it over an empty environment.
func envFile(t *testing.T, lines ...string) (*config.EnvFile, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "env")
	writeFile(t, path, lines...)
	file, err := config.OpenEnvFile(path, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatalf("open env file: %v", err)
	}
	return file, path
}

func writeFile(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// params are those of a system with both roles.
func params(t *testing.T, cfg *config.Config, lines ...string) app.Params {
	t.Helper()
	env, _ := envFile(t, lines...)
	return app.Params{
		Config: cfg, Env: env, Roles: []app.Role{app.RoleAPI, app.RoleWorker}, Logger: quiet(), Version: "test",
	}
}

// start composes and starts a system that is stopped with the test.
func start(t *testing.T, p app.Params) *app.App {
	t.Helper()
	system, err := app.New(t.Context(), p)
	if err != nil {
		t.Fatalf("compose: %v", err)
	}
	if err := system.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		// The context of a test has ended by the time its cleanups run.
		if err := system.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return system
}

// call makes a request of the API and returns the answer.
func call(t *testing.T, system *app.App, method, path, body string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+system.Address(app.ServerAPI)+path, bytes.NewBufferString(body))
	if err != nil {
		t.Fatalf("build request: %v", err)
	}
	req.Header.Set("Authorization", "Bearer op-token")
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	var answer map[string]any
	if len(raw) > 0 && strings.Contains(res.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(raw, &answer); err != nil {
			t.Fatalf("read answer %q: %v", raw, err)
		}
	}
	return res.StatusCode, answer
}

// must is call that wants a status of success.
func must(t *testing.T, system *app.App, method, path, body string) map[string]any {
	t.Helper()
	status, answer := call(t, system, method, path, body)
	if status/100 != 2 {
		t.Fatalf("%s %s answered %d: %v", method, path, status, answer)
	}
	return answer
}

func step(n int) string {
	return fmt.Sprintf(`{"type":"afterStep","id":"e%d","event":{"agentId":"a","userId":"u","stepIndex":%d}}`, n, n)
}
