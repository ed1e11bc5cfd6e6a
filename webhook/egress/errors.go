package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/gantry-hooks/gantry/tasks"
)

// ErrDenied is what every refusal by policy is; errors.As with *DeniedError
// tells the reason.
var ErrDenied = errors.New("egress denied")

// ErrConnectTimeout is the cause of a connection that was not ready in time.
var ErrConnectTimeout = errors.New("connect timeout")

// ErrProxyRefused says that the configured proxy did not open the tunnel.
var ErrProxyRefused = errors.New("proxy refused the tunnel")

// DeniedError is a refusal by policy; nothing was sent. Its text names the
// reason only, never the host or the address.
type DeniedError struct {
	// Reason says which rule refused.
	Reason Reason
}

// Error returns the text of the refusal.
func (e *DeniedError) Error() string { return "egress denied: " + string(e.Reason) }

// Unwrap makes every refusal an ErrDenied.
func (e *DeniedError) Unwrap() error { return ErrDenied }

// ResolveError says that a name could not be resolved; nothing was sent.
type ResolveError struct{ Err error }

// Error returns the text of the error.
func (e *ResolveError) Error() string { return "resolve host: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ResolveError) Unwrap() error { return e.Err }

// ConnectError says that no connection came about; nothing was sent.
type ConnectError struct{ Err error }

// Error returns the text of the error.
func (e *ConnectError) Error() string { return "connect: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *ConnectError) Unwrap() error { return e.Err }

// HandshakeError says that TLS could not be agreed on; no request was sent.
type HandshakeError struct{ Err error }

// Error returns the text of the error.
func (e *HandshakeError) Error() string { return "tls handshake: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *HandshakeError) Unwrap() error { return e.Err }

// FailureClass maps an error of Client.Do to its class, by type and never by
// text; nil gives "". A connection that carries something else than HTTP counts
// like one that breaks: no reply arrived on it. Whether the caller's own context
// ended is for the caller to test first (docs/behaviour.md §8).
func FailureClass(err error) tasks.FailureClass {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrDenied):
		return tasks.ClassEgressDenied
	case is[*ResolveError](err):
		return tasks.ClassDNS
	case is[*ConnectError](err):
		return connectClass(err)
	case is[*HandshakeError](err):
		return handshakeClass(err)
	case isTLS(err):
		return tasks.ClassTLS
	case isTimeout(err):
		return tasks.ClassTimeout
	}
	return tasks.ClassReset
}

func connectClass(err error) tasks.FailureClass {
	switch {
	case isTimeout(err):
		return tasks.ClassConnectTimeout
	case errors.Is(err, syscall.ECONNRESET):
		return tasks.ClassReset
	}
	return tasks.ClassRefused
}

func handshakeClass(err error) tasks.FailureClass {
	if isTimeout(err) {
		return tasks.ClassConnectTimeout
	}
	return tasks.ClassTLS
}

func isTLS(err error) bool {
	return is[tls.AlertError](err) || is[tls.RecordHeaderError](err) || is[*tls.CertificateVerificationError](err) ||
		is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err)
}

func isTimeout(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrConnectTimeout) {
		return true
	}
	netErr, ok := errors.AsType[net.Error](err)
	return ok && netErr.Timeout()
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
