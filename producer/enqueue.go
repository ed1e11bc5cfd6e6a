package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// batchParallel bounds the operations of an EnqueueBatch that are appended at once.
const batchParallel = 8

// Receipt says what became of an enqueued event.
type Receipt struct {
	// ID is the event's idempotency key, to await or to repeat it with; "" for a
	// skipped event without an id of its own.
	ID string
	// Sequence is the position in the operation's lane, from 1; 0 while the event
	// is delayed, or when it was skipped.
	Sequence int64
	// Duplicate says that the same event was stored before and is joined.
	Duplicate bool
	// Skipped says that no hook matches: nothing was stored, nothing will happen.
	Skipped bool
}

// BatchItem is one event of an EnqueueBatch.
type BatchItem struct {
	OperationID string
	EventRequest
}

// BatchResult is what became of one item of an EnqueueBatch: a receipt or an error.
type BatchResult struct {
	Receipt Receipt
	Err     error
}

// check refuses what can never be dispatched.
func (r *EventRequest) check(operationID string) error {
	if err := tasks.CheckOperationID(operationID); err != nil {
		return err
	}
	if r.ID != "" {
		if err := tasks.CheckTaskID(r.ID); err != nil {
			return err
		}
	}
	switch {
	case r.Event == nil:
		return fmt.Errorf("%w: event is nil", ErrInvalidRequest)
	case !r.Event.Type.Valid():
		return fmt.Errorf("%w: event type %q is not a hook type", ErrInvalidRequest, r.Event.Type)
	case r.Event.OperationID != operationID:
		return &tasks.InvalidError{
			Code: tasks.OperationMismatch, Path: "operationId", Message: "event names another operation",
			Fix: "dispatch it on the operation that it names",
		}
	case len(r.Event.Raw) == 0:
		return fmt.Errorf("%w: event has no raw object; build it with tasks.ParseEvent", ErrInvalidRequest)
	case r.Delay < 0:
		return fmt.Errorf("%w: delay %s is negative", ErrInvalidRequest, r.Delay)
	}
	return nil
}

// Enqueue stores one event and returns once it is durable; nobody waits for its
// delivery. It fails as Dispatch does, without the waiting, and with
// ErrNotQueued in local mode.
func (d *Dispatcher) Enqueue(ctx context.Context, operationID string, event *tasks.Event, options ...EventOption) (Receipt, error) {
	return d.enqueueOne(ctx, operationID, newRequest(event, options))
}

func (d *Dispatcher) enqueueOne(ctx context.Context, operationID string, request EventRequest) (Receipt, error) {
	receipts, err := d.EnqueueMany(ctx, operationID, []EventRequest{request})
	if err != nil {
		var member *BatchError
		if errors.As(err, &member) {
			err = member.Err // the index of a single event says nothing
		}
		return Receipt{}, err
	}
	return receipts[0], nil
}

// EnqueueMany stores events of one operation in their order, all or none. A
// *BatchError names an invalid member, and nothing is stored then. In QStash mode
// events are handed over one by one: the *UnavailableError names those that may be
// missing, and the receipts tell of the others.
func (d *Dispatcher) EnqueueMany(ctx context.Context, operationID string, events []EventRequest) ([]Receipt, error) {
	switch {
	case d.config.Mode == ModeLocal:
		return nil, ErrNotQueued
	case len(events) > d.config.MaxBatch:
		return nil, fmt.Errorf("%w: %d events are more than the limit of %d", ErrBatchTooLarge, len(events), d.config.MaxBatch)
	case d.config.Mode == ModeQStash:
		return d.enqueueRelayed(ctx, operationID, events)
	}
	receipts := make([]Receipt, len(events))
	var items []lane.Item
	var places []int
	size := 0
	preparation := d.newPreparation(operationID)
	for i, event := range events {
		ready, err := preparation.prepare(ctx, event)
		if err != nil {
			d.metrics.event(eventRefused, len(events))
			return nil, &BatchError{Index: i, Err: err}
		}
		if size += len(ready.item.Doc); size > d.config.MaxBatchBytes && i > 0 {
			d.metrics.event(eventRefused, len(events))
			return nil, fmt.Errorf("%w: the events with their hooks are more than the limit of %d bytes from event %d on",
				ErrBatchTooLarge, d.config.MaxBatchBytes, i)
		}
		receipts[i] = Receipt{ID: ready.item.ID, Skipped: ready.skip}
		if !ready.skip {
			items, places = append(items, ready.item), append(places, i)
		}
	}
	if len(items) > 0 {
		appended, err := d.append(ctx, operationID, items)
		if err != nil {
			return nil, err
		}
		for i, a := range appended {
			receipts[places[i]].Sequence, receipts[places[i]].Duplicate = a.Sequence, a.Duplicate
		}
	}
	d.metrics.event(eventSkipped, len(events)-len(items))
	return receipts, nil
}

// EnqueueBatch stores events of many operations: all or none per operation, in
// the order of the items, each item with its own result. An invalid member
// fails its operation's other items with the same *BatchError, whose index is
// the invalid item's place in the call.
func (d *Dispatcher) EnqueueBatch(ctx context.Context, items []BatchItem) []BatchResult {
	places := make(map[string][]int)
	var operations []string
	for i, item := range items {
		if places[item.OperationID] == nil {
			operations = append(operations, item.OperationID)
		}
		places[item.OperationID] = append(places[item.OperationID], i)
	}
	results := make([]BatchResult, len(items))
	var group errgroup.Group
	group.SetLimit(batchParallel)
	for _, operation := range operations {
		group.Go(func() error {
			// Each group writes to places of its own.
			d.enqueueGroup(ctx, batchGroup{items: items, places: places[operation], results: results})
			return nil
		})
	}
	_ = group.Wait() // no group returns an error
	return results
}

// batchGroup is one operation's share of a batch.
type batchGroup struct {
	items   []BatchItem
	places  []int
	results []BatchResult
}

// enqueueGroup stores one operation's events and spreads the outcome.
func (d *Dispatcher) enqueueGroup(ctx context.Context, group batchGroup) {
	events := make([]EventRequest, len(group.places))
	for i, place := range group.places {
		events[i] = group.items[place].EventRequest
	}
	receipts, err := d.EnqueueMany(ctx, group.items[group.places[0]].OperationID, events)
	var member *BatchError
	if errors.As(err, &member) {
		err = &BatchError{Index: group.places[member.Index], Err: member.Err}
	}
	var unavailable *UnavailableError
	parted := errors.As(err, &unavailable) && receipts != nil
	for i, place := range group.places {
		handedOver := err == nil || parted && !slices.Contains(unavailable.EventIDs, receipts[i].ID)
		if !handedOver {
			group.results[place].Err = err
			continue
		}
		group.results[place].Receipt = receipts[i]
	}
}
