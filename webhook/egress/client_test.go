package egress_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/google/go-cmp/cmp"
)

// publicAddr is where the pretended public names of these tests live; redirect
// dials the test server instead of it.
var publicAddr = netip.MustParseAddr("93.184.215.14")

// fakeResolver answers a name with its next answer, and the last one for ever.
type fakeResolver struct {
	mu      sync.Mutex
	answers map[string][][]netip.Addr
	calls   int
}

func (r *fakeResolver) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	list := r.answers[name]
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	if len(list) > 1 {
		r.answers[name] = list[1:]
	}
	return list[0], nil
}

func resolving(name string, answers ...[]netip.Addr) *fakeResolver {
	return &fakeResolver{answers: map[string][][]netip.Addr{name: answers}}
}

// redirect returns a dialer that connects to server whatever the address, and
// remembers the addresses that it was asked for.
type redirect struct {
	server string
	mu     sync.Mutex
	asked  []string
}

func (r *redirect) dial(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error) {
	r.mu.Lock()
	r.asked = append(r.asked, addr.String())
	r.mu.Unlock()
	var d net.Dialer
	return d.DialContext(ctx, network, r.server)
}

func (r *redirect) addresses() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.asked...)
}

func newClient(t *testing.T, cfg egress.Config) *egress.Client {
	t.Helper()
	client, err := egress.New(cfg)
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

func newRequest(t *testing.T, target, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		t.Fatalf("new request: %v", err)
	}
	req.Header["Idempotency-Key"] = []string{}
	return req
}

// send returns the status and body of the reply, or the error.
func send(t *testing.T, client *egress.Client, target string) (int, string, error) {
	t.Helper()
	resp, err := client.Do(newRequest(t, target, `{"a":1}`))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read reply: %v", err)
	}
	return resp.StatusCode, string(body), nil
}

func hostPort(t *testing.T, server *httptest.Server) (string, string) {
	t.Helper()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatalf("parse server address: %v", err)
	}
	return u.Host, u.Port()
}

func counting(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return server, &requests
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func TestZeroClientRefuses(t *testing.T) {
	t.Parallel()
	server, requests := counting(t, ok)
	for name, client := range map[string]*egress.Client{"nil": nil, "zero": {}} {
		_, _, err := send(t, client, server.URL)
		if !errors.Is(err, egress.ErrDenied) || reasonOf(err) != egress.ReasonNoClient {
			t.Errorf("%s client: %v", name, err)
		}
		if err := client.CheckHost("example.com"); !errors.Is(err, egress.ErrDenied) {
			t.Errorf("%s client: CheckHost = %v", name, err)
		}
		client.Close()
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("server saw %d requests", n)
	}
}

// E1, on real sockets: none of the spellings reaches a listening server.
func TestPublicClientNeverReachesLoopback(t *testing.T) {
	t.Parallel()
	server, requests := counting(t, ok)
	_, port := hostPort(t, server)
	client := newClient(t, egress.Config{})
	for _, host := range []string{
		"127.0.0.1", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[fd00:ec2::254]", "0.0.0.0",
		"100.100.100.200", "127.1", "2130706433", "0x7f000001", "localhost", "localhost.", "metadata.google.internal", "[::1]",
	} {
		_, _, err := send(t, client, "http://"+host+":"+port+"/?token=s3cr3t")
		if egress.FailureClass(err) != tasks.ClassEgressDenied {
			t.Errorf("%s: %v", host, err)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("server saw %d requests", n)
	}
}

func TestAllowedRangeReachesLoopback(t *testing.T) {
	t.Parallel()
	server, _ := counting(t, ok)
	_, port := hostPort(t, server)
	client := newClient(t, egress.Config{
		Policy:   egress.Policy{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Resolver: &fakeResolver{},
	})
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if status, _, err := send(t, client, "http://"+host+":"+port); err != nil || status != http.StatusOK {
			t.Errorf("%s: %d, %v", host, status, err)
		}
	}
}

// E2: the answer that was judged is the one that is dialled; there is no second
// question that an attacker could answer differently.
func TestRebindingGainsNothing(t *testing.T) {
	t.Parallel()
	server, _ := counting(t, ok)
	host, _ := hostPort(t, server)
	loopback := netip.MustParseAddr("127.0.0.1")

	resolver := resolving("rebind.test", []netip.Addr{publicAddr}, []netip.Addr{loopback})
	dialer := &redirect{server: host}
	client := newClient(t, egress.Config{Resolver: resolver, DialTCP: dialer.dial})
	if _, _, err := send(t, client, "http://rebind.test/"); err != nil {
		t.Fatalf("first answer is public: %v", err)
	}
	if diff := cmp.Diff([]string{"93.184.215.14:80"}, dialer.addresses()); diff != "" {
		t.Fatalf("dialled (-want +got):\n%s", diff)
	}
	client.Close()
	if _, _, err := send(t, client, "http://rebind.test/"); reasonOf(err) != egress.ReasonLoopback {
		t.Fatalf("second answer is loopback: %v", err)
	}
	if got := dialer.addresses(); len(got) != 1 {
		t.Fatalf("dialled a refused address: %v", got)
	}
}

func TestOneRefusedAddressRefusesTheName(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"private": "10.0.0.1", "mapped loopback": "::ffff:127.0.0.1", "metadata": "169.254.169.254", "nat64": "64:ff9b::1.2.3.4",
	} {
		for _, answer := range [][]netip.Addr{{publicAddr, netip.MustParseAddr(bad)}, {netip.MustParseAddr(bad), publicAddr}} {
			dialer := &redirect{server: "127.0.0.1:1"}
			client := newClient(t, egress.Config{Resolver: resolving("mixed.test", answer), DialTCP: dialer.dial})
			_, _, err := send(t, client, "http://mixed.test/")
			if !errors.Is(err, egress.ErrDenied) || len(dialer.addresses()) != 0 {
				t.Errorf("%s: %v, dialled %v", name, err, dialer.addresses())
			}
		}
	}
}

func TestResolverErrorsRefuse(t *testing.T) {
	t.Parallel()
	zoned := netip.MustParseAddr("2606:4700::1%eth0")
	for name, answers := range map[string][][]netip.Addr{
		"no such name": nil, "empty answer": {{}}, "zoned answer": {{zoned}}, "invalid answer": {{{}}},
	} {
		for _, policy := range []egress.Policy{egress.Public(), egress.Trusted()} {
			dialer := &redirect{server: "127.0.0.1:1"}
			client := newClient(t, egress.Config{Policy: policy, Resolver: resolving("gone.test", answers...), DialTCP: dialer.dial})
			_, _, err := send(t, client, "http://gone.test/")
			if egress.FailureClass(err) != tasks.ClassDNS || len(dialer.addresses()) != 0 {
				t.Errorf("%s: %v (%s)", name, err, egress.FailureClass(err))
			}
		}
	}
}

// A dead first address leaves time for the second one.
func TestNextAddressIsTried(t *testing.T) {
	t.Parallel()
	server, _ := counting(t, ok)
	host, _ := hostPort(t, server)
	second := netip.MustParseAddr("93.184.215.15")
	dial := func(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error) {
		if addr.Addr() == publicAddr {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		var d net.Dialer
		return d.DialContext(ctx, network, host)
	}
	client := newClient(t, egress.Config{
		Resolver: resolving("two.test", []netip.Addr{publicAddr, second}), DialTCP: dial, ConnectTimeout: 500 * time.Millisecond,
	})
	if status, _, err := send(t, client, "http://two.test/"); err != nil || status != http.StatusOK {
		t.Fatalf("second address: %d, %v", status, err)
	}
}

// E3: a kept connection gives the verdict that a new one gives.
func TestReusedConnectionIsJudged(t *testing.T) {
	t.Parallel()
	server, requests := counting(t, ok)
	host, port := hostPort(t, server)
	client := newClient(t, egress.Config{
		Resolver: resolving("good.test", []netip.Addr{publicAddr}), DialTCP: (&redirect{server: host}).dial,
	})
	for range 2 {
		if _, _, err := send(t, client, "http://good.test:"+port); err != nil {
			t.Fatalf("allowed: %v", err)
		}
		if _, _, err := send(t, client, "http://127.0.0.1:"+port); !errors.Is(err, egress.ErrDenied) {
			t.Fatalf("refused host: %v", err)
		}
	}
	if n := requests.Load(); n != 2 {
		t.Fatalf("server saw %d requests", n)
	}
}

// D14.
func TestRedirectsAreReplies(t *testing.T) {
	t.Parallel()
	other, requests := counting(t, ok)
	for _, status := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		server, _ := counting(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", other.URL)
			w.WriteHeader(status)
		})
		client := newClient(t, egress.Config{Policy: egress.Trusted()})
		got, _, err := send(t, client, server.URL)
		if err != nil || got != status {
			t.Errorf("%d: Do = %d, %v", status, got, err)
		}
		resp, err := client.HTTPClient().Post(server.URL, "text/plain", strings.NewReader("x")) //nolint:noctx // the client under test
		if err != nil || resp.StatusCode != status {
			t.Errorf("%d: HTTPClient = %v, %v", status, resp, err)
			continue
		}
		_ = resp.Body.Close()
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the target saw %d requests", n)
	}
}

func TestOnlyWebSchemes(t *testing.T) {
	t.Parallel()
	client := newClient(t, egress.Config{Policy: egress.Trusted()})
	for _, target := range []string{"ftp://example.com/", "file:///etc/passwd", "//example.com/", "gopher://example.com/"} {
		if _, _, err := send(t, client, target); reasonOf(err) != egress.ReasonScheme {
			t.Errorf("%s: %v", target, err)
		}
	}
}

// S2: on HTTP/1.1 a name leaves in the case in which it was configured, and
// nothing is added but what the protocol needs.
func TestHeaderCaseIsKept(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	lines := make(chan []string, 1)
	go serveOnce(listener, func(conn net.Conn) {
		reader, head := bufio.NewReader(conn), []string{}
		for {
			line, err := reader.ReadString('\n')
			if err != nil || line == "\r\n" {
				break
			}
			head = append(head, strings.TrimRight(line, "\r\n"))
		}
		lines <- head
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	req := newRequest(t, "http://"+listener.Addr().String()+"/x?q", "{}")
	req.Header["X-API-key"] = []string{"v"}
	req.Header["User-Agent"] = []string{"Gantry/1"}
	resp, err := newClient(t, egress.Config{Policy: egress.Trusted()}).Do(req)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	_ = resp.Body.Close()
	want := []string{"POST /x?q HTTP/1.1", "Host: " + listener.Addr().String(), "User-Agent: Gantry/1", "Content-Length: 2", "X-API-key: v"}
	if diff := cmp.Diff(want, <-lines); diff != "" {
		t.Fatalf("head differs (-want +got):\n%s", diff)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	newServer := func(maxVersion uint16) *httptest.Server {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Proto)
		}))
		server.Config.ErrorLog = quiet()
		server.EnableHTTP2 = maxVersion == 0
		server.TLS = &tls.Config{MaxVersion: maxVersion} //nolint:gosec // old versions are the case under test
		server.StartTLS()
		t.Cleanup(server.Close)
		return server
	}
	modern, old := newServer(0), newServer(tls.VersionTLS11)
	roots := x509.NewCertPool()
	roots.AddCert(modern.Certificate())
	roots.AddCert(old.Certificate())
	for name, test := range map[string]struct {
		server *httptest.Server
		roots  *x509.CertPool
		want   tasks.FailureClass
	}{
		"http2 over known authority": {modern, roots, ""},
		"unknown authority":          {modern, x509.NewCertPool(), tasks.ClassTLS},
		"TLS 1.1 only":               {old, roots, tasks.ClassTLS},
	} {
		client := newClient(t, egress.Config{Policy: egress.Trusted(), RootCAs: test.roots})
		_, body, err := send(t, client, test.server.URL)
		if got := egress.FailureClass(err); got != test.want {
			t.Errorf("%s: class %q, want %q (%v)", name, got, test.want, err)
		}
		if err == nil && body != "HTTP/2.0" {
			t.Errorf("%s: spoke %s", name, body)
		}
	}
}

func TestNoProxyFromEnvironment(t *testing.T) {
	proxy, requests := counting(t, ok)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	client := newClient(t, egress.Config{Resolver: resolving("x.test", []netip.Addr{publicAddr}), DialTCP: refuseDial})
	if _, _, err := send(t, client, "http://x.test/"); egress.FailureClass(err) != tasks.ClassRefused {
		t.Fatalf("send: %v", err)
	}
	if n := requests.Load(); n != 0 {
		t.Fatalf("the proxy saw %d requests", n)
	}
}

func refuseDial(context.Context, string, netip.AddrPort) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("refused by test")}
}
