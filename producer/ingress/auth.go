package ingress

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// bearerScheme is the name of the security scheme in the OpenAPI document.
const bearerScheme = "bearer"

// forwardingHeaders tell that a request came through a proxy, so that its
// address says nothing about the caller.
var forwardingHeaders = []string{
	"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip",
}

// guardian knows who may call. It keeps hashes of tokens only.
type guardian struct {
	tokens    []hashedToken
	anonymous bool
	origin    *http.CrossOriginProtection
}

type hashedToken struct {
	hash [sha256.Size]byte
	role Role
}

// newGuardian hashes the tokens.
func newGuardian(config Config) *guardian {
	g := &guardian{anonymous: config.AllowAnonymousLoopback, origin: http.NewCrossOriginProtection()}
	for _, token := range config.Tokens {
		g.tokens = append(g.tokens, hashedToken{hash: sha256.Sum256([]byte(token.Value)), role: token.Role})
	}
	return g
}

// needs is the security requirement of an operation for a role.
func needs(role Role) []map[string][]string {
	return []map[string][]string{{bearerScheme: {string(role)}}}
}

// middleware refuses a request whose caller may not do the operation. It runs
// before a body is read.
func (g *guardian) middleware(ctx huma.Context, next func(huma.Context)) {
	for _, requirement := range ctx.Operation().Security {
		roles, ok := requirement[bearerScheme]
		if !ok || len(roles) == 0 {
			continue
		}
		r, w := humago.Unwrap(ctx)
		if p := g.check(r, Role(roles[0])); p != nil {
			p.RequestID = exchangeOf(r.Context()).id
			p.write(w)
			return
		}
	}
	next(ctx)
}

// check returns why r may not do what needs role; nil when it may.
func (g *guardian) check(r *http.Request, role Role) *Problem {
	credentials := r.Header.Values("Authorization")
	if len(credentials) == 0 {
		if g.anonymous && g.local(r) {
			return nil
		}
		return newProblem(CodeUnauthenticated, "a bearer token is needed").
			with("WWW-Authenticate", `Bearer realm="gantry"`)
	}
	has := g.role(credentials)
	switch {
	case has == "":
		return newProblem(CodeUnauthenticated, "the bearer token is not accepted").
			with("WWW-Authenticate", `Bearer realm="gantry", error="invalid_token"`)
	case has != role && has != RoleOperator:
		return newProblem(CodeForbidden, "the token's role does not suffice; the role "+string(role)+" is needed").
			with("WWW-Authenticate", `Bearer realm="gantry", error="insufficient_scope", scope="`+string(role)+`"`)
	}
	return nil
}

// role finds the role of a presented token; "" when it is unknown. Each known
// hash is compared, so that the time tells nothing.
func (g *guardian) role(credentials []string) Role {
	scheme, value, ok := strings.Cut(credentials[0], " ")
	if !ok || len(credentials) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	presented := sha256.Sum256([]byte(strings.Trim(value, " ")))
	var found Role
	for _, token := range g.tokens {
		if subtle.ConstantTimeCompare(presented[:], token.hash[:]) == 1 && found != RoleOperator {
			found = token.role
		}
	}
	return found
}

// local reports whether r comes from this machine itself: from a loopback
// address, under a loopback name (a page of another site may have its name
// resolve here), through no proxy, and not from a page of another site.
func (g *guardian) local(r *http.Request) bool {
	for _, name := range forwardingHeaders {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	return loopbackAddress(r.RemoteAddr) && loopbackName(r.Host) && g.origin.Check(r) == nil
}

func loopbackAddress(hostport string) bool {
	address, err := netip.ParseAddrPort(hostport)
	return err == nil && address.Addr().Unmap().IsLoopback()
}

func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}
