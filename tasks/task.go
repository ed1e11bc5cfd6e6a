package tasks

import "encoding/json"

// WireVersion is the version of the task document that this module writes.
const WireVersion = 1

// Task is one event on its way: the document that stands in a lane, one per
// event (docs/wire.md). Encode and DecodeTask are its codec; a Task keeps the
// bytes of what it does not understand.
type Task struct {
	// ID is the idempotency key within the operation: a ULID, or the caller's own.
	ID string
	// OperationID names the operation whose lane the task joins.
	OperationID string
	// Type is the hook type of the event.
	Type HookType
	// Event is the raw event object, byte for byte as it came.
	Event json.RawMessage
	// Hooks is the raw array of the caller's serialized hooks that matched at
	// enqueue; nil means none. StoredHooks parses it.
	Hooks json.RawMessage
	// EnqueuedAt is the producer's clock in Unix milliseconds, for people; no
	// decision is taken on it.
	EnqueuedAt int64
	// Trace is a W3C traceparent; "" means none.
	Trace string
	// Extra keeps the unknown top-level fields of a decoded document.
	Extra map[string]json.RawMessage
}
