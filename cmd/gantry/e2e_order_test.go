package main

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// counting is 1..n, with times for one of them.
func counting(n, repeated, times int) []int {
	var steps []int
	for i := 1; i <= n; i++ {
		steps = append(steps, i)
		for extra := 1; i == repeated && extra < times; extra++ {
			steps = append(steps, i)
		}
	}
	return steps
}

// Four worker processes share 10,000 events, 1,000 of them of one operation. The
// receiver fails the third event of each operation twice: nothing arrives out
// of order, and nothing else arrives twice.
func TestFourWorkersKeepADeepBacklogInOrder(t *testing.T) {
	t.Parallel()
	agent := newAgent(t)
	var mu sync.Mutex
	failed := map[string]int{}
	r := startedReceiver(t, func(w http.ResponseWriter, v visit) {
		mu.Lock()
		defer mu.Unlock()
		if v.step == 3 && failed[v.op] < 2 {
			failed[v.op]++
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	const wide, each, deep = 36, 250, 1000
	backlog := map[string]int{"deep": deep}
	for n := range wide {
		backlog[fmt.Sprintf("op-%d", n)] = each
	}
	total := 0
	for op, events := range backlog {
		for first := 1; first <= events; first += 250 {
			if err := agent.send(t.Context(), op, r.URL, [2]int{first, first + 249}); err != nil {
				t.Fatalf("enqueue: %v", err)
			}
		}
		total += events + 2
	}
	for range 4 {
		launch(t, append(agent.env, "GANTRY_WORKER_CONCURRENCY=50", "GANTRY_RETRY_INITIAL=20ms", "GANTRY_RETRY_JITTER=0"), "worker")
	}
	visits := r.until(t, "the backlog", atLeast(total))
	byOperation := map[string][]int{}
	for _, v := range visits {
		byOperation[v.op] = append(byOperation[v.op], v.step)
	}
	for op, events := range backlog {
		if diff := cmp.Diff(counting(events, 3, 3), byOperation[op]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", op, diff)
		}
	}
}

// Three events of an operation are published within a millisecond or so, in a
// thousand operations at a time, to thirty slots, and the worker is replaced in
// the middle: each operation's receiver sees them in the order of publishing.
func TestEventsOfOneMillisecondKeepTheirOrder(t *testing.T) {
	t.Parallel()
	agent, r := newAgent(t), startedReceiver(t, nil)
	env := append(agent.env, "GANTRY_WORKER_CONCURRENCY=30")
	worker := launch(t, env, "worker")
	worker.log.await(t, "worker.started", 1)
	const runs, publishers = 1000, 8
	var publishing sync.WaitGroup
	for p := range publishers {
		publishing.Go(func() {
			for n := p; n < runs; n += publishers {
				for step := 1; step <= 3; step++ {
					if err := agent.send(t.Context(), fmt.Sprintf("run-%d", n), r.URL, [2]int{step, step}); err != nil {
						t.Errorf("enqueue: %v", err)
						return
					}
				}
			}
		})
	}
	r.until(t, "half of the events", atLeast(runs*3/2))
	next := launch(t, env, "worker")
	if err := worker.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("signal: %v", err)
	}
	if err := worker.wait(t); err != nil {
		t.Errorf("the worker ended with %v", err)
	}
	publishing.Wait()
	visits := r.until(t, "all events", atLeast(runs*3))
	byRun := map[string][]int{}
	for _, v := range visits {
		byRun[v.op] = append(byRun[v.op], v.step)
	}
	for n := range runs {
		run := fmt.Sprintf("run-%d", n)
		if diff := cmp.Diff([]int{1, 2, 3}, byRun[run]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", run, diff)
		}
	}
	next.log.await(t, "worker.started", 1)
}

// The third event fails for ever. While it does, the metrics show a blocked
// hook; when its attempts are used up it is a dead letter, the fourth goes out,
// and nothing is blocked any more.
func TestBlockedHookIsVisibleAndGivesWay(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	third, release := make(chan struct{}, 10), make(chan struct{})
	r := startedReceiver(t, func(w http.ResponseWriter, v visit) {
		if v.step != 3 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if v.header.Get("Gantry-Attempt") == "2" {
			third <- struct{}{}
			<-release
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	s.hook(t, "op", r.URL, "", `,"gantry":{"retry":{"attempts":4}}`)
	s.send(t, "op", 1, 5)
	<-third
	if got := s.metric(t, `gantry_hooks_blocked{shard="0"}`); got != "1" {
		t.Errorf("blocked hooks while it fails = %q, want 1", got)
	}
	close(release)
	visits := r.until(t, "the last event", func(v []visit) bool { return len(v) > 0 && v[len(v)-1].step == 5 })
	if diff := cmp.Diff(counting(5, 3, 4), stepsOf(visits, "op")); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	eventually(t, "nothing is blocked", func() bool { return s.metric(t, `gantry_hooks_blocked{shard="0"}`) == "0" })
	if got := s.metric(t, `gantry_dead_letters{shard="0"}`); got != "1" {
		t.Errorf("dead letters = %q, want 1", got)
	}
}

// A receiver takes longer than the lease: the heartbeat holds the lane, and
// another worker that waits for it does not send a second request.
func TestAnswerAfterTheLeaseIsOneRequest(t *testing.T) {
	t.Parallel()
	const lease = 1500 * time.Millisecond
	s := newSystem(t, "GANTRY_LANE_LEASE=1500ms", "GANTRY_LANE_HEARTBEAT=300ms")
	other := launch(t, s.env, "worker")
	other.log.await(t, "worker.started", 1)
	r := startedReceiver(t, func(w http.ResponseWriter, _ visit) {
		<-time.After(2 * lease) // the receiver's own slowness is the story
		w.WriteHeader(http.StatusNoContent)
	})
	s.hook(t, "op", r.URL, "", "")
	if failures := s.outcomes(t, "op", 1); len(failures) != 0 {
		t.Errorf("not delivered: %v", failures)
	}
	if n := len(r.seen()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	refused := launch(t, append(s.env, "GANTRY_LANE_LEASE=2s", "GANTRY_LANE_HEARTBEAT=1s"), "worker")
	if err := refused.wait(t); err == nil || refused.ProcessState.ExitCode() != exitUsage {
		t.Errorf("a lease under three heartbeats ended with %v", err)
	}
}

// A worker is killed in mid-request: the event arrives again, under the same
// delivery id, within the lease and one sweep, and only that one does.
func TestKilledInMidRequestIsOneDuplicate(t *testing.T) {
	t.Parallel()
	agent := newAgent(t)
	reached, release := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	r := startedReceiver(t, func(w http.ResponseWriter, v visit) {
		if v.step == 3 && first.CompareAndSwap(false, true) {
			close(reached)
			<-release
		}
		w.WriteHeader(http.StatusNoContent)
	})
	t.Cleanup(func() { close(release) })
	if err := agent.send(t.Context(), "op", r.URL, [2]int{1, 6}); err != nil {
		t.Fatalf("enqueue: %v", err)
	}
	killed := launch(t, agent.env, "worker")
	<-reached
	second := launch(t, agent.env, "worker")
	second.log.await(t, "worker.started", 1)
	if err := killed.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatalf("kill: %v", err)
	}
	died := time.Now()
	visits := r.until(t, "the rest", atLeast(7))
	if diff := cmp.Diff(counting(6, 3, 2), stepsOf(visits, "op")); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	const leaseAndSweep, margin = 5 * time.Second, time.Second
	if took := visits[3].at.Sub(died); took > leaseAndSweep+margin {
		t.Errorf("the event came again after %s", took)
	}
	id := "Gantry-Delivery-Id"
	if a, b := visits[2].header.Get(id), visits[3].header.Get(id); a != b || a == "" {
		t.Errorf("delivery ids %q and %q, want the same", a, b)
	}
}
