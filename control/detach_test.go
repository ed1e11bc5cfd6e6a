package control_test

import (
	"context"
	"testing"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

// A question that nobody has got is not pending anywhere: whoever polls for it
// would never hear of it.
func TestWhatNeverArrivedIsNotPending(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx, detach := context.WithCancelCause(t.Context())
	posted := make(chan struct{}, 100)
	c := asker(t, &refusing{Exchange: g.store(t), posted: posted})
	failed := make(chan error, 1)
	go func() {
		_, err := c.Evaluate(ctx, request(t, stored("a", blocks)))
		failed <- err
	}()
	receive(t, "a posting", posted)
	detach(tasks.ErrDetached)
	fails(t, receive(t, "the error", failed), control.ErrUnavailable)
}

// refusing takes no question.
type refusing struct {
	control.Exchange
	posted chan<- struct{}
}

func (r *refusing) Post(context.Context, *control.Posting) (control.Standing, error) {
	r.posted <- struct{}{}
	return control.Standing{}, errDark
}
