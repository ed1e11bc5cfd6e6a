package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
)

// Queues hands out ready queues and takes the settled work back.
type Queues interface {
	Claim(ctx context.Context, shard, limit, batch int) ([]lane.Claim, error)
	Progress(ctx context.Context, step lane.Step) (lane.Progress, error)
	Await(ctx context.Context, shard, limit, batch int, timeout time.Duration) ([]lane.Claim, time.Duration, error)
}

// Leases keeps held queues and revives those of the dead.
type Leases interface {
	Extend(ctx context.Context, shard int, held []lane.Held) ([]lane.Held, error)
	Sweep(ctx context.Context, shard, limit int) (lane.Swept, error)
	Lease() time.Duration
}

// Directory is where workers publish themselves.
type Directory interface {
	Publish(ctx context.Context, w lane.WorkerInfo) error
	Withdraw(ctx context.Context, workerID string) error
}

// Namespace is what lies under the lanes: how it is split, and since when it has
// data, in milliseconds of Redis time.
type Namespace interface {
	Shards() int
	Born(ctx context.Context) (int64, error)
}

// Background is what the asynq tasks need.
type Background interface {
	Append(ctx context.Context, operationID string, items []lane.Item) ([]lane.Appended, error)
	Quarantine(ctx context.Context, operationID, id string, raw []byte) error
	Forget(ctx context.Context, operationID string) error
}

// Outcomes tells what earlier attempts came to.
type Outcomes interface {
	Status(ctx context.Context, operationID, taskID string, waiter lane.Waiter) (lane.Status, error)
}

// Replayer replays many dead letters.
type Replayer interface {
	ReplayMany(ctx context.Context, f lane.DeadFilter, progress func(lane.DeadLetter)) (int, error)
}

// Store is all that a worker asks of Redis; redislane.Store is one.
type Store interface {
	Queues
	Leases
	Directory
	Namespace
	Background
	Outcomes
	Replayer
}

// Deliverer makes one attempt at one delivery; webhook.Deliverer is one.
type Deliverer interface {
	Deliver(ctx context.Context, d webhook.Delivery) webhook.Result
}

// Attempt is one finished attempt, for observers.
type Attempt struct {
	Delivery webhook.Delivery
	Result   webhook.Result
	// Standing is where the delivery stands now; DueIn is the time to the next
	// attempt of a parked one.
	Standing lane.Standing
	DueIn    time.Duration
}

// Config configures a Worker.
type Config struct {
	// ID names the worker in logs and for producers. Default: a ULID.
	ID string
	// Store and Deliverer are required.
	Store     Store
	Deliverer Deliverer
	// EnvironmentHooks is read at every event. Default: no hooks.
	EnvironmentHooks tasks.EnvironmentHooks
	// Silent tells producers that nobody beside this worker answers questions with its
	// environment hooks.
	Silent bool
	// Namespace is part of every delivery id, and the asynq queue of the background
	// tasks. Default "gantry".
	Namespace string
	// Concurrency is the number of queues drained at once, and so of requests in
	// flight. Default 50. Too small lets slow endpoints hold up others.
	Concurrency int
	// Batch is the number of entries read at once from a queue. Default 32.
	Batch int
	// DrainEvents and DrainTime bound how long one queue keeps a slot while others
	// wait. Defaults 512 and 1s.
	DrainEvents int
	DrainTime   time.Duration
	// Heartbeat is the time between renewals of leases. Default 1s. A lease under
	// three heartbeats is refused.
	Heartbeat time.Duration
	// Grace is how long Stop lets deliveries in flight finish. Default 25s.
	Grace time.Duration
	// Retry is the deployment's retry policy.
	Retry RetryPolicy
	// Asynq connects the background server; nil runs none.
	Asynq redis.UniversalClient
	// OnAttempt hears of every attempt, from many goroutines; nil means nobody does.
	OnAttempt func(Attempt)
	// Logger is required.
	Logger *logrus.Logger
	// Registerer takes the metrics, of one worker; nil registers none.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	if c.ID == "" {
		c.ID = tasks.NewID()
	}
	if c.EnvironmentHooks == nil {
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, nil }
	}
	if c.Namespace == "" {
		c.Namespace = "gantry"
	}
	setDefault(&c.Concurrency, 50)
	setDefault(&c.Batch, 32)
	setDefault(&c.DrainEvents, 512)
	setDefault(&c.DrainTime, time.Second)
	setDefault(&c.Heartbeat, time.Second)
	setDefault(&c.Grace, 25*time.Second)
	c.Retry = c.Retry.WithDefaults()
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	var errs []error
	if c.Store == nil || c.Deliverer == nil || c.Logger == nil {
		return errors.New("worker: Store, Deliverer and Logger are required")
	}
	if lease := c.Store.Lease(); lease < 3*c.Heartbeat {
		errs = append(errs, fmt.Errorf("worker: a lease of %v is under three heartbeats of %v, so one late renewal would lose it; raise the lease or shorten the heartbeat", lease, c.Heartbeat))
	}
	if shards := c.Store.Shards(); c.Concurrency <= shards && shards > 1 {
		errs = append(errs, fmt.Errorf("worker: a concurrency of %d leaves nothing for deliveries, because each of the %d shards keeps one at hand; raise it above", c.Concurrency, shards))
	}
	if c.Concurrency < 1 || c.Batch < 1 || c.DrainEvents < 1 {
		errs = append(errs, errors.New("worker: Concurrency, Batch and DrainEvents must be at least 1"))
	}
	return errors.Join(append(errs, c.Retry.Validate())...)
}
