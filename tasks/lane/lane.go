package lane

import (
	"encoding/json"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// Queue names one claimable queue: a lane, or one hook's parked deliveries
// beside it. The zero value is invalid.
type Queue struct {
	// Shard is the index of the shard that holds the operation.
	Shard int
	// Operation is the hash of the operation id, as it stands in keys.
	Operation string
	// Hook is the key of the parked hook (HookKey); "" means the lane itself.
	Hook string
}

// Lane reports whether q is a lane and not a parked queue.
func (q Queue) Lane() bool { return q.Hook == "" }

// WaitMode says what a waiter of a task wants to hear.
type WaitMode string

// The wait modes.
const (
	// WaitFirst ends when each hook has been attempted or waits behind a parked one.
	WaitFirst WaitMode = "first"
	// WaitFinal ends when each hook is delivered, dead or discarded.
	WaitFinal WaitMode = "final"
)

// Waiter is an inbox that wants to hear when a task has come to Mode. The zero
// value means that nobody waits.
type Waiter struct {
	Inbox string
	Mode  WaitMode
}

// Item is one event of an append.
type Item struct {
	// ID is the idempotency key within the operation.
	ID string
	// Doc is the encoded task document; Digest is tasks.ContentDigest of it.
	Doc    []byte
	Digest string
	// Delay keeps the event out of the lane until it is over, in whole
	// milliseconds; 0 appends now.
	Delay time.Duration
	// Waiter is registered in the same step, also when the item is a duplicate.
	Waiter Waiter
}

// Appended is what became of one item.
type Appended struct {
	ID string
	// Sequence is the position in the operation's lane, from 1; 0 while a delayed
	// event waits.
	Sequence int64
	// Duplicate says that the same id with the same content was there before: the
	// item joined it and nothing was added.
	Duplicate bool
	// Status is the task's state as seen by the item's waiter; the zero Status
	// when the item had no waiter.
	Status Status
}

// Entry is one delivery or event of a claimed queue.
type Entry struct {
	// Sequence is the event's position in the operation's lane.
	Sequence int64
	// ParkedAt is when the delivery joined the parked queue, in milliseconds of
	// Redis time; 0 in a lane.
	ParkedAt int64
	// Doc is the raw task document. It may be anything if somebody wrote to
	// Redis by hand.
	Doc []byte
}

// Claim is a queue in the hands of one worker until its lease ends.
type Claim struct {
	Queue Queue
	// OperationID is the operation's own id; "" when the queue was written by hand.
	OperationID string
	// Token fences every later step: it never repeats in a shard.
	Token int64
	// Entries are the first entries of the queue, in order; never empty.
	Entries []Entry
	// Settled holds the keys of the first entry's hooks that are settled already.
	Settled []string
	// Parked holds the keys of the operation's parked hooks. Lanes only.
	Parked []string
	// Attempt counts the attempts made for the first entry of a parked queue.
	Attempt int
	// Now is Redis time in milliseconds at the claim.
	Now int64
}

// Verb is what a step does with the head entry of the queue.
type Verb string

// The verbs. Delivered, Park, Behind, Bury and Discard settle one hook of a
// lane's head; Pop ends the head when each of its hooks is settled. In a parked
// queue the head is one delivery: Delivered, Bury and Discard end it, Retry
// keeps it for later.
const (
	Delivered Verb = "delivered"
	Park      Verb = "park"
	Behind    Verb = "behind"
	Bury      Verb = "bury"
	Discard   Verb = "discard"
	Retry     Verb = "retry"
	Pop       Verb = "pop"
)

// Action is one change to the head entry. An action whose Sequence is no longer
// the head's was applied before (a reply was lost) and is skipped.
type Action struct {
	Verb     Verb
	Sequence int64
	// TaskID is the id of the head's task; "" for poison that has none.
	TaskID string
	// Hook is the key of the hook; "" for Pop and for poison.
	Hook string
	// Delay is the time to the next attempt of Park and Retry.
	Delay time.Duration
	// Attempt is the number of attempts made so far. Park and Retry.
	Attempt int
	// Outcome is what waiters and operators read. Every verb but Delivered and Pop.
	Outcome *Outcome
	// DeadID names the dead letter. Bury only.
	DeadID string
}

// Step is what a worker asks of a queue that it holds.
type Step struct {
	Queue   Queue
	Token   int64
	Actions []Action
	// Want is the number of entries to hand over after the actions; 0 none. When
	// the queue is empty then, it is released.
	Want int
	// Release gives the queue back: to the tail of the ready list if it has
	// entries left, else to rest.
	Release bool
}

// Progress is the answer to a step.
type Progress struct {
	// Released says that the worker no longer holds the queue.
	Released bool
	// Entries are the next entries. Settled, Parked and Attempt are as in Claim.
	Entries []Entry
	Settled []string
	Parked  []string
	Attempt int
	// Now is Redis time in milliseconds.
	Now int64
	// Ready is the number of queues that wait for a worker in the shard.
	Ready int
	// Unparked holds hooks that a Behind action found no longer parked: the head
	// stays, and the worker delivers them itself.
	Unparked []string
}

// Standing is where one hook's delivery of a task stands.
type Standing string

// The standings. A delivery without a recorded outcome is delivered once its
// task has been attempted.
const (
	StandingDelivered Standing = "delivered"
	StandingParked    Standing = "parked"
	StandingWaiting   Standing = "waiting"
	StandingDead      Standing = "dead"
	StandingDiscarded Standing = "discarded"
)

// Final reports whether nothing more will happen without an operator.
func (s Standing) Final() bool {
	return s == StandingDelivered || s == StandingDead || s == StandingDiscarded
}

// Outcome is what one hook of a task came to, when it is not simply delivered.
type Outcome struct {
	HookID     string               `json:"hookId"`
	HookType   tasks.HookType       `json:"hookType,omitempty"`
	Occurrence int                  `json:"occurrence,omitempty"`
	Standing   Standing             `json:"standing"`
	Critical   bool                 `json:"critical,omitempty"`
	Attempt    int                  `json:"attempt,omitempty"`
	Class      tasks.FailureClass   `json:"class,omitempty"`
	Status     int                  `json:"status,omitempty"`
	Reason     tasks.DeliveryReason `json:"reason,omitempty"`
	// Message is safe to show: it holds no secret and no remote text.
	Message string `json:"message,omitempty"`
	// DueAt is when a parked delivery is attempted next, in milliseconds of Redis
	// time; the store fills it in.
	DueAt int64 `json:"dueAt,omitempty"`
}

// Status is the state of a task.
type Status struct {
	// Known is false when the task was never appended, or so long ago that its id
	// is forgotten.
	Known bool
	// Attempted says that each hook was attempted or waits behind a parked one.
	Attempted bool
	// Sequence is the position in the lane; 0 while the event is delayed.
	Sequence int64
	// Outcomes are the hooks that are not delivered, ordered by hook id.
	Outcomes []Outcome
}

// Settled reports whether the task has come to mode.
func (s Status) Settled(mode WaitMode) bool {
	if !s.Attempted || mode == WaitFirst {
		return s.Attempted
	}
	for _, o := range s.Outcomes {
		if !o.Standing.Final() {
			return false
		}
	}
	return true
}

// DeadLetter is a delivery that was given up, with all that is needed to replay it.
type DeadLetter struct {
	ID          string          `json:"id"`
	OperationID string          `json:"operationId"`
	TaskID      string          `json:"taskId,omitempty"`
	Sequence    int64           `json:"sequence,omitempty"`
	Outcome     Outcome         `json:"outcome"`
	At          int64           `json:"at"`
	Task        json.RawMessage `json:"task,omitempty"`
	// Poison is the raw entry when it is no task at all.
	Poison []byte `json:"poison,omitempty"`
}

// DeadFilter selects dead letters; an empty field selects all.
type DeadFilter struct {
	OperationID string
	HookID      string
	Type        tasks.HookType
	Class       tasks.FailureClass
	// Cursor continues a listing; "" starts it, oldest first. Limit is the size of
	// a page; 0 means 100.
	Cursor string
	Limit  int
}

// DeadPage is one page of dead letters; Next is "" on the last one.
type DeadPage struct {
	Letters []DeadLetter
	Next    string
	Total   int64
}

// Info is one lane as operators see it.
type Info struct {
	OperationID string `json:"operationId"`
	// State is idle, ready or claimed.
	State string `json:"state"`
	// Waiting is the number of events in the lane, Delayed of those not yet due.
	Waiting int64 `json:"waiting"`
	Delayed int64 `json:"delayed"`
	// Next is the sequence number that the next event will get.
	Next   int64        `json:"next"`
	Parked []ParkedInfo `json:"parked,omitempty"`
}

// ParkedInfo is one parked hook of a lane.
type ParkedInfo struct {
	HookKey string  `json:"hookKey"`
	State   string  `json:"state"`
	Waiting int64   `json:"waiting"`
	Attempt int     `json:"attempt"`
	DueAt   int64   `json:"dueAt"`
	Outcome Outcome `json:"outcome"`
}

// WorkerInfo is what a worker publishes about itself, without addresses or secrets.
type WorkerInfo struct {
	ID string `json:"id"`
	// Hooks are the environment hooks in force at the worker.
	Hooks []PublishedHook `json:"hooks"`
	// Silent says that the worker answers no questions, so that its hooks say nothing
	// about those of the workers that do.
	Silent bool `json:"silent,omitempty"`
	// SeenAt is the last heartbeat in milliseconds of Redis time.
	SeenAt int64 `json:"seenAt,omitempty"`
}

// PublishedHook is an environment hook as a producer may know it.
type PublishedHook struct {
	Type    tasks.HookType    `json:"type"`
	Matcher *string           `json:"matcher,omitempty"`
	Control bool              `json:"control,omitempty"`
	OnError tasks.ErrorPolicy `json:"onError,omitempty"`
}

// Notice tells an inbox that a task has come to what its waiter asked for. It is
// a hint: the task's Status is the truth.
type Notice struct {
	// OperationHash and TaskID name the task; the hash is tasks.OperationHash.
	OperationHash string
	TaskID        string
}

// Swept is what one sweep of a shard found.
type Swept struct {
	// Ready is the number of queues made ready, Expired of leases that had ended.
	Ready   int
	Expired int
	// Next is the time until something is due; negative when nothing is.
	Next time.Duration
	// Waiting is the number of queues that wait for a worker.
	Waiting int
}

// Held names a queue and the token under which a worker holds it.
type Held struct {
	Queue Queue
	Token int64
}

// Counts are the sizes of a shard, for metrics.
type Counts struct {
	// Ready is the number of queues that wait for a worker.
	Ready int64
	// Due is the number of queues and delayed events somebody must look at later.
	Due int64
	// Dead is the number of dead letters, Blocked of hooks that are parked.
	Dead    int64
	Blocked int64
}
