package lanetest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Options shape the store of one test. A zero field means the store's default.
type Options struct {
	// Window is how long an id is remembered; IdleTTL how long an operation
	// without events is.
	Window, IdleTTL time.Duration
	// Lease is how long a queue stays with a worker that no longer renews.
	Lease time.Duration
}

// NewStore makes an empty store that no other test uses. It is cleaned up when t
// ends.
type NewStore func(t testing.TB, opts Options) Store

// Store is a lane store under test together with what only a test may do to it.
type Store interface {
	Appending
	Draining
	Recovering
	Operating
	Registering
	Controls
}

// Appending is what a producer asks of a store.
type Appending interface {
	QueueOf(operationID string) lane.Queue
	Append(ctx context.Context, operationID string, items []lane.Item) ([]lane.Appended, error)
	Status(ctx context.Context, operationID, taskID string, w lane.Waiter) (lane.Status, error)
	Hear(ctx context.Context, shard int, inbox string) ([]lane.Notice, error)
	Forget(ctx context.Context, operationID string) error
}

// Draining is what a worker asks of a store for its queues.
type Draining interface {
	Claim(ctx context.Context, shard, limit, batch int) ([]lane.Claim, error)
	Progress(ctx context.Context, step lane.Step) (lane.Progress, error)
	Await(ctx context.Context, shard, limit, batch int, timeout time.Duration) ([]lane.Claim, time.Duration, error)
}

// Recovering is what a worker asks of a store for leases and due times.
type Recovering interface {
	Extend(ctx context.Context, shard int, held []lane.Held) ([]lane.Held, error)
	Sweep(ctx context.Context, shard, limit int) (lane.Swept, error)
}

// Operating is what an operator asks of a store.
type Operating interface {
	Dead(ctx context.Context, f lane.DeadFilter) (lane.DeadPage, error)
	DeadLetter(ctx context.Context, id string) (lane.DeadLetter, error)
	Replay(ctx context.Context, id string) error
	ReplayMany(ctx context.Context, f lane.DeadFilter, progress func(lane.DeadLetter)) (int, error)
	Quarantine(ctx context.Context, operationID, id string, raw []byte) error
	Lane(ctx context.Context, operationID string) (lane.Info, error)
	Lanes(ctx context.Context, limit int) ([]lane.Info, error)
	Counts(ctx context.Context, shard int) (lane.Counts, error)
}

// Registering keeps the hooks of operations and what workers publish.
type Registering interface {
	PutHooks(ctx context.Context, operationID string, hooks json.RawMessage) error
	AddHooks(ctx context.Context, operationID string, hooks json.RawMessage) (json.RawMessage, error)
	Hooks(ctx context.Context, operationID string) (hooks json.RawMessage, ok bool, err error)
	Publish(ctx context.Context, w lane.WorkerInfo) error
	Withdraw(ctx context.Context, workerID string) error
	Workers(ctx context.Context) ([]lane.WorkerInfo, error)
}

// Controls replace waiting: they move a due time instead of the clock.
type Controls interface {
	// ExpireLease ends the lease of a claimed queue now, as if its worker had died
	// a lease ago. The next sweep finds it.
	ExpireLease(t testing.TB, q lane.Queue)
	// MakeDue lets the retry of a parked queue come due now.
	MakeDue(t testing.TB, q lane.Queue)
	// MakeDelayedDue lets a delayed event come due now.
	MakeDelayedDue(t testing.TB, operationID, taskID string)
	// Elapse lets d pass, also for what expires.
	Elapse(t testing.TB, d time.Duration)
	// Remains names everything that the store holds.
	Remains(t testing.TB) []string
	// Reset empties the store.
	Reset(t testing.TB)
}
