package webhook_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// slow are the places where time can run out; each says text and hangs.
var slow = map[string]struct {
	text   string
	status int
}{
	"head":               {"", 0},
	"middle of the head": {"HTTP/1.1 200 OK\r\nX-A: b\r\n", 0},
	"body":               {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n", 200},
	"middle of the body": {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"decision\":\"allow\"}", 200},
	"last chunk":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n{\"decision\":\"allow\"}\r\n", 200},
	"gzip":               {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 50\r\n\r\n\x1f\x8b", 200},
}

// One bound covers everything up to the last byte: the hook's, or what the chain
// has left.
func TestAskTimesOut(t *testing.T) {
	t.Parallel()
	const bound = 120 * time.Millisecond
	for name, server := range slow {
		for whose, seconds := range map[string]float64{"hook": bound.Seconds(), "chain": 20} {
			t.Run(name+" "+whose, func(t *testing.T) {
				t.Parallel()
				url := serveRaw(t, saying(server.text, hang))
				ctx := t.Context()
				if whose == "chain" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeoutCause(ctx, bound, errors.New("the chain is over"))
					defer cancel()
				}
				start := time.Now()
				got := newDeliverer(t, nil).Ask(ctx, question(url, within(seconds)))
				checkReply(t, refused(tasks.ClassTimeout, server.status, "timeout"), got)
				if took := time.Since(start); took < bound || took > 15*time.Second {
					t.Errorf("gave up after %v", took)
				}
			})
		}
	}
}

func TestAskConnectTimesOut(t *testing.T) {
	t.Parallel()
	never := func(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	client, err := egress.New(egress.Config{Policy: egress.Trusted(), DialTCP: never})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Callers = client })
	want := refused(tasks.ClassConnectTimeout, 0, "timeout (connect_timeout)")
	checkReply(t, want, d.Ask(t.Context(), question("http://127.0.0.1:9", within(0.1))))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	checkReply(t, want, d.Ask(ctx, question("http://127.0.0.1:9", nil)))
}

// A chain whose time is over asks nobody, and is not cancelled.
func TestAskWithoutTime(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	past, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	caused, end := context.WithCancelCause(t.Context())
	end(errors.Join(errors.New("the chain is over"), context.DeadlineExceeded))
	waiting, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	lookup := payloads{build: func(ctx context.Context, _ webhook.Delivery) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	for name, ctx := range map[string]context.Context{"past": past, "caused": caused, "lookup": waiting} {
		d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Payloads = lookup })
		t.Run(name, func(t *testing.T) {
			checkReply(t, refused(tasks.ClassTimeout, 0, "timeout"), d.Ask(ctx, question(r.URL, nil)))
		})
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("receiver saw %d requests", n)
	}
}

// Whoever goes away gets nothing, at whatever point.
func TestAskIsCancelled(t *testing.T) {
	t.Parallel()
	want := webhook.ControlReply{Cancelled: true}
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		r := newReceiver(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		checkReply(t, want, newDeliverer(t, nil).Ask(ctx, question(r.URL, nil)))
		checkReply(t, want, newDeliverer(t, nil).Ask(ctx, question("/no-base", nil)))
		if n := len(r.requests()); n != 0 {
			t.Errorf("receiver saw %d requests", n)
		}
	})
	t.Run("during the lookup", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		d := newDeliverer(t, func(cfg *webhook.Config) {
			cfg.Payloads = payloads{build: func(ctx context.Context, _ webhook.Delivery) ([]byte, error) {
				cancel()
				return nil, ctx.Err()
			}}
		})
		checkReply(t, want, d.Ask(ctx, question("http://127.0.0.1:9", nil)))
	})
	for name, server := range slow {
		t.Run("waiting for the "+name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			url := serveRaw(t, saying(server.text, func(conn net.Conn) { cancel(errors.New("gone")); hang(conn) }))
			checkReply(t, want, newDeliverer(t, nil).Ask(ctx, question(url, within(20))))
		})
	}
	for _, decision := range []string{"allow", "deny"} {
		t.Run(decision+" comes later", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
				cancel()
				_, _ = w.Write([]byte(`{"decision":"` + decision + `"}`))
			})
			checkReply(t, want, newDeliverer(t, nil).Ask(ctx, question(r.URL, nil)))
		})
	}
	t.Run("failure comes first", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		url := serveRaw(t, saying("HTTP/1.1 500 X\r\nContent-Length: 5\r\n\r\n", func(conn net.Conn) { cancel(); hang(conn) }))
		checkReply(t, want, newDeliverer(t, nil).Ask(ctx, question(url, nil)))
	})
}

// The reply's connection serves the next question.
func TestAskKeepsConnections(t *testing.T) {
	t.Parallel()
	remotes := map[string]bool{}
	r := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		remotes[req.RemoteAddr] = true
		status := map[string]int{"/205": 205, "/404": 404, "/204": 204, "/200": 200}[req.URL.Path]
		w.WriteHeader(status)
		if status != 204 {
			_, _ = w.Write([]byte(strings.Repeat(" ", 3000)))
		}
	})
	d := newDeliverer(t, nil)
	for _, path := range []string{"/200", "/205", "/404", "/204", "/200"} {
		d.Ask(t.Context(), question(r.URL+path, nil))
	}
	if len(remotes) != 1 {
		t.Errorf("%d connections for 5 questions", len(remotes))
	}
}

func TestCancelledTellsDeadlinesApart(t *testing.T) {
	t.Parallel()
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	past, cancel := context.WithDeadlineCause(t.Context(), time.Now(), errors.New("over"))
	defer cancel()
	<-past.Done()
	for name, test := range map[string]struct {
		ctx  context.Context
		want bool
	}{
		"alive": {t.Context(), false}, "cancelled": {ended(nil), true}, "for a reason": {ended(errors.New("gone")), true},
		"deadline as reason": {ended(context.DeadlineExceeded), false}, "deadline": {past, false},
	} {
		if got := webhook.Cancelled(test.ctx); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
