package ingress_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/producer/ingress"
)

func TestRoles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for route, role := range map[string]ingress.Role{
		"PUT /v1/operations/op/hooks": ingress.RoleRuntime, "POST /v1/operations/op/hooks": ingress.RoleRuntime,
		"GET /v1/operations/op/hooks": ingress.RoleRuntime, "DELETE /v1/operations/op/hooks": ingress.RoleRuntime,
		"POST /v1/operations/op/events": ingress.RoleRuntime, "GET /v1/operations/op/events/e": ingress.RoleRuntime,
		"GET /v1/lanes": ingress.RoleOperator, "GET /v1/lanes/op": ingress.RoleOperator, "GET /v1/dead-letters": ingress.RoleOperator,
		"GET /v1/dead-letters/x": ingress.RoleOperator, "POST /v1/dead-letters:replay": ingress.RoleOperator,
		"GET /healthz": "", "GET /readyz": "", "GET /openapi.json": "",
	} {
		method, path, _ := strings.Cut(route, " ")
		for token, has := range map[string]ingress.Role{"": "", runtimeToken: ingress.RoleRuntime, operatorToken: ingress.RoleOperator} {
			b.token = token
			a := b.call(method, path, "[]")
			switch {
			case role != "" && has == "":
				a.problem(401, "unauthenticated")
			case role == ingress.RoleOperator && has == ingress.RoleRuntime:
				a.problem(403, "forbidden")
				if got := a.header.Get("WWW-Authenticate"); got != `Bearer realm="gantry", error="insufficient_scope", scope="operator"` {
					t.Fatalf("www-authenticate is %q", got)
				}
			case a.status == 401 || a.status == 403:
				t.Fatalf("%s as %q is answered with %d", route, has, a.status)
			}
		}
	}
}

func TestTokensThatAreNotAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.token = ""
	for credentials, challenge := range map[string]string{
		"":                               `Bearer realm="gantry"`,
		"Bearer":                         `Bearer realm="gantry", error="invalid_token"`,
		"Bearer ":                        `Bearer realm="gantry", error="invalid_token"`,
		"Bearer x" + runtimeToken:        `Bearer realm="gantry", error="invalid_token"`,
		"Bearer " + runtimeToken + "x":   `Bearer realm="gantry", error="invalid_token"`,
		"Bearer " + runtimeToken[:10]:    `Bearer realm="gantry", error="invalid_token"`,
		"Basic " + runtimeToken:          `Bearer realm="gantry", error="invalid_token"`,
		runtimeToken:                     `Bearer realm="gantry", error="invalid_token"`,
		"Bearer " + runtimeToken + ", x": `Bearer realm="gantry", error="invalid_token"`,
	} {
		var headers []string
		if credentials != "" {
			headers = []string{"Authorization", credentials}
		}
		a := b.call("GET", "/v1/operations/op/hooks", "", headers...)
		a.problem(401, "unauthenticated")
		if got := a.header.Get("WWW-Authenticate"); got != challenge {
			t.Fatalf("%q: www-authenticate is %q, want %q", credentials, got, challenge)
		}
		if strings.Contains(a.body, runtimeToken[:10]) {
			t.Fatalf("the answer repeats the token: %s", a.body)
		}
	}
	for _, credentials := range []string{"bearer " + runtimeToken, "BEARER  " + runtimeToken} {
		b.call("GET", "/v1/operations/op/hooks", "", "Authorization", credentials).problem(404, "not_found")
	}
	for _, entry := range b.logs.AllEntries() {
		if line, _ := entry.String(); strings.Contains(line, runtimeToken[:10]) {
			t.Fatalf("the log holds a token: %s", line)
		}
	}
}

// TestRefusedBodyIsNotRead sends a body that is over the limit without a token.
func TestRefusedBodyIsNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ingress.Config) { c.MaxBody = 10 })
	b.token = ""
	b.post("", strings.Repeat("x", 100)).problem(401, "unauthenticated")
}

func TestTwoTokensInOneRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/operations/op/hooks", nil)
	r.Header["Authorization"] = []string{"Bearer " + runtimeToken, "Bearer x"}
	w := httptest.NewRecorder()
	b.api.Handler().ServeHTTP(w, r)
	if w.Code != 401 {
		t.Fatalf("status is %d", w.Code)
	}
}

func TestAnonymousLoopback(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ingress.Config) { c.Tokens, c.AllowAnonymousLoopback = nil, true })
	for name, test := range map[string]struct {
		adjust func(r *http.Request)
		want   int
	}{
		"loopback":           {func(*http.Request) {}, 200},
		"loopback 127.0.0.9": {func(r *http.Request) { r.RemoteAddr = "127.0.0.9:1" }, 200},
		"loopback v6":        {func(r *http.Request) { r.RemoteAddr, r.Host = "[::1]:1", "[::1]:8080" }, 200},
		"mapped v6":          {func(r *http.Request) { r.RemoteAddr = "[::ffff:127.0.0.1]:1" }, 200},
		"host localhost":     {func(r *http.Request) { r.Host = "LocalHost:8080" }, 200},
		"host, no port":      {func(r *http.Request) { r.Host = "127.0.0.1" }, 200},
		"own page":           {func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:8080") }, 200},
		"remote":             {func(r *http.Request) { r.RemoteAddr = "192.168.1.2:1" }, 401},
		"remote v6":          {func(r *http.Request) { r.RemoteAddr = "[fe80::1%lo]:1" }, 401},
		"no address":         {func(r *http.Request) { r.RemoteAddr = "" }, 401},
		"unix socket":        {func(r *http.Request) { r.RemoteAddr = "@" }, 401},
		"forwarded":          {func(r *http.Request) { r.Header.Set("Forwarded", "for=1.2.3.4") }, 401},
		"x-forwarded-for":    {func(r *http.Request) { r.Header.Set("X-Forwarded-For", "127.0.0.1") }, 401},
		"x-real-ip":          {func(r *http.Request) { r.Header.Set("X-Real-IP", "127.0.0.1") }, 401},
		"via":                {func(r *http.Request) { r.Header.Set("Via", "1.1 proxy") }, 401},
		"foreign name":       {func(r *http.Request) { r.Host = "evil.test:8080" }, 401},
		"foreign page":       {func(r *http.Request) { r.Header.Set("Origin", "https://evil.test") }, 401},
		"foreign site":       {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 401},
		"token anyway":       {func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/dead-letters:replay", strings.NewReader(`{"all":true}`))
			r.RemoteAddr, r.Host = "127.0.0.1:40000", "127.0.0.1:8080"
			test.adjust(r)
			w := httptest.NewRecorder()
			b.api.Handler().ServeHTTP(w, r)
			if w.Code != test.want {
				t.Fatalf("status is %d, want %d: %s", w.Code, test.want, w.Body)
			}
		})
	}
}

// TestLoopbackNeedsATokenByDefault calls from this machine without a token.
func TestLoopbackNeedsATokenByDefault(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.token = ""
	b.call("GET", "/v1/lanes", "").problem(401, "unauthenticated")
}

func TestInvalidConfigs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	good := ingress.Config{Events: b.events, Store: b.store, Tokens: []ingress.Token{{Role: ingress.RoleRuntime, Value: "x"}}}
	for want, spoil := range map[string]func(c *ingress.Config){
		"events is required":       func(c *ingress.Config) { c.Events = nil },
		"store is required":        func(c *ingress.Config) { c.Store = nil },
		"no token is configured":   func(c *ingress.Config) { c.Tokens = nil },
		`token 0 has the role "x"`: func(c *ingress.Config) { c.Tokens = []ingress.Token{{Role: "x", Value: "secret"}} },
		"token 0 is empty":         func(c *ingress.Config) { c.Tokens = []ingress.Token{{Role: ingress.RoleRuntime}} },
		"a size limit is negative": func(c *ingress.Config) { c.MaxBody = -1 },
		"a timeout is negative":    func(c *ingress.Config) { c.MaxWait = -1 },
	} {
		config := good
		spoil(&config)
		_, err := ingress.New(config)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Fatalf("error is %v, want %q", err, want)
		}
	}
	if _, err := ingress.New(good); err != nil {
		t.Fatalf("good config: %v", err)
	}
}
