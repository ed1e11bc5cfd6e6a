package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

// newAPI starts the API in a process of its own, so that workers can come and go.
func newAPI(t *testing.T, client *redis.Client, env []string) *system {
	t.Helper()
	s := &system{command: launch(t, env, "serve"), redis: client, env: env}
	s.api, s.metrics = s.address(t, "api"), s.address(t, "metrics")
	return s
}

// worker starts a worker of the same deployment, and waits until the API knows
// that it has no controls of its own: until then an unanswered question is blocked.
func (s *system) worker(t *testing.T) *command {
	t.Helper()
	w := launch(t, s.env, "worker")
	w.log.await(t, "control.started", 1)
	eventually(t, "the API knows the worker", func() bool {
		v := s.ask(t, "nobody", "")
		return v.Outcome == "no_control" && v.By == "asker"
	})
	return w
}

// control registers one control of each phase for an operation; more are members
// of the webhook with a leading comma, or "".
func (s *system) control(t *testing.T, op, target, more string) {
	t.Helper()
	var hooks []string
	for _, phase := range []tasks.HookType{tasks.BeforeToolCall, tasks.AfterToolCall} {
		hooks = append(hooks, fmt.Sprintf(`{"id":"policy","type":%q,"webhook":{"url":%q,"responseHandling":"toolCall"%s}}`, phase, target, more))
	}
	s.must(t, http.MethodPut, operation(op)+"/hooks", "["+strings.Join(hooks, ",")+"]")
}

// decision is an answer of the API to a question.
type decision struct {
	ID, Status, Reason, Outcome, By string
	Unsettled                       bool
	Controls                        []tasks.ControlResult
}

// question is a question about the mail tool; more are members with a trailing
// comma, or "".
func question(more string) string {
	return `{"type":"beforeToolCall",` + more + `"event":{"toolCallId":"c","assistantMessageId":"m","identifier":"mail","apiName":"send",` +
		`"args":{},"callIndex":1,"stepIndex":0,"executor":"server"}}`
}

// ask asks and waits.
func (s *system) ask(t *testing.T, op, more string) decision {
	t.Helper()
	return readVerdict(t, s.must(t, http.MethodPost, operation(op)+"/tool-calls:evaluate", question(more)))
}

func readVerdict(t *testing.T, r reply) decision {
	t.Helper()
	var v decision
	if err := json.Unmarshal([]byte(r.raw), &v); err != nil {
		t.Fatalf("read verdict %s: %v", r.raw, err)
	}
	return v
}

// asked is the answer to a question that was asked in the background.
type asked struct {
	verdict decision
	err     error
	took    time.Duration
}

// askLater asks in the background.
func (s *system) askLater(t *testing.T, op, more string) <-chan asked {
	t.Helper()
	answers := make(chan asked, 1)
	began := time.Now()
	go func() {
		r, err := s.try(t, http.MethodPost, operation(op)+"/tool-calls:evaluate", question(more))
		a := asked{err: err, took: time.Since(began)}
		if err == nil && r.status != http.StatusOK {
			a.err = fmt.Errorf("status %d: %s", r.status, r.raw)
		}
		if a.err == nil {
			a.err = json.Unmarshal([]byte(r.raw), &a.verdict)
		}
		answers <- a
	}()
	return answers
}

// holding is a control that answers when it is released, and tells of those who
// wait and of those who went away.
type holding struct {
	*httptest.Server
	arrived, left chan struct{}
	release       chan struct{}
}

func newHolding(t *testing.T) *holding {
	t.Helper()
	h := &holding{arrived: make(chan struct{}, 100), left: make(chan struct{}, 100), release: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then does the server notice that the caller goes away
		h.arrived <- struct{}{}
		select {
		case <-h.release:
			_, _ = io.WriteString(w, `{"decision":"allow"}`)
		case <-r.Context().Done():
			h.left <- struct{}{}
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *holding) await(t *testing.T, what <-chan struct{}) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(patience):
		t.Fatalf("waited %s for the control", patience)
	}
}

// hijacked answers with raw bytes and ends the connection.
func hijacked(w http.ResponseWriter, raw string) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(connection, raw)
	_ = connection.Close()
}

// replies are what a control may do wrong, by path.
var replies = map[string]func(w http.ResponseWriter, r *http.Request){
	"timeout":   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"status":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	"word":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"decision":"denied"}`) },
	"truncated": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"decision":"allow"`) },
	"large":     func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat(" ", 2<<20)) },
	"redirect":  func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/allow", http.StatusFound) },
	"interrupted": func(w http.ResponseWriter, _ *http.Request) {
		hijacked(w, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"decision\":\"allow\"}")
	},
	"reset": func(w http.ResponseWriter, _ *http.Request) { hijacked(w, "") },
	"ok":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"ok":"false"}`) },
	"allow": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"decision":"allow"}`) },
}

// A control that does something strange is an error of its own: the policy of the
// hook decides, the control is asked once, and there is one verdict, which stands.
func TestStrangeRepliesEndByThePolicy(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, q.Body)
		replies[strings.TrimPrefix(q.URL.Path, "/")](w, q)
	}))
	t.Cleanup(r.Close)
	refused, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = refused.Close()
	s := newSystem(t)
	policies := map[string]decision{
		"continue": {Status: "allow", Outcome: "error_open"},
		"block":    {Status: "blocked", Outcome: "error_closed", Reason: "hook_control_error"},
	}
	// {"ok":"false"} holds no decision at all, which makes it a notification.
	for name, code := range map[string]string{
		"timeout": "timeout", "status": "http_error", "word": "invalid_response", "truncated": "", "large": "response_too_large",
		"redirect": "network_error", "interrupted": "network_error", "reset": "network_error", "refused": "network_error", "ok": "",
	} {
		for policy, want := range policies {
			target, asked := r.URL+"/"+name, int64(1)
			if name == "refused" {
				target, asked = "http://"+refused.Addr().String(), 0
			}
			op := name + "-" + policy
			timeout := "20"
			if name == "timeout" {
				timeout = "0.3"
			}
			s.control(t, op, target, `,"timeout":`+timeout+`,"onError":"`+policy+`"`)
			before := requests.Load()
			got := s.ask(t, op, `"id":"q",`)
			if code == "" {
				want = decision{Status: "allow", Outcome: "allowed"}
			}
			if got.Status != want.Status || got.Outcome != want.Outcome || got.Reason != want.Reason || got.By != "worker" || len(got.Controls) != 1 {
				t.Errorf("%s: verdict is %+v, want %+v", op, got, want)
				continue
			}
			c := got.Controls[0]
			if string(c.Code) != code || c.Class == tasks.ControlAllow || code != "" && c.Class != tasks.ControlError {
				t.Errorf("%s: the control came to %+v, want code %q", op, c, code)
			}
			n := requests.Load() - before
			if name == "reset" && n == 2 {
				n = 1 // a connection that was used before may have been closed before it was used again
			}
			if n != asked {
				t.Errorf("%s: the control was asked %d times, want %d", op, n, asked)
			}
			stands := readVerdict(t, s.must(t, http.MethodGet, operation(op)+"/verdicts/q", ""))
			if stands.Status != got.Status || stands.Outcome != got.Outcome {
				t.Errorf("%s: %+v was answered, and %+v stands", op, got, stands)
			}
		}
	}
	if open := s.metric(t, `gantry_control_evaluations_total{outcome="error_open"}`); open != "8" {
		t.Errorf("%s verdicts are counted as failed open, want 8", open)
	}
}

// A worker is killed in the middle of a question. Alone, it leaves the decision to
// the policy, by the deadline; with another one, the question is asked again.
func TestKilledWorkerLeavesNoQuestionOpen(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy, timeout string
		successor       bool
		want            decision
	}{
		"alone, block":    {"block", "2s", false, decision{Status: "blocked", Outcome: "unanswered_closed", Reason: "hook_control_error", By: "asker"}},
		"alone, continue": {"continue", "2s", false, decision{Status: "allow", Outcome: "unanswered_open", By: "asker"}},
		"with another":    {"block", "30s", true, decision{Status: "allow", Outcome: "allowed", By: "worker"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := servertest.FlushedClient(t)
			s := newAPI(t, client, systemEnv(servertest.URL(client)))
			h := newHolding(t)
			s.control(t, "op", h.URL, `,"onError":"`+test.policy+`"`)
			first := s.worker(t)
			answer := s.askLater(t, "op", `"id":"q","timeout":"`+test.timeout+`",`)
			h.await(t, h.arrived)
			if test.successor {
				s.worker(t)
			}
			died := time.Now()
			if err := first.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatalf("kill: %v", err)
			}
			if test.successor {
				h.await(t, h.arrived)
				// Two seconds on a machine that is not busy with other tests, which "gantry
				// bench control" measures.
				if took := time.Since(died); took > 10*time.Second {
					t.Errorf("the question was taken over after %s", took)
				}
				close(h.release)
			}
			got := <-answer
			if got.err != nil {
				t.Fatal(got.err)
			}
			if v := got.verdict; v.Status != test.want.Status || v.Outcome != test.want.Outcome || v.Reason != test.want.Reason || v.By != test.want.By {
				t.Errorf("verdict is %+v, want %+v", v, test.want)
			}
			if limit := 4 * time.Second; !test.successor && got.took > limit {
				t.Errorf("answered after %s, with a timeout of %s", got.took, test.timeout)
			}
			stands := readVerdict(t, s.must(t, http.MethodGet, operation("op")+"/verdicts/q", ""))
			if stands.Status != got.verdict.Status || stands.Outcome != got.verdict.Outcome {
				t.Errorf("%+v was answered, and %+v stands", got.verdict, stands)
			}
		})
	}
}

// A worker that stands still until the deadline is over comes back with an answer:
// it is too late, and changes nothing. What is left of the question expires.
func TestLateAnswerIsDropped(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	s := newAPI(t, client, systemEnv(servertest.URL(client)))
	h := newHolding(t)
	s.control(t, "op", h.URL, `,"onError":"block"`)
	w := s.worker(t)
	answer := s.askLater(t, "op", `"id":"q","timeout":"1s",`)
	h.await(t, h.arrived)
	if err := w.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("stop: %v", err)
	}
	close(h.release) // the control allows, and nobody reads it yet
	got := <-answer
	if got.err != nil || got.verdict.Status != "blocked" || got.verdict.Outcome != "unanswered_closed" {
		t.Errorf("verdict is %+v, %v", got.verdict, got.err)
	}
	if err := w.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("continue: %v", err)
	}
	// The worker is back at work when it answers the next question.
	s.control(t, "next", h.URL, "")
	if next := s.ask(t, "next", ""); next.Status != "allow" || next.By != "worker" {
		t.Errorf("the next verdict is %+v", next)
	}
	stands := readVerdict(t, s.must(t, http.MethodGet, operation("op")+"/verdicts/q", ""))
	if stands.Status != "blocked" || stands.Outcome != "unanswered_closed" || stands.By != "asker" {
		t.Errorf("a late answer changed the verdict to %+v", stands)
	}
	eventually(t, "no question waits or is held, and what is left expires", func() bool {
		for _, key := range s.keys(t) {
			if !strings.Contains(key, "control:") {
				continue
			}
			ttl, err := client.PTTL(t.Context(), key).Result()
			if err != nil {
				t.Fatalf("read expiry: %v", err)
			}
			if ttl == -1 {
				return false
			}
		}
		return true
	})
}

// Redis dies in the middle of a question: the API applies the policy by the
// deadline, and says that nobody else knows of it.
func TestWithoutRedisThePolicyIsAppliedUnsettled(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"continue", "block"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			server := servertest.PrivateRedis(t, servers.RedisOptions{})
			client := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { _ = client.Close() })
			s := newAPI(t, client, systemEnv(server.URL()))
			h := newHolding(t)
			s.control(t, "op", h.URL, `,"onError":"`+policy+`"`)
			s.worker(t)
			answer := s.askLater(t, "op", `"timeout":"2s",`)
			h.await(t, h.arrived)
			server.Kill()
			close(h.release)
			got := <-answer
			if got.err != nil {
				t.Fatal(got.err)
			}
			want := map[string]string{"continue": "allow unanswered_open", "block": "blocked unanswered_closed"}[policy]
			if v := got.verdict; v.Status+" "+v.Outcome != want || !v.Unsettled || v.By != "asker" {
				t.Errorf("verdict is %+v, want %s, unsettled", v, want)
			}
			if got.took > 5*time.Second {
				t.Errorf("answered after %s", got.took)
			}
			if n := s.metric(t, `gantry_control_unsettled_total`); n != "1" {
				t.Errorf("%q unsettled verdicts are counted, want 1", n)
			}
		})
	}
}

// A caller hangs up: its question is taken back, the control's request ends, and
// nobody gets permission from it.
func TestHangingUpTakesTheQuestionBack(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	h := newHolding(t)
	s.control(t, "op", h.URL, "")
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+operation("op")+"/tool-calls:evaluate", strings.NewReader(question(`"id":"q",`)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer tk")
	ended := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		ended <- err
	}()
	h.await(t, h.arrived)
	hangUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the request ended with %v", err)
	}
	h.await(t, h.left)
	got := readVerdict(t, s.must(t, http.MethodGet, operation("op")+"/verdicts/q?wait=20s", ""))
	if got.Status != "cancelled" || got.Outcome != "cancelled" {
		t.Errorf("verdict is %+v", got)
	}
}

// The command takes its question back when it is interrupted.
func TestInterruptedCommandTakesTheQuestionBack(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	h := newHolding(t)
	s.control(t, "op", h.URL, "")
	c := launch(t, []string{varAPI + "=" + s.api, varToken + "=tk"}, "evaluate", "--operation", "op", "--tool", "mail/send", "--id", "q")
	h.await(t, h.arrived)
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = c.wait(t) // its exit code says it
	if code := c.ProcessState.ExitCode(); code != exitNoVerdict {
		t.Errorf("exit code %d, want %d", code, exitNoVerdict)
	}
	h.await(t, h.left)
	got := readVerdict(t, s.must(t, http.MethodGet, operation("op")+"/verdicts/q?wait=20s", ""))
	if got.Status != "cancelled" {
		t.Errorf("verdict is %+v", got)
	}
}

// The slots of notifications are all taken by an endpoint that hangs, and more
// wait: verdicts come as before.
func TestQueuedNotificationsDoNotDelayVerdicts(t *testing.T) {
	t.Parallel()
	s := newSystem(t, "GANTRY_WORKER_CONCURRENCY=2", "GANTRY_WORKER_GRACE=1s")
	release := make(chan struct{})
	r := startedReceiver(t, func(w http.ResponseWriter, v visit) {
		if v.path == "/gate" {
			_, _ = io.WriteString(w, `{"decision":"allow"}`)
			return
		}
		<-release
	})
	t.Cleanup(func() { close(release) })
	for n := range 4 {
		op := fmt.Sprintf("busy-%d", n)
		s.hook(t, op, r.URL+"/hang", "", "")
		s.send(t, op, 1, 100)
	}
	r.until(t, "the slots are taken", atLeast(2))
	s.control(t, "op", r.URL+"/gate", `,"onError":"block"`)
	for range 20 {
		if v := s.ask(t, "op", ""); v.Status != "allow" || v.Outcome != "allowed" {
			t.Fatalf("verdict is %+v", v)
		}
	}
}

// The same tool is denied wherever it is called from: the main run, a sub-agent
// whose chain has the main run in it, the run after a resume, and a repeated call.
func TestADeniedToolStaysDenied(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	env := systemEnv(servertest.URL(client))
	s := newAPI(t, client, env)
	s.worker(t)
	r := startedReceiver(t, func(w http.ResponseWriter, _ visit) {
		_, _ = io.WriteString(w, `{"decision":"deny","reason":"no mail"}`)
	})
	s.control(t, "main", r.URL, "")
	s.must(t, http.MethodPut, operation("sub")+"/hooks", `[]`)
	questions := map[string]func(*system) decision{
		"main run": func(s *system) decision { return s.ask(t, "main", `"id":"call-1",`) },
		"sub-agent": func(s *system) decision {
			return s.ask(t, "sub", `"chain":[{"operationId":"main"},{"operationId":"sub"}],`)
		},
		"retry": func(s *system) decision { return s.ask(t, "main", `"id":"call-1-again",`) },
	}
	for name, ask := range questions {
		if v := ask(s); v.Status != "blocked" || v.Reason != "no mail" || v.Outcome != "denied" {
			t.Errorf("%s: verdict is %+v", name, v)
		}
	}
	// A resume happens in a process that has seen nothing of the run before.
	resumed := newAPI(t, client, env)
	if v := resumed.ask(t, "main", `"id":"call-2",`); v.Status != "blocked" || v.Reason != "no mail" {
		t.Errorf("resumed: verdict is %+v", v)
	}
	if n := len(r.seen()); n != 4 {
		t.Errorf("the control was asked %d times, want 4", n)
	}
}

// A deferred result survives its processes, is decided about once, and a denial is
// final.
func TestDeferredResultsOverHTTP(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	env := systemEnv(servertest.URL(client))
	first := newAPI(t, client, env)
	deny := atomic.Bool{}
	deny.Store(true)
	r := startedReceiver(t, func(w http.ResponseWriter, _ visit) {
		if deny.Load() {
			_, _ = io.WriteString(w, `{"decision":"deny","reason":"secret inside"}`)
			return
		}
		_, _ = io.WriteString(w, `{"decision":"allow"}`)
	})
	first.control(t, "op", r.URL, `,"onError":"block"`)
	body := `{"operationId":"op","call":{"toolCallId":"c","assistantMessageId":"m","identifier":"mail","apiName":"send","arguments":"{}"}}`
	first.must(t, http.MethodPost, "/v1/deferred/d1:open", body)
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s := newAPI(t, client, env)
	s.worker(t)
	waiting := make(chan reply, 1)
	go func() {
		r, err := s.try(t, http.MethodGet, "/v1/deferred/d1?wait=30s", "")
		if err != nil {
			t.Errorf("wait: %v", err)
		}
		waiting <- r
	}()
	// The end of the operation takes the control off nothing that is open.
	s.must(t, http.MethodDelete, operation("op")+"/hooks", "")
	done := s.must(t, http.MethodPost, "/v1/deferred/d1:complete", `{"result":{"content":"the secret","success":true}}`)
	if done.body["outcome"] != "published" || done.body["denied"] != true || strings.Contains(done.raw, "the secret") {
		t.Errorf("completed: %s", done.raw)
	}
	if got := <-waiting; got.body["final"] != true || strings.Contains(got.raw, "the secret") || !strings.Contains(got.raw, "secret inside") {
		t.Errorf("the waiting caller got %s", got.raw)
	}
	deny.Store(false)
	again := s.must(t, http.MethodPost, "/v1/deferred/d1:complete", `{"result":{"content":"the secret","success":true}}`)
	if again.body["outcome"] != "duplicate" || again.body["denied"] != true {
		t.Errorf("completed again: %s", again.raw)
	}
	if n := len(r.seen()); n != 1 {
		t.Errorf("the control was asked %d times, want 1", n)
	}
}
