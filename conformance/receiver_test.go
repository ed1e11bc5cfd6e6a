package conformance_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// request is what reached a receiver.
type request struct {
	hook string
	// url is where it went, without the fragment, which is never sent.
	url    string
	method string
	header http.Header
	body   []byte
	// road says who it reached: the hook's own receiver, or QStash.
	road string
}

// The roads of a delivery, as calls name them.
const (
	roadFetch  = "fetch"
	roadQStash = "qstash"
)

// recorder remembers in one order what was called.
type recorder struct {
	// arrived is told of each request before it is answered; nil means nobody.
	arrived func(hook string)

	mu       sync.Mutex
	calls    []string
	requests []request
}

func (rec *recorder) call(name string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.calls = append(rec.calls, name)
}

func (rec *recorder) called() []string {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return append([]string{}, rec.calls...)
}

func (rec *recorder) all() []request {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return append([]request(nil), rec.requests...)
}

// received are the requests that reached hooks themselves.
func (rec *recorder) received() []request {
	return slices.DeleteFunc(rec.all(), func(got request) bool { return got.road != roadFetch })
}

// receiver stands for the address of one hook. It is the resolver and the
// dialer of that hook's egress client: whatever the host, its connections end
// at a server here, with a certificate for that host.
type receiver struct {
	hook   string
	answer answer
	rec    *recorder
	// road is what a call is named by; roadFetch unless changed before the first use.
	road   string
	closed chan struct{}

	mu sync.Mutex
	// begun says that the attempt has been recorded; scheme is that of its URL.
	begun  bool
	scheme string
	// address is the last address dialled, for certificates of bare addresses.
	address string
	servers map[string]*httptest.Server
}

func newReceiver(hook string, a answer, rec *recorder) *receiver {
	return &receiver{hook: hook, answer: a, rec: rec, road: roadFetch, closed: make(chan struct{}), servers: map[string]*httptest.Server{}}
}

// begin prepares for an attempt. Only what is seen of it after that, at the
// resolver, the dialer or the server, makes it a call.
func (rc *receiver) begin(scheme string) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.begun, rc.scheme = false, scheme
}

func (rc *receiver) seen() {
	rc.mu.Lock()
	begun := rc.begun
	rc.begun = true
	rc.mu.Unlock()
	if !begun {
		rc.rec.call(rc.hook + ":" + rc.road)
	}
}

// close ends the servers; answers that never end do so first. The lock is not
// held meanwhile: a server waits for its handlers and handshakes, which take it.
func (rc *receiver) close() {
	close(rc.closed)
	rc.mu.Lock()
	servers := slices.Collect(maps.Values(rc.servers))
	rc.mu.Unlock()
	for _, server := range servers {
		server.CloseClientConnections()
		server.Close()
	}
}

// LookupNetIP implements egress.Resolver: every name exists.
func (rc *receiver) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	rc.seen()
	if rc.answer.fault == faultDNS {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// dial implements egress.DialFunc.
func (rc *receiver) dial(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error) {
	rc.seen()
	var d net.Dialer
	switch rc.answer.fault {
	case faultRefused:
		gone, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		if err := gone.Close(); err != nil {
			return nil, err
		}
		return d.DialContext(ctx, network, gone.Addr().String())
	case faultConnectHang:
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	rc.mu.Lock()
	rc.address = addr.Addr().String()
	server := rc.server()
	rc.mu.Unlock()
	return d.DialContext(ctx, network, server.Listener.Addr().String())
}

// server returns the server of the attempt's scheme; rc.mu is held.
func (rc *receiver) server() *httptest.Server {
	if server := rc.servers[rc.scheme]; server != nil {
		return server
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(rc.serve))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if rc.scheme == "https" {
		// Per client, because the test server would answer bare addresses with its own.
		server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{GetCertificate: rc.certificate, MinVersion: tls.VersionTLS12}, nil
		}}
		server.StartTLS()
	} else {
		server.Start()
	}
	rc.servers[rc.scheme] = server
	return server
}

func (rc *receiver) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	rc.mu.Lock()
	name := rc.address
	rc.mu.Unlock()
	if hello.ServerName != "" {
		name = hello.ServerName
	}
	if rc.answer.fault == faultTLS {
		return strangers().issue(name)
	}
	return trusted().issue(name)
}

func (rc *receiver) serve(w http.ResponseWriter, req *http.Request) {
	rc.seen()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	scheme := "http"
	if req.TLS != nil {
		scheme = "https"
	}
	rc.rec.mu.Lock()
	rc.rec.requests = append(rc.rec.requests, request{
		hook: rc.hook, url: scheme + "://" + req.Host + req.RequestURI, method: req.Method, header: req.Header.Clone(), body: body,
		road: rc.road,
	})
	rc.rec.mu.Unlock()
	if rc.rec.arrived != nil {
		rc.rec.arrived(rc.hook)
	}
	rc.respond(w, req)
}

// respond gives the answer that the case asks for.
func (rc *receiver) respond(w http.ResponseWriter, req *http.Request) {
	a := rc.answer
	if !rc.wait(req, a.delay) {
		panic(http.ErrAbortHandler)
	}
	switch a.fault {
	case faultHang:
		rc.wait(req, forever)
		panic(http.ErrAbortHandler)
	case faultReset:
		reset(w, "")
	case faultNotHTTP:
		cut(w, "220 mail.test ready\r\n\r\n")
	case faultTruncated:
		cut(w, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"+`{"decision":"deny"}`)
	case faultResetBody:
		reset(w, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{")
	case faultHangBody:
		w.Header().Set("Content-Length", "50")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		rc.wait(req, forever)
		panic(http.ErrAbortHandler)
	default:
		rc.reply(w, req)
	}
}

func (rc *receiver) reply(w http.ResponseWriter, req *http.Request) {
	for name, value := range rc.answer.headers {
		w.Header().Set(name, value)
	}
	if rc.answer.status < http.StatusOK {
		// The server takes such a status for a word in advance, not for the answer.
		cut(w, fmt.Sprintf("HTTP/1.1 %d X\r\n\r\n", rc.answer.status))
		return
	}
	w.WriteHeader(rc.answer.status)
	// A client that does not want the body is no problem of the receiver.
	_, _ = w.Write(rc.answer.body)
	if !rc.answer.endless {
		return
	}
	chunk := make([]byte, 32<<10)
	for req.Context().Err() == nil {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

const forever = time.Duration(1<<63 - 1)

// wait reports whether d went by before the client or the case was gone.
func (rc *receiver) wait(req *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-req.Context().Done():
	case <-rc.closed:
	}
	return false
}

// hijack takes the connection over and returns the TCP connection below it.
func hijack(w http.ResponseWriter) (net.Conn, *net.TCPConn) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	below := conn
	if secure, ok := conn.(*tls.Conn); ok {
		below = secure.NetConn()
	}
	plain, _ := below.(*net.TCPConn)
	return conn, plain
}

// cut sends text and ends the connection.
func cut(w http.ResponseWriter, text string) {
	conn, _ := hijack(w)
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

// reset sends text and resets the connection.
func reset(w http.ResponseWriter, text string) {
	conn, plain := hijack(w)
	_, _ = io.WriteString(conn, text)
	_ = plain.SetLinger(0)
	_ = plain.Close()
}

// authority issues certificates for any name.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	issued map[string]*tls.Certificate
}

// trusted is the authority that the product's clients trust, strangers another.
var (
	trusted   = sync.OnceValue(newAuthority)
	strangers = sync.OnceValue(newAuthority)
)

func newAuthority() *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "conformance"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return &authority{cert: cert, key: key, issued: map[string]*tls.Certificate{}}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) issue(name string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.issued[name]; known != nil {
		return known, nil
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(len(a.issued)) + 2), Subject: pkix.Name{CommonName: "receiver"},
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, errors.Join(errors.New("issue a certificate"), err)
	}
	issued := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
	a.issued[name] = issued
	return issued, nil
}
