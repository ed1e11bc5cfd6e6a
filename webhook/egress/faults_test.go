package egress_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/google/go-cmp/cmp"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// serveOnce hands one connection to handle and closes it.
func serveOnce(listener net.Listener, handle func(net.Conn)) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	handle(conn)
	_ = conn.Close()
}

// readRequest reads one request from conn, body included.
func readRequest(conn net.Conn) {
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		_, _ = io.Copy(io.Discard, req.Body)
	}
}

func replying(reply string) func(net.Conn) {
	return func(conn net.Conn) {
		readRequest(conn)
		_, _ = io.WriteString(conn, reply)
	}
}

func resetting(conn net.Conn) {
	readRequest(conn)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

func TestFailureClasses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		serve  func(net.Conn)
		scheme string
		want   tasks.FailureClass
	}{
		"closes without a reply":  {readRequest, "http", tasks.ClassReset},
		"resets":                  {resetting, "http", tasks.ClassReset},
		"is not HTTP":             {replying("SSH-2.0-OpenSSH\r\n\r\n"), "http", tasks.ClassReset},
		"breaks off in the head":  {replying("HTTP/1.1 200 OK\r\nX-A: 1\r\n"), "http", tasks.ClassReset},
		"endless head":            {replying("HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 1<<20) + "\r\n\r\n"), "http", tasks.ClassReset},
		"plain text where TLS is": {replying("HTTP/1.1 400 Bad Request\r\n\r\n"), "https", tasks.ClassTLS},
		"closes in the handshake": {func(net.Conn) {}, "https", tasks.ClassTLS},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener := listen(t)
			go serveOnce(listener, test.serve)
			_, _, err := send(t, newClient(t, egress.Config{Policy: egress.Trusted()}), test.scheme+"://"+listener.Addr().String())
			if got := egress.FailureClass(err); got != test.want {
				t.Fatalf("class %q, want %q (%v)", got, test.want, err)
			}
		})
	}
}

func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	_ = listener.Close()
	_, _, err := send(t, newClient(t, egress.Config{Policy: egress.Trusted()}), "http://"+listener.Addr().String())
	if got := egress.FailureClass(err); got != tasks.ClassRefused {
		t.Fatalf("class %q (%v)", got, err)
	}
}

func TestConnectTimeouts(t *testing.T) {
	t.Parallel()
	silent := listen(t) // accepts by its backlog and never speaks
	hang := func(ctx context.Context, _ string, _ netip.AddrPort) (net.Conn, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	for name, test := range map[string]struct {
		cfg    egress.Config
		target string
	}{
		"connection": {egress.Config{DialTCP: hang}, "http://127.0.0.1:9/"},
		"handshake":  {egress.Config{}, "https://" + silent.Addr().String()},
	} {
		test.cfg.Policy, test.cfg.ConnectTimeout = egress.Trusted(), 20*time.Millisecond
		_, _, err := send(t, newClient(t, test.cfg), test.target)
		if got := egress.FailureClass(err); got != tasks.ClassConnectTimeout {
			t.Errorf("%s: class %q (%v)", name, got, err)
		}
	}
}

func TestDeadlineOfTheRequest(t *testing.T) {
	t.Parallel()
	silent := listen(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.Join(context.DeadlineExceeded, errors.New("attempt")))
	defer cancel()
	req := newRequest(t, "http://"+silent.Addr().String(), "{}").WithContext(ctx)
	_, err := newClient(t, egress.Config{Policy: egress.Trusted()}).Do(req)
	if got := egress.FailureClass(err); got != tasks.ClassTimeout {
		t.Fatalf("class %q (%v)", got, err)
	}
}

// D15: the server closes a kept connection just as the next request is written
// on it. That is no failure of the receiver: the request goes out again.
func TestStaleConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	var served atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				reader := bufio.NewReader(conn)
				for i := 0; ; i++ {
					req, err := http.ReadRequest(reader)
					if err != nil {
						return
					}
					body, _ := io.ReadAll(req.Body)
					if i == 1 { // the second request of a connection meets its end
						return
					}
					served.Add(1)
					_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
				}
			}()
		}
	}()
	client := newClient(t, egress.Config{Policy: egress.Trusted()})
	for i := range 20 {
		status, body, err := send(t, client, "http://"+listener.Addr().String())
		if err != nil || status != http.StatusOK || body != `{"a":1}` {
			t.Fatalf("request %d: %d %q %v", i, status, body, err)
		}
	}
	if n := served.Load(); n != 20 {
		t.Fatalf("served %d requests", n)
	}
}

// A fresh connection that is closed without a reply is a failed attempt, and
// exactly one request was made.
func TestFreshConnectionIsNotRetried(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	var accepted atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			readRequest(conn)
			_ = conn.Close()
		}
	}()
	_, _, err := send(t, newClient(t, egress.Config{Policy: egress.Trusted()}), "http://"+listener.Addr().String())
	if egress.FailureClass(err) != tasks.ClassReset || accepted.Load() != 1 {
		t.Fatalf("%v after %d connections", err, accepted.Load())
	}
}

// tunnelProxy opens every tunnel to server and reports what it was asked for.
func tunnelProxy(t *testing.T, server, reply string) (address string, asked <-chan *http.Request) {
	t.Helper()
	listener, requests := listen(t), make(chan *http.Request, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				req, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				requests <- req
				_, _ = io.WriteString(conn, reply)
				target, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer target.Close()
				go func() { _, _ = io.Copy(target, conn) }()
				_, _ = io.Copy(conn, target)
			}()
		}
	}()
	return listener.Addr().String(), requests
}

// E3: behind a proxy the target is judged here, and the proxy is told the
// address, so that its own resolver has no say.
func TestProxyIsToldTheJudgedAddress(t *testing.T) {
	t.Parallel()
	server, _ := counting(t, ok)
	host, _ := hostPort(t, server)
	address, asked := tunnelProxy(t, host, "HTTP/1.1 200 Connection established\r\n\r\n")
	client := newClient(t, egress.Config{
		Resolver: resolving("good.test", []netip.Addr{publicAddr}),
		ProxyURL: &url.URL{Scheme: "http", Host: address, User: url.UserPassword("gantry", "pw")},
	})
	if status, _, err := send(t, client, "http://good.test/"); err != nil || status != http.StatusOK {
		t.Fatalf("through the proxy: %d, %v", status, err)
	}
	req := <-asked
	credentials := "Basic " + base64.StdEncoding.EncodeToString([]byte("gantry:pw"))
	if diff := cmp.Diff([]string{"CONNECT", "93.184.215.14:80", credentials},
		[]string{req.Method, req.Host, req.Header.Get("Proxy-Authorization")}); diff != "" {
		t.Fatalf("proxy was asked (-want +got):\n%s", diff)
	}
	for _, target := range []string{"http://127.0.0.1/", "http://[::ffff:7f00:1]/", "http://metadata.google.internal/", "http://2130706433/"} {
		if _, _, err := send(t, client, target); !errors.Is(err, egress.ErrDenied) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if len(asked) != 0 {
		t.Errorf("the proxy was asked for %d more tunnels", len(asked))
	}
}

func TestProxyFailures(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reply string
		want  tasks.FailureClass
	}{
		"refuses":          {"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", tasks.ClassRefused},
		"is not a proxy":   {"hello\r\n\r\n", tasks.ClassRefused},
		"speaks too early": {"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", tasks.ClassRefused},
		"never answers":    {"", tasks.ClassConnectTimeout},
	} {
		silent := listen(t)
		address, _ := tunnelProxy(t, silent.Addr().String(), test.reply)
		client := newClient(t, egress.Config{
			Resolver: resolving("good.test", []netip.Addr{publicAddr}), ConnectTimeout: 100 * time.Millisecond,
			ProxyURL: &url.URL{Scheme: "http", Host: address},
		})
		_, _, err := send(t, client, "http://good.test/")
		if got := egress.FailureClass(err); got != test.want {
			t.Errorf("%s: class %q, want %q (%v)", name, got, test.want, err)
		}
	}
	for _, proxy := range []*url.URL{{Scheme: "socks5", Host: "127.0.0.1:1"}, {Scheme: "http"}} {
		if _, err := egress.New(egress.Config{ProxyURL: proxy}); err == nil {
			t.Errorf("proxy %v accepted", proxy)
		}
	}
}
