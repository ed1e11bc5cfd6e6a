package taskdoor

import (
	"context"
	"time"
)

// State is what a claim found.
type State string

// The states.
const (
	// Granted says that the work is the caller's until the claim ends.
	Granted State = "granted"
	// Done says that the work was finished before.
	Done State = "done"
	// Busy says that somebody else is at it.
	Busy State = "busy"
	// Early says that an earlier message of the stream should come first.
	Early State = "early"
)

// Ticket names one piece of work and its place.
type Ticket struct {
	// Operation is the operation's id, by which stores keep things together.
	Operation string
	// Key names the work within the operation; the same for each message that brings
	// it.
	Key string
	// Stream and Sequence are the place in the order: Sequence counts from 1 within
	// Stream; 0 means that the work has no order to keep.
	Stream   string
	Sequence int64
	// Force lets the work pass although an earlier message is missing.
	Force bool
	// Lease is how long the claim lasts when nothing is heard of it, so that the work
	// of a process that died is done by another.
	Lease time.Duration
}

// Grant is the answer to a claim.
type Grant struct {
	State State
	// Token is what Finish and Fail are called with. Granted only.
	Token string
	// Wait is when to ask again. Busy and Early only.
	Wait time.Duration
	// Late says that a later message of the stream came through before, Gap that an
	// earlier one is missing. Granted only.
	Late, Gap bool
	// Unsettled says that an earlier attempt left a publish without an answer.
	Unsettled bool
}

// Failure is how an attempt at the work ended without success.
type Failure struct {
	// Next is the time to the next attempt; 0 when it is not known.
	Next time.Duration
	// GivenUp says that there will be none: the stream goes on without it.
	GivenUp bool
	// Unsettled says that the attempt left a publish without an answer.
	Unsettled bool
}

// Claims remembers what is being worked on, what is done, and how far each stream
// is. Every step is atomic and may be repeated.
type Claims interface {
	// Claim asks for a piece of work.
	Claim(ctx context.Context, t Ticket) (Grant, error)
	// Finish says that it is done, also when the claim has ended meanwhile.
	Finish(ctx context.Context, t Ticket, token string) error
	// Fail gives it back. A claim that another holds now is left alone.
	Fail(ctx context.Context, t Ticket, token string, f Failure) error
}

// ClaimsConfig says how long things are remembered.
type ClaimsConfig struct {
	// Window is how long a finished piece of work is known; 0 means DefaultWindow. A
	// message that comes again after it is worked on again.
	Window time.Duration
	// Patience is how long a message waits for an earlier one of which nothing was
	// ever seen, and for one whose next attempt is overdue; 0 means DefaultPatience.
	Patience time.Duration
	// MaxEntries bounds what is kept in memory; 0 means DefaultMaxEntries. Redis has
	// no such bound.
	MaxEntries int
	// Now is the clock of claims in memory; nil means time.Now. Redis has its own.
	Now func() time.Time
}

// The defaults of ClaimsConfig.
const (
	DefaultWindow     = 24 * time.Hour
	DefaultPatience   = time.Minute
	DefaultMaxEntries = 100_000
)

// A wait is never shorter than the first, so that nobody asks in a loop, and what
// runs now is looked at again after the second.
const (
	shortestWait = time.Second
	runningWait  = 5 * time.Second
)

func (c ClaimsConfig) withDefaults() ClaimsConfig {
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.MaxEntries == 0 {
		c.MaxEntries = DefaultMaxEntries
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}
