package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// API is what a feed needs of a running Gantry; a *client.Client is one.
type API interface {
	PutHooks(ctx context.Context, operationID string, hooks json.RawMessage) error
	PostEvents(ctx context.Context, operationID string, events []json.RawMessage) ([]client.Receipt, error)
	Event(ctx context.Context, operationID, id string, wait client.Wait) (client.EventStatus, error)
}

// The size of a batch: well under the limits of the API in events and bytes, and
// a script in Redis that is over in a moment.
const (
	batchEvents = 200
	batchBytes  = 512 << 10
	// window is how far events of one operation may be sent ahead of another's that
	// stand before them in the file.
	window = 2000
)

// Batch is a run of events of one operation, in their order.
type Batch struct {
	OperationID string
	Events      []Event
}

// Batches cuts events into batches: file order within an operation, and within a
// window of the file across operations.
func Batches(events []Event) []Batch {
	var batches []Batch
	for len(events) > 0 {
		n := min(window, len(events))
		batches = append(batches, cut(events[:n])...)
		events = events[n:]
	}
	return batches
}

func cut(events []Event) []Batch {
	var batches []Batch
	open, size := map[string]int{}, map[string]int{}
	for _, e := range events {
		i, ok := open[e.OperationID]
		if !ok || len(batches[i].Events) == batchEvents || size[e.OperationID]+len(e.Document) > batchBytes {
			i = len(batches)
			batches = append(batches, Batch{OperationID: e.OperationID})
			open[e.OperationID], size[e.OperationID] = i, 0
		}
		batches[i].Events = append(batches[i].Events, e)
		size[e.OperationID] += len(e.Document) + 1
	}
	return batches
}

// Totals count what became of events.
type Totals struct {
	Sent       int `json:"sent"`
	Duplicates int `json:"duplicates"`
	Skipped    int `json:"skipped"`
	// Delivered, NotDelivered and Unsettled are counted when somebody waits.
	Delivered    int `json:"delivered,omitempty"`
	NotDelivered int `json:"notDelivered,omitempty"`
	Unsettled    int `json:"unsettled,omitempty"`
}

// Pending is a stored event whose outcome is not known yet.
type Pending struct {
	OperationID, ID string
}

// Send stores a batch.
func Send(ctx context.Context, api API, b Batch, totals *Totals) ([]Pending, error) {
	documents := make([]json.RawMessage, len(b.Events))
	for i, e := range b.Events {
		documents[i] = e.Document
	}
	receipts, err := api.PostEvents(ctx, b.OperationID, documents)
	if err != nil {
		return nil, fmt.Errorf("send events of operation %q (lines %d to %d): %w",
			b.OperationID, b.Events[0].Line, b.Events[len(b.Events)-1].Line, err)
	}
	var pending []Pending
	for _, r := range receipts {
		totals.Sent++
		switch {
		case r.Skipped:
			totals.Skipped++
			continue
		case r.Duplicate:
			totals.Duplicates++
		}
		pending = append(pending, Pending{b.OperationID, r.ID})
	}
	return pending, nil
}

// waitStep is how long one request waits; proxies in between may not like longer
// silences.
const waitStep = 20 * time.Second

// ErrUnsettled says that the time to wait was over first. The event goes on.
var ErrUnsettled = errors.New("the time to wait is over")

// Await waits for one event until deadline and returns the hooks that are not
// delivered.
func Await(ctx context.Context, api API, p Pending, until Until) ([]client.Outcome, error) {
	for {
		left := time.Until(until.Deadline)
		status, err := api.Event(ctx, p.OperationID, p.ID, client.Wait{Mode: until.Mode, For: max(0, min(left, waitStep)).Round(time.Millisecond)})
		switch {
		case err != nil:
			return nil, err
		case status.Settled:
			return status.Outcomes, nil
		case left <= 0:
			return status.Outcomes, ErrUnsettled
		}
	}
}

// Until says what to wait for and how long.
type Until struct {
	Mode     lane.WaitMode
	Deadline time.Time
}
