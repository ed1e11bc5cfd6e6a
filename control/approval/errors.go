package approval

import (
	"errors"
	"fmt"

	"github.com/gantry-hooks/gantry/tasks"
)

// The errors of a Register beside *RefusedError and *tasks.InvalidError.
var (
	// ErrNotFound says that no such row is known, or that it has expired.
	ErrNotFound = errors.New("approval not found")
	// ErrReused says that the row's id stands for another row already. Nothing was
	// changed.
	ErrReused = errors.New("id stands for another approval")
	// ErrUnavailable says that the store did not answer. What was asked of it may have
	// happened; asking again is safe.
	ErrUnavailable = errors.New("store of approvals unavailable")
)

// Code says why a claim or a publication was refused. Codes are stable: callers
// may branch on them.
type Code string

// The codes.
const (
	// UnknownRow: a row is not known in the operation.
	UnknownRow Code = "unknown_row"
	// DuplicateRow: a batch names a row twice.
	DuplicateRow Code = "duplicate_row"
	// AlreadyResolved: another request, or another decision, holds the row.
	AlreadyResolved Code = "already_resolved"
	// PartialClaim: the request holds some rows of the batch and not the others.
	PartialClaim Code = "partial_claim"
	// NotClaimed: a publication came for a row that is pending.
	NotClaimed Code = "not_claimed"
)

// RefusedError says why a batch was refused. Nothing of it was written.
type RefusedError struct {
	Code Code
	// RowID is the first row that stood in the way.
	RowID string
}

// Error names code and row.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("approval of %q is refused: %s", e.RowID, e.Code)
}

// refused moves an error of an input below path.
func refused(err error, path string) error {
	var invalid *tasks.InvalidError
	if errors.As(err, &invalid) {
		return invalid.Under(path)
	}
	return err
}
