package egress

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxTunnelReply bounds what a proxy may say before the tunnel stands.
const maxTunnelReply = 16 << 10

// tunnel opens a connection to target through the proxy. The proxy is told the
// address that was judged, never the name, so that it cannot resolve it anew.
func (d *dialer) tunnel(ctx context.Context, network string, target netip.AddrPort) (net.Conn, error) {
	conn, err := d.dialProxy(ctx, network)
	if err != nil {
		return nil, err
	}
	// The negotiation knows no context: closing the connection is what ends it.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = negotiate(conn, d.proxy, target)
	if !stop() {
		return nil, errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// dialProxy connects to the proxy, which is the operator's own and therefore
// not judged.
func (d *dialer) dialProxy(ctx context.Context, network string) (net.Conn, error) {
	port, err := proxyPort(d.proxy)
	if err != nil {
		return nil, err
	}
	name := d.proxy.Hostname()
	addr, err := netip.ParseAddr(name)
	if err != nil {
		addrs, err := d.lookup(ctx, name)
		if err != nil {
			return nil, err
		}
		addr = addrs[0]
	}
	conn, err := d.dialTCP(ctx, network, netip.AddrPortFrom(addr, port))
	if err != nil || d.proxy.Scheme != "https" {
		return conn, err
	}
	toProxy := *d
	toProxy.tls = d.tls.Clone()
	toProxy.tls.NextProtos = nil
	return toProxy.handshake(ctx, conn, name)
}

func proxyPort(proxy *url.URL) (uint16, error) {
	text := proxy.Port()
	if text == "" {
		text = map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("read port of proxy: %w", err)
	}
	return uint16(port), nil
}

func negotiate(conn net.Conn, proxy *url.URL, target netip.AddrPort) error {
	var ask strings.Builder
	fmt.Fprintf(&ask, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", target, target)
	if user := proxy.User; user != nil {
		password, _ := user.Password()
		credentials := base64.StdEncoding.EncodeToString([]byte(user.Username() + ":" + password))
		fmt.Fprintf(&ask, "Proxy-Authorization: Basic %s\r\n", credentials)
	}
	ask.WriteString("\r\n")
	if _, err := io.WriteString(conn, ask.String()); err != nil {
		return fmt.Errorf("ask proxy for tunnel: %w", err)
	}
	reader := bufio.NewReader(io.LimitReader(conn, maxTunnelReply))
	reply, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return fmt.Errorf("read reply of proxy: %w", err)
	}
	// A reply to CONNECT has no body; closing it reads nothing from the tunnel.
	defer func() { _ = reply.Body.Close() }()
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("%w (HTTP %d)", ErrProxyRefused, reply.StatusCode)
	}
	// Bytes behind the reply would belong to the target, which has not been
	// spoken to yet.
	if reader.Buffered() > 0 {
		return fmt.Errorf("%w: data before the request", ErrProxyRefused)
	}
	return nil
}
