package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

const (
	// awaitParallel bounds the events of one request that are awaited at once.
	awaitParallel = 16
	// writeGrace is how long an answer may take after its wait.
	writeGrace = 30 * time.Second
)

// errDraining is the cause of a wait that ended because the server stops.
var errDraining = errors.New("server is draining")

// eventsInput is a request that sends events.
type eventsInput struct {
	Op        string `path:"op" doc:"Id of the operation: 1 to 512 bytes of UTF-8 without control characters, percent-encoded as one path segment."`
	Await     string `query:"await" doc:"Wait that long for the events, such as 30s; absent does not wait." example:"30s"`
	AwaitMode string `query:"awaitMode" enum:"first,final" default:"first" doc:"first: each hook had its first attempt; final: each delivery is delivered, dead or discarded."`
	Trace     string `header:"traceparent" doc:"W3C trace context of events without a trace of their own; ignored when malformed."`
}

// eventsOutput answers the sending of events.
type eventsOutput struct {
	Status int
	Body   EventsResult
}

// postEvents stores events and, if asked, waits for them. The wait ends with
// the request; the events do not.
func (a *API) postEvents(ctx context.Context, in *eventsInput) (*eventsOutput, error) {
	if err := operation(in.Op); err != nil {
		return nil, err
	}
	wait, waiting, err := a.parseWait("await", in.Await)
	if err != nil {
		return nil, err
	}
	events, err := a.eventsOf(ctx, in)
	if err != nil {
		return nil, err
	}
	receipts, err := a.enqueue(ctx, in.Op, events)
	if err != nil {
		return nil, err
	}
	out := &eventsOutput{Status: http.StatusAccepted, Body: EventsResult{OperationID: in.Op, Receipts: receipts}}
	if waiting {
		a.awaitAll(ctx, &out.Body, awaiting{limit: wait, mode: waitMode(in.AwaitMode)})
		if *out.Body.Settled {
			out.Status = http.StatusOK
		}
	}
	return out, nil
}

// eventsOf reads the events of a request.
func (a *API) eventsOf(ctx context.Context, in *eventsInput) ([]producer.EventRequest, error) {
	raw, kind, err := a.readEvents(ctx)
	if err != nil {
		return nil, err
	}
	decoder := &eventsDecoder{operationID: in.Op, limit: a.config.MaxEvents}
	if validTrace(in.Trace) {
		decoder.trace = in.Trace
	}
	return decoder.decode(raw, kind)
}

// enqueue stores events with the operation's hooks.
func (a *API) enqueue(ctx context.Context, operationID string, events []producer.EventRequest) ([]Receipt, error) {
	if err := a.environment(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := a.detached(ctx)
	defer cancel()
	hooks, err := a.storedHooks(ctx, operationID)
	if err != nil {
		return nil, err
	}
	for i := range events {
		events[i].Persisted = hooks
	}
	stored, err := a.config.Events.EnqueueMany(ctx, operationID, events)
	if err != nil {
		return nil, refusedEvent(err)
	}
	receipts := make([]Receipt, len(stored))
	for i, r := range stored {
		receipts[i] = Receipt{ID: r.ID, Sequence: r.Sequence, Duplicate: r.Duplicate, Skipped: r.Skipped}
	}
	return receipts, nil
}

// refusedEvent names the member of a batch that the producer refuses.
func refusedEvent(err error) error {
	var member *producer.BatchError
	var invalid *tasks.InvalidError
	switch {
	case errors.As(err, &member) && errors.As(err, &invalid):
		return invalid.Under(fmt.Sprintf("events[%d]", member.Index))
	case errors.Is(err, producer.ErrBatchTooLarge):
		return newProblem(CodeBatchTooLarge, err.Error())
	case errors.Is(err, producer.ErrInvalidRequest):
		return newProblem(CodeInvalidRequest, err.Error())
	}
	return err
}

// awaiting is what a request waits for.
type awaiting struct {
	limit time.Duration
	mode  lane.WaitMode
}

// awaitAll waits for the stored events of a result and fills in how they stand.
// The events are stored: from here on nothing fails, a status that cannot be
// read is not settled.
func (a *API) awaitAll(ctx context.Context, result *EventsResult, what awaiting) {
	settled, outcomes := make([]bool, len(result.Receipts)), make([]progress, len(result.Receipts))
	waitCtx, cancel := a.waiting(ctx, what.limit)
	defer cancel()
	var group errgroup.Group
	group.SetLimit(awaitParallel)
	for i, receipt := range result.Receipts {
		if receipt.Skipped {
			settled[i] = true
			continue
		}
		group.Go(func() error {
			// Each event writes to places of its own.
			_ = a.await(waitCtx, result.OperationID, receipt.ID, what) // the status says it all
			status, err := a.status(ctx, result.OperationID, receipt.ID)
			if err != nil {
				a.statusUnread(ctx, receipt.ID, err)
				return nil
			}
			outcomes[i] = newProgress(receipt.ID, status, what.mode)
			settled[i] = outcomes[i].settled
			return nil
		})
	}
	_ = group.Wait() // no member returns an error
	all, critical := true, []CriticalFailure{}
	for i := range result.Receipts {
		result.Receipts[i].Settled = &settled[i]
		if outcomes[i].outcomes != nil {
			result.Receipts[i].Outcomes = &outcomes[i].outcomes
		}
		critical = append(critical, outcomes[i].critical...)
		all = all && settled[i]
	}
	result.Settled, result.CriticalFailures = &all, &critical
}

// statusUnread logs that an answer lacks the status of an event.
func (a *API) statusUnread(ctx context.Context, eventID string, err error) {
	a.config.Logger.WithFields(logrus.Fields{
		logKeyRequestID: exchangeOf(ctx).id, tasks.LogTaskID: eventID, tasks.LogErr: err,
	}).Warn(logStatusUnread)
}

// waiting bounds a wait by its limit, the request's end and Drain, and gives the
// connection the time for it.
func (a *API) waiting(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	// The server's own deadline for writing would be over by then. A writer without
	// deadlines is no error.
	_ = http.NewResponseController(exchangeOf(ctx).writer).SetWriteDeadline(time.Now().Add(limit + writeGrace))
	waitCtx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(a.draining, cancel)
	return waitCtx, func() { stop(); cancel() }
}

// await waits for one event. The end of a wait is no error.
func (a *API) await(ctx context.Context, operationID, eventID string, what awaiting) error {
	if what.limit == 0 {
		return nil
	}
	wait := a.config.Events.AwaitFirst
	if what.mode == lane.WaitFinal {
		wait = a.config.Events.Await
	}
	_, err := wait(ctx, operationID, eventID)
	var unsettled *producer.UnsettledError
	if errors.As(err, &unsettled) && !errors.Is(err, lane.ErrNotFound) {
		return nil
	}
	return err
}

// status reads how an event stands, also after the request's own end.
func (a *API) status(ctx context.Context, operationID, eventID string) (lane.Status, error) {
	ctx, cancel := a.detached(ctx)
	defer cancel()
	return a.config.Store.Status(ctx, operationID, eventID, lane.Waiter{})
}

// eventInput is a request about one event.
type eventInput struct {
	Op   string `path:"op" doc:"Id of the operation: 1 to 512 bytes of UTF-8 without control characters, percent-encoded as one path segment."`
	ID   string `path:"id" doc:"Id of the event, percent-encoded as one path segment."`
	Wait string `query:"wait" doc:"Wait that long for the event, such as 30s; absent does not wait." example:"30s"`
	Mode string `query:"mode" enum:"first,final" default:"final" doc:"What to wait for, and what settled means; as awaitMode."`
}

// eventOutput answers with the status of an event.
type eventOutput struct {
	Body EventStatus
}

// getEvent tells how an event stands, after a wait if asked.
func (a *API) getEvent(ctx context.Context, in *eventInput) (*eventOutput, error) {
	if err := operation(in.Op); err != nil {
		return nil, err
	}
	if err := tasks.CheckTaskID(in.ID); err != nil {
		return nil, atPath(err, "path.id")
	}
	limit, _, err := a.parseWait("wait", in.Wait)
	if err != nil {
		return nil, err
	}
	what := awaiting{limit: limit, mode: waitMode(in.Mode)}
	waitCtx, cancel := a.waiting(ctx, limit)
	defer cancel()
	if err := a.await(waitCtx, in.Op, in.ID, what); err != nil {
		return nil, unknownEvent(err)
	}
	status, err := a.status(ctx, in.Op, in.ID)
	if err != nil {
		return nil, err
	}
	if !status.Known {
		return nil, unknownEvent(lane.ErrNotFound)
	}
	p := newProgress(in.ID, status, what.mode)
	return &eventOutput{Body: EventStatus{
		OperationID: in.Op, ID: in.ID, Sequence: status.Sequence, Attempted: status.Attempted, Settled: p.settled,
		Outcomes: p.outcomes, CriticalFailures: p.critical,
	}}, nil
}

// unknownEvent says why an event may be unknown.
func unknownEvent(err error) error {
	if errors.Is(err, lane.ErrNotFound) {
		return newProblem(CodeNotFound, "the event is not known: it was never stored, was skipped, or its id is forgotten")
	}
	return err
}

// parseWait reads a duration of a query; ok is false when there is none.
func (a *API) parseWait(name, value string) (wait time.Duration, ok bool, err error) {
	if value == "" {
		return 0, false, nil
	}
	wait, err = time.ParseDuration(value)
	if err != nil || wait < 0 || wait > a.config.MaxWait {
		return 0, false, newFault(Fault{
			Path: "query." + name, Code: CodeInvalidQuery, Message: name + " is no duration within the limit",
			Fix: fmt.Sprintf("send a duration from 0s to %s, such as 30s", a.config.MaxWait),
		})
	}
	return wait, true, nil
}

// atPath moves a refusal of an id to the place where it stands.
func atPath(err error, path string) error {
	var fault *tasks.InvalidError
	if !errors.As(err, &fault) {
		return err
	}
	moved := *fault
	moved.Path = path
	return &moved
}
