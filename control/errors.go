package control

import "errors"

var (
	// ErrUnavailable says that Redis did not answer. What was asked of it may have
	// happened: every step may be repeated.
	ErrUnavailable = errors.New("control exchange unavailable")
	// ErrNotFound says that no such question is known: it was never asked, or its
	// verdict is forgotten by now.
	ErrNotFound = errors.New("question not found")
	// ErrPending says that waiting ended before the question had a verdict. It goes
	// on without the caller.
	ErrPending = errors.New("verdict is pending")
	// ErrClosed says that the Client was closed.
	ErrClosed = errors.New("control client is closed")
	// ErrLocal says that the call needs an Exchange: a local client keeps no
	// questions.
	ErrLocal = errors.New("local mode keeps no questions; use Evaluate, or an exchange")
)

// ReusedError says that an id stands for another question already. Nothing was
// asked.
type ReusedError struct {
	// ID is the id that was used twice within its operation.
	ID string
}

func reused(err error) bool {
	_, is := errors.AsType[*ReusedError](err)
	return is
}

// Error names the id.
func (e *ReusedError) Error() string {
	return "question id " + e.ID + " was used before with other content; use a new id for a new question"
}
