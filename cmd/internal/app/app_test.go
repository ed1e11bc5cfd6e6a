package app_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/cmd/internal/app"
	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/worker"
)

func TestEndToEnd(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t)
	failures := 2
	receiver.answer = func(r request) int {
		if r.path == "/a" && r.payload["stepIndex"] == 3.0 && failures > 0 {
			failures--
			return http.StatusServiceUnavailable
		}
		return http.StatusNoContent
	}
	system := start(t, params(t, settings(t), "HOOK_TOKEN=s3cret"))
	must(t, system, http.MethodPut, "/v1/operations/op/hooks", fmt.Sprintf(`[
		{"id":"a","type":"afterStep","webhook":{"url":"%[1]s/a"}},
		{"id":"b","type":"afterStep","webhook":{"url":"%[1]s/b","headers":{"Authorization":"Bearer ${HOOK_TOKEN}"},"allowedEnvVars":["HOOK_TOKEN"]}}
	]`, receiver.URL))
	const events = 10
	var batch []string
	for n := 1; n <= events; n++ {
		batch = append(batch, step(n))
	}
	answer := must(t, system, http.MethodPost, "/v1/operations/op/events?await=20s&awaitMode=final", "["+strings.Join(batch, ",")+"]")
	if answer["settled"] != true {
		t.Fatalf("the events are not settled: %v", answer)
	}
	want := map[string][]float64{"/a": {1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10}, "/b": {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}
	got := map[string][]float64{}
	for range len(want["/a"]) + len(want["/b"]) {
		r := receiver.next(t)
		index, _ := r.payload["stepIndex"].(float64)
		got[r.path] = append(got[r.path], index)
		if r.path == "/b" && r.header.Get("Authorization") != "Bearer s3cret" {
			t.Errorf("the header is %q", r.header.Get("Authorization"))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("arrived %v, want %v", got, want)
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json", "/metrics"} {
		if status, _ := call(t, system, http.MethodGet, path, ""); status != http.StatusOK {
			t.Errorf("%s answers %d", path, status)
		}
	}
}

func TestTokensAreNeeded(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	system := start(t, params(t, cfg))
	res, err := http.Get("http://" + system.Address(app.ServerAPI) + "/v1/lanes")
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		t.Fatalf("a request without a token is answered %d", res.StatusCode)
	}
}

func TestIncompleteSettingsAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*app.Params)
		path   string
	}{
		"no Redis":  {func(p *app.Params) { p.Config.Redis.URL = "" }, "redis.url"},
		"no tokens": {func(p *app.Params) { p.Config.API.Tokens = nil }, "api.tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			p := params(t, settings(t))
			test.change(&p)
			_, err := app.New(t.Context(), p)
			var setting *config.SettingError
			if !errors.As(err, &setting) || setting.Path != test.path {
				t.Fatalf("got %v, want a problem with %s", err, test.path)
			}
		})
	}
}

func TestShardCountsMustAgree(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	start(t, params(t, cfg))
	other := *cfg
	other.Redis.Shards = 4
	if _, err := app.New(t.Context(), params(t, &other)); err == nil {
		t.Fatalf("composed a system with another number of shards on the same namespace")
	}
}

func TestComposingGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.Redis.URL = "redis://127.0.0.1:1"
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := app.New(ctx, params(t, cfg)); err == nil || ctx.Err() == nil {
		t.Fatalf("composed without Redis: %v", err)
	}
}

func TestPartialStartIsUndone(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	defer func() { _ = taken.Close() }()
	cfg := settings(t)
	cfg.Metrics.Listen = taken.Addr().String()
	before := goleak.IgnoreCurrent()
	system, err := app.New(t.Context(), params(t, cfg))
	if err != nil {
		t.Fatalf("compose: %v", err)
	}
	if err := system.Start(t.Context()); err == nil {
		t.Fatalf("started on a port that is taken")
	}
	api, err := net.Listen("tcp", system.Address(app.ServerAPI))
	if err != nil {
		t.Fatalf("the API's port is still taken: %v", err)
	}
	_ = api.Close()
	if err := goleak.Find(before, servertest.IgnoreServers()); err != nil {
		t.Fatalf("goroutines are left: %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	system, err := app.New(t.Context(), params(t, settings(t)))
	if err != nil {
		t.Fatalf("compose: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- system.Run(ctx, started) }()
	<-started
	must(t, system, http.MethodGet, "/readyz", "")
	cancel()
	if err := <-ended; err != nil {
		t.Fatalf("run: %v", err)
	}
}

func TestStopAnswersWhoWaits(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	p := params(t, cfg)
	p.Roles = []app.Role{app.RoleAPI} // nobody delivers
	system, err := app.New(t.Context(), p)
	if err != nil {
		t.Fatalf("compose: %v", err)
	}
	if err := system.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	must(t, system, http.MethodPut, "/v1/operations/op/hooks", `[{"id":"a","type":"afterStep","webhook":{"url":"http://127.0.0.1:1/"}}]`)
	answered := make(chan map[string]any, 1)
	go func() { answered <- must(t, system, http.MethodPost, "/v1/operations/op/events?await=60s", step(1)) }()
	// The event is stored before the waiting starts.
	for stored := false; !stored; {
		status, info := call(t, system, http.MethodGet, "/v1/lanes/op", "")
		stored = status == http.StatusOK && info["waiting"] == 1.0
	}
	begin := time.Now()
	if err := system.Stop(t.Context()); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if took := time.Since(begin); took >= cfg.API.ShutdownTimeout {
		t.Errorf("stopping took %s, all of its time", took)
	}
	if answer := <-answered; answer["settled"] != false {
		t.Fatalf("the waiting call was answered with %v", answer)
	}
}

func TestReloadChangesEnvironmentHooks(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t)
	hooks := func(path string) []string {
		return []string{
			"AGENT_HOOK_WEBHOOK_URL=" + receiver.URL + path, "AGENT_HOOK_WEBHOOK_TOKEN=t-" + path[1:], "AGENT_HOOK_WEBHOOK_EVENTS=afterStep",
		}
	}
	p := params(t, settings(t))
	var path string
	p.Env, path = envFile(t, hooks("/old")...)
	system := start(t, p)
	send := func(n int) request {
		must(t, system, http.MethodPost, "/v1/operations/op/events", step(n))
		return receiver.next(t)
	}
	check := func(got request, path string) {
		t.Helper()
		if got.path != path || got.header.Get("Authorization") != "Bearer t-"+path[1:] {
			t.Fatalf("delivered to %s with %q, want %s", got.path, got.header.Get("Authorization"), path)
		}
	}
	check(send(1), "/old")
	writeFile(t, path, hooks("/new")...)
	check(send(2), "/old")
	if err := system.Reload(); err != nil {
		t.Fatalf("reload: %v", err)
	}
	check(send(3), "/new")
	writeFile(t, path, "AGENT_HOOK_WEBHOOK_URL=nowhere")
	if err := system.Reload(); !errors.Is(err, config.ErrEnvironmentHooks) {
		t.Fatalf("reload of a broken file: %v", err)
	}
	check(send(4), "/new")
}

func TestEmbeddedRedisLetsThingsExpire(t *testing.T) {
	t.Parallel()
	receiver := newReceiver(t)
	attempts := make(chan worker.Attempt, 10)
	cfg := settings(t)
	cfg.Redis.URL, cfg.Webhook.EgressAllow = "", nil
	p := params(t, cfg)
	p.Embedded, p.TrustLoopback = true, true
	p.OnAttempt = func(a worker.Attempt) { attempts <- a }
	first := true
	receiver.answer = func(request) int {
		if first {
			first = false
			return http.StatusBadGateway
		}
		return http.StatusOK
	}
	system := start(t, p)
	if system.RedisAddr() == "" {
		t.Fatalf("there is no embedded Redis")
	}
	must(t, system, http.MethodPut, "/v1/operations/op/hooks", fmt.Sprintf(`[{"id":"a","type":"afterStep","webhook":{"url":"%s"}}]`, receiver.URL))
	must(t, system, http.MethodPost, "/v1/operations/op/events", step(1))
	if a := <-attempts; a.Result.Delivered || a.DueIn <= 0 {
		t.Fatalf("the first attempt came to %+v", a.Result)
	}
	if a := <-attempts; !a.Result.Delivered || a.Delivery.Attempt != 2 {
		t.Fatalf("the second attempt came to %+v", a.Result)
	}
}

func TestNextFreePort(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	defer func() { _ = taken.Close() }()
	cfg.API.Listen = taken.Addr().String()
	p := params(t, cfg)
	p.NextFreePort = true
	system := start(t, p)
	if at := system.Address(app.ServerAPI); at == cfg.API.Listen || at == "" {
		t.Fatalf("listens on %q", at)
	}
	must(t, system, http.MethodGet, "/healthz", "")
}
