package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// rawAsynq is the hand-made worker that Gantry is measured against: one asynq
// task per event, whose handler posts the body with the same HTTP client.
type rawAsynq struct {
	system *system
	redis  *redis.Client
	client *asynq.Client
	server *asynq.Server
	url    string
}

// asynqOptions are what the benches vary; zero fields are asynq's defaults.
type asynqOptions struct {
	check, delayedCheck, retry time.Duration
}

const rawType = "bench:hook"

func (s *system) asynq(l load, o asynqOptions) *rawAsynq {
	a := &rawAsynq{system: s, redis: s.connect(), url: s.sink.base + l.path}
	a.client = asynq.NewClientFromRedisClient(a.redis)
	cfg := asynq.Config{
		Concurrency: slots, TaskCheckInterval: o.check, DelayedTaskCheckInterval: o.delayedCheck, LogLevel: asynq.FatalLevel,
	}
	if o.retry > 0 {
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return o.retry }
	}
	a.server = asynq.NewServerFromRedisClient(a.redis, cfg)
	return a
}

func (a *rawAsynq) start() error {
	mux := asynq.NewServeMux()
	mux.HandleFunc(rawType, func(ctx context.Context, t *asynq.Task) error {
		status, err := post(ctx, a.system.client, a.url, t.Payload())
		if err != nil {
			return err
		}
		if status/100 != 2 {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	return a.server.Start(mux)
}

func (a *rawAsynq) stop() {
	a.server.Shutdown()
	_ = a.redis.Close()
}

// preload and produce enqueue the load; asynq has no batches, so both send one
// task at a time from 16 producers.
func (a *rawAsynq) produce(ctx context.Context, l load) error {
	return inParallel(ctx, 16, 16, func(ctx context.Context, p int) error {
		for i := range l.events {
			for o := p; o < l.operations; o += 16 {
				t := asynq.NewTask(rawType, l.body(l.operation(o), i, 0))
				if _, err := a.client.EnqueueContext(ctx, t); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
