package app_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/app"
	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/worker/taskdoor"
)

const (
	relayToken = "token-of-the-account"
	signingKey = "sig_of_the_account"
	directKey  = "key-of-the-runtimes"
)

// relay is a QStash of the test's own, in a hurry.
type relay struct {
	url    string
	server *compat.Server
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	server, err := compat.New(compat.Config{
		Token: relayToken, Keys: compat.Keys{Current: signingKey, Next: signingKey + "_next"}, Speed: 100,
	})
	if err != nil {
		t.Fatalf("make the relay: %v", err)
	}
	front := httptest.NewServer(server)
	t.Cleanup(func() { front.Close(); server.Close() })
	return &relay{url: front.URL, server: server}
}

// freeAddress is one that nobody listens on now: the public address is part of
// what is signed, so that it must be known before the listener is.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// relayed are settings of a process whose endpoint is reached at address.
func relayed(t *testing.T, r *relay, address string) *config.Config {
	t.Helper()
	cfg := settings(t)
	cfg.QStash.URL, cfg.QStash.PublicURL, cfg.QStash.Listen = r.url, "http://"+address, address
	cfg.QStash.CurrentSigningKey, cfg.QStash.DirectKey = signingKey, directKey
	return cfg
}

// runtime is a dispatcher of QStash mode, which reaches no Redis.
func newRuntime(t *testing.T, r *relay, cfg *config.Config, edit func(*producer.QStashConfig)) *producer.Dispatcher {
	t.Helper()
	client, err := egress.New(egress.Config{Policy: egress.Trusted()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	publisher, err := qstash.NewPublisher(qstash.PublisherConfig{
		Client: client, URL: r.url, Token: func() string { return relayToken }, Namespace: "gantry",
		Backoff: qstash.Backoff{Initial: time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := signature.ParseKeys(directKey)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := cfg.QStash.PublicURL + taskdoor.Path
	direct, err := producer.NewDirect(producer.DirectConfig{Endpoint: endpoint, Client: client, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	config := producer.Config{
		Mode: producer.ModeQStash, Namespace: "gantry",
		QStash: producer.QStashConfig{Endpoint: endpoint, Relay: publisher, Direct: direct, Retries: 8},
	}
	if edit != nil {
		edit(&config.QStash)
	}
	d, err := producer.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func stepHook(id, url string) tasks.Hook {
	return tasks.Hook{ID: id, Type: tasks.AfterStep, Webhook: &tasks.Webhook{URL: url + "/" + id}}
}

func stepEvent(t *testing.T, n int) *tasks.Event {
	t.Helper()
	event, err := tasks.ParseEvent(tasks.AfterStep, "op", fmt.Appendf(nil, `{"agentId":"a","operationId":"op","userId":"u","stepIndex":%d}`, n))
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// steps are the step numbers that each path got, in their order, once all have
// arrived.
func (r *receiver) steps(t *testing.T, total int) map[string][]int {
	t.Helper()
	got := map[string][]int{}
	for range total {
		delivery := r.next(t)
		n, _ := delivery.payload["stepIndex"].(float64)
		got[delivery.path] = append(got[delivery.path], int(n))
	}
	return got
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i + 1
	}
	return list
}

// A runtime without Redis reaches workers that have it: whole tasks, in order,
// also when some come in batches and others directly.
func TestQStashBringsTasksToLanes(t *testing.T) {
	t.Parallel()
	r, rx := newRelay(t), newReceiver(t)
	cfg := relayed(t, r, freeAddress(t))
	p := params(t, cfg, "QSTASH_TOKEN="+relayToken)
	p.Roles = []app.Role{app.RoleWorker}
	start(t, p)
	runtime := newRuntime(t, r, cfg, nil)
	if err := runtime.Register(t.Context(), "op", []tasks.Hook{stepHook("a", rx.URL), stepHook("b", rx.URL)}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		if err := runtime.Dispatch(t.Context(), "op", stepEvent(t, n), producer.WithID(fmt.Sprint("e", n))); err != nil {
			t.Fatalf("dispatch %d: %v", n, err)
		}
	}
	batch := make([]producer.EventRequest, 4)
	for i := range batch {
		batch[i] = producer.EventRequest{Event: stepEvent(t, i+4)}
	}
	if _, err := runtime.EnqueueMany(t.Context(), "op", batch); err != nil {
		t.Fatalf("enqueue many: %v", err)
	}
	got := rx.steps(t, 14)
	for _, path := range []string{"/a", "/b"} {
		if !slices.Equal(got[path], upTo(7)) {
			t.Errorf("%s got %v", path, got[path])
		}
	}
	if err := runtime.Dispatch(t.Context(), "op", stepEvent(t, 1), producer.WithID("e1")); err != nil {
		t.Errorf("repeat: %v", err)
	}
	if err := runtime.Dispatch(t.Context(), "op", stepEvent(t, 8)); err != nil {
		t.Errorf("dispatch: %v", err)
	}
	if got := rx.steps(t, 2); !slices.Equal(got["/a"], []int{8}) || !slices.Equal(got["/b"], []int{8}) {
		t.Errorf("after a repetition: %v", got)
	}
}

// A worker without Redis delivers what QStash brings, one message for each hook: a
// failing one is repeated in its order and repeats no sibling.
func TestQStashWithoutRedis(t *testing.T) {
	t.Parallel()
	r, rx := newRelay(t), newReceiver(t)
	failures := 2
	rx.answer = func(got request) int {
		if got.path == "/a" && failures > 0 {
			failures--
			return http.StatusInternalServerError
		}
		return http.StatusOK
	}
	cfg := relayed(t, r, freeAddress(t))
	cfg.Redis.URL = ""
	p := params(t, cfg)
	p.Roles = []app.Role{app.RoleWorker}
	system := start(t, p)
	if system.Address(app.ServerTasks) == "" || system.Store() != nil || system.RedisAddr() != "" {
		t.Errorf("listens at %q, store %v", system.Address(app.ServerTasks), system.Store())
	}
	runtime := newRuntime(t, r, cfg, func(c *producer.QStashConfig) { c.Split = producer.SplitHooks })
	if err := runtime.Register(t.Context(), "op", []tasks.Hook{stepHook("a", rx.URL), stepHook("b", rx.URL)}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		if err := runtime.Dispatch(t.Context(), "op", stepEvent(t, n)); err != nil {
			t.Fatalf("dispatch %d: %v", n, err)
		}
	}
	got := rx.steps(t, 8)
	if want := []int{1, 1, 1, 2, 3}; !slices.Equal(got["/a"], want) || !slices.Equal(got["/b"], upTo(3)) {
		t.Errorf("deliveries: %v", got)
	}
}

// When QStash is away the runtime brings the tasks itself, signed: the endpoint
// lets nobody else in.
func TestQStashIsAway(t *testing.T) {
	t.Parallel()
	r, rx := newRelay(t), newReceiver(t)
	cfg := relayed(t, r, freeAddress(t))
	p := params(t, cfg)
	p.Roles = []app.Role{app.RoleWorker}
	start(t, p)
	away := &relay{url: "http://" + freeAddress(t)}
	runtime := newRuntime(t, away, cfg, nil)
	if err := runtime.Register(t.Context(), "op", []tasks.Hook{stepHook("a", rx.URL)}); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		if err := runtime.Dispatch(t.Context(), "op", stepEvent(t, n)); err != nil {
			t.Fatalf("dispatch: %v", err)
		}
	}
	if got := rx.steps(t, 2)["/a"]; !slices.Equal(got, upTo(2)) {
		t.Errorf("deliveries: %v", got)
	}
	alone := newRuntime(t, away, cfg, func(c *producer.QStashConfig) { c.Direct = nil })
	if err := alone.Register(t.Context(), "op", []tasks.Hook{stepHook("a", rx.URL)}); err != nil {
		t.Fatal(err)
	}
	var refusal *producer.RelayError
	if err := alone.Dispatch(t.Context(), "op", stepEvent(t, 3)); !errors.As(err, &refusal) {
		t.Errorf("dispatch without another road: %v", err)
	}
	res, err := http.Post(cfg.QStash.PublicURL+taskdoor.Path, "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusUnauthorized {
		t.Errorf("unsigned: %d", res.StatusCode)
	}
}

// The API and the endpoint stand at one address, and a hook with "delivery:
// qstash" reaches its receiver through QStash.
func TestHooksThroughQStash(t *testing.T) {
	t.Parallel()
	r, rx := newRelay(t), newReceiver(t)
	cfg := relayed(t, r, "gantry.example.com")
	system := start(t, params(t, cfg, "QSTASH_TOKEN="+relayToken))
	must(t, system, "PUT", "/v1/operations/op/hooks", `{"hooks":[{"id":"a","type":"afterStep","webhook":{"url":"`+rx.URL+`/a","delivery":"qstash","fallback":"none"}}]}`)
	must(t, system, "POST", "/v1/operations/op/events?await=20s", step(1))
	got := rx.next(t)
	if got.header.Get("Upstash-Signature") == "" || got.header.Get("Gantry-Delivery-Id") == "" || got.payload["hookId"] != "a" {
		t.Errorf("delivery: %v %v", got.header, got.payload)
	}
	// The worker speaks to QStash, and QStash to the receiver under its URL.
	keys, err := qstash.ParseKeys(signingKey, "", qstash.Production)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := qstash.NewVerifier(qstash.VerifierConfig{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	var refused *qstash.VerifyError
	if _, err := verifier.Verify(got.header.Values("Upstash-Signature"), rx.URL+"/a", []byte("x")); !errors.As(err, &refused) || refused.Reason != qstash.ReasonBody {
		t.Errorf("signed for another URL or with another key: %v", err)
	}
	if status, _ := call(t, system, "POST", taskdoor.Path, `{}`); status != http.StatusUnauthorized {
		t.Errorf("a token of the API opens the endpoint: %d", status)
	}
}

func TestQStashSettingsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	for name, edit := range map[string]func(*config.Config){
		"published keys": func(c *config.Config) {
			c.QStash.CurrentSigningKey, c.QStash.NextSigningKey = qstash.DevCurrentKey, qstash.DevNextKey
		},
		"token in the clear": func(c *config.Config) { c.QStash.URL = "http://qstash.example.com" },
		"direct key":         func(c *config.Config) { c.QStash.DirectKey = "whsec_!" },
	} {
		cfg := relayed(t, r, freeAddress(t))
		edit(cfg)
		system, err := app.New(t.Context(), params(t, cfg))
		if err == nil {
			t.Errorf("%s: composed", name)
			_ = system.Stop(context.WithoutCancel(t.Context()))
			continue
		}
		for _, secret := range []string{qstash.DevCurrentKey, "whsec_!"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	cfg := relayed(t, r, freeAddress(t))
	cfg.Redis.URL, cfg.QStash.PublicURL = "", ""
	p := params(t, cfg)
	p.Roles = []app.Role{app.RoleWorker}
	if _, err := app.New(t.Context(), p); err == nil {
		t.Error("a worker without Redis and without QStash is composed")
	}
}
