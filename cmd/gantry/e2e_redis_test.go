package main

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

// A system is started before its Redis and does its work when Redis comes.
func TestSystemMayStartBeforeRedis(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	server.Kill()
	early := launch(t, systemEnv(server.URL()), "serve", "--with-worker")
	early.log.await(t, "redis.unavailable", 1)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &system{command: early, api: early.address(t, "api")}
	r := startedReceiver(t, nil)
	s.hook(t, "op", r.URL, "", "")
	if failures := s.outcomes(t, "op", 1); len(failures) != 0 {
		t.Errorf("not delivered: %v", failures)
	}
}

// Redis is killed while a caller waits for its event's delivery, and comes back
// with its data: the caller gets its answer. While Redis is away, other callers
// get a clear error soon, and they can repeat their calls.
func TestRedisComesBackDuringAWait(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways})
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s := startSystem(t, client, systemEnv(server.URL()))
	release := make(chan struct{})
	r := startedReceiver(t, func(w http.ResponseWriter, v visit) {
		if v.step == 1 {
			<-release
		}
		w.WriteHeader(http.StatusNoContent)
	})
	s.hook(t, "op", r.URL, "", "")
	type answer struct {
		reply
		err error
	}
	waiting := make(chan answer, 1)
	go func() {
		got, err := s.try(t, http.MethodPost, operation("op")+"/events?await=60s&awaitMode=final", stepEvents(1, 1))
		waiting <- answer{got, err}
	}()
	r.until(t, "the request", atLeast(1))
	server.Kill()
	began := time.Now()
	away := s.call(t, http.MethodPost, operation("op")+"/events?await=60s", stepEvents(2, 2))
	if took := time.Since(began); away.status != http.StatusServiceUnavailable || away.body["code"] != "unavailable" || took > 10*time.Second {
		t.Errorf("without Redis: %d %s after %s", away.status, away.raw, took)
	}
	close(release)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := <-waiting
	if got.err != nil || got.status != http.StatusOK || !strings.Contains(got.raw, `"outcomes":[]`) {
		t.Errorf("the caller that waited got %v, %d %s", got.err, got.status, got.raw)
	}
	if failures := s.outcomes(t, "op", 2); len(failures) != 0 {
		t.Errorf("the repeated call: %v", failures)
	}
}

// Two deployments share one Redis under names of their own: neither sees the
// other's operations, dead letters or background tasks.
func TestNamespacesDoNotMeet(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	one := startSystem(t, client, systemEnv(server.URL(), "GANTRY_NAMESPACE=one"))
	two := startSystem(t, client, systemEnv(server.URL(), "GANTRY_NAMESPACE=two"))
	var healed atomic.Bool
	r := startedReceiver(t, func(w http.ResponseWriter, _ visit) {
		if !healed.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	systems := []*system{one, two}
	for _, s := range systems {
		s.hook(t, "op", r.URL, "", once)
		if failures := s.outcomes(t, "op", 1); len(failures) != 1 {
			t.Errorf("outcomes: %v", failures)
		}
	}
	healed.Store(true)
	door := asynq.NewClientFromRedisClient(client)
	if _, err := door.Enqueue(asynq.NewTask(tasks.TypeDeadReplay, []byte(`{}`)), asynq.Queue("one")); err != nil {
		t.Fatalf("enqueue a replay: %v", err)
	}
	r.until(t, "the replay", atLeast(3))
	doc := `{"v":1,"id":"late","operationId":"op","type":"afterStep","event":{"agentId":"a","operationId":"op","userId":"u","stepIndex":9},` +
		`"hooks":[{"id":"h","type":"afterStep","webhook":{"url":"` + r.URL + `"}}]}`
	for range 8 { // whoever is first would take it, if the queue were shared
		if _, err := door.Enqueue(asynq.NewTask(tasks.TypeHookDispatch, []byte(doc)), asynq.Queue("two")); err != nil {
			t.Fatalf("enqueue: %v", err)
		}
	}
	r.until(t, "the event through asynq", atLeast(4))
	dead := func(s *system) any { return s.must(t, http.MethodGet, "/v1/dead-letters", "").body["total"] }
	eventually(t, "the dead letter of one namespace is replayed", func() bool { return dead(one) == 0.0 })
	if n := dead(two); n != 1.0 {
		t.Errorf("%v dead letters in the other namespace, want 1", n)
	}
	if got := one.call(t, http.MethodGet, operation("op")+"/events/late", ""); got.status != http.StatusNotFound {
		t.Errorf("the other namespace's event is known: %d %s", got.status, got.raw)
	}
	two.must(t, http.MethodGet, operation("op")+"/events/late", "")
}

// A worker that is asked to end while Redis is away ends within its grace period.
func TestStopWithoutRedis(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	worker := launch(t, systemEnv(server.URL(), "GANTRY_WORKER_GRACE=10s"), "worker")
	worker.log.await(t, "worker.started", 1)
	server.Kill()
	worker.log.await(t, "worker.claim_failed", 1)
	began := time.Now()
	if err := worker.Process.Signal(stopSignal); err != nil {
		t.Fatalf("signal: %v", err)
	}
	_ = worker.wait(t) // how it ends is not the story, that it ends is
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %s", took)
	}
}

// A caller that sends its body for ever takes nothing of the worker's time to
// stop: both end at once.
func TestSlowCallerDoesNotDelayTheWorkersStop(t *testing.T) {
	t.Parallel()
	s := newSystem(t, "GANTRY_SHUTDOWN_TIMEOUT=6s", "GANTRY_WORKER_GRACE=6s")
	arrived, release := make(chan struct{}), make(chan struct{})
	r := startedReceiver(t, func(w http.ResponseWriter, _ visit) {
		close(arrived)
		<-release
		w.WriteHeader(http.StatusNoContent)
	})
	t.Cleanup(func() { close(release) })
	s.hook(t, "op", r.URL, "", "")
	s.send(t, "op", 1, 1)
	<-arrived
	slow := slowUpload(t, s.api)
	defer func() { _ = slow.Close() }()
	began := time.Now()
	if err := s.Process.Signal(stopSignal); err != nil {
		t.Fatalf("signal: %v", err)
	}
	_ = s.wait(t)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stopping took %s: the server's time and the worker's were added up", took)
	}
}
