package compat_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	official "github.com/upstash/qstash-go"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
)

func (s *stand) inject(faults ...compat.Fault) {
	s.Helper()
	if err := s.server.Inject(faults...); err != nil {
		s.Fatalf("inject: %v", err)
	}
}

// TestSignatureFaults says what each does to the official receiver and to our own
// verifier.
func TestSignatureFaults(t *testing.T) {
	for kind, want := range map[compat.FaultKind]qstash.Reason{
		"":                       "",
		compat.FaultSignNext:     "",
		compat.FaultUnpaddedHash: "",
		compat.FaultUnknownKey:   qstash.ReasonUnknownKey,
		compat.FaultExpired:      qstash.ReasonExpired,
		compat.FaultFutureNBF:    qstash.ReasonNotYet,
		compat.FaultWrongSubject: qstash.ReasonURL,
	} {
		t.Run(string(kind), func(t *testing.T) {
			inBubble(t, func(s *stand) {
				if kind != "" {
					s.inject(compat.Fault{Kind: kind, Times: 1})
				}
				s.publish("x")
				s.settle()
				got := s.seen()[0]
				err := official.NewReceiver(current, next).Verify(official.VerifyOptions{
					Signature: got.Header.Get("Upstash-Signature"), Url: target, Body: "x", Tolerance: time.Minute,
				})
				if (err == nil) != (want == "") {
					t.Errorf("the official receiver says %v", err)
				}
				keys, err := qstash.ParseKeys(current, next, false)
				if err != nil {
					t.Fatalf("read the keys: %v", err)
				}
				verifier, err := qstash.NewVerifier(qstash.VerifierConfig{Keys: keys, Tolerance: time.Minute})
				if err != nil {
					t.Fatalf("make the verifier: %v", err)
				}
				verified, err := verifier.Verify(got.Header.Values("Upstash-Signature"), target, []byte("x"))
				var reason qstash.Reason
				if refusal := (*qstash.VerifyError)(nil); errors.As(err, &refusal) {
					reason = refusal.Reason
				}
				if reason != want || verified.ByNext != (kind == compat.FaultSignNext) {
					t.Errorf("our verifier says %+v, %v, want %q", verified, err, want)
				}
				if want := kindsOf(kind); !cmp.Equal(want, s.attempts[0].Faults) {
					t.Errorf("the attempt tells of faults %v", s.attempts[0].Faults)
				}
				if len(s.server.Faults()) != 0 {
					t.Errorf("still armed: %v", s.server.Faults())
				}
			})
		})
	}
}

func kindsOf(kind compat.FaultKind) []compat.FaultKind {
	if kind == "" {
		return nil
	}
	return []compat.FaultKind{kind}
}

// claim returns one claim of a signature.
func claim(t *testing.T, r received, name string) any {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(r.Header.Get("Upstash-Signature"), ".")[1])
	if err != nil {
		t.Fatalf("decode the signature: %v", err)
	}
	var claims map[string]any
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatalf("decode the claims: %v", err)
	}
	return claims[name]
}

// TestClaims pins what receivers of other makes need: every claim is there, nbf
// is 0 and the hash is padded.
func TestClaims(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.publish("")
		s.settle()
		got := s.seen()[0]
		for name, want := range map[string]any{
			"iss": "Upstash", "sub": target, "nbf": 0.0, "iat": float64(time.Now().Unix()), "exp": float64(time.Now().Unix() + 300),
			"body": "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=",
		} {
			if got := claim(t, got, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		s.inject(compat.Fault{Kind: compat.FaultUnpaddedHash})
		s.publish("")
		s.settle()
		if got := claim(t, s.seen()[1], "body"); got != "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU" {
			t.Errorf("the unpadded hash is %v", got)
		}
	})
}

func TestDuplicate(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.inject(compat.Fault{Kind: compat.FaultDuplicate, Times: 1})
		id := s.publish("x")
		s.publish("y")
		s.settle()
		got := s.seen()
		if s.bodies() != "x x y" || got[1].Header.Get("Upstash-Message-Id") != id || claim(t, got[0], "jti") == claim(t, got[1], "jti") {
			t.Errorf("delivered %q", s.bodies())
		}
	})
}

// TestDuplicateOfASuccessOnly has a receiver that fails first.
func TestDuplicateOfASuccessOnly(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.inject(compat.Fault{Kind: compat.FaultDuplicate})
		s.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upstash-Retried") == "0" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		s.publish("x")
		s.settle()
		if got := len(s.seen()); got != 3 {
			t.Errorf("%d requests, want a failure and a doubled success", got)
		}
	})
}

func TestConcurrent(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.inject(compat.Fault{Kind: compat.FaultConcurrent, Times: 1})
		release := make(chan struct{})
		s.answers(func(http.ResponseWriter, *http.Request) { <-release })
		s.publish("x")
		if got := len(s.seen()); got != 2 {
			t.Fatalf("%d requests at the same time, want 2", got)
		}
		close(release)
		s.settle()
		if got := len(s.seen()); got != 2 {
			t.Errorf("%d requests, want 2", got)
		}
	})
}

// TestLateSecond has the second attempt reach a receiver that is still busy with
// the first, which then succeeds.
func TestLateSecond(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.inject(compat.Fault{Kind: compat.FaultLateSecond, Times: 1})
		first, cancelled := make(chan struct{}), false
		s.answers(func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upstash-Retried") == "0" {
				<-first
				cancelled = r.Context().Err() != nil
			}
		})
		s.publish("x", "Upstash-Timeout", "5s", "Upstash-Retry-Delay", "1000")
		s.settle()
		if got := gaps(s.seen()); len(got) != 1 || got[0] != 6*time.Second {
			t.Errorf("waits %v, want the timeout and the delay", got)
		}
		close(first)
		synctest.Wait()
		if cancelled || s.attempts[0].Outcome != compat.OutcomeRetry || s.attempts[1].Outcome != compat.OutcomeDelivered {
			t.Errorf("attempts %+v, first cancelled: %t", s.attempts, cancelled)
		}
	})
}

// TestLateSecondAfterAFastAnswer does not see a success that comes in time.
func TestLateSecondAfterAFastAnswer(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.inject(compat.Fault{Kind: compat.FaultLateSecond, Times: 1})
		s.publish("x")
		s.settle()
		if got := len(s.seen()); got != 2 || s.attempts[0].Status != 0 {
			t.Errorf("%d requests, the first came to %d", got, s.attempts[0].Status)
		}
	})
}

func TestPublishFaults(t *testing.T) {
	for kind, want := range map[compat.FaultKind]struct {
		status  int
		body    string
		headers []string
	}{
		compat.FaultBurstLimit:   {429, `{"error":`, []string{"Burst-RateLimit-Limit", "Burst-RateLimit-Remaining", "Burst-RateLimit-Reset"}},
		compat.FaultDailyLimit:   {429, `{"error":`, []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}},
		compat.FaultPlanLimit:    {412, `{"error":`, nil},
		compat.FaultServerError:  {500, `{"error":`, nil},
		compat.FaultBadGateway:   {502, `<html>`, nil},
		compat.FaultDeduplicated: {202, `{"messageId":"msg_`, nil},
	} {
		for _, path := range []string{"/v2/publish/" + target, "/v2/enqueue/q/" + target, "/v2/batch"} {
			t.Run(string(kind)+" "+path[4:9], func(t *testing.T) {
				inBubble(t, func(s *stand) {
					s.inject(compat.Fault{Kind: kind, Times: 2})
					body := `[{"destination":"` + target + `"}]`
					for range 2 {
						got := s.call(http.MethodPost, path, body)
						if got.status != want.status || !strings.HasPrefix(got.body, want.body) {
							t.Errorf("status %d, body %s", got.status, got.body)
						}
						for _, name := range want.headers {
							if got.header.Get(name) == "" {
								t.Errorf("no header %s", name)
							}
						}
					}
					s.settle()
					if got := len(s.seen()); got != 0 {
						t.Errorf("%d requests of what was not accepted", got)
					}
					if got := s.call(http.MethodPost, path, body); got.status != 200 {
						t.Errorf("status %d once the fault is used up", got.status)
					}
					s.settle()
				})
			})
		}
	}
}

func TestLoopbackRefusal(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.inject(compat.Fault{Kind: compat.FaultLoopback})
		for _, host := range []string{"localhost", "LocalHost:80", "127.0.0.1:3000", "127.9.9.9", "[::1]:80", "[::ffff:127.0.0.1]"} {
			got := s.call(http.MethodPost, "/v2/publish/http://"+host+"/x", "")
			s.refused(got, 400, "invalid destination url: endpoint resolves to a loopback address: ::1")
		}
		s.publish("x")
		s.settle()
		s.server.ClearFaults()
		s.id(s.call(http.MethodPost, "/v2/publish/http://localhost/x", ""))
		s.settle()
		if got := len(s.seen()); got != 2 {
			t.Errorf("%d requests, want 2", got)
		}
	})
}

func TestPartialBatch(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.inject(compat.Fault{Kind: compat.FaultPartialBatch, Times: 1})
		s.publish("a publish is no batch")
		body := `[{"destination":"` + target + `","body":"1"},{"destination":"` + target + `","body":"2"}]`
		var results []map[string]string
		s.into(s.call(http.MethodPost, "/v2/batch", body), 200, &results)
		s.settle()
		if results[0]["messageId"] == "" || results[1]["error"] == "" || results[1]["messageId"] != "" || s.bodies() != "a publish is no batch 1" {
			t.Errorf("results %v, delivered %q", results, s.bodies())
		}
	})
}

// TestFaultsOfOneDestination leaves others alone.
func TestFaultsOfOneDestination(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.inject(compat.Fault{Kind: compat.FaultServerError, URL: "/bad"}, compat.Fault{Kind: compat.FaultDuplicate, URL: "twice"})
		s.id(s.call(http.MethodPost, "/v2/publish/http://h.test/good", ""))
		s.refused(s.call(http.MethodPost, "/v2/publish/http://h.test/bad", ""), 500, "internal")
		s.id(s.call(http.MethodPost, "/v2/publish/http://h.test/twice", ""))
		s.settle()
		var paths []string
		for _, r := range s.seen() {
			paths = append(paths, strings.TrimPrefix(r.URL, "http://h.test/"))
		}
		slices.Sort(paths)
		if diff := cmp.Diff([]string{"good", "twice", "twice"}, paths); diff != "" {
			t.Errorf("the requests differ (-want +got):\n%s", diff)
		}
	})
}

func TestFaultsEndpoint(t *testing.T) {
	inBubble(t, func(s *stand) {
		armed := func(method, body string) []compat.Fault {
			t.Helper()
			var got struct{ Faults []compat.Fault }
			s.into(s.call(method, "/_faults", body), 200, &got)
			return got.Faults
		}
		one := compat.Fault{Kind: compat.FaultExpired, Times: 2, URL: "/x"}
		if diff := cmp.Diff([]compat.Fault{one}, armed(http.MethodPost, `{"kind":"expired","times":2,"url":"/x"}`)); diff != "" {
			t.Errorf("one fault differs (-want +got):\n%s", diff)
		}
		two := []compat.Fault{one, {Kind: compat.FaultPlanLimit}}
		if diff := cmp.Diff(two, armed(http.MethodPost, `[{"kind":"412"}]`)); diff != "" {
			t.Errorf("the list differs (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(two, armed(http.MethodGet, "")); diff != "" {
			t.Errorf("what is armed differs (-want +got):\n%s", diff)
		}
		for body, text := range map[string]string{
			`{"kind":"odd"}`: "unknown kind", `{"kind":"412","times":-1}`: "below 0", `[{"kind":"412"},{}]`: "unknown kind", `5`: "invalid faults",
		} {
			s.refused(s.call(http.MethodPost, "/_faults", body), 400, text)
		}
		if got := armed(http.MethodGet, ""); len(got) != 2 {
			t.Errorf("a refused list armed something: %v", got)
		}
		if got := armed(http.MethodDelete, ""); len(got) != 0 {
			t.Errorf("still armed: %v", got)
		}
	})
}

func TestParseFault(t *testing.T) {
	for text, want := range map[string]compat.Fault{
		"expired": {Kind: compat.FaultExpired}, "429-burst=3": {Kind: compat.FaultBurstLimit, Times: 3}, "412": {Kind: compat.FaultPlanLimit},
	} {
		if got, err := compat.ParseFault(text); err != nil || got != want {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "odd", "expired=", "expired=0", "expired=-1", "expired=x", "=1"} {
		if got, err := compat.ParseFault(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	for _, kind := range compat.FaultKinds() {
		if _, err := compat.ParseFault(string(kind)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestDropped needs real connections: the server accepts and hangs up.
func TestDropped(t *testing.T) {
	delivered := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { delivered <- r.URL.Path }))
	defer receiver.Close()
	server, err := compat.New(compat.Config{Token: token, Keys: compat.Keys{Current: current, Next: next}})
	if err != nil {
		t.Fatalf("make the server: %v", err)
	}
	defer server.Close()
	api := httptest.NewServer(server)
	defer api.Close()
	for path, body := range map[string]string{
		"/v2/publish/" + receiver.URL + "/p": "x", "/v2/enqueue/q/" + receiver.URL + "/p": "x",
		"/v2/batch": `[{"destination":"` + receiver.URL + `/p"}]`,
	} {
		if err := server.Inject(compat.Fault{Kind: compat.FaultDropped, Times: 1}); err != nil {
			t.Fatalf("inject: %v", err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api.URL+path, bytes.NewBufferString(body))
		if err != nil {
			t.Fatalf("make the request: %v", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		client := api.Client()
		if resp, err := client.Do(req); err == nil {
			t.Errorf("%s: status %d, want a closed connection", path, resp.StatusCode)
			resp.Body.Close()
		}
		if got := <-delivered; got != "/p" {
			t.Errorf("%s: delivered to %s", path, got)
		}
	}
}

// TestClose ends a server with something in each stage.
func TestClose(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
		s.enqueue("q", "retries")
		s.enqueue("q", "behind")
		s.publish("delayed", "Upstash-Delay", "1h")
		rate := []string{"Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "rate=1, period=1h"}
		s.publish("flows", rate...)
		s.publish("held", rate...)
		hang := make(chan struct{})
		s.answers(func(http.ResponseWriter, *http.Request) { <-hang })
		s.publish("hangs")
		attempts := len(s.attempts)
		s.server.Close()
		s.server.Close()
		close(hang)
		s.refused(s.call(http.MethodPost, "/v2/publish/"+target, "x"), 503, "ending")
		before := s.bodies()
		pass(24 * time.Hour)
		if got := s.bodies(); got != before || len(s.attempts) != attempts {
			t.Errorf("after the end: %q, before: %q", got, before)
		}
		ctx, cancel := context.WithCancelCause(s.Context())
		cancel(context.DeadlineExceeded)
		if err := s.server.Settle(ctx); err == nil {
			t.Errorf("nothing is pending after the end")
		}
	})
}

func TestNewRefuses(t *testing.T) {
	keys := compat.Keys{Current: current, Next: next}
	for name, cfg := range map[string]compat.Config{
		"no token": {Keys: keys}, "no keys": {Token: token}, "one key": {Token: token, Keys: compat.Keys{Current: current}},
		"speed": {Token: token, Keys: keys, Speed: -1}, "parallelism": {Token: token, Keys: keys, Parallelism: -1},
	} {
		if server, err := compat.New(cfg); err == nil {
			server.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}
