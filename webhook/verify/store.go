package verify

import (
	"context"
	"errors"
	"time"
)

// State is what a claim found.
type State string

// The states; the zero value is none of them.
const (
	// StateNew says that the claim is taken.
	StateNew State = "new"
	// StateInProgress says that somebody else holds it.
	StateInProgress State = "in_progress"
	// StateDone says that the work was finished before.
	StateDone State = "done"
)

// Store remembers which messages are being worked on and which are finished. A
// claim ends by itself after its lease, so that the message of a process that
// died is not lost. Ids are short texts without spaces; owners are random and
// tell the claims of one id apart.
//
// Memory and redisstore.Store implement it.
type Store interface {
	// Claim takes id for owner, atomically, unless another owner holds it or it is
	// done. A repeated Claim of the same owner finds StateNew, so that a client that
	// repeats commands does not lock itself out.
	Claim(ctx context.Context, id, owner string, lease time.Duration) (State, error)
	// Done marks id as finished and keeps that for a while. It holds also when the
	// owner's claim has ended meanwhile: the work is done all the same.
	Done(ctx context.Context, id, owner string, keep time.Duration) error
	// Release gives id back. A claim that another owner holds by now, and what is
	// done, are left alone.
	Release(ctx context.Context, id, owner string) error
}

// ErrStoreFull says that a Memory is full of messages in progress.
var ErrStoreFull = errors.New("store is full of messages in progress")

// ErrLeaseEnded is the cause of the end of a request's context when its handler
// took longer than Config.Lease.
var ErrLeaseEnded = errors.New("lease of the message ended")
