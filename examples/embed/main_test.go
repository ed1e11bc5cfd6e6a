package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		want   string
	}{
		"delivered": {http.StatusNoContent, "delivered\n"},
		"not yet":   {http.StatusBadGateway, "not delivered yet: hook \"hello\" is not delivered (parked): Hook HTTP request failed: http_error (HTTP 502)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(test.status) }))
			defer receiver.Close()
			var out bytes.Buffer
			url := servertest.URL(servertest.FlushedClient(t))
			if err := run(t.Context(), settings{redisURL: url, receiver: receiver.URL, out: &out}); err != nil {
				t.Fatalf("run: %v", err)
			}
			if out.String() != test.want {
				t.Fatalf("wrote %q, want %q", out.String(), test.want)
			}
		})
	}
}
