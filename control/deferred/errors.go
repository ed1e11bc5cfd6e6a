package deferred

import (
	"errors"

	"github.com/gantry-hooks/gantry/tasks"
)

// The errors of a Service and its Store. Others are an *tasks.InvalidError, for a
// call that can never succeed, and what a PolicyStore or the controls returned;
// whatever it is, nothing was published unless ErrUnavailable says that it may be.
var (
	// ErrNotFound says that no such placeholder is known, or that it has expired.
	ErrNotFound = errors.New("deferred result not found")
	// ErrReused says that the id stands for another placeholder already. Nothing was
	// changed.
	ErrReused = errors.New("id stands for another deferred result")
	// ErrUnavailable says that the store did not answer. What was asked of it may
	// have happened; asking again is safe.
	ErrUnavailable = errors.New("store of deferred results unavailable")
	// ErrPending says that the context ended before the result was final.
	ErrPending = errors.New("deferred result is pending")
	// ErrClosed says that the Service was closed while a call waited.
	ErrClosed = errors.New("service of deferred results is closed")
	// ErrNoCall says that controls are configured and the placeholder does not hold
	// what they must be told. Nothing was published.
	ErrNoCall = errors.New("controls are configured, and the call cannot be rebuilt for them")
	// ErrEnvironmentUnknown says that no worker that answers questions has told its environment hooks, so that
	// nobody knows whether a control must see a result whose call cannot be rebuilt.
	// Nothing was published.
	ErrEnvironmentUnknown = errors.New("no worker is known, and so no environment hooks")
	// ErrBridged says that the message belongs to a completion bridge and somebody
	// else tried to complete it. Nothing was published.
	ErrBridged = errors.New("a completion bridge alone completes this result")
)

// refused moves an error of an input below path.
func refused(err error, path string) error {
	var invalid *tasks.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	moved := *invalid
	moved.Path = ""
	return moved.Under(path)
}
