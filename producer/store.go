package producer

import (
	"context"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Lanes appends events to the lanes of operations and knows what became of them.
type Lanes interface {
	// Append stores all items or none, in order, and is idempotent by item id.
	// It fails with *lane.ReusedError or lane.ErrUnavailable.
	Append(ctx context.Context, operationID string, items []lane.Item) ([]lane.Appended, error)
	// Status tells how a task stands and registers waiter as long as the task has
	// not come to waiter.Mode.
	Status(ctx context.Context, operationID, taskID string, waiter lane.Waiter) (lane.Status, error)
	// Forget ends an operation; what is pending still delivers.
	Forget(ctx context.Context, operationID string) error
}

// Inboxes hears what workers tell the waiters of this process.
type Inboxes interface {
	// Hear blocks until inbox has notices on shard, for some seconds at most.
	Hear(ctx context.Context, shard int, inbox string) ([]lane.Notice, error)
	// Shards is the number of shards to listen on, at least 1.
	Shards() int
}

// Directory lists the workers that are alive.
type Directory interface {
	Workers(ctx context.Context) ([]lane.WorkerInfo, error)
}

// Store is all that queue mode asks of a lane store; *redislane.Store is one.
type Store interface {
	Lanes
	Inboxes
	Directory
}
