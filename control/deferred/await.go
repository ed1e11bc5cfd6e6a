package deferred

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
)

// recheckMin and recheckMax bound the pauses between a waiter's own looks at its
// row, which mend whatever the inbox did not hear. The store forgets a listener
// that has not looked for minutes.
const (
	recheckMin = 2 * time.Second
	recheckMax = 20 * time.Second
)

// Await waits until a row is final and returns it. It outlives an outage of the
// store. Errors: ErrPending when ctx ends first, ErrNotFound when the row is not
// known or expires meanwhile, ErrClosed.
func (s *Service) Await(ctx context.Context, id string) (Row, error) {
	if err := tasks.CheckTaskID(id); err != nil {
		return Row{}, err
	}
	if wait.Closed(s.inbox.Done()) {
		return Row{}, ErrClosed
	}
	w := s.inbox.Join(id)
	defer s.inbox.Leave(w)
	defer s.metrics.waiting()()
	w.Hint() // look at once
	pause := recheckMin
	recheck := time.NewTimer(wait.Jitter(pause))
	defer recheck.Stop()
	var trouble error
	for {
		select {
		case <-ctx.Done():
			return Row{}, pending(ctx, trouble)
		case <-s.inbox.Done():
			return Row{}, ErrClosed
		case <-w.Woken():
		case <-recheck.C:
			pause = min(2*pause, recheckMax)
			recheck.Reset(wait.Jitter(pause))
		}
		row, err := s.config.Store.Read(ctx, id, s.inbox.Name())
		switch trouble = err; {
		case err == nil && row.Final:
			return row, nil
		case err != nil && !errors.Is(err, ErrUnavailable):
			return Row{}, err
		}
	}
}

// pending is the error of a wait that its context ended.
func pending(ctx context.Context, trouble error) error {
	err := fmt.Errorf("%w: %w", ErrPending, context.Cause(ctx))
	if trouble != nil && !errors.Is(trouble, ctx.Err()) {
		return errors.Join(err, trouble)
	}
	return err
}
