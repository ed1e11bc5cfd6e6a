package webhook_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// takeRequest reads one request and reports whether there was one.
func takeRequest(reader *bufio.Reader) bool {
	req, err := http.ReadRequest(reader)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, req.Body)
	return err == nil
}

// saying answers each connection's first request with text, then hands the
// connection to after, if there is one, and closes it.
func saying(text string, after func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		if !takeRequest(bufio.NewReader(conn)) {
			return
		}
		_, _ = io.WriteString(conn, text)
		if after != nil {
			after(conn)
		}
	}
}

// hang keeps the connection until the other side or the test ends it.
func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// drip writes piece for as long as somebody takes it.
func drip(piece string) func(net.Conn) {
	return func(conn net.Conn) {
		for {
			if _, err := io.WriteString(conn, piece); err != nil {
				return
			}
		}
	}
}

func TestTransportFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		serve   func(net.Conn)
		timeout float64
		want    webhook.Result
	}{
		"closes without a reply": {serve: saying("", nil), want: webhook.Result{
			Class: tasks.ClassReset, Message: "Hook HTTP request failed: network_error (reset)",
		}},
		"resets": {serve: saying("", reset), want: webhook.Result{
			Class: tasks.ClassReset, Message: "Hook HTTP request failed: network_error (reset)",
		}},
		"is not HTTP": {serve: saying(secretRemote+"\r\n\r\n", nil), want: webhook.Result{
			Class: tasks.ClassReset, Message: "Hook HTTP request failed: network_error (reset)",
		}},
		"bad status": {serve: saying("HTTP/1.1 "+secretRemote+"\r\n\r\n", nil), want: webhook.Result{
			Class: tasks.ClassReset, Message: "Hook HTTP request failed: network_error (reset)",
		}},
		"switches protocols": {serve: saying("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", nil), want: webhook.Result{
			Class: tasks.ClassReset, Status: 101, Message: "Hook HTTP request failed: network_error (HTTP 101)",
		}},
		"endless head": {serve: saying("HTTP/1.1 200 OK\r\n", drip("X-A: "+strings.Repeat(secretRemote, 50)+"\r\n")), want: webhook.Result{
			Class: tasks.ClassReset, Message: "Hook HTTP request failed: network_error (reset)",
		}},
		"never answers": {serve: saying("", hang), timeout: 1.5, want: webhook.Result{
			Class: tasks.ClassTimeout, Message: "Hook HTTP request failed: timeout",
		}},
		"never finishes its head": {serve: saying("HTTP/1.1 200 OK\r\nX-A: b\r\n", hang), timeout: 1.5, want: webhook.Result{
			Class: tasks.ClassTimeout, Message: "Hook HTTP request failed: timeout",
		}},
		"interim replies for ever": {serve: saying("", drip("HTTP/1.1 103 Early Hints\r\n\r\n")), want: webhook.Result{
			Class: tasks.ClassReset, Message: "Hook HTTP request failed: network_error (reset)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveRaw(t, test.serve)
			got := newDeliverer(t, nil).Deliver(t.Context(), delivery(url+"/?q="+secretQuery, func(w *tasks.Webhook) { w.Timeout = test.timeout }))
			checkSafe(t, got)
			if got.Elapsed < time.Duration(test.timeout*float64(time.Second)) && got.Class == tasks.ClassTimeout {
				t.Errorf("gave up after %v", got.Elapsed)
			}
			got.Elapsed = 0
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("result differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestConnectFailures(t *testing.T) {
	t.Parallel()
	closed := listen(t)
	_ = closed.Close()
	silent := listen(t) // its backlog accepts, and nobody speaks TLS
	never := func(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	plain := newReceiver(t, nil)
	for name, test := range map[string]struct {
		url     string
		dial    egress.DialFunc
		timeout float64
		want    webhook.Result
	}{
		"refused": {url: "http://" + closed.Addr().String(), want: webhook.Result{
			Class: tasks.ClassRefused, Message: "Hook HTTP request failed: network_error (refused)",
		}},
		"no such name": {url: "http://gone.invalid", want: webhook.Result{
			Class: tasks.ClassDNS, Message: "Hook HTTP request failed: network_error (dns)",
		}},
		"never connected": {url: "http://127.0.0.1:9", dial: never, timeout: 0.1, want: webhook.Result{
			Class: tasks.ClassConnectTimeout, Message: "Hook HTTP request failed: timeout (connect_timeout)",
		}},
		"never shakes hands": {url: "https://" + silent.Addr().String(), timeout: 0.1, want: webhook.Result{
			Class: tasks.ClassConnectTimeout, Message: "Hook HTTP request failed: timeout (connect_timeout)",
		}},
		"speaks no TLS": {url: strings.Replace(plain.URL, "http:", "https:", 1), want: webhook.Result{
			Class: tasks.ClassTLS, Message: "Hook HTTP request failed: network_error (tls)",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := egress.New(egress.Config{Policy: egress.Trusted(), DialTCP: test.dial, Resolver: noNames{}})
			if err != nil {
				t.Fatalf("new client: %v", err)
			}
			t.Cleanup(client.Close)
			d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Callers = client })
			got := d.Deliver(t.Context(), delivery(test.url+"/?q="+secretQuery, func(w *tasks.Webhook) { w.Timeout = test.timeout }))
			checkSafe(t, got)
			got.Elapsed = 0
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("result differs (-want +got):\n%s", diff)
			}
		})
	}
}

type noNames struct{}

func (noNames) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: secretRemote, Name: name, IsNotFound: true}
}

// A reply's head decides; whatever its body does, a 2xx is a success and costs
// neither much time nor memory (D10).
func TestBodiesDecideNothing(t *testing.T) {
	t.Parallel()
	chunk := "1000\r\n" + strings.Repeat("x", 0x1000) + "\r\n"
	for name, serve := range map[string]func(net.Conn){
		"endless":             saying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", drip(chunk)),
		"endless, no length":  saying("HTTP/1.1 200 OK\r\n\r\n", drip(strings.Repeat("x", 4096))),
		"breaks off":          saying("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc", nil),
		"resets":              saying("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc", reset),
		"stalls":              saying("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc", hang),
		"lies short":          saying("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef"+secretRemote, nil),
		"lies long":           saying("HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\nabc", hang),
		"malformed chunk":     saying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", nil),
		"claims to be gzip":   saying("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", nil),
		"none, 204":           saying("HTTP/1.1 204 No Content\r\n\r\n", nil),
		"a verdict":           saying("HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n{\"decision\":\"deny\"}", nil),
		"length on a 204":     saying("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", hang),
		"early, then a reset": saying("HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", reset),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newDeliverer(t, nil).Deliver(t.Context(), delivery(serveRaw(t, serve), func(w *tasks.Webhook) { w.Timeout = 20 }))
			if !got.Delivered || got.Message != "" || got.Elapsed > 10*time.Second {
				t.Fatalf("result: %+v", got)
			}
		})
	}
}

// A failure's body is not read either, and does not change its class.
func TestFailureBodiesAreDiscarded(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(net.Conn){"stalls": hang, "endless": drip(secretRemote), "resets": reset} {
		got := newDeliverer(t, nil).Deliver(t.Context(), delivery(serveRaw(t, saying("HTTP/1.1 503 X\r\nRetry-After: 3\r\n\r\n", after)), nil))
		if got.Class != tasks.ClassHTTP5xx || got.RetryAfter != 3*time.Second {
			t.Errorf("%s: %+v", name, got)
		}
		checkSafe(t, got)
	}
}

// D10: a receiver that returns 5 MB costs no memory.
func TestBigRepliesCostNoMemory(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 5<<20)
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write(big)
		})
		d := newDeliverer(t, nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const attempts = 40
		for range attempts {
			if result := d.Deliver(t.Context(), delivery(r.URL, nil)); result.Status != status {
				t.Fatalf("result: %+v", result)
			}
		}
		runtime.ReadMemStats(&after)
		if per := (after.TotalAlloc - before.TotalAlloc) / attempts; per > 1<<20 {
			t.Errorf("%d: %d bytes allocated for each attempt", status, per)
		}
	}
}

// S2: on the wire a configured name has the case in which it was configured.
func TestHeaderCaseOnTheWire(t *testing.T) {
	t.Parallel()
	heads := make(chan string, 1)
	url := serveRaw(t, func(conn net.Conn) {
		var head bytes.Buffer
		if !takeRequest(bufio.NewReader(io.TeeReader(conn, &head))) {
			return
		}
		heads <- head.String()
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	del := delivery(url, func(w *tasks.Webhook) { w.Headers["x-lower"], w.Headers["UPPER"] = "1", "2" })
	del.Hook.Options = &tasks.HookOptions{SigningKeyEnv: "HOOK_KEY"}
	if result := newDeliverer(t, nil).Deliver(t.Context(), del); !result.Delivered {
		t.Fatalf("result: %+v", result)
	}
	head := <-heads
	for _, line := range []string{
		"\r\nX-API-key: Bearer " + secretHeader + "\r\n", "\r\nx-lower: 1\r\n", "\r\nUPPER: 2\r\n", "\r\nwebhook-id: msg_1\r\n", "\r\nX-Webhook-Signature: sha256=",
	} {
		if !strings.Contains(head, line) {
			t.Errorf("no %q in:\n%s", line, head)
		}
	}
}
