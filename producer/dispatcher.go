package producer

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gantry-hooks/gantry/internal/inbox"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Dispatcher is the face of Gantry for one runtime process. Build one with New
// and keep it for the life of the process; it is safe for concurrent use.
type Dispatcher struct {
	config    Config
	metrics   *metrics
	registry  *registry
	directory *directory
	// inbox is nil where nobody waits: everywhere but in queue mode.
	inbox *inbox.Inbox[lane.Notice]
	// relayed is set in QStash mode only.
	relayed *relayed
}

// New builds a Dispatcher. It touches no network: connections are made at the
// first use, and the first waiting call starts one goroutine per shard.
func New(config Config) (*Dispatcher, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure dispatcher: %w", err)
	}
	counters, err := newMetrics(config.Registerer, config.Mode)
	if err != nil {
		return nil, fmt.Errorf("register dispatcher metrics: %w", err)
	}
	d := &Dispatcher{config: config, metrics: counters, registry: newRegistry()}
	switch config.Mode {
	case ModeLocal:
	case ModeQStash:
		d.relayed = &relayed{config: config.QStash, streams: newStreams()}
	case ModeQueue:
		d.directory = &directory{source: config.Store}
		d.inbox = inbox.New(inbox.Config[lane.Notice]{
			Source: config.Store, Logger: config.Logger, Lost: logInboxLost, Restored: logInboxHeard,
		})
	}
	return d, nil
}

// Close ends waiting calls with ErrClosed and returns once no goroutine of the
// Dispatcher runs, which takes as long as a blocking pop of the store at most.
// It is idempotent, and leaves the store open.
func (d *Dispatcher) Close() {
	if d.inbox != nil {
		d.inbox.Close()
	}
}

// EventOption adjusts one Dispatch or Enqueue.
type EventOption func(*EventRequest)

// WithID gives the event the caller's own idempotency key. The same id with the
// same content is stored once, and a later call joins it; with other content it
// is refused with *lane.ReusedError.
func WithID(id string) EventOption { return func(r *EventRequest) { r.ID = id } }

// WithPersisted passes the operation's stored hooks, a JSON array. No bytes are
// the same as no list; an empty array is a list, which in queue mode means that
// no caller hook runs (docs/behaviour.md §4).
func WithPersisted(raw json.RawMessage) EventOption {
	return func(r *EventRequest) { r.Persisted = raw }
}

// WithDelay keeps the event out of its lane until delay is over, in whole
// milliseconds. Not in local mode; QStash mode counts in whole seconds.
func WithDelay(delay time.Duration) EventOption { return func(r *EventRequest) { r.Delay = delay } }

// WithTrace carries a W3C traceparent to the receivers.
func WithTrace(traceparent string) EventOption {
	return func(r *EventRequest) { r.Trace = traceparent }
}

// WithoutHandlers leaves out the hooks that have a handler, in local mode: for
// the observations of a tool call whose handlers DispatchBeforeToolCall ran.
func WithoutHandlers() EventOption { return func(r *EventRequest) { r.SkipHandlers = true } }

// EventRequest is one event to dispatch or to enqueue.
type EventRequest struct {
	// Event is what happened; required.
	Event *tasks.Event
	// ID is the idempotency key within the operation; "" draws a new one.
	ID string
	// Persisted is the operation's stored hooks: no bytes for none passed, which is
	// not the same as an empty array.
	Persisted json.RawMessage
	// Delay postpones the event; 0 appends it now. Not in local mode.
	Delay time.Duration
	// Trace is a W3C traceparent; "" means none.
	Trace string
	// SkipHandlers leaves out the hooks that have a handler. Local mode only, for
	// the observations of a tool call whose handlers were asked for mocks already.
	SkipHandlers bool
}

// newRequest applies the options.
func newRequest(event *tasks.Event, options []EventOption) EventRequest {
	request := EventRequest{Event: event}
	for _, option := range options {
		option(&request)
	}
	return request
}

// Dispatch runs the notification hooks of an event and returns once each of
// them had its first attempt; in QStash mode, once the event is handed over. A failure of a hook is logged, and raised only if
// its fallback is none: then a *CriticalHookDeliveryError follows after all
// siblings have run. Other errors: an invalid persisted list or environment,
// *lane.ReusedError, *UnavailableError (it may be stored), *UnsettledError (it
// is stored, but waiting ended first). See docs/behaviour.md §5.
func (d *Dispatcher) Dispatch(ctx context.Context, operationID string, event *tasks.Event, options ...EventOption) error {
	d.metrics.dispatches.WithLabelValues(string(d.config.Mode)).Inc()
	request := newRequest(event, options)
	if err := request.check(operationID); err != nil {
		return err
	}
	var err error
	switch d.config.Mode {
	case ModeLocal:
		err = d.dispatchLocal(ctx, operationID, request)
	case ModeQueue:
		err = d.dispatchQueue(ctx, operationID, request)
	case ModeQStash:
		_, err = d.enqueueOne(ctx, operationID, request)
	}
	if isCritical(err) {
		d.metrics.critical.Inc()
	}
	return err
}
