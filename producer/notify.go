package producer

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/gantry-hooks/gantry/tasks"
)

// Notify hands an event over, for callers that must not wait for hooks. In queue
// mode it returns once the event is stored; pending says that Attempted can tell
// what comes of it, and is false when no hook matches. In local mode it is
// Dispatch: the hooks have run when it returns, and nothing is pending. In QStash
// mode the event is handed over, and nothing more is heard of it. It fails as
// Enqueue and Dispatch do.
func (d *Dispatcher) Notify(ctx context.Context, n tasks.Notification) (pending bool, err error) {
	request := EventRequest{
		Event: n.Event, ID: n.ID, Persisted: n.Persisted, Trace: n.Trace, SkipHandlers: n.SkipHandlers,
	}
	if n.Event == nil {
		return false, request.check("-")
	}
	apply := func(r *EventRequest) { *r = request }
	if d.config.Mode == ModeLocal {
		return false, d.Dispatch(ctx, n.Event.OperationID, n.Event, apply)
	}
	receipt, err := d.Enqueue(ctx, n.Event.OperationID, n.Event, apply)
	return err == nil && !receipt.Skipped && d.config.Mode == ModeQueue, err
}

// Attempted waits until each hook of a stored event had its first attempt, and
// fails with a *CriticalHookDeliveryError if a critical one is not delivered
// then. Other errors are those of AwaitFirst. In the other modes it has nothing to
// wait for.
func (d *Dispatcher) Attempted(ctx context.Context, operationID, id string) error {
	if d.config.Mode != ModeQueue {
		return nil
	}
	result, err := d.AwaitFirst(ctx, operationID, id)
	if err != nil {
		return err
	}
	return result.Err()
}

// ControlHooks returns the stored form of the operation's hooks as far as this
// process has registered them: the controls among them may be asked
// (docs/behaviour.md §13). It is nil when the operation was never registered
// here.
func (d *Dispatcher) ControlHooks(_ context.Context, operationID string) (json.RawMessage, error) {
	return d.CallerHooks(operationID, nil)
}

// CallerHooks returns the caller's hooks that count for a tool call when a
// stored list is passed along with it (docs/behaviour.md §4): in local mode
// those registered in this process, even none, before the list; in queue mode
// the list, even an empty one, before those. It is nil when there is neither.
// The list is validated even if it does not count; an invalid one is a
// *tasks.InvalidError.
func (d *Dispatcher) CallerHooks(operationID string, persisted json.RawMessage) (json.RawMessage, error) {
	if _, err := parsePersisted(persisted); err != nil {
		return nil, err
	}
	registered, known := d.registry.of(operationID)
	switch {
	case len(persisted) > 0 && (d.config.Mode != ModeLocal || !known):
		return slices.Clone(persisted), nil
	case !known:
		return nil, nil
	}
	parts := make([][]byte, len(registered.queued.raw))
	for i, hook := range registered.queued.raw {
		parts[i] = hook
	}
	return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]")), nil
}
