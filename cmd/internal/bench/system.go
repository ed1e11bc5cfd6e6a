package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/worker"
)

// slots is the number of deliveries in flight of every contender.
const slots = 50

// system is the private ground of a bench: a Redis, a sink, and the HTTP client
// that every contender uses.
type system struct {
	redis  *servers.Redis
	sink   *sinkProcess
	client *egress.Client
	log    *logrus.Logger
	// redisAddr is where redis listens; it may be another process's.
	redisAddr string
}

func startSystem(ctx context.Context) (*system, error) {
	s := &system{log: logrus.New()}
	s.log.SetOutput(io.Discard)
	var err error
	if s.redis, err = servers.StartRedis(ctx, servers.RedisOptions{}); err != nil {
		return nil, err
	}
	s.redisAddr = s.redis.Addr()
	if s.sink, err = startSink(ctx); err != nil {
		s.stop()
		return nil, err
	}
	if s.client, err = egress.New(egress.Config{Policy: egress.Trusted()}); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *system) stop() {
	if s.client != nil {
		s.client.Close()
	}
	if s.sink != nil {
		s.sink.stop()
	}
	if s.redis != nil {
		s.redis.Stop()
	}
}

// connect opens a client; the caller closes it.
func (s *system) connect() *redis.Client { return s.connectAs(64, "") }

// connectAs opens a client with connections of a name, by which Redis lists them.
func (s *system) connectAs(pool int, name string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.redisAddr, ContextTimeoutEnabled: true, PoolSize: pool, MaxRetries: 2, DisableIdentity: true, ClientName: name,
		ReadTimeout: 10 * time.Second, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// flush empties Redis between contenders.
func (s *system) flush(ctx context.Context) error {
	c := s.connect()
	defer c.Close()
	return c.FlushAll(ctx).Err()
}

// gantry is one running Gantry: store, worker, producer.
type gantry struct {
	commands, blocking *redis.Client
	store              *redislane.Store
	worker             *worker.Worker
	dispatcher         *producer.Dispatcher
}

// gantryOptions are what the benches vary.
type gantryOptions struct {
	retry       worker.RetryPolicy
	deliverer   worker.Deliverer
	concurrency int
}

// gantry composes a Gantry on the system's Redis; its worker is not started.
func (s *system) gantry(ctx context.Context, o gantryOptions) (*gantry, error) {
	g := &gantry{commands: s.connect(), blocking: s.connect()}
	var err error
	if g.store, err = redislane.Open(ctx, redislane.Config{Client: g.commands, Blocking: g.blocking}); err != nil {
		return nil, err
	}
	if o.deliverer == nil {
		if o.deliverer, err = s.deliverer(); err != nil {
			return nil, err
		}
	}
	if o.concurrency == 0 {
		o.concurrency = slots
	}
	g.worker, err = worker.New(worker.Config{
		Store: g.store, Deliverer: o.deliverer, Concurrency: o.concurrency, Retry: o.retry, Logger: s.log,
	})
	if err != nil {
		return nil, err
	}
	g.dispatcher, err = producer.New(producer.Config{Mode: producer.ModeQueue, Store: g.store, Logger: s.log})
	return g, err
}

func (s *system) deliverer() (*webhook.Deliverer, error) {
	payloads, err := enrich.New(enrich.Config{Logger: s.log})
	if err != nil {
		return nil, err
	}
	none := func(string) (string, bool) { return "", false }
	return webhook.New(webhook.Config{
		Env: none, Callers: s.client, Operator: s.client, Payloads: payloads, UserAgent: "Gantry/bench",
	})
}

func (g *gantry) stop(ctx context.Context) error {
	err := g.worker.Stop(ctx)
	g.dispatcher.Close()
	_ = g.commands.Close()
	_ = g.blocking.Close()
	return err
}

// load is what a bench delivers: operations × events of a size, to a path of the sink.
type load struct {
	operations, events, size int
	path                     string
	// prefix starts the operation ids; latencies are grouped by what stands before
	// its first dash.
	prefix string
}

func (l load) total() int { return l.operations * l.events }

func (l load) operation(i int) string { return fmt.Sprintf("%s-%06d", l.prefix, i) }

// body is the event i of an operation, about l.size bytes long. A sent time is
// written when it is not 0.
func (l load) body(operation string, i int, sent int64) []byte {
	head := `{"agentId":"agent-7","content":"`
	tail := fmt.Sprintf(`","elapsedMs":%d,"operationId":%q,"stepIndex":%d,"stepType":"call_llm","userId":"user-42"}`, sent, operation, i)
	pad := max(0, l.size-len(head)-len(tail))
	return []byte(head + strings.Repeat("x", pad) + tail)
}

func (l load) hooks(base string) []tasks.Hook {
	return []tasks.Hook{{ID: "bench", Type: tasks.AfterStep, Webhook: &tasks.Webhook{URL: base + l.path}}}
}

func (l load) event(operation string, i int, sent int64) (*tasks.Event, error) {
	return tasks.ParseEvent(tasks.AfterStep, operation, l.body(operation, i, sent))
}

// register makes the hooks of all operations known to the producer.
func (g *gantry) register(ctx context.Context, l load, base string) error {
	for i := range l.operations {
		if err := g.dispatcher.Register(ctx, l.operation(i), l.hooks(base)); err != nil {
			return err
		}
	}
	return nil
}

// preload enqueues everything in batches.
func (g *gantry) preload(ctx context.Context, l load) error {
	return inParallel(ctx, 16, l.operations, func(ctx context.Context, o int) error {
		op := l.operation(o)
		requests := make([]producer.EventRequest, l.events)
		for i := range requests {
			ev, err := l.event(op, i, 0)
			if err != nil {
				return err
			}
			requests[i] = producer.EventRequest{Event: ev}
		}
		_, err := g.dispatcher.EnqueueMany(ctx, op, requests)
		return err
	})
}

// produce enqueues one event at a time, operation by operation in each of 16
// producers, as live runtimes do.
func (g *gantry) produce(ctx context.Context, l load) error {
	return inParallel(ctx, 16, 16, func(ctx context.Context, p int) error {
		for i := range l.events {
			for o := p; o < l.operations; o += 16 {
				op := l.operation(o)
				ev, err := l.event(op, i, 0)
				if err != nil {
					return err
				}
				if _, err := g.dispatcher.Enqueue(ctx, op, ev); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// inParallel runs n jobs on a number of goroutines and returns the first error.
func inParallel(ctx context.Context, goroutines, n int, job func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan int)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range jobs {
				if err := job(ctx, i); err != nil {
					cancel(err)
				}
			}
		}()
	}
feed:
	for i := range n {
		select {
		case jobs <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(jobs)
	wg.Wait()
	return context.Cause(ctx)
}

// post sends one body as every contender does.
func post(ctx context.Context, c *egress.Client, url string, body []byte) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(body)))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}
