package toolcall

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed says that the Runner was closed, so that nothing can be sent any more.
	ErrClosed = errors.New("tool call runner is closed")
	// ErrBacklog says that Config.MaxBackground hand-overs wait already, and that this
	// one was given up.
	ErrBacklog = errors.New("too many notifications wait to be handed over")
	// ErrNoVerdict says that the controls gave neither permission nor a reason
	// against it. The call must not go ahead.
	ErrNoVerdict = errors.New("controls gave no verdict")
	// ErrDeferred says that a placeholder is no result: neither controls nor
	// observers may see it.
	ErrDeferred = errors.New("a deferred placeholder is no complete result")
)

// errBackgroundTimeout is the cause of a hand-over that took too long.
var errBackgroundTimeout = errors.New("hand-over took too long")

// PanicError is a tool that panicked. It counts as one that threw.
type PanicError struct {
	// Value is what it panicked with, Stack where.
	Value any
	Stack []byte
}

// Error tells the value, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("tool panicked: %v", e.Value) }

// Unwrap gives the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
