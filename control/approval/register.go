package approval

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/tasks"
)

// Outcome is what a transition did.
type Outcome string

// The outcomes.
const (
	// Applied: something was written, all of it.
	Applied Outcome = "applied"
	// Idempotent: all of it was so before.
	Idempotent Outcome = "idempotent"
	// Skipped: no row belonged to the claim that was to be restored.
	Skipped Outcome = "skipped"
)

// Claim records one decision on all rows of a batch, or on none.
type Claim struct {
	OperationID string
	Members     []Member
	// RequestID names the resolution request: the same request with the same decision
	// may be repeated. Required.
	RequestID string
	// Decision is what the human decided; never StatusPending. Required.
	Decision Status
	// Receipt publishes the answers at once, with the claim or on rows that it holds
	// already. It is for receipts of a stop or a rejection, which hold nothing of a
	// tool; an answer that result controls may deny is claimed without it.
	Receipt bool
}

// Member is one row of a batch.
type Member struct {
	ID string
	// Answer is kept apart until it is published, or published at once for a receipt.
	Answer Answer
}

// Publication writes an answer into a row that is claimed.
type Publication struct {
	OperationID, ID string
	// RequestID and Decision must be those of the claim.
	RequestID string
	Decision  Status
	Answer    Answer
}

// Restoration takes a claim back whose continuation could not be started.
type Restoration struct {
	OperationID string
	// IDs are the rows of the batch.
	IDs       []string
	RequestID string
}

// Store keeps the rows. Each step is atomic over all of its rows, and safe to
// repeat after a lost reply by its token. Errors are *RefusedError, ErrNotFound,
// ErrReused and ErrUnavailable.
type Store interface {
	Transitions
	// Open stores a row unless the same one is there; the row that stands is returned.
	Open(ctx context.Context, row Row) (Row, error)
	// Get returns a row as its readers see it.
	Get(ctx context.Context, operationID, id string) (Row, error)
	// Answer returns what a claim keeps apart; ErrNotFound when the row is not held by
	// the request, or its answer was published.
	Answer(ctx context.Context, operationID, id, requestID string) (Answer, error)
}

// Transitions are the steps of an approval; token names one call.
type Transitions interface {
	Claim(ctx context.Context, token string, c Claim) (Outcome, error)
	Publish(ctx context.Context, token string, p Publication) (Outcome, error)
	// Restore returns the ids of the rows that are as they were before the claim.
	Restore(ctx context.Context, token string, r Restoration) ([]string, error)
}

// Config is what a Register needs.
type Config struct {
	// Store keeps the rows. Required.
	Store Store
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

// Register holds rows that wait for a human. It is safe for concurrent use by any
// number of processes over one store.
type Register struct {
	store   Store
	metrics *metrics
}

// New builds a Register. It touches no network.
func New(config Config) (*Register, error) {
	if config.Store == nil {
		return nil, errors.New("configure approvals: a store is required")
	}
	counters, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics of approvals: %w", err)
	}
	return &Register{store: config.Store, metrics: counters}, nil
}

// Open stores a row as it is, usually pending, and returns the row that stands. It
// is idempotent by id and content.
func (r *Register) Open(ctx context.Context, row Row) (Row, error) {
	if err := row.check(); err != nil {
		return Row{}, err
	}
	return r.store.Open(ctx, row)
}

// Get returns a row as its readers see it; ErrNotFound when it is not known.
func (r *Register) Get(ctx context.Context, operationID, id string) (Row, error) {
	if err := checkNames(operationID, id); err != nil {
		return Row{}, err
	}
	return r.store.Get(ctx, operationID, id)
}

// Answer returns the private answer of a claim, for whoever asks the result
// controls about it. ErrNotFound when the request does not hold the row, or its
// answer was published.
func (r *Register) Answer(ctx context.Context, operationID, id, requestID string) (Answer, error) {
	if err := checkNames(operationID, id); err != nil {
		return Answer{}, err
	}
	return r.store.Answer(ctx, operationID, id, requestID)
}

// Claim records a decision on all rows of a batch. An unknown or doubled row, a row
// that another request or decision holds, and a batch that the request holds in
// part are a *RefusedError, and nothing is written. The same claim again is
// Idempotent, and so is an empty batch; the first answers stay. The rows keep
// their operation and batch.
func (r *Register) Claim(ctx context.Context, c Claim) (Outcome, error) {
	if len(c.Members) == 0 {
		return r.done("claim", Idempotent, nil)
	}
	if err := checkDecision(c.OperationID, c.RequestID, c.Decision); err != nil {
		return "", err
	}
	for i, m := range c.Members {
		if err := errors.Join(tasks.CheckTaskID(m.ID), m.Answer.check()); err != nil {
			return "", refusedMember(err, i)
		}
	}
	outcome, err := r.store.Claim(ctx, tasks.NewID(), c)
	return r.done("claim", outcome, err)
}

// Publish writes content, error and state of an answer into a row that the request
// holds, together and once: when there is content already, or nothing to write, it
// is Idempotent, and the first content stays. Publish only what the result
// controls let through, or what stands in for it.
func (r *Register) Publish(ctx context.Context, p Publication) (Outcome, error) {
	if err := checkDecision(p.OperationID, p.RequestID, p.Decision); err != nil {
		return "", err
	}
	if err := errors.Join(tasks.CheckTaskID(p.ID), p.Answer.check()); err != nil {
		return "", err
	}
	outcome, err := r.store.Publish(ctx, tasks.NewID(), p)
	return r.done("publish", outcome, err)
}

// Restore puts rows back exactly as they were before the claim, as far as they
// still belong to it, and drops their private answers; receipts are taken back with
// their claim. A row of another claim is left alone, and so is one whose answer was
// published later: its continuation did start. It returns the ids of the restored
// rows, sorted.
func (r *Register) Restore(ctx context.Context, restoration Restoration) (Outcome, []string, error) {
	if err := tasks.CheckOperationID(restoration.OperationID); err != nil {
		return "", nil, err
	}
	if len(restoration.IDs) == 0 {
		outcome, err := r.done("restore", Skipped, nil)
		return outcome, nil, err
	}
	// A row that is named twice is one row.
	restoration.IDs = slices.Compact(slices.Sorted(slices.Values(restoration.IDs)))
	ids, err := r.store.Restore(ctx, tasks.NewID(), restoration)
	outcome := Applied
	if len(ids) == 0 {
		outcome = Skipped
	}
	outcome, err = r.done("restore", outcome, err)
	return outcome, ids, err
}

func (r *Register) done(transition string, outcome Outcome, err error) (Outcome, error) {
	if err != nil {
		outcome = ""
	}
	r.metrics.done(transition, outcome, err)
	return outcome, err
}

func checkDecision(operationID, requestID string, decision Status) error {
	if err := tasks.CheckOperationID(operationID); err != nil {
		return err
	}
	if err := tasks.CheckTaskID(requestID); err != nil {
		return refusedName(err, "requestId")
	}
	if decision == "" || decision == StatusPending {
		return &tasks.InvalidError{
			Code: tasks.InvalidField, Path: "decision", Message: "decision is none", Fix: "send approved, rejected or another decision",
		}
	}
	return nil
}

func refusedName(err error, path string) error {
	var invalid *tasks.InvalidError
	if !errors.As(err, &invalid) {
		return err
	}
	moved := *invalid
	moved.Path = path
	return &moved
}

func refusedMember(err error, i int) error { return refused(err, fmt.Sprintf("members[%d]", i)) }
