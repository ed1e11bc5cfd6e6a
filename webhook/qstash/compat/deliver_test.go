package compat_test

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	official "github.com/upstash/qstash-go"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
)

func TestDelivery(t *testing.T) {
	inBubble(t, func(s *stand) {
		id := s.publish("\xff raw", "Content-Type", "text/odd", "Upstash-Method", "put",
			"Upstash-Forward-X-Own", "yes", "Upstash-Forward-Authorization", "Bearer theirs", "X-Mine", "no",
			"Upstash-Forward-Upstash-Retried", "7", "Upstash-Forward-Connection", "close", "Upstash-Telemetry-Sdk", "sdk")
		s.settle()
		got := s.seen()[0]
		signature := got.Header.Get("Upstash-Signature")
		got.Header.Del("Upstash-Signature")
		want := received{"PUT", target, "\xff raw", http.Header{
			"Authorization": {"Bearer theirs"}, "Content-Type": {"text/odd"}, "X-Own": {"yes"}, "User-Agent": {"Upstash-QStash"},
			"Upstash-Message-Id": {id}, "Upstash-Retried": {"0"}, "Upstash-Caller-Ip": {"192.0.2.1"}, "Upstash-Region": {"EU-CENTRAL-1"},
		}, got.At}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the request differs (-want +got):\n%s", diff)
		}
		if err := official.NewReceiver(current, next).Verify(official.VerifyOptions{Signature: signature, Url: target, Body: "\xff raw"}); err != nil {
			t.Errorf("the official receiver refuses the signature: %v", err)
		}
	})
}

// TestOwnVerifierAccepts holds the two halves against each other: what this
// server signs, and what our endpoints accept.
func TestOwnVerifierAccepts(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.publish("")
		s.settle()
		keys, err := qstash.ParseKeys(current, next, false)
		if err != nil {
			t.Fatalf("read the keys: %v", err)
		}
		verifier, err := qstash.NewVerifier(qstash.VerifierConfig{Keys: keys})
		if err != nil {
			t.Fatalf("make the verifier: %v", err)
		}
		verified, err := verifier.Verify(s.seen()[0].Header.Values("Upstash-Signature"), target, nil)
		if err != nil {
			t.Fatalf("verify: %v", err)
		}
		if verified.ByNext || !verified.Expires.Equal(time.Now().Add(5*time.Minute)) || !strings.HasPrefix(verified.JTI, "jwt_") {
			t.Errorf("verified %+v", verified)
		}
	})
}

// TestEachAttemptIsSignedAfresh lets a message live longer than a signature.
func TestEachAttemptIsSignedAfresh(t *testing.T) {
	inBubble(t, func(s *stand) {
		refused := 0
		s.answers(func(w http.ResponseWriter, r *http.Request) {
			err := official.NewReceiver(current, next).Verify(official.VerifyOptions{
				Signature: r.Header.Get("Upstash-Signature"), Url: target, Body: "x",
			})
			if err != nil {
				refused++
			}
			w.WriteHeader(http.StatusInternalServerError)
		})
		s.publish("x")
		s.settle()
		signatures := map[string]bool{}
		for _, r := range s.seen() {
			signatures[r.Header.Get("Upstash-Signature")] = true
		}
		if refused != 0 || len(signatures) != 4 {
			t.Errorf("%d refused, %d signatures, want 0 and 4", refused, len(signatures))
		}
	})
}

// gaps returns the waits between the requests, after the first.
func gaps(requests []received) (waits []time.Duration) {
	for i := 1; i < len(requests); i++ {
		waits = append(waits, requests[i].At.Sub(requests[i-1].At).Round(time.Millisecond))
	}
	return waits
}

// TestAlwaysFailing is report S5: exactly 1 + retries requests, then the DLQ.
func TestAlwaysFailing(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.answers(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no luck", http.StatusInternalServerError) })
		id := s.publish("x", "Upstash-Retries", "3")
		s.settle()
		e := func(n float64) time.Duration {
			return time.Duration(math.Exp(2.5*n) * float64(time.Second)).Round(time.Millisecond)
		}
		if diff := cmp.Diff([]time.Duration{e(1), e(2), e(3)}, gaps(s.seen())); diff != "" {
			t.Errorf("the waits differ (-want +got):\n%s", diff)
		}
		for i, r := range s.seen() {
			if got := r.Header.Get("Upstash-Retried"); got != strconv.Itoa(i) {
				t.Errorf("request %d says it was retried %s times", i, got)
			}
		}
		entries, _ := s.deadLetters("")
		if len(entries) != 1 {
			t.Fatalf("%d dead letters, want 1", len(entries))
		}
		want := dead{MessageID: id, DLQID: entries[0].DLQID, URL: target, Body: "x", ResponseStatus: 500, ResponseBody: "no luck\n"}
		if diff := cmp.Diff(want, entries[0]); diff != "" {
			t.Errorf("the dead letter differs (-want +got):\n%s", diff)
		}
	})
}

// TestBackoffEndsAtADay follows the default backoff beyond its bound.
func TestBackoffEndsAtADay(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.answers(status(404))
		s.publish("x", "Upstash-Retries", "6")
		s.settle()
		waits := gaps(s.seen())
		if len(waits) != 6 || waits[3].Round(time.Minute) != 6*time.Hour+7*time.Minute || waits[4] != 24*time.Hour || waits[5] != 24*time.Hour {
			t.Errorf("waits %v", waits)
		}
	})
}

func TestNonRetryable(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		header string
		want   int
	}{
		"489 with the header": {489, "true", 1},
		"489 alone":           {489, "", 2},
		"400 with the header": {400, "true", 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stand) {
				s.answers(func(w http.ResponseWriter, _ *http.Request) {
					if test.header != "" {
						w.Header().Set("Upstash-NonRetryable-Error", test.header)
					}
					w.WriteHeader(test.status)
				})
				s.publish("x", "Upstash-Retries", "1")
				s.settle()
				if got := len(s.seen()); got != test.want {
					t.Errorf("%d requests, want %d", got, test.want)
				}
				if entries, _ := s.deadLetters(""); len(entries) != 1 || entries[0].ResponseStatus != test.status {
					t.Errorf("dead letters %+v", entries)
				}
			})
		})
	}
}

// TestStatuses says which statuses are a delivery.
func TestStatuses(t *testing.T) {
	for code, delivered := range map[int]bool{
		200: true, 201: true, 202: true, 204: true, 299: true,
		300: false, 302: false, 304: false, 400: false, 401: false, 404: false, 410: false, 429: false, 500: false, 503: false,
	} {
		inBubble(t, func(s *stand) {
			s.answers(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://elsewhere.test/")
				w.WriteHeader(code)
			})
			s.publish("x", "Upstash-Retries", "0")
			s.settle()
			entries, _ := s.deadLetters("")
			if requests := len(s.seen()); requests != 1 || (len(entries) == 0) != delivered {
				t.Errorf("status %d: %d requests, %d dead letters", code, requests, len(entries))
			}
		})
	}
}

func TestRetryDelay(t *testing.T) {
	ms := func(waits ...int) (out []time.Duration) {
		for _, wait := range waits {
			out = append(out, time.Duration(wait)*time.Millisecond)
		}
		return out
	}
	for expression, want := range map[string][]time.Duration{
		"1000":                              ms(1000, 1000, 1000),
		"1000 * (1 + retried)":              ms(1000, 2000, 3000),
		"pow(2, retried) * 1000":            ms(1000, 2000, 4000),
		"min(3000, max(retried, 2) * 1000)": ms(2000, 2000, 2000),
		"sqrt(16)*abs(-10)":                 ms(40, 40, 40),
		"floor(1.9) + ceil(1.1) + round(2.5) + exp(0)": ms(7, 7, 7),
		"-5":               ms(0, 0, 0),
		"-(-7) - - 1 + +2": ms(10, 10, 10),
		"8 / 2 / 2":        ms(2, 2, 2),
		"2 + 3 * 4 - 1":    ms(13, 13, 13),
		"max(1, 2, 3)":     ms(3, 3, 3),
		"1/0":              {366 * 24 * time.Hour, 366 * 24 * time.Hour, 366 * 24 * time.Hour},
	} {
		t.Run(expression, func(t *testing.T) {
			inBubble(t, func(s *stand) {
				s.answers(status(500))
				s.publish("x", "Upstash-Retry-Delay", expression)
				pass(4 * 366 * 24 * time.Hour)
				if diff := cmp.Diff(want, gaps(s.seen())); diff != "" {
					t.Errorf("the waits differ (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestRetryDelayThatIsNoNumber falls back to the default.
func TestRetryDelayThatIsNoNumber(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.answers(status(500))
		s.publish("x", "Upstash-Retry-Delay", "0/0", "Upstash-Retries", "1")
		s.settle()
		if waits := gaps(s.seen()); len(waits) != 1 || waits[0].Round(time.Second) != 12*time.Second {
			t.Errorf("waits %v, want the default", waits)
		}
	})
}

func TestPacing(t *testing.T) {
	const usual = 12182 * time.Millisecond
	for name, test := range map[string]struct {
		header, value string
		want          time.Duration
	}{
		"seconds":              {"Retry-After", "90", 90 * time.Second},
		"a fraction":           {"Retry-After", "0.5", 500 * time.Millisecond},
		"now":                  {"Retry-After", "0", 0},
		"a day":                {"Retry-After", "86400", 24 * time.Hour},
		"more than a day":      {"Retry-After", "86401", usual},
		"a date":               {"Retry-After", "Sat, 01 Jan 2000 00:01:40 GMT", 100 * time.Second},
		"a date that is past":  {"Retry-After", "Fri, 31 Dec 1999 00:00:00 GMT", 0},
		"a far date":           {"Retry-After", "Sat, 08 Jan 2000 00:00:00 GMT", usual},
		"a duration":           {"X-RateLimit-Reset", "6m5s", 365 * time.Second},
		"requests":             {"X-RateLimit-Reset-Requests", "3s", 3 * time.Second},
		"tokens":               {"X-RateLimit-Reset-Tokens", "250ms", 250 * time.Millisecond},
		"something else":       {"Retry-After", "soon", usual},
		"a negative number":    {"Retry-After", "-5", 0},
		"a negative duration":  {"Retry-After", "-5s", 0},
		"not a number at all":  {"Retry-After", "NaN", usual},
		"an unusual long wait": {"Retry-After", "1e300", usual},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stand) {
				s.answers(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set(test.header, test.value)
					w.WriteHeader(http.StatusTooManyRequests)
				})
				s.publish("x", "Upstash-Retries", "1")
				s.settle()
				if diff := cmp.Diff([]time.Duration{test.want}, gaps(s.seen())); diff != "" {
					t.Errorf("the wait differs (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		headers []string
		want    time.Duration
	}{
		"the message's":            {[]string{"Upstash-Timeout", "5s"}, 5 * time.Second},
		"the plan's":               {nil, compat.DefaultMaxTimeout},
		"never more than the plan": {[]string{"Upstash-Timeout", "1h"}, compat.DefaultMaxTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stand) {
				release := make(chan struct{})
				s.answers(func(http.ResponseWriter, *http.Request) { <-release })
				s.publish("x", append(test.headers, "Upstash-Retries", "0")...)
				s.settle()
				close(release)
				if got := s.attempts[0]; got.Elapsed != test.want || got.Err == nil || got.Outcome != compat.OutcomeFailed {
					t.Errorf("attempt %+v, want an end after %s", got, test.want)
				}
				if entries, _ := s.deadLetters(""); len(entries) != 1 || entries[0].ResponseStatus != 0 || !strings.Contains(entries[0].ResponseBody, "in time") {
					t.Errorf("dead letters %+v", entries)
				}
			})
		})
	}
}

func TestDelay(t *testing.T) {
	for name, test := range map[string]struct {
		headers []string
		want    time.Duration
	}{
		"delay":                        {[]string{"Upstash-Delay", "1d2h3m4s"}, 26*time.Hour + 3*time.Minute + 4*time.Second},
		"not before":                   {[]string{"Upstash-Not-Before", "946684900"}, 100 * time.Second},
		"not before wins":              {[]string{"Upstash-Not-Before", "946684900", "Upstash-Delay", "5h"}, 100 * time.Second},
		"not before something past":    {[]string{"Upstash-Not-Before", "1"}, 0},
		"a delay of nothing":           {[]string{"Upstash-Delay", "0s"}, 0},
		"the header comes before both": {[]string{"Upstash-Delay", "7s"}, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stand) {
				start := time.Now()
				s.publish("x", test.headers...)
				s.settle()
				if got := s.seen()[0].At.Sub(start); got != test.want {
					t.Errorf("delivered after %s, want %s", got, test.want)
				}
			})
		})
	}
}

// TestSpeed divides waits and leaves what the receiver is told alone.
func TestSpeed(t *testing.T) {
	inBubbleWith(t, compat.Config{Speed: 100}, func(s *stand) {
		start := time.Now()
		s.answers(status(500))
		s.publish("x", "Upstash-Delay", "50s", "Upstash-Retry-Delay", "10000", "Upstash-Retries", "1")
		s.settle()
		requests := s.seen()
		if got := requests[0].At.Sub(start); got != 500*time.Millisecond {
			t.Errorf("the delay took %s", got)
		}
		if got := gaps(requests)[0]; got != 100*time.Millisecond {
			t.Errorf("the retry took %s", got)
		}
		if got := s.attempts[0].RetryIn; got != 10*time.Second {
			t.Errorf("the attempt tells of a wait of %s", got)
		}
	})
}

// steppedClock is a clock that the test moves.
type steppedClock struct {
	now    time.Time
	timers []*stepTimer
}

type stepTimer struct {
	at  time.Time
	run func()
}

func (c *steppedClock) Now() time.Time { return c.now }

func (c *steppedClock) AfterFunc(d time.Duration, f func()) func() bool {
	timer := &stepTimer{c.now.Add(d), f}
	c.timers = append(c.timers, timer)
	return func() bool { timer.run = nil; return true }
}

// step moves to the next timer and runs it.
func (c *steppedClock) step() time.Duration {
	timer := c.timers[0]
	c.timers = c.timers[1:]
	waited := timer.at.Sub(c.now)
	c.now = timer.at
	timer.run()
	synctest.Wait()
	return waited
}

// TestClockIsInjected delivers a retry of hours at once.
func TestClockIsInjected(t *testing.T) {
	clock := &steppedClock{now: time.Unix(2_000_000_000, 0)}
	inBubbleWith(t, compat.Config{Clock: clock}, func(s *stand) {
		start := time.Now()
		s.answers(status(500))
		s.publish("x", "Upstash-Retry-Delay", "7200000", "Upstash-Retries", "1")
		if got := clock.step(); got != 2*time.Hour {
			t.Errorf("the wait is %s, want two hours", got)
		}
		s.settle()
		if len(s.seen()) != 2 || !time.Now().Equal(start) {
			t.Errorf("%d requests after %s", len(s.seen()), time.Since(start))
		}
		entries, _ := s.deadLetters("")
		if want := "2000007200000-0"; len(entries) != 1 || entries[0].DLQID != want {
			t.Errorf("dead letters %+v, want id %s", entries, want)
		}
	})
}

func TestCallbacks(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.answers(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/hook" {
				http.Error(w, "bad", http.StatusInternalServerError)
			}
		})
		id := s.publish("in", "Content-Type", "text/plain", "Upstash-Retries", "1", "Upstash-Retry-Delay", "1000",
			"Upstash-Callback", "http://receiver.test/each?x=1", "Upstash-Callback-Method", "PUT", "Upstash-Callback-Forward-X-Who", "me",
			"Upstash-Failure-Callback", "http://receiver.test/failed")
		s.settle()
		entries, _ := s.deadLetters("")
		if len(entries) != 1 {
			t.Fatalf("%d dead letters, want 1", len(entries))
		}
		var order []string
		for _, r := range s.seen() {
			_, path, _ := strings.Cut(r.URL, "receiver.test")
			order = append(order, r.Method+" "+path)
			err := official.NewReceiver(current, next).Verify(official.VerifyOptions{Signature: r.Header.Get("Upstash-Signature"), Url: r.URL, Body: r.Body})
			if err != nil && r.URL != target {
				t.Errorf("the callback to %s is not signed for it", r.URL)
			}
		}
		// The two callbacks of the last attempt go out side by side.
		if got := strings.Join(order[:3], ", "); len(order) != 5 || got != "POST /hook?a=1&b=%2F, PUT /each?x=1, POST /hook?a=1&b=%2F" {
			t.Fatalf("requests %v", order)
		}
		var failed struct {
			Status, Retried, MaxRetries                               int
			Body, SourceBody                                          []byte
			SourceMessageID, URL, Method, ScheduleID, CallerIP, DLQID string
			SourceHeader, Header                                      http.Header
			NotBefore, CreatedAt                                      int64
		}
		for _, r := range s.seen()[3:] {
			if !strings.HasSuffix(r.URL, "/failed") {
				if r.Header.Get("X-Who") != "me" || r.Header.Get("Content-Type") != "application/json" {
					t.Errorf("headers of the callback: %v", r.Header)
				}
				continue
			}
			s.into(reply{status: 200, body: r.Body}, 200, &failed)
		}
		if failed.Status != 500 || failed.Retried != 1 || failed.MaxRetries != 1 || string(failed.Body) != "bad\n" ||
			string(failed.SourceBody) != "in" || failed.SourceMessageID != id || failed.URL != target || failed.Method != http.MethodPost ||
			failed.DLQID != entries[0].DLQID || failed.SourceHeader.Get("Content-Type") != "text/plain" || failed.CreatedAt == 0 {
			t.Errorf("failure callback %+v", failed)
		}
	})
}

// TestAttemptsAreBounded has more messages due than may be under way.
func TestAttemptsAreBounded(t *testing.T) {
	inBubbleWith(t, compat.Config{Parallelism: 2}, func(s *stand) {
		release := make(chan struct{})
		s.answers(func(http.ResponseWriter, *http.Request) { <-release })
		for _, body := range []string{"1", "2", "3", "4"} {
			s.publish(body)
		}
		if got := len(s.seen()); got != 2 {
			t.Fatalf("%d requests at a time, want 2", got)
		}
		release <- struct{}{}
		synctest.Wait()
		if got := s.bodies(); len(s.seen()) != 3 || !strings.HasSuffix(got, "3") {
			t.Errorf("requests %q", got)
		}
		close(release)
		s.settle()
		if got := len(s.seen()); got != 4 {
			t.Errorf("%d requests, want 4", got)
		}
	})
}
