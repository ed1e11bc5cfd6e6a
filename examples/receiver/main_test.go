package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

func TestMain(m *testing.M) { servertest.Main(m) }

const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// TestRefusesToStart builds the program and runs it with keys that are none.
func TestRefusesToStart(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "receiver")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for name, test := range map[string]struct {
		env  []string
		want string
	}{
		"no key":          {nil, "no scheme is accepted"},
		"no base64":       {[]string{"RECEIVER_KEY=whsec_*"}, "read RECEIVER_KEY"},
		"development key": {[]string{"QSTASH_CURRENT_SIGNING_KEY=" + qstash.DevCurrentKey}, "published one"},
		"no URL":          {[]string{"QSTASH_CURRENT_SIGNING_KEY=sig_1"}, "URL"},
	} {
		command := exec.CommandContext(t.Context(), binary, "-listen", "127.0.0.1:0")
		command.Env = append([]string{}, test.env...)
		out, err := command.CombinedOutput()
		if err == nil || !strings.Contains(string(out), test.want) {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

// TestReceiver sends a message twice, in memory and with Redis, and a forged one.
func TestReceiver(t *testing.T) {
	for name, redisURL := range map[string]string{"memory": "", "redis": servertest.URL(servertest.FlushedClient(t))} {
		t.Run(name, func(t *testing.T) {
			keys, err := signature.ParseKeys(key)
			if err != nil {
				t.Fatalf("parse keys: %v", err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			out, written := io.Pipe()
			ended := make(chan error, 1)
			var log bytes.Buffer
			go func() {
				ended <- run(ctx, settings{listen: "127.0.0.1:0", out: written, log: &log, env: func(name string) string {
					return map[string]string{"RECEIVER_KEY": key, "REDIS_URL": redisURL}[name]
				}})
				written.Close()
			}()
			lines := bufio.NewScanner(out)
			lines.Scan()
			address, ok := strings.CutPrefix(lines.Text(), "listening on ")
			if !ok {
				t.Fatalf("the program says %q, %v", lines.Text(), <-ended)
			}
			printed := make(chan string, 10)
			go func() {
				for lines.Scan() {
					printed <- lines.Text()
				}
				close(printed)
			}()
			good := keys.Sign("msg_1", time.Now(), []byte(`{"b":1, "a":2}`))
			forged := good
			forged.ID = "msg_2"
			for _, step := range []struct {
				h    signature.Headers
				want int
			}{{good, http.StatusNoContent}, {good, http.StatusOK}, {forged, http.StatusUnauthorized}} {
				if code := send(t, address, step.h); code != step.want {
					t.Errorf("%s: status %d, want %d", step.h.ID, code, step.want)
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("the program ended with %v", err)
			}
			var all []string
			for line := range printed {
				all = append(all, line)
			}
			if got := strings.Join(all, "\n"); got != `standard msg_1 {"b":1, "a":2}` {
				t.Errorf("printed %q", got)
			}
			if !strings.Contains(log.String(), "receiver.refused") || !strings.Contains(log.String(), "receiver.duplicate") {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

func send(t *testing.T, address string, h signature.Headers) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/hook", strings.NewReader(`{"b":1, "a":2}`))
	if err != nil {
		t.Fatalf("make a request: %v", err)
	}
	r.Header.Set(signature.HeaderID, h.ID)
	r.Header.Set(signature.HeaderTimestamp, h.Timestamp)
	r.Header.Set(signature.HeaderSignature, h.Signature)
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	response.Body.Close()
	return response.StatusCode
}
