package enrich_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/enrich"
)

func TestHTTPReadsReplies(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	pad := func(size int) string {
		const frame = `{"email":"a@x.test","pad":""}`
		return `{"email":"a@x.test","pad":"` + strings.Repeat("x", size-len(frame)) + `"}`
	}
	for _, c := range []struct {
		name   string
		status int
		body   string
		field  string
		want   string
		found  bool
		fails  bool
	}{
		{name: "email", status: 200, body: `{"email":"a@x.test"}`, want: "a@x.test", found: true},
		{name: "another field", status: 200, body: `{"mail":"a@x.test","email":1}`, field: "mail", want: "a@x.test", found: true},
		{name: "last duplicate", status: 200, body: `{"email":"a@x.test","email":"b@x.test"}`, want: "b@x.test", found: true},
		{name: "empty email", status: 200, body: `{"email":""}`, found: true},
		{name: "null email", status: 200, body: `{"email":null}`},
		{name: "no such field", status: 200, body: `{"Email":"a@x.test"}`},
		{name: "unknown user", status: 404, body: `nothing`},
		{name: "email of another type", status: 200, body: `{"email":["a@x.test"]}`, fails: true},
		{name: "no object", status: 200, body: `"a@x.test"`, fails: true},
		{name: "no JSON", status: 200, body: `<html>`, fails: true},
		{name: "no UTF-8", status: 200, body: "{\"email\":\"\xff\"}", fails: true},
		{name: "largest reply", status: 200, body: pad(limit), want: "a@x.test", found: true},
		{name: "too large a reply", status: 200, body: pad(limit + 1), fails: true},
		{name: "created", status: 201, body: `{"email":"a@x.test"}`, fails: true},
		{name: "redirect", status: 302, fails: true},
		{name: "unauthorized", status: 401, fails: true},
		{name: "gone", status: 410, fails: true},
		{name: "broken", status: 500, fails: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, err := enrich.NewHTTP(enrich.HTTPConfig{
				URL: "http://directory.test/{userId}", Field: c.field, Client: replies(c.status, c.body),
			})
			if err != nil {
				t.Fatal(err)
			}
			got, found, err := h.Email(t.Context(), "u1")
			if got != c.want || found != c.found || (err != nil) != c.fails {
				t.Fatalf("email %q, found %v, error %v", got, found, err)
			}
		})
	}
}

// doer is a client of one function.
type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

func replies(status int, body string) doer {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func TestHTTPEncodesTheUserID(t *testing.T) {
	t.Parallel()
	type request struct{ Method, Target, Token string }
	var seen []request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, request{r.Method, r.RequestURI, r.Header.Get("Authorization")})
		_, _ = io.WriteString(w, `{"email":"a@x.test"}`)
	}))
	defer server.Close()
	h, err := enrich.NewHTTP(enrich.HTTPConfig{
		URL: server.URL + "/users/{userId}/email?id={userId}", Client: server.Client(),
		Header: http.Header{"Authorization": {"Bearer secret"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"u-1._~", "../a?b#c&d=e+f %", "é"} {
		if _, found, err := h.Email(t.Context(), user); err != nil || !found {
			t.Fatalf("email of %q: %v, %v", user, found, err)
		}
	}
	want := []request{
		{"GET", "/users/u-1._~/email?id=u-1._~", "Bearer secret"},
		{"GET", "/users/..%2Fa%3Fb%23c%26d%3De%2Bf%20%25/email?id=..%2Fa%3Fb%23c%26d%3De%2Bf%20%25", "Bearer secret"},
		{"GET", "/users/%C3%A9/email?id=%C3%A9", "Bearer secret"},
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Fatalf("requests (-want +got):\n%s", diff)
	}
	for _, user := range []string{".", ".."} {
		if _, found, err := h.Email(t.Context(), user); err != nil || found {
			t.Errorf("email of %q: %v, %v", user, found, err)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("a dot segment was sent: %v", seen[len(want):])
	}
}

func TestHTTPGivesUpInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, err := enrich.NewHTTP(enrich.HTTPConfig{URL: "http://directory.test/{userId}", Client: doer(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		if _, found, err := h.Email(t.Context(), "u1"); err == nil || found || errors.Is(err, context.Canceled) {
			t.Fatalf("silent directory gave %v, %v", found, err)
		}
		if elapsed := time.Since(started); elapsed != enrich.DefaultHTTPTimeout {
			t.Fatalf("gave up after %s", elapsed)
		}
	})
}

func TestHTTPErrorsKeepTheURL(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	h, err := enrich.NewHTTP(enrich.HTTPConfig{URL: server.URL + "/{userId}?key=" + secret, Client: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.Email(t.Context(), "u1"); err == nil || strings.Contains(err.Error(), secret) {
		t.Fatalf("unreachable directory gave %v", err)
	}
}

func TestNewHTTPRefusesBadConfigs(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	client := replies(200, `{}`)
	for name, config := range map[string]enrich.HTTPConfig{
		"no client":             {URL: "http://directory.test/{userId}"},
		"negative timeout":      {URL: "http://directory.test/{userId}", Client: client, Timeout: -1},
		"no URL":                {Client: client},
		"relative URL":          {URL: "/{userId}", Client: client},
		"another scheme":        {URL: "ftp://directory.test/{userId}", Client: client},
		"no placeholder":        {URL: "http://directory.test/?key=" + secret, Client: client},
		"placeholder in host":   {URL: "http://{userId}.test/?key=" + secret, Client: client},
		"placeholder as user":   {URL: "http://{userId}@directory.test/?key=" + secret, Client: client},
		"placeholder in anchor": {URL: "http://directory.test/#{userId}", Client: client},
		"URL that is none":      {URL: "http://directory.test:" + secret + "/%zz{userId}", Client: client},
		"placeholder as a port": {URL: "http://directory.test:{userId}/", Client: client},
		"placeholder in suffix": {URL: "http://directory.test{userId}", Client: client},
	} {
		if _, err := enrich.NewHTTP(config); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s gave %v", name, err)
		}
	}
}
