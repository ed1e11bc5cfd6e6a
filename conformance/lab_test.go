package conformance_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
	"github.com/gantry-hooks/gantry/worker"
)

// lab is what all cases share: one real Redis, on which each case has a
// namespace of its own.
type lab struct {
	t *testing.T
	// start makes the clients at the first case that needs them.
	start            sync.Once
	client, blocking *redis.Client
	// stopping are workers and dispatchers on their way out, which takes as long
	// as a blocking pop; the cases do not wait for them, the test does.
	stopping sync.WaitGroup
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t}
	t.Cleanup(func() {
		l.stopping.Wait()
		if l.client != nil {
			_ = l.client.Close()
			_ = l.blocking.Close()
		}
	})
	return l
}

// store is a lane store in a fresh namespace.
func (r *run) store() *redislane.Store {
	l := r.lab
	server := servertest.Redis(r.t)
	l.start.Do(func() {
		options := redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, PoolSize: 64, MaxRetries: 2, DisableIdentity: true}
		l.client = redis.NewClient(&options)
		options.PoolSize, options.ReadTimeout, options.MaxRetries = 1024, 10*time.Second, -1
		l.blocking = redis.NewClient(&options)
	})
	store, err := redislane.Open(r.t.Context(), redislane.Config{
		Client: l.client, Blocking: l.blocking, Namespace: "c" + tasks.NewID(), Lease: 30 * time.Second,
	})
	if err != nil {
		r.fatalf("open the store: %v", err)
	}
	return store
}

// later runs stop beside the other cases.
func (l *lab) later(what string, stop func(context.Context) error) {
	l.stopping.Go(func() {
		if err := stop(context.Background()); err != nil {
			l.t.Errorf("%s: %v", what, err)
		}
	})
}

// dispatcher builds a dispatcher that is closed after the case.
func (r *run) dispatcher(cfg producer.Config) *producer.Dispatcher {
	d, err := producer.New(cfg)
	if err != nil {
		r.fatalf("build the dispatcher: %v", err)
	}
	r.t.Cleanup(func() {
		r.lab.later("close the dispatcher", func(context.Context) error { d.Close(); return nil })
	})
	return d
}

// worker starts a worker that is stopped after the case. Its retries come
// later than any case ends, so that each hook is attempted once.
func (r *run) worker(cfg worker.Config) {
	cfg.Retry = worker.RetryPolicy{InitialDelay: time.Hour, MaxDelay: time.Hour, Factor: 1, Jitter: -1}
	cfg.Grace = time.Second
	w, err := worker.New(cfg)
	if err != nil {
		r.fatalf("build the worker: %v", err)
	}
	if err := w.Start(r.t.Context()); err != nil {
		r.fatalf("start the worker: %v", err)
	}
	r.t.Cleanup(func() { r.lab.later("stop the worker", w.Stop) })
}
