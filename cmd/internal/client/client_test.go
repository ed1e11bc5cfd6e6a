package client_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
)

// serve answers with handler and returns a client of it.
func serve(t *testing.T, config client.Config, handler http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	config.URL = server.URL
	c, err := client.New(config)
	if err != nil {
		t.Fatalf("new: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{"", "localhost:8484", "ftp://h", "http://", "http://u:p@h", "http://h:port"} {
		if _, err := client.New(client.Config{URL: bad}); err == nil {
			t.Errorf("%q is accepted", bad)
		} else if strings.Contains(err.Error(), "u:p") {
			t.Errorf("the error shows credentials: %v", err)
		}
	}
}

func TestIDsAreOneSegment(t *testing.T) {
	var paths []string
	c := serve(t, client.Config{Token: "tk"}, func(_ http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.Method+" "+r.URL.EscapedPath()+" "+r.Header.Get("Authorization"))
	})
	for _, id := range []string{"a/b c?d%", "..", "."} {
		if err := c.PutHooks(t.Context(), id, json.RawMessage(`[]`)); err != nil {
			t.Fatalf("put: %v", err)
		}
	}
	want := "PUT /v1/operations/a%2Fb%20c%3Fd%25/hooks Bearer tk\nPUT /v1/operations/.%2E/hooks Bearer tk\nPUT /v1/operations/%2E/hooks Bearer tk"
	if got := strings.Join(paths, "\n"); got != want {
		t.Fatalf("requested\n%s\nwant\n%s", got, want)
	}
}

func TestRefusals(t *testing.T) {
	answer := ""
	c := serve(t, client.Config{RetryFor: time.Minute}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, answer)
	})
	for body, want := range map[string]string{
		`{"code":"invalid_field","detail":"a: wrong","errors":[{"path":"a","message":"wrong","fix":"send b"}]}`: "a: wrong; send b (invalid_field)",
		`{"code":"x","detail":"a: wrong","errors":[{"path":"a"},{"path":"c","message":"bad","fix":"d"}]}`:       "a: wrong\nc: bad; d (x)",
		`{"code":"unauthenticated","detail":"no"}`:                                                              "no (unauthenticated); set GANTRY_TOKEN or pass --token-file",
		`<html>`: "the API answered with status 422 and no reason",
	} {
		answer = body
		_, err := c.PostEvents(t.Context(), "op", []json.RawMessage{[]byte(`{}`)})
		var refused *client.Error
		if !errors.As(err, &refused) || refused.Error() != want {
			t.Errorf("%s gives %q, want %q", body, err, want)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed a redirect") }))
	defer elsewhere.Close()
	c := serve(t, client.Config{Token: "tk"}, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if _, err := c.Lanes(t.Context(), 1); err == nil {
		t.Fatalf("a redirect is no error")
	}
}

func TestUnavailableIsRepeated(t *testing.T) {
	calls := 0
	var heard []string
	config := client.Config{RetryFor: time.Minute, OnRetry: func(cause error, _ time.Duration) { heard = append(heard, cause.Error()) }}
	c := serve(t, config, func(w http.ResponseWriter, r *http.Request) {
		calls++
		switch calls {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2: // a connection that breaks
			connection, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Errorf("hijack: %v", err)
				return
			}
			_ = connection.Close()
		default:
			_, _ = io.WriteString(w, `{"replayed":2,"notReplayed":[{"id":"a","reason":"not_found"}]}`)
		}
	})
	got, err := c.Replay(t.Context(), []string{"a", `b"`})
	if err != nil || got.Replayed != 2 || got.NotReplayed[0].ID != "a" {
		t.Fatalf("got %+v, %v", got, err)
	}
	if len(heard) != 2 || !strings.Contains(heard[1], "reach the API at 127.0.0.1") {
		t.Fatalf("heard %q", heard)
	}
}

func TestWithoutPatienceNothingIsRepeated(t *testing.T) {
	calls := 0
	c := serve(t, client.Config{}, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	if _, err := c.Lane(t.Context(), "op"); err == nil || calls != 1 {
		t.Fatalf("%d calls, %v", calls, err)
	}
}
