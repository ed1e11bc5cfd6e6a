package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
)

const (
	// postPauseMin and postPauseMax bound the pause after a posting that failed.
	postPauseMin = 20 * time.Millisecond
	postPauseMax = 500 * time.Millisecond
	// recheckMin and recheckMax bound the pauses between a waiter's own looks, in case
	// that a notice or the question itself was lost.
	recheckMin = 2 * time.Second
	recheckMax = 10 * time.Second
	// settleTimeout bounds an asker's own settlement, beyond the deadline if need be.
	settleTimeout = 50 * time.Millisecond
	// cancelTimeout bounds the settlement of a caller who is gone.
	cancelTimeout = time.Second
)

func (c *Client) posting(p *plan, inbox string) *Posting {
	fallback := unanswered(&p.question, p.policy)
	return &Posting{
		Name:     c.cfg.Exchange.Name(p.question.OperationID, p.question.ID),
		Question: &p.question, Digest: p.digest(), Fallback: &fallback, Inbox: inbox,
	}
}

// asking is one question that a caller waits for. It belongs to the caller's
// goroutine.
type asking struct {
	*Client
	posting *Posting
	waiter  *waiter
	// arrived says that the exchange has, or had, the question.
	arrived bool
	// until is when the caller gives up, deadline when the verdict is due.
	until, deadline time.Time
	// pause is the next one after a posting that failed, recheck after one that did not.
	pause, recheck time.Duration
}

// ask puts a question to the workers and waits for its verdict.
func (c *Client) ask(ctx context.Context, p *plan) (tasks.Verdict, error) {
	began, timeout := p.began, p.question.Timeout
	posting := c.posting(p, c.inbox.name)
	a := &asking{
		Client: c, posting: posting, waiter: c.inbox.join(posting.Name, posting.Digest),
		until: began.Add(timeout - margin(timeout)), deadline: began.Add(timeout),
		pause: postPauseMin, recheck: recheckMin,
	}
	defer c.inbox.leave(a.waiter)
	v, err := a.wait(ctx)
	if err == nil && ctx.Err() != nil && !detached(ctx) && v.Status != tasks.VerdictCancelled {
		// Cancellation is never permission, also when the answer was first.
		v = cancelled(p.question.ID, p.question.Type)
	}
	return v, err
}

func (a *asking) wait(ctx context.Context) (tasks.Verdict, error) {
	end := time.NewTimer(time.Until(a.until))
	defer end.Stop()
	v, again, err := a.post(ctx)
	for v == nil && err == nil {
		select {
		case v = <-a.waiter.heard:
			if v == nil {
				v, again, err = a.look(ctx)
			}
		case <-again:
			v, again, err = a.look(ctx)
		case <-end.C:
			return a.giveUp()
		case <-ctx.Done():
			switch {
			case detached(ctx) && a.arrived:
				return tasks.Verdict{}, pending(tasks.ErrDetached, nil)
			case detached(ctx):
				return tasks.Verdict{}, notAsked()
			}
			return a.cancel(), nil
		case <-a.inbox.closing:
			return a.cancel(), nil
		}
	}
	if err != nil {
		return tasks.Verdict{}, err
	}
	return *v, nil
}

// detached reports whether the asker left its question to others.
func detached(ctx context.Context) bool { return errors.Is(context.Cause(ctx), tasks.ErrDetached) }

// notAsked is the error of a question that nobody was found to leave to. It may
// have arrived all the same, so it is safe to repeat.
func notAsked() error { return fmt.Errorf("%w: %w", ErrUnavailable, tasks.ErrDetached) }

// post hands the question over. again fires when somebody has to look.
func (a *asking) post(ctx context.Context) (v *tasks.Verdict, again <-chan time.Time, err error) {
	left := time.Until(a.until)
	if left < time.Millisecond {
		return nil, nil, nil
	}
	// Who leaves the question to others must know that they have it.
	posting, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(left, submitTimeout))
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if !detached(ctx) {
			cancel()
		}
	})()
	a.posting.Question.Timeout = time.Until(a.deadline)
	standing, err := a.cfg.Exchange.Post(posting, a.posting)
	return a.stands(standing, err)
}

// look reads how the question stands. What never arrived, and what Redis lost, is
// handed over once more.
func (a *asking) look(ctx context.Context) (v *tasks.Verdict, again <-chan time.Time, err error) {
	short, cancel := context.WithTimeout(ctx, max(time.Millisecond, min(time.Until(a.until), submitTimeout)))
	standing, err := a.cfg.Exchange.Look(short, a.posting.Name, a.inbox.name)
	cancel()
	if errors.Is(err, ErrNotFound) {
		return a.post(ctx)
	}
	if err == nil && standing.Digest != a.posting.Digest {
		err = &ReusedError{ID: a.posting.Name.ID}
	}
	return a.stands(standing, err)
}

func (a *asking) stands(standing Standing, err error) (v *tasks.Verdict, again <-chan time.Time, _ error) {
	switch {
	case err == nil:
		a.arrived = true
		pause := wait.Jitter(a.recheck)
		a.pause, a.recheck = postPauseMin, min(2*a.recheck, recheckMax)
		return standing.Verdict, time.After(pause), nil
	case errors.Is(err, ErrUnavailable):
		pause := wait.Jitter(a.pause)
		a.pause = min(2*a.pause, postPauseMax)
		return nil, time.After(pause), nil
	}
	if reused(err) {
		return nil, nil, err
	}
	// What stands cannot be read, so it permits nothing.
	a.trouble(err)
	fallback := *a.posting.Fallback
	fallback.Unsettled = true
	return &fallback, nil, nil
}

// giveUp settles the question by its failure policy, and reads what stands.
func (a *asking) giveUp() (tasks.Verdict, error) {
	v, err := a.settle(a.posting.Fallback, max(time.Until(a.deadline), settleTimeout))
	switch {
	case reused(err):
		return tasks.Verdict{}, err
	case err != nil:
		a.trouble(err)
	case v.By == tasks.ByAsker:
		a.line().WithField(tasks.LogOutcome, string(v.Outcome)).Warn("control.unanswered")
	}
	return v, nil
}

// cancel settles the question as cancelled, so that its worker stops.
func (a *asking) cancel() tasks.Verdict {
	q := a.posting.Question
	gone := cancelled(q.ID, q.Type)
	v, err := a.settle(&gone, cancelTimeout)
	if err != nil {
		a.trouble(err)
	}
	return v
}

// settle writes a verdict unless there is one, and returns the one that stands.
// With an error it is the given one, unsettled.
func (a *asking) settle(v *tasks.Verdict, timeout time.Duration) (tasks.Verdict, error) {
	// The caller's context may be over, which is why it settles.
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	settled, err := a.cfg.Exchange.Settle(ctx, &Settlement{
		Name: a.posting.Name, Verdict: v, Writer: a.inbox.name, Source: tasks.ByAsker, Digest: a.posting.Digest,
	})
	if err != nil {
		own := *v
		own.Unsettled = true
		return own, err
	}
	return settled.Verdict, nil
}

func (a *asking) trouble(err error) {
	a.line().WithField(tasks.LogErr, err).Warn("control.unsettled")
}

func (a *asking) line() *logrus.Entry {
	q := a.posting.Question
	return a.log.WithField(tasks.LogOperationID, q.OperationID).WithField(tasks.LogQuestionID, q.ID)
}
