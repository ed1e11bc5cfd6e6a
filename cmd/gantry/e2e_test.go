package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

// The e2e tests play the stories of operators against processes of the command:
// hooks and events go in over HTTP, deliveries come out at receivers on this
// machine, and Redis is a real one.

// longPatience is for whole stories, on a machine that runs other tests beside.
const longPatience = 3 * patience

// system is "gantry serve --with-worker" and its Redis.
type system struct {
	*command
	api     string
	metrics string
	redis   *redis.Client
	env     []string
}

// settings of every system here: quick retries, receivers on this machine.
func systemEnv(redisURL string, more ...string) []string {
	return append([]string{
		"REDIS_URL=" + redisURL, "GANTRY_TOKENS=operator:tk", "GANTRY_LISTEN=127.0.0.1:0", "GANTRY_METRICS_LISTEN=127.0.0.1:0",
		"GANTRY_EGRESS_ALLOW=127.0.0.0/8,::1/128", "GANTRY_RETRY_INITIAL=20ms", "GANTRY_RETRY_FACTOR=1", "GANTRY_RETRY_JITTER=0",
	}, more...)
}

// newSystem starts one on an empty database.
func newSystem(t *testing.T, env ...string) *system {
	t.Helper()
	client := servertest.FlushedClient(t)
	return startSystem(t, client, systemEnv(servertest.URL(client), env...))
}

func startSystem(t *testing.T, client *redis.Client, env []string) *system {
	t.Helper()
	s := &system{command: launch(t, env, "serve", "--with-worker"), redis: client, env: env}
	s.api, s.metrics = s.address(t, "api"), s.address(t, "metrics")
	return s
}

// address waits until a server of a process has said where it listens.
func (c *command) address(t *testing.T, server string) string {
	t.Helper()
	line := regexp.MustCompile(`"address":"([^"]+)".*"msg":"server.started","server":"` + server + `"`)
	deadline := time.After(patience)
	for {
		if found := line.FindStringSubmatch(c.log.String()); found != nil {
			return "http://" + found[1]
		}
		select {
		case <-c.log.grown:
		case <-deadline:
			t.Fatalf("the server %s did not start", server)
		}
	}
}

// reply is an answer of the API.
type reply struct {
	status int
	raw    string
	body   map[string]any
}

// call makes one request; body may be "".
func (s *system) call(t *testing.T, method, path, body string) reply {
	t.Helper()
	r, err := s.try(t, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (s *system) try(t *testing.T, method, path, body string) (reply, error) {
	req, err := http.NewRequestWithContext(t.Context(), method, s.api+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer tk")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{status: resp.StatusCode, raw: string(raw)}
	if bytes.HasPrefix(raw, []byte("{")) {
		err = json.Unmarshal(raw, &r.body)
	}
	return r, err
}

// must is call for what has to succeed.
func (s *system) must(t *testing.T, method, path, body string) reply {
	t.Helper()
	r := s.call(t, method, path, body)
	if r.status/100 != 2 {
		t.Fatalf("%s %s = %d %s", method, path, r.status, r.raw)
	}
	return r
}

// operation is the path of an operation.
func operation(id string) string { return "/v1/operations/" + url.PathEscape(id) }

// hooks registers one hook "h" for afterStep; webhook holds the webhook's members
// beside the URL, and more those of the hook, each with a leading comma or "".
func (s *system) hook(t *testing.T, op, target, webhook, more string) {
	t.Helper()
	s.must(t, http.MethodPut, operation(op)+"/hooks",
		fmt.Sprintf(`[{"id":"h","type":"afterStep","webhook":{"url":%q%s}%s}]`, target, webhook, more))
}

// stepEvents are the steps first to last as a body.
func stepEvents(first, last int) string {
	var events []string
	for n := first; n <= last; n++ {
		events = append(events, fmt.Sprintf(`{"id":"e%d","type":"afterStep","event":{"agentId":"a","userId":"u","stepIndex":%d}}`, n, n))
	}
	return "[" + strings.Join(events, ",") + "]"
}

// send appends steps first to last.
func (s *system) send(t *testing.T, op string, first, last int) {
	t.Helper()
	s.must(t, http.MethodPost, operation(op)+"/events", stepEvents(first, last))
}

// outcomes sends one step, waits for its end and returns the hooks that are not
// delivered.
func (s *system) outcomes(t *testing.T, op string, step int) []map[string]any {
	t.Helper()
	r := s.must(t, http.MethodPost, operation(op)+"/events?await=30s&awaitMode=final", stepEvents(step, step))
	var result struct {
		Settled  bool
		Receipts []struct{ Outcomes []map[string]any }
	}
	if err := json.Unmarshal([]byte(r.raw), &result); err != nil || !result.Settled || len(result.Receipts) != 1 {
		t.Fatalf("event of %s: %v, %s", op, err, r.raw)
	}
	return result.Receipts[0].Outcomes
}

// metric reads one sample, such as `gantry_dead_letters{shard="0"}`.
func (s *system) metric(t *testing.T, sample string) string {
	t.Helper()
	resp, err := http.Get(s.metrics + "/metrics")
	if err != nil {
		t.Fatalf("scrape: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("scrape: %v", err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, found := strings.CutPrefix(line, sample+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// keys lists what is stored under the namespace; asynq's own bookkeeping comes
// and goes beside it.
func (s *system) keys(t *testing.T) []string {
	t.Helper()
	names, err := s.redis.Keys(t.Context(), "gantry:*").Result()
	if err != nil {
		t.Fatalf("list keys: %v", err)
	}
	slices.Sort(names)
	return names
}

// visit is one request at a receiver.
type visit struct {
	op     string
	step   int
	path   string
	header http.Header
	body   string
	at     time.Time
}

// receiver answers as it is told and remembers every request.
type receiver struct {
	*httptest.Server
	answer func(w http.ResponseWriter, v visit)

	mu      sync.Mutex
	visits  []visit
	changed chan struct{}
}

// newReceiver starts one; a nil answer is 204.
func newReceiver(t *testing.T, answer func(w http.ResponseWriter, v visit)) *receiver {
	t.Helper()
	r := &receiver{answer: answer, changed: make(chan struct{}, 1)}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func startedReceiver(t *testing.T, answer func(w http.ResponseWriter, v visit)) *receiver {
	t.Helper()
	r := newReceiver(t, answer)
	r.Start()
	return r
}

func (r *receiver) serve(w http.ResponseWriter, q *http.Request) {
	raw, err := io.ReadAll(q.Body)
	var payload struct {
		OperationID string `json:"operationId"`
		StepIndex   int    `json:"stepIndex"`
	}
	if err != nil || json.Unmarshal(raw, &payload) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	v := visit{payload.OperationID, payload.StepIndex, q.URL.Path, q.Header, string(raw), time.Now()}
	r.mu.Lock()
	r.visits = append(r.visits, v)
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
	if r.answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	r.answer(w, v)
}

// seen returns the requests so far.
func (r *receiver) seen() []visit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.visits)
}

// until waits until the requests so far are enough.
func (r *receiver) until(t *testing.T, what string, enough func([]visit) bool) []visit {
	t.Helper()
	deadline := time.After(longPatience)
	for {
		seen := r.seen()
		if enough(seen) {
			return seen
		}
		select {
		case <-r.changed:
		case <-deadline:
			t.Fatalf("waited %s for %s; %d requests came", longPatience, what, len(seen))
		}
	}
}

// atLeast is enough with n requests.
func atLeast(n int) func([]visit) bool { return func(v []visit) bool { return len(v) >= n } }

// steps of one operation, in the order of arrival.
func stepsOf(visits []visit, op string) []int {
	var steps []int
	for _, v := range visits {
		if v.op == op {
			steps = append(steps, v.step)
		}
	}
	return steps
}

// eventually looks again and again until the condition holds; for what only
// Redis or a scrape can tell.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

// stopSignal asks a process to end gracefully.
const stopSignal = syscall.SIGTERM

// slowUpload starts a request whose body does not end.
func slowUpload(t *testing.T, api string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(api, "http://"))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	head := "POST /v1/operations/op/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer tk\r\nContent-Type: application/json\r\n" +
		"Content-Length: 1000\r\n\r\n["
	if _, err := conn.Write([]byte(head)); err != nil {
		t.Fatalf("write: %v", err)
	}
	return conn
}
