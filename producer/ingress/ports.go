package ingress

import (
	"context"
	"encoding/json"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Events hands events to the queue and waits for what becomes of them; a
// *producer.Dispatcher in queue mode is one.
type Events interface {
	// EnqueueMany stores all events of one operation or none.
	EnqueueMany(ctx context.Context, operationID string, events []producer.EventRequest) ([]producer.Receipt, error)
	// AwaitFirst waits for the first attempt of each hook of a stored event, Await
	// for its final outcome. Both fail with *producer.UnsettledError when ctx ends.
	AwaitFirst(ctx context.Context, operationID, taskID string) (producer.Result, error)
	Await(ctx context.Context, operationID, taskID string) (producer.Result, error)
}

// Registrations keeps the serialized hooks of live operations.
type Registrations interface {
	// Hooks returns the stored list; ok is false when there is none, which is not
	// the same as an empty one.
	Hooks(ctx context.Context, operationID string) (hooks json.RawMessage, ok bool, err error)
	// PutHooks replaces the list, AddHooks appends to it and returns all of it.
	PutHooks(ctx context.Context, operationID string, hooks json.RawMessage) error
	AddHooks(ctx context.Context, operationID string, hooks json.RawMessage) (json.RawMessage, error)
}

// Operations knows the events of an operation and ends it.
type Operations interface {
	// Status tells how an event stands; the zero waiter registers nobody.
	Status(ctx context.Context, operationID, taskID string, waiter lane.Waiter) (lane.Status, error)
	// Forget ends an operation; what is pending still delivers.
	Forget(ctx context.Context, operationID string) error
}

// Lanes shows lanes to operators.
type Lanes interface {
	// Lane shows one lane, or fails with lane.ErrNotFound.
	Lane(ctx context.Context, operationID string) (lane.Info, error)
	// Lanes lists up to limit lanes that have something to do.
	Lanes(ctx context.Context, limit int) ([]lane.Info, error)
}

// DeadLetters shows dead letters to operators.
type DeadLetters interface {
	// Dead lists a page of dead letters, oldest first.
	Dead(ctx context.Context, filter lane.DeadFilter) (lane.DeadPage, error)
	// DeadLetter shows one, or fails with lane.ErrNotFound.
	DeadLetter(ctx context.Context, id string) (lane.DeadLetter, error)
}

// Replayer puts dead letters back into their queues.
type Replayer interface {
	// Replay puts one letter back; it fails with lane.ErrNotFound or
	// lane.ErrNotReplayable.
	Replay(ctx context.Context, id string) error
	// ReplayMany puts back what a filter selects and counts it.
	ReplayMany(ctx context.Context, filter lane.DeadFilter, progress func(lane.DeadLetter)) (int, error)
}

// Store is all that the API asks of a lane store; *redislane.Store is one.
type Store interface {
	Registrations
	Operations
	Lanes
	DeadLetters
	Replayer
}
