package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"
)

// dialer opens connections for a transport. It resolves a name once, judges all
// addresses of the answer, and connects to one of those very addresses.
type dialer struct {
	policy   Policy
	resolver Resolver
	dialTCP  DialFunc
	timeout  time.Duration
	proxy    *url.URL
	tls      *tls.Config
}

func systemDial(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, addr.String())
}

func (d *dialer) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, ErrConnectTimeout)
	defer cancel()
	return d.connect(ctx, network, hostPort)
}

func (d *dialer) dialTLS(ctx context.Context, network, hostPort string) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, ErrConnectTimeout)
	defer cancel()
	conn, err := d.connect(ctx, network, hostPort)
	if err != nil {
		return nil, err
	}
	name, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, &ConnectError{Err: errors.Join(err, conn.Close())}
	}
	return d.handshake(ctx, conn, name)
}

func (d *dialer) handshake(ctx context.Context, conn net.Conn, name string) (net.Conn, error) {
	cfg := d.tls.Clone()
	cfg.ServerName = name
	tlsConn := tls.Client(conn, cfg)
	if err := tlsConn.HandshakeContext(ctx); err != nil {
		return nil, &HandshakeError{Err: errors.Join(err, conn.Close())}
	}
	return tlsConn, nil
}

// connect opens a connection to one of the allowed addresses of hostPort. The
// addresses share what is left of the time, so that a dead first one leaves
// some for the next.
func (d *dialer) connect(ctx context.Context, network, hostPort string) (net.Conn, error) {
	name, portText, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, &DeniedError{Reason: ReasonSpelling}
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, &DeniedError{Reason: ReasonSpelling}
	}
	addrs, err := d.resolve(ctx, name)
	if err != nil {
		return nil, err
	}
	var errs []error
	for i, addr := range addrs {
		conn, err := d.dialShare(ctx, network, netip.AddrPortFrom(addr, uint16(port)), len(addrs)-i)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, &ConnectError{Err: errors.Join(errs...)}
}

// dialShare dials one of the addresses that remain, with its share of the time.
func (d *dialer) dialShare(ctx context.Context, network string, addr netip.AddrPort, remaining int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && remaining > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Until(deadline)/time.Duration(remaining), ErrConnectTimeout)
		defer cancel()
	}
	if d.proxy != nil {
		return d.tunnel(ctx, network, addr)
	}
	return d.dialTCP(ctx, network, addr)
}

// resolve returns the addresses of name, all of them allowed. One refused
// address refuses the name: an answer that mixes public and private addresses
// is an attack or a mistake, and either should be seen.
func (d *dialer) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	allowed := d.policy.trusted || d.policy.allowsHost(name)
	if addr, err := netip.ParseAddr(name); err == nil {
		if !allowed {
			if err := d.policy.CheckHost(name); err != nil {
				return nil, err
			}
		}
		return []netip.Addr{addr.Unmap()}, nil
	}
	if !allowed {
		h, reason := parseHost(name)
		if reason != "" {
			return nil, &DeniedError{Reason: reason}
		}
		if h.local {
			return d.resolveLocal()
		}
	}
	addrs, err := d.lookup(ctx, name)
	if err != nil || allowed {
		return addrs, err
	}
	for _, addr := range addrs {
		if err := d.policy.CheckAddr(addr); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

func (d *dialer) resolveLocal() ([]netip.Addr, error) {
	addrs := d.policy.localAddrs()
	if len(addrs) == 0 {
		return nil, &DeniedError{Reason: ReasonLocalName}
	}
	return addrs, nil
}

// lookup asks the resolver. An empty answer is an error, and so is an address
// with a zone, which no name can legitimately have.
func (d *dialer) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	found, err := d.resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, &ResolveError{Err: err}
	}
	if len(found) == 0 {
		return nil, &ResolveError{Err: errors.New("no address")}
	}
	addrs := make([]netip.Addr, len(found))
	for i, addr := range found {
		if !addr.IsValid() || addr.Zone() != "" {
			return nil, &ResolveError{Err: errors.New("unusable address")}
		}
		addrs[i] = addr.Unmap()
	}
	return addrs, nil
}
