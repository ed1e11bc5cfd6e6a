package main

import (
	"bytes"
	"context"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const namespace = "example"

const seen = `clock/now: it is noon
shell/run: denied after 0 attempts: no shell in this run
mail/read: denied after 1 attempts: the result held a password
`

// TestLocal builds the program and runs it with nothing else around.
func TestLocal(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "tool-call")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary).CombinedOutput()
	if err != nil || string(out) != seen {
		t.Fatalf("wrote %q, %v; want %q", out, err, seen)
	}
}

// TestQueue has a worker answer.
func TestQueue(t *testing.T) {
	url := servertest.URL(servertest.FlushedClient(t))
	startAnswerer(t, url)
	var out bytes.Buffer
	if err := run(t.Context(), settings{redisURL: url, namespace: namespace, out: &out}); err != nil {
		t.Fatalf("run: %v", err)
	}
	if out.String() != seen {
		t.Fatalf("wrote %q, want %q", out.String(), seen)
	}
}

// startAnswerer stands for the workers of a deployment.
func startAnswerer(t *testing.T, url string) {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatalf("parse the address: %v", err)
	}
	options.ContextTimeoutEnabled = true
	client, blocking := redis.NewClient(options), redis.NewClient(options)
	t.Cleanup(func() { _, _ = client.Close(), blocking.Close() })
	exchange, err := redisverdict.Open(t.Context(), redisverdict.Config{Client: client, Blocking: blocking, Namespace: namespace})
	if err != nil {
		t.Fatalf("open the exchange: %v", err)
	}
	reach := egress.Public()
	reach.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	out, err := egress.New(egress.Config{Policy: reach})
	if err != nil {
		t.Fatalf("build the client: %v", err)
	}
	t.Cleanup(out.Close)
	payloads, err := enrich.New(enrich.Config{})
	if err != nil {
		t.Fatalf("build the payloads: %v", err)
	}
	deliverer, err := webhook.New(webhook.Config{Env: func(string) (string, bool) { return "", false }, Callers: out, Payloads: payloads})
	if err != nil {
		t.Fatalf("build the deliverer: %v", err)
	}
	evaluator, err := control.NewEvaluator(control.EvaluatorConfig{Asker: deliverer})
	if err != nil {
		t.Fatalf("build the evaluator: %v", err)
	}
	answerer, err := control.NewAnswerer(control.AnswererConfig{Exchange: exchange, Evaluator: evaluator})
	if err != nil {
		t.Fatalf("build the answerer: %v", err)
	}
	if err := answerer.Start(t.Context()); err != nil {
		t.Fatalf("start the answerer: %v", err)
	}
	t.Cleanup(func() {
		if err := answerer.Stop(context.Background()); err != nil {
			t.Errorf("stop the answerer: %v", err)
		}
	})
}
