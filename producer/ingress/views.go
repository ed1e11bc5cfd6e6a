package ingress

import (
	"encoding/json"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Outcome is how one hook of an event stands when it is not simply delivered.
type Outcome struct {
	HookID     string               `json:"hookId" doc:"Id of the hook as configured."`
	HookType   tasks.HookType       `json:"hookType,omitempty" doc:"Type of the hook."`
	Occurrence int                  `json:"occurrence,omitempty" doc:"Tells hooks with the same id, type and matcher apart, from 0."`
	Standing   lane.Standing        `json:"standing" enum:"delivered,parked,waiting,dead,discarded" doc:"parked: a retry is due at dueAt; waiting: behind a parked delivery; dead: given up, see the dead letters; discarded: its hook is gone."`
	Critical   bool                 `json:"critical" doc:"The hook has fallback none."`
	Attempt    int                  `json:"attempt" doc:"Attempts made so far."`
	Class      tasks.FailureClass   `json:"class,omitempty" doc:"Why the last attempt failed."`
	Status     int                  `json:"status,omitempty" doc:"HTTP status of the last reply."`
	Reason     tasks.DeliveryReason `json:"reason,omitempty" doc:"Why the delivery was given up or discarded."`
	Message    string               `json:"message,omitempty" doc:"What happened, for people; holds no secret and no remote text."`
	DueAt      int64                `json:"dueAt,omitempty" doc:"When the next attempt is due, in Unix milliseconds of the clock of Redis."`
}

// newOutcome reads a stored outcome.
func newOutcome(o lane.Outcome) Outcome {
	return Outcome{
		HookID: o.HookID, HookType: o.HookType, Occurrence: o.Occurrence, Standing: o.Standing, Critical: o.Critical,
		Attempt: o.Attempt, Class: o.Class, Status: o.Status, Reason: o.Reason, Message: o.Message, DueAt: o.DueAt,
	}
}

// CriticalFailure is a critical hook that is not delivered.
type CriticalFailure struct {
	EventID string `json:"eventId" doc:"Id of the event."`
	Outcome
}

// progress is how far an event has come, as a wait for it reads it.
type progress struct {
	settled  bool
	outcomes []Outcome
	critical []CriticalFailure
}

// newProgress reads a status.
func newProgress(eventID string, status lane.Status, mode lane.WaitMode) progress {
	p := progress{settled: status.Settled(mode), outcomes: []Outcome{}, critical: []CriticalFailure{}}
	for _, stored := range status.Outcomes {
		outcome := newOutcome(stored)
		p.outcomes = append(p.outcomes, outcome)
		if outcome.Critical && outcome.Standing != lane.StandingDelivered {
			p.critical = append(p.critical, CriticalFailure{EventID: eventID, Outcome: outcome})
		}
	}
	return p
}

// Receipt says what became of an event that was sent.
type Receipt struct {
	ID        string     `json:"id,omitempty" doc:"Idempotency key of the event, to repeat or to await it with; absent for a skipped event without one."`
	Sequence  int64      `json:"sequence" doc:"Position in the operation's lane, from 1; 0 while the event is delayed, or when it is skipped."`
	Duplicate bool       `json:"duplicate" doc:"The same event was stored before, and this one joined it."`
	Skipped   bool       `json:"skipped" doc:"No hook matches: nothing was stored, nothing will happen."`
	Settled   *bool      `json:"settled,omitempty" doc:"With await: whether the event has come to what was awaited."`
	Outcomes  *[]Outcome `json:"outcomes,omitempty" doc:"With await: the hooks that are not delivered. A hook that is not listed is, once the event is settled."`
}

// EventsResult answers the sending of events.
type EventsResult struct {
	OperationID string    `json:"operationId" doc:"Operation of the events."`
	Receipts    []Receipt `json:"receipts" doc:"One for each event, in the order of the request."`
	Settled     *bool     `json:"settled,omitempty" doc:"With await: whether each event has come to what was awaited."`
	// CriticalFailures is not empty where a Go caller sees a CriticalHookDeliveryError.
	CriticalFailures *[]CriticalFailure `json:"criticalFailures,omitempty" doc:"With await: critical hooks that are not delivered. Check it: the HTTP status stays 200."`
}

// EventStatus is how one event stands.
type EventStatus struct {
	OperationID      string            `json:"operationId"`
	ID               string            `json:"id"`
	Sequence         int64             `json:"sequence" doc:"Position in the operation's lane, from 1; 0 while the event is delayed."`
	Attempted        bool              `json:"attempted" doc:"Each hook was attempted, or waits behind a parked delivery."`
	Settled          bool              `json:"settled" doc:"The event has come to what mode asks for."`
	Outcomes         []Outcome         `json:"outcomes" doc:"The hooks that are not delivered."`
	CriticalFailures []CriticalFailure `json:"criticalFailures" doc:"Critical hooks that are not delivered."`
}

// HookList is an operation's registered hooks.
type HookList struct {
	OperationID string          `json:"operationId"`
	Hooks       json.RawMessage `json:"hooks" doc:"The hooks in their stored form."`
}

// LaneView is an operation's lane as operators see it.
type LaneView struct {
	OperationID string       `json:"operationId"`
	State       string       `json:"state" enum:"idle,ready,claimed" doc:"ready: waits for a worker; claimed: a worker drains it."`
	Waiting     int64        `json:"waiting" doc:"Events in the lane."`
	Delayed     int64        `json:"delayed" doc:"Events that are not due yet."`
	Next        int64        `json:"next" doc:"Sequence number of the next event."`
	Parked      []ParkedView `json:"parked" doc:"Hooks whose head delivery waits for its next attempt."`
}

// ParkedView is a parked hook of a lane.
type ParkedView struct {
	HookKey string  `json:"hookKey" doc:"Short name of the hook in Redis."`
	State   string  `json:"state"`
	Waiting int64   `json:"waiting" doc:"Deliveries in the hook's queue, the parked one included."`
	Attempt int     `json:"attempt" doc:"Attempts made for the head delivery."`
	DueAt   int64   `json:"dueAt" doc:"When the next attempt is due, in Unix milliseconds of the clock of Redis."`
	Outcome Outcome `json:"outcome" doc:"How the last attempt went."`
}

// newLaneView reads a lane.
func newLaneView(info lane.Info) LaneView {
	view := LaneView{
		OperationID: info.OperationID, State: info.State, Waiting: info.Waiting, Delayed: info.Delayed, Next: info.Next,
		Parked: make([]ParkedView, 0, len(info.Parked)),
	}
	for _, p := range info.Parked {
		view.Parked = append(view.Parked, ParkedView{
			HookKey: p.HookKey, State: p.State, Waiting: p.Waiting, Attempt: p.Attempt, DueAt: p.DueAt, Outcome: newOutcome(p.Outcome),
		})
	}
	return view
}

// LaneList lists lanes.
type LaneList struct {
	Lanes []LaneView `json:"lanes" doc:"Lanes that have something to do."`
}

// DeadLetterView is a delivery that was given up.
type DeadLetterView struct {
	ID          string  `json:"id"`
	OperationID string  `json:"operationId" doc:"Empty when it is not known."`
	EventID     string  `json:"eventId,omitempty" doc:"Id of the event; absent for an entry that is no task."`
	Sequence    int64   `json:"sequence,omitempty" doc:"Position of the event in its lane."`
	At          int64   `json:"at" doc:"When it was given up, in Unix milliseconds of the clock of Redis."`
	Outcome     Outcome `json:"outcome" doc:"Hook, reason and last attempt."`
	// Task and Poison are shown for one letter, not in lists.
	Task   json.RawMessage `json:"task,omitempty" doc:"The task document (docs/wire.md). Only when one letter is asked for."`
	Poison []byte          `json:"poison,omitempty" doc:"The raw entry that is no task, in base64. Only when one letter is asked for."`
}

// newDeadLetterView reads a dead letter without its content.
func newDeadLetterView(l lane.DeadLetter) DeadLetterView {
	return DeadLetterView{
		ID: l.ID, OperationID: l.OperationID, EventID: l.TaskID, Sequence: l.Sequence, At: l.At, Outcome: newOutcome(l.Outcome),
	}
}

// withContent adds what was to be delivered. Something written by hand need not
// be JSON, and is shown raw then.
func (v DeadLetterView) withContent(l lane.DeadLetter) DeadLetterView {
	v.Task, v.Poison = l.Task, l.Poison
	if l.Task != nil && tasks.CheckJSON(l.Task) != nil {
		v.Task, v.Poison = nil, l.Task
	}
	return v
}

// DeadLetterList is a page of dead letters.
type DeadLetterList struct {
	DeadLetters []DeadLetterView `json:"deadLetters" doc:"Oldest first. A page may be short while next is set."`
	Next        string           `json:"next,omitempty" doc:"Cursor of the next page; absent on the last one."`
	Total       int64            `json:"total" doc:"Dead letters in all, whatever the filter."`
}

// ReplayResult says what a replay did.
type ReplayResult struct {
	Replayed int `json:"replayed" doc:"Letters that were put back."`
	// NotReplayed is filled for named letters only.
	NotReplayed []NotReplayed `json:"notReplayed" doc:"Named letters that were not put back."`
}

// NotReplayed is a named letter that was not put back.
type NotReplayed struct {
	ID     string `json:"id"`
	Reason string `json:"reason" enum:"not_found,not_replayable" doc:"not_found: gone, perhaps replayed by somebody else; not_replayable: it is no task."`
}
