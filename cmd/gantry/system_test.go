package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

// arrival is one delivery as the receiver saw it.
type arrival struct {
	operation string
	step      int
	attempt   string
	path      string
}

// sink is a receiver that checks order.
type sink struct {
	*httptest.Server
	// hold, when not nil, is asked before a delivery is answered.
	hold func(arrival)

	mu       sync.Mutex
	arrivals []arrival
	seen     map[string]map[int]bool
	distinct int
	changed  chan struct{}
}

func newSink(t *testing.T) *sink {
	t.Helper()
	s := &sink{seen: map[string]map[int]bool{}, changed: make(chan struct{}, 1)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *sink) serve(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var payload struct {
		OperationID string `json:"operationId"`
		StepIndex   int    `json:"stepIndex"`
	}
	if err != nil || json.Unmarshal(raw, &payload) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a := arrival{payload.OperationID, payload.StepIndex, r.Header.Get("Gantry-Attempt"), r.URL.Path}
	if s.hold != nil {
		s.hold(a)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivals = append(s.arrivals, a)
	if s.seen[a.operation] == nil {
		s.seen[a.operation] = map[int]bool{}
	}
	if !s.seen[a.operation][a.step] {
		s.seen[a.operation][a.step] = true
		s.distinct++
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
	w.WriteHeader(http.StatusNoContent)
}

// await waits until n different events have arrived.
func (s *sink) await(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		distinct := s.distinct
		s.mu.Unlock()
		if distinct >= n {
			return
		}
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("%d of %d events arrived within %s", distinct, n, patience)
		}
	}
}

// check fails on anything out of order and returns how often an event arrived
// again.
func (s *sink) check(t *testing.T) (repeated int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	last, seen := map[string]int{}, map[string]bool{}
	for _, a := range s.arrivals {
		key := fmt.Sprintf("%s %d", a.operation, a.step)
		if seen[key] {
			repeated++
			continue
		}
		seen[key] = true
		if a.step != last[a.operation]+1 {
			t.Errorf("operation %s: %d arrived after %d", a.operation, a.step, last[a.operation])
		}
		last[a.operation] = a.step
	}
	return repeated
}

// agent is a producer on the queue of a test, as an agent runtime has one.
type agent struct {
	*producer.Dispatcher
	url string
	env []string
}

// newAgent makes a producer on an empty database.
func newAgent(t *testing.T) *agent {
	t.Helper()
	client := servertest.FlushedClient(t)
	store, err := redislane.Open(t.Context(), redislane.Config{Client: client, Blocking: client})
	if err != nil {
		t.Fatalf("open the lanes: %v", err)
	}
	d, err := producer.New(producer.Config{Mode: producer.ModeQueue, Store: store})
	if err != nil {
		t.Fatalf("make a dispatcher: %v", err)
	}
	t.Cleanup(d.Close)
	url := servertest.URL(client)
	return &agent{Dispatcher: d, url: url, env: []string{
		"REDIS_URL=" + url, "GANTRY_EGRESS_ALLOW=127.0.0.0/8", "GANTRY_TOKENS=operator:tk", "GANTRY_LISTEN=127.0.0.1:0",
	}}
}

// send appends steps first to last of an operation, all for one hook.
func (r *agent) send(ctx context.Context, operation, url string, span [2]int) error {
	hooks := json.RawMessage(fmt.Sprintf(`[{"id":"h","type":"afterStep","webhook":{"url":%q}}]`, url))
	var events []producer.EventRequest
	for n := span[0]; n <= span[1]; n++ {
		raw := fmt.Sprintf(`{"agentId":"a","operationId":%q,"userId":"u","stepIndex":%d}`, operation, n)
		event, err := tasks.ParseEvent(tasks.AfterStep, operation, []byte(raw))
		if err != nil {
			return err
		}
		events = append(events, producer.EventRequest{Event: event, Persisted: hooks, ID: fmt.Sprintf("e%d", n)})
	}
	_, err := r.EnqueueMany(ctx, operation, events)
	return err
}

func TestKilledWorkerIsReplaced(t *testing.T) {
	t.Parallel()
	agent, sink := newAgent(t), newSink(t)
	const operations, events = 8, 40
	// The first worker is killed in the middle of a delivery of each operation.
	reached, killed := make(chan string, operations), make(chan struct{})
	sink.hold = func(a arrival) {
		select {
		case <-killed:
		default:
			if a.step == events/2 {
				reached <- a.operation
				<-killed
			}
		}
	}
	for n := range operations {
		if err := agent.send(t.Context(), fmt.Sprintf("op-%d", n), sink.URL, [2]int{1, events}); err != nil {
			t.Fatalf("enqueue: %v", err)
		}
	}
	first := launch(t, agent.env, "worker")
	for range operations {
		<-reached
	}
	second := launch(t, agent.env, "worker")
	second.log.await(t, "worker.started", 1)
	if err := first.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatalf("kill: %v", err)
	}
	begin := time.Now()
	close(killed)
	sink.await(t, operations*events)
	// Five seconds on a machine that is not busy with other tests, which "gantry
	// bench crash" measures.
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("the work of the killed worker was done %s later", took)
	}
	if repeated := sink.check(t); repeated > operations {
		t.Errorf("%d events arrived again, more than the %d in flight", repeated, operations)
	}
}

func TestGracefulStopsLoseNothing(t *testing.T) {
	t.Parallel()
	agent, sink := newAgent(t), newSink(t)
	const operations, rounds, perRound = 20, 6, 30
	sink.hold = func(arrival) { <-time.After(2 * time.Millisecond) } // keeps deliveries in flight
	env := append(agent.env, "GANTRY_WORKER_GRACE=5s")
	worker := launch(t, env, "worker")
	for round := range rounds {
		for n := range operations {
			if err := agent.send(t.Context(), fmt.Sprintf("op-%d", n), sink.URL, [2]int{round*perRound + 1, (round + 1) * perRound}); err != nil {
				t.Fatalf("enqueue: %v", err)
			}
		}
		sink.await(t, round*operations*perRound+operations*perRound/2) // in the middle of the load
		next := launch(t, env, "worker")
		if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatalf("signal: %v", err)
		}
		begin := time.Now()
		if err := worker.wait(t); err != nil {
			t.Errorf("round %d: the worker ended with %v", round, err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("round %d: the worker took %s, more than its grace", round, took)
		}
		worker = next
	}
	sink.await(t, operations*rounds*perRound)
	if repeated := sink.check(t); repeated > 0 {
		t.Errorf("%d events arrived again after graceful stops", repeated)
	}
	for _, a := range sink.arrivals {
		if a.attempt != "1" {
			t.Errorf("operation %s, step %d: attempt %s was charged", a.operation, a.step, a.attempt)
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	agent, sink := newAgent(t), newSink(t)
	holding, release := make(chan struct{}, 1), make(chan struct{})
	sink.hold = func(arrival) {
		select {
		case holding <- struct{}{}:
		default:
		}
		<-release
	}
	t.Cleanup(func() { close(release) })
	if err := agent.send(t.Context(), "op", sink.URL, [2]int{1, 1}); err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	worker := launch(t, append(agent.env, "GANTRY_WORKER_GRACE=1h"), "worker")
	<-holding
	for range 2 {
		if err := worker.Process.Signal(os.Interrupt); err != nil {
			t.Fatalf("signal: %v", err)
		}
		// Two signals that come together may be taken for one by the kernel.
		select {
		case err := <-worker.ended:
			worker.ended <- err
		case <-time.After(500 * time.Millisecond):
		}
	}
	_ = worker.wait(t)
	if code := worker.ProcessState.ExitCode(); code != exitInterrupted {
		t.Fatalf("exit code %d, want %d", code, exitInterrupted)
	}
}

func TestHangupReloads(t *testing.T) {
	t.Parallel()
	agent, sink := newAgent(t), newSink(t)
	hooks := func(path string) string {
		return "AGENT_HOOK_WEBHOOK_URL=" + sink.URL + path + "\nAGENT_HOOK_WEBHOOK_TOKEN=t\nAGENT_HOOK_WEBHOOK_EVENTS=afterStep\n"
	}
	path := file(t, "env", hooks("/old"))
	worker := launch(t, append(agent.env, "GANTRY_ENV_FILE="+path), "worker")
	worker.log.await(t, "worker.started", 1)
	if err := agent.send(t.Context(), "op", sink.URL+"/own", [2]int{1, 1}); err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	paths := func(n int) string {
		deadline := time.After(patience)
		for {
			sink.mu.Lock()
			var all []string
			for _, a := range sink.arrivals {
				all = append(all, a.path)
			}
			sink.mu.Unlock()
			if len(all) >= n {
				return strings.Join(all, " ")
			}
			select {
			case <-sink.changed:
			case <-deadline:
				t.Fatalf("arrived: %v", all)
			}
		}
	}
	if got := paths(2); got != "/own /old" {
		t.Fatalf("arrived at %s", got)
	}
	if err := os.WriteFile(path, []byte(hooks("/new")), 0o600); err != nil {
		t.Fatalf("write: %v", err)
	}
	if err := worker.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatalf("signal: %v", err)
	}
	worker.log.await(t, "environment.reloaded", 1)
	if err := agent.send(t.Context(), "op", sink.URL+"/own", [2]int{2, 2}); err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	if got := paths(4); got != "/own /old /own /new" {
		t.Fatalf("arrived at %s", got)
	}
}
