package producer

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
)

var (
	// ErrCriticalHookDelivery is the identity of every *CriticalHookDeliveryError.
	ErrCriticalHookDelivery = errors.New("critical webhook delivery failed")
	// ErrClosed says that the Dispatcher was closed. An event that was appended
	// before is delivered all the same.
	ErrClosed = errors.New("dispatcher is closed")
	// ErrNotQueued says that the call needs queue mode. Nothing was stored.
	ErrNotQueued = errors.New("local mode stores no events; use Dispatch, or queue mode")
	// ErrNoOutcome says that QStash mode does not hear what becomes of an event once
	// it is handed over.
	ErrNoOutcome = errors.New("QStash mode hears no outcomes; ask where the workers are")
	// ErrInvalidRequest says that a call can never succeed as it is. Nothing was
	// stored or sent.
	ErrInvalidRequest = errors.New("invalid request")
	// ErrBatchTooLarge is the ErrInvalidRequest of a batch over Config.MaxBatch or
	// Config.MaxBatchBytes: the same events are taken in smaller batches.
	ErrBatchTooLarge = fmt.Errorf("%w: batch too large", ErrInvalidRequest)
)

// HookFailure is how one hook of an event stands when it is not delivered. All
// of it is safe to show: no secret, no remote text.
type HookFailure struct {
	// HookID is the id as configured; Occurrence tells hooks with the same id
	// apart, from 0.
	HookID     string
	Occurrence int
	// Standing is parked (a retry is due at DueAt), waiting (behind a parked
	// delivery), dead or discarded; "" in local mode, which makes one attempt.
	Standing lane.Standing
	// DueAt is the time of the next attempt by the clock of Redis; zero unless parked.
	DueAt time.Time
	// Class says why the last attempt failed; "" when none was made. Status is the
	// HTTP status; 0 when no reply arrived.
	Class  tasks.FailureClass
	Status int
	// Attempt is the number of attempts made so far.
	Attempt int
	// Reason says why the delivery was given up; "" while it is not.
	Reason  tasks.DeliveryReason
	Message string
}

// HookFailureError is a HookFailure as an error, one cause of a
// CriticalHookDeliveryError.
type HookFailureError struct {
	HookFailure
}

// Error names the hook, how it stands and why.
func (e *HookFailureError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "hook %q is not delivered", e.HookID)
	if e.Standing != "" {
		fmt.Fprintf(&text, " (%s)", e.Standing)
	}
	switch {
	case e.Message != "":
		text.WriteString(": " + e.Message)
	case e.Class != "":
		text.WriteString(": " + string(e.Class))
	case e.Reason != "":
		text.WriteString(": " + string(e.Reason))
	}
	return text.String()
}

// CriticalHookDeliveryError says that at least one hook with fallback none is
// not delivered after each hook of the event had its first attempt. In queue
// mode the queue goes on retrying: dispatching the same event id again joins
// it (docs/behaviour.md §5).
type CriticalHookDeliveryError struct {
	// OperationID and TaskID name the event; TaskID is what a repeated Dispatch
	// passes as its id.
	OperationID string
	TaskID      string
	// HookID is the first failing hook, in order of evaluation. Cause is its
	// failure as an error, a *HookFailureError.
	HookID string
	Cause  error
	// Causes are all failing critical hooks in order of evaluation, the first included.
	Causes []HookFailure
}

// Error is the contract's text: it names the first failing hook.
func (e *CriticalHookDeliveryError) Error() string {
	return "Critical webhook delivery failed: " + e.HookID
}

// Is makes every such error an ErrCriticalHookDelivery.
func (e *CriticalHookDeliveryError) Is(target error) bool { return target == ErrCriticalHookDelivery }

// Unwrap gives each cause as a *HookFailureError.
func (e *CriticalHookDeliveryError) Unwrap() []error {
	causes := make([]error, len(e.Causes))
	for i, cause := range e.Causes {
		causes[i] = &HookFailureError{HookFailure: cause}
	}
	return causes
}

// UnavailableError says that the store did not answer an append: the events may
// or may not be stored. Repeating the call with the same ids is safe, because
// an id is stored once.
type UnavailableError struct {
	OperationID string
	// EventIDs are the ids of the call in order, also those that were drawn for it.
	EventIDs []string
	// Err is why: lane.ErrUnavailable, a *RelayError, or the end of the caller's
	// context.
	Err error
}

// Error says what may have happened and how to go on.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("append to operation %q: %v; the event may be stored or not, repeat with the same id (%s)",
		e.OperationID, e.Err, idList(e.EventIDs))
}

// Unwrap gives the reason.
func (e *UnavailableError) Unwrap() error { return e.Err }

// RelayError says that QStash did not take a message, or may have taken it
// without saying so. It is the reason of an UnavailableError in QStash mode.
type RelayError struct {
	// Outcome is what is known about the message, Status the HTTP status of QStash's
	// answer; 0 when none arrived.
	Outcome webhook.PublishOutcome
	Status  int
	// Message is safe to show; "" when there is nothing more to say.
	Message string
}

// Error names the outcome.
func (e *RelayError) Error() string {
	text := "hand over to QStash: " + string(e.Outcome)
	if e.Status != 0 {
		text += fmt.Sprintf(" (HTTP %d)", e.Status)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// UnsettledError says that waiting ended before the event had come to what was
// waited for. The event is stored and goes on without the caller; a Dispatch
// with the same id, or Await, joins it.
type UnsettledError struct {
	OperationID string
	TaskID      string
	// Err is why waiting ended: the cause of the context's end, ErrClosed, or
	// lane.ErrNotFound when the store no longer knows the event. When the store
	// was away at the end, it wraps lane.ErrUnavailable as well.
	Err error
}

// Error names the event and why waiting ended.
func (e *UnsettledError) Error() string {
	text := fmt.Sprintf("await event %q of operation %q: %v", e.TaskID, e.OperationID, e.Err)
	if errors.Is(e.Err, lane.ErrNotFound) {
		return text
	}
	return text + "; the event is stored, repeat with the same id to join it"
}

// Unwrap gives the reason.
func (e *UnsettledError) Unwrap() error { return e.Err }

// BatchError says which member of a batch is invalid. Nothing of the batch's
// operation was stored.
type BatchError struct {
	// Index is the member's place in the call, from 0.
	Index int
	Err   error
}

// Error names the member.
func (e *BatchError) Error() string { return fmt.Sprintf("event %d: %v", e.Index, e.Err) }

// Unwrap gives the reason.
func (e *BatchError) Unwrap() error { return e.Err }

// idList shortens a long list of ids for an error text.
func idList(ids []string) string {
	const shown = 3
	if len(ids) <= shown {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(ids[:shown], ", "), len(ids)-shown)
}
