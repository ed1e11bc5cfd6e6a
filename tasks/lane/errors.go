package lane

import "errors"

var (
	// ErrLeaseLost says that another worker may hold the queue now. The step
	// changed nothing; deliveries made since the last step may be repeated.
	ErrLeaseLost = errors.New("lane lease lost")
	// ErrUnavailable says that Redis did not answer. The step may have happened:
	// repeating it is safe, because every step is idempotent.
	ErrUnavailable = errors.New("lane store unavailable")
	// ErrNotFound says that no such task, dead letter or lane is known.
	ErrNotFound = errors.New("not found")
	// ErrNotReplayable says that a dead letter is poison and names no hook.
	ErrNotReplayable = errors.New("dead letter is not a task and cannot be replayed")
)

// ReusedError says that an id stands for other content already. Nothing of the
// batch was stored.
type ReusedError struct {
	// ID is the idempotency key that was used twice.
	ID string
}

// Error names the key.
func (e *ReusedError) Error() string {
	return "event id " + e.ID + " was used before with other content; use a new id for a new event"
}
