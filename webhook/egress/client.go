package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"
)

// Defaults of Config.
const (
	DefaultConnectTimeout      = 10 * time.Second
	DefaultIdleTimeout         = 90 * time.Second
	DefaultMaxIdleConns        = 4096
	DefaultMaxIdleConnsPerHost = 256
)

const (
	maxResponseHeaderBytes = 64 << 10
	// A request with its headers and a few KiB of payload leaves in one write.
	writeBufferSize = 8 << 10
	readBufferSize  = 4 << 10
	// tlsSessions is the number of receivers whose TLS sessions can be resumed.
	tlsSessions = 512
)

// Resolver looks up the addresses of a name; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// DialFunc opens a TCP connection to an address that the policy has allowed.
type DialFunc func(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error)

// Config says how a client reaches out. The zero value is a client for public
// addresses with the defaults below.
type Config struct {
	// Policy decides about addresses; the zero value allows public ones only.
	Policy Policy
	// Resolver looks up names; nil means the system's resolver.
	Resolver Resolver
	// DialTCP opens connections; nil means the system's dialer. It sees only
	// addresses that the policy allowed, and the proxy's.
	DialTCP DialFunc
	// MaxConnsPerHost bounds the connections to one host and port; 0 means no
	// bound, and then there are as many as requests in flight.
	MaxConnsPerHost int
	// MaxIdleConnsPerHost bounds the idle connections kept per host and port; 0
	// means DefaultMaxIdleConnsPerHost. Fewer than the requests in flight to one
	// receiver means a new connection for many of them.
	MaxIdleConnsPerHost int
	// MaxIdleConns bounds the idle connections in all; 0 means DefaultMaxIdleConns.
	MaxIdleConns int
	// IdleTimeout closes a connection that has been idle for so long; 0 means
	// DefaultIdleTimeout.
	IdleTimeout time.Duration
	// ConnectTimeout bounds resolving, connecting and the TLS handshake together;
	// 0 means DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// RootCAs are the authorities to trust; nil means the system's.
	RootCAs *x509.CertPool
	// ProxyURL is an http or https proxy that opens tunnels (CONNECT) to the
	// addresses that were judged here; nil means none. The environment's proxy
	// settings are never read. It may hold credentials.
	ProxyURL *url.URL
}

// Client sends requests to addresses that its policy allows. It follows no
// redirect, keeps no cookie, decompresses nothing and reads no proxy settings
// from the environment. A nil or zero Client refuses every request.
type Client struct {
	policy    Policy
	transport *http.Transport
}

// New returns a client, or an error when cfg contradicts itself. Close releases
// its connections.
func New(cfg Config) (*Client, error) {
	if err := cfg.Policy.validate(); err != nil {
		return nil, err
	}
	d, err := newDialer(cfg)
	if err != nil {
		return nil, err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &Client{
		policy: cfg.Policy,
		transport: &http.Transport{
			DialContext:            d.dial,
			DialTLSContext:         d.dialTLS,
			TLSClientConfig:        d.tls.Clone(),
			Protocols:              protocols,
			DisableCompression:     true,
			MaxConnsPerHost:        cfg.MaxConnsPerHost,
			MaxIdleConns:           orDefault(cfg.MaxIdleConns, DefaultMaxIdleConns),
			MaxIdleConnsPerHost:    orDefault(cfg.MaxIdleConnsPerHost, DefaultMaxIdleConnsPerHost),
			IdleConnTimeout:        orDefault(cfg.IdleTimeout, DefaultIdleTimeout),
			MaxResponseHeaderBytes: maxResponseHeaderBytes,
			WriteBufferSize:        writeBufferSize,
			ReadBufferSize:         readBufferSize,
		},
	}, nil
}

func orDefault[T int | time.Duration](value, fallback T) T {
	if value == 0 {
		return fallback
	}
	return value
}

// CheckHost judges a host as it is spelled (see Policy.CheckHost), for callers
// whose URL parser would hide the spelling. A refusal is a *DeniedError.
func (c *Client) CheckHost(raw string) error {
	if c == nil || c.transport == nil {
		return &DeniedError{Reason: ReasonNoClient}
	}
	return c.policy.CheckHost(raw)
}

// Do sends req and returns the reply to it, whatever its status: a redirect is
// a reply. Bounds of time are the context's. Header names leave in the case in
// which they stand in req.Header. A request with a body is sent again by itself
// only when a kept connection turns out to be closed, and only if req.GetBody is
// set and req.Header has the key Idempotency-Key (an empty slice is not sent).
//
// Errors are classified by FailureClass; their text may name addresses and
// belongs neither in a reply nor in a stored record.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	if c == nil || c.transport == nil {
		return nil, &DeniedError{Reason: ReasonNoClient}
	}
	if req.URL == nil || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, &DeniedError{Reason: ReasonScheme}
	}
	// The address is judged when a connection is made; the host is judged for
	// each request, so that a kept connection gives the same verdict as a new one.
	if err := c.policy.CheckHost(req.URL.Hostname()); err != nil {
		return nil, err
	}
	return c.transport.RoundTrip(req)
}

// RoundTrip is Do under the name that http.RoundTripper asks for.
func (c *Client) RoundTrip(req *http.Request) (*http.Response, error) { return c.Do(req) }

// HTTPClient returns an *http.Client on top of c for libraries that want one.
// It follows no redirect and keeps no cookie.
func (c *Client) HTTPClient() *http.Client {
	return &http.Client{
		Transport:     c,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Close closes the idle connections of c. Requests in flight are not touched.
func (c *Client) Close() {
	if c != nil && c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

func newDialer(cfg Config) (*dialer, error) {
	d := &dialer{
		policy:   cfg.Policy,
		resolver: cfg.Resolver,
		dialTCP:  cfg.DialTCP,
		timeout:  orDefault(cfg.ConnectTimeout, DefaultConnectTimeout),
		proxy:    cfg.ProxyURL,
		tls: &tls.Config{
			MinVersion: tls.VersionTLS12,
			RootCAs:    cfg.RootCAs,
			NextProtos: []string{"h2", "http/1.1"},
			// A receiver that drops connections need not cost a full handshake each time.
			ClientSessionCache: tls.NewLRUClientSessionCache(tlsSessions),
		},
	}
	if d.resolver == nil {
		d.resolver = net.DefaultResolver
	}
	if d.dialTCP == nil {
		d.dialTCP = systemDial
	}
	if d.proxy != nil && d.proxy.Scheme != "http" && d.proxy.Scheme != "https" {
		return nil, errors.New("check proxy: want an http or https address")
	}
	if d.proxy != nil && d.proxy.Hostname() == "" {
		return nil, errors.New("check proxy: no host")
	}
	return d, nil
}
