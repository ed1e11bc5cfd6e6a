package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// verdict is what the API tells of a hook that is not delivered.
type verdict struct{ standing, class, reason any }

func verdictOf(o map[string]any) verdict { return verdict{o["standing"], o["class"], o["reason"]} }

// once gives a hook a single attempt.
const once = `,"gantry":{"retry":{"attempts":1}}`

// An endpoint that always answers 403 gets exactly as many requests as its class
// is allowed, and none of them later than two sweeps after its time.
func TestForbiddenGetsItsAttemptsAndNoMore(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	r := startedReceiver(t, func(w http.ResponseWriter, _ visit) { w.WriteHeader(http.StatusForbidden) })
	limits := []int{1, 2, 4, 31}
	var stories sync.WaitGroup
	for _, limit := range limits {
		stories.Go(func() {
			op := fmt.Sprintf("limit-%d", limit)
			s.hook(t, op, r.URL, "", fmt.Sprintf(`,"gantry":{"retry":{"attempts":40,"clientErrorAttempts":%d,"initialDelaySeconds":0.01,"factor":1}}`, limit))
			failures := s.outcomes(t, op, 1)
			want := verdict{"dead", "http_4xx", "attempts_exhausted"}
			if len(failures) != 1 || verdictOf(failures[0]) != want || failures[0]["attempt"] != float64(limit) {
				t.Errorf("limit %d ended with %v", limit, failures)
			}
		})
	}
	stories.Wait()
	for _, limit := range limits {
		var last time.Time
		n := 0
		for _, v := range r.seen() {
			if v.op != fmt.Sprintf("limit-%d", limit) {
				continue
			}
			if gap := v.at.Sub(last); n > 0 && gap > 2*time.Second+time.Second {
				t.Errorf("limit %d: attempt %d came %s after the one before", limit, n+1, gap)
			}
			last, n = v.at, n+1
		}
		if n != limit {
			t.Errorf("%d requests, want %d", n, limit)
		}
	}
}

// A redirect to another server is a failure: that server hears nothing, and the
// same holds for the redirects that are none.
func TestRedirectsReachNobody(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	elsewhere := startedReceiver(t, nil)
	r := startedReceiver(t, func(w http.ResponseWriter, v visit) {
		var status int
		if _, err := fmt.Sscanf(v.path, "/%d", &status); err != nil {
			t.Errorf("path %q: %v", v.path, err)
			return
		}
		w.Header().Set("Location", elsewhere.URL+"/taken")
		w.WriteHeader(status)
	})
	for _, status := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		op := fmt.Sprintf("status-%d", status)
		s.hook(t, op, fmt.Sprintf("%s/%d", r.URL, status), "", once)
		failures := s.outcomes(t, op, 1)
		want := verdict{"dead", "http_3xx", "attempts_exhausted"}
		if status == 300 || status == 304 || status == 305 {
			want.class = "http_4xx"
		}
		if len(failures) != 1 || verdictOf(failures[0]) != want || failures[0]["status"] != float64(status) {
			t.Errorf("%d ended with %v", status, failures)
		}
	}
	if n := len(elsewhere.seen()); n != 0 {
		t.Errorf("the server that the redirects name got %d requests", n)
	}
}

// connections counts those of a server.
type connections struct {
	made, open, most atomic.Int64
	// drop is asked whether to close a connection that has become idle.
	drop func() bool
}

func (c *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.made.Add(1)
		now := c.open.Add(1)
		for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
		}
	case http.StateIdle:
		if c.drop != nil && c.drop() {
			_ = conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		c.open.Add(-1)
	}
}

// 10,000 events go to one host, twenty at a time: about twenty connections are
// used. When the server closes idle ones at random, a stale socket costs another
// connection and never an attempt.
func TestOneHostNeedsFewConnections(t *testing.T) {
	t.Parallel()
	const slots, spare = 20, 5
	for name, closing := range map[string]bool{"steady": false, "closing idle sockets": true} {
		t.Run(name, func(t *testing.T) {
			agent, r, conns := newAgent(t), newReceiver(t, nil), &connections{}
			if closing {
				conns.drop = func() bool { return rand.IntN(20) == 0 }
			}
			r.Config.ConnState = conns.changed
			r.Start()
			const operations, events = 40, 125
			for n := range operations {
				if err := agent.send(t.Context(), fmt.Sprintf("op-%d", n), r.URL, [2]int{1, events}); err != nil {
					t.Fatalf("enqueue: %v", err)
				}
			}
			launch(t, append(agent.env, fmt.Sprintf("GANTRY_WORKER_CONCURRENCY=%d", slots)), "worker")
			visits := r.until(t, "all events", atLeast(operations*events))
			for _, v := range visits {
				if attempt := v.header.Get("Gantry-Attempt"); attempt != "1" {
					t.Errorf("%s %d: attempt %s was charged", v.op, v.step, attempt)
				}
			}
			if most := conns.most.Load(); most > slots+spare {
				t.Errorf("%d connections at a time, want at most %d and a few", most, slots)
			}
			if made := conns.made.Load(); !closing && made > slots+spare {
				t.Errorf("%d connections were made, want at most %d and a few", made, slots)
			}
		})
	}
}

// deniedHosts are spellings of addresses that no caller's hook may reach.
var deniedHosts = []string{
	"[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[fd00:ec2::254]", "0.0.0.0", "100.100.100.200",
	"127.1", "2130706433", "0x7f000001", "localhost.", "metadata.google.internal", "localhost", "127.0.0.1", "[::1]", "①②⑦.0.0.1", "127.0.0.1%2e",
}

// Hooks of callers that name this machine, its neighbours or a metadata service
// are refused before a connection is made, on the way of a plain fetch and on
// that of a fallback; the operator's own address is reached all the same.
func TestDeniedHostsGetNoConnection(t *testing.T) {
	t.Parallel()
	conns := &connections{}
	r := newReceiver(t, nil)
	r.Config.ConnState = conns.changed
	r.Start()
	target, err := url.Parse(r.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := newSystem(t, "GANTRY_EGRESS_ALLOW=", "APP_URL="+r.URL)
	for i, host := range deniedHosts {
		for way, webhook := range map[string]string{"fetch": "", "fallback": `,"delivery":"qstash"`} {
			op := fmt.Sprintf("%s-%d", way, i)
			s.hook(t, op, "http://"+host+":"+target.Port()+"/denied", webhook, once)
			failures := s.outcomes(t, op, 1)
			if len(failures) != 1 || verdictOf(failures[0]) != (verdict{"dead", "egress_denied", "attempts_exhausted"}) {
				t.Errorf("%s of %s ended with %v", way, host, failures)
			}
		}
	}
	if n := conns.made.Load(); n != 0 {
		t.Fatalf("%d connections were made to denied hosts", n)
	}
	s.hook(t, "relative", "/own", `,"delivery":"qstash"`, once)
	if failures := s.outcomes(t, "relative", 1); len(failures) != 0 || len(r.seen()) != 1 {
		t.Errorf("the operator's own address: %v, %d requests", failures, len(r.seen()))
	}
	// The operator's way out has a kept connection to the receiver now; a caller's
	// hook must not ride on it.
	s.hook(t, "reused", r.URL+"/denied", "", once)
	if failures := s.outcomes(t, "reused", 1); len(failures) != 1 || failures[0]["class"] != "egress_denied" || len(r.seen()) != 1 {
		t.Errorf("beside a kept connection: %v, %d requests", failures, len(r.seen()))
	}
}

// A receiver gets exactly the bytes that were signed, spelled as the event had
// them; a retry keeps its id and has a new timestamp, and both schemes verify.
func TestSignedBytesAreReceivedBytes(t *testing.T) {
	t.Parallel()
	key := []byte("0123456789abcdef0123456789abcdef")
	s := newSystem(t, "HOOK_KEY=whsec_"+base64.StdEncoding.EncodeToString(key))
	r := startedReceiver(t, func(w http.ResponseWriter, v visit) {
		if v.header.Get("Gantry-Attempt") == "1" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	const event = `{"userId":"u","operationId":"op","agentId":"a","zz":{"b":1, "a":2},"n":12345678901234567890,"e":1e400,` +
		`"s":"<&\u2028` + "\u2028" + `","d":{"k":1,"k":2},"twice":1,"twice":2,"stepIndex":1}`
	const want = `{"agentId":"a","d":{"k":1,"k":2},"e":1e400,"hookId":"h","hookType":"afterStep","n":12345678901234567890,"operationId":"op",` +
		`"s":"<&\u2028` + "\u2028" + `","stepIndex":1,"twice":2,"userId":"u","zz":{"b":1, "a":2}}`
	s.hook(t, "op", r.URL, "", `,"gantry":{"signingKeyEnv":"HOOK_KEY","retry":{"initialDelaySeconds":1.1,"factor":1}}`)
	s.must(t, http.MethodPost, "/v1/operations/op/events", `{"type":"afterStep","event":`+event+`}`)
	visits := r.until(t, "the retry", atLeast(2))
	for _, v := range visits {
		if diff := cmp.Diff(want, v.body); diff != "" {
			t.Errorf("body (-want +got):\n%s", diff)
		}
		mac := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(mac, "%s.%s.%s", v.header.Get("webhook-id"), v.header.Get("webhook-timestamp"), v.body)
		if got, want := v.header.Get("webhook-signature"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != want {
			t.Errorf("webhook-signature is %q, want %q", got, want)
		}
		mac = hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(v.body))
		if got, want := v.header.Get("X-Webhook-Signature"), "sha256="+hex.EncodeToString(mac.Sum(nil)); got != want {
			t.Errorf("X-Webhook-Signature is %q, want %q", got, want)
		}
	}
	first, second := visits[0].header, visits[1].header
	if first.Get("webhook-id") != second.Get("webhook-id") || first.Get("webhook-timestamp") == second.Get("webhook-timestamp") {
		t.Errorf("ids %q and %q, timestamps %q and %q: a retry keeps its id and has a new timestamp", first.Get("webhook-id"),
			second.Get("webhook-id"), first.Get("webhook-timestamp"), second.Get("webhook-timestamp"))
	}
}

// A configured header leaves in the case in which it was written, and one that
// would break out of its line is never sent.
func TestHeadersKeepTheirCaseAndTheirLine(t *testing.T) {
	t.Parallel()
	s := newSystem(t, "HOOK_TOKEN=secret\n")
	heads, target := rawReceiver(t, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	s.hook(t, "case", target, `,"headers":{"X-API-key":"k"}`, once)
	if failures := s.outcomes(t, "case", 1); len(failures) != 0 {
		t.Errorf("not delivered: %v", failures)
	}
	if head := <-heads; !strings.Contains(head, "\r\nX-API-key: k\r\n") {
		t.Errorf("the head was %q", head)
	}
	for i, headers := range []string{`{"X-A":"a\r\nX-B: b"}`, `{"X-A":"a\rb"}`, `{"X-A":"a\nb"}`, `{"X-A":"${HOOK_TOKEN}"}`} {
		op := fmt.Sprintf("broken-%d", i)
		s.hook(t, op, target, `,"allowedEnvVars":["HOOK_TOKEN"],"headers":`+headers, once)
		failures := s.outcomes(t, op, 1)
		if len(failures) != 1 || failures[0]["class"] != "configuration" || strings.Contains(fmt.Sprint(failures), "secret") {
			t.Errorf("headers %s ended with %v", headers, failures)
		}
	}
	if len(heads) != 0 {
		t.Errorf("a broken header was sent: %q", <-heads)
	}
}

// rawReceiver answers each request with the same bytes and hands over its head.
// The connection is closed after each answer.
func rawReceiver(t *testing.T, answer string) (heads chan string, target string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	heads = make(chan string, 100)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = conn.Close() }()
				if head, ok := readHead(conn); ok {
					heads <- head
					_, _ = conn.Write([]byte(answer)) // the client may have gone
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return heads, "http://" + l.Addr().String()
}

// readHead reads one request whole and returns its head.
func readHead(conn net.Conn) (string, bool) {
	var got []byte
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		got = append(got, buf[:n]...)
		if head, body, whole := strings.Cut(string(got), "\r\n\r\n"); whole {
			var length int
			_, rest, _ := strings.Cut(head, "Content-Length: ")
			if _, scanErr := fmt.Sscanf(rest, "%d", &length); scanErr == nil && len(body) >= length {
				return head + "\r\n", true
			}
		}
		if err != nil {
			return "", false
		}
	}
}

// Whatever a receiver does with its answer, its first line decides, nothing of
// its words reaches the log, and the worker goes on.
func TestOddReceiversAreJudgedByTheirFirstLine(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	const word = "stranger"
	for name, row := range map[string]struct {
		answer string
		class  any // nil means delivered
	}{
		"HTTP/1.0":               {"HTTP/1.0 200 OK\r\n\r\n" + word, nil},
		"connection: close":      {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", nil},
		"204 with a body":        {"HTTP/1.1 204 No Content\r\nContent-Length: 8\r\n\r\n" + word, nil},
		"more than it promised":  {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + word, nil},
		"less than it promised":  {"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + word, nil},
		"a compressed body":      {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\n" + word, nil},
		"early hints":            {"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", nil},
		"a flood of early hints": {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 10_000), "reset"},
		"switched protocols":     {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "reset"},
		"no HTTP":                {word + "\n", "reset"},
		"an endless header":      {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 300_000) + "\r\n\r\n", "reset"},
		"two lengths":            {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n", "reset"},
		"half a head":            {"HTTP/1.1 200 OK\r\nX: half", "reset"},
		"nothing":                {"", "reset"},
		"a status that is none":  {"HTTP/1.1 099 X\r\nContent-Length: 0\r\n\r\n", "reset"},
		"a failure with a body":  {"HTTP/1.1 500 " + word + "\r\nContent-Length: 8\r\n\r\n" + word, "http_5xx"},
		"a failure without end":  {"HTTP/1.1 404 Not Found\r\n\r\n" + strings.Repeat(word, 100_000), "http_4xx"},
	} {
		_, target := rawReceiver(t, row.answer)
		s.hook(t, name, target, `,"timeout":10`, once)
		failures := s.outcomes(t, name, 1)
		var class any
		if len(failures) > 0 {
			class = failures[0]["class"]
		}
		if class != row.class || strings.Contains(fmt.Sprint(failures), word) {
			t.Errorf("%s ended with %v, want class %v", name, failures, row.class)
		}
	}
	for line := range strings.Lines(s.log.String()) {
		if !strings.HasPrefix(line, "{") || strings.Contains(line, word) {
			t.Errorf("a line of the log: %s", line)
		}
	}
}

// A receiver whose head never ends is cut off by the hook's timeout.
func TestSlowHeadIsCutOff(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	gone := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		defer close(gone)
		defer func() { _ = conn.Close() }()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for _, err = conn.Write([]byte("HTTP/1.1 200 OK\r\nX: ")); err == nil; _, err = conn.Write([]byte("a")) {
			<-tick.C
		}
	}))
	t.Cleanup(server.Close)
	s.hook(t, "op", server.URL, `,"timeout":0.3`, once)
	failures := s.outcomes(t, "op", 1)
	if len(failures) != 1 || failures[0]["class"] != "timeout" {
		t.Errorf("ended with %v", failures)
	}
	<-gone
}

// The receiver may have an IPv6 address.
func TestLiteralIPv6(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatalf("listen on ::1: %v", err)
	}
	r := newReceiver(t, nil)
	_ = r.Listener.Close()
	r.Listener = l
	r.Start()
	s := newSystem(t)
	s.hook(t, "op", r.URL, "", once)
	if failures := s.outcomes(t, "op", 1); len(failures) != 0 || len(r.seen()) != 1 {
		t.Errorf("%v, %d requests", failures, len(r.seen()))
	}
}
