package verify

import (
	"context"
	"crypto/rand"
	"errors"
	"time"
)

// storeTimeout bounds one call of the Store.
const storeTimeout = 5 * time.Second

// claims are those of one delivery.
type claims struct {
	*Verifier
	facts Facts
	owner string
}

func newClaims(v *Verifier, facts Facts) *claims {
	return &claims{Verifier: v, facts: facts, owner: rand.Text()}
}

// take takes all claims or none. The state is the first one that is not
// StateNew.
func (c *claims) take(ctx context.Context) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for i, m := range c.facts.marks {
		state, err := c.config.Store.Claim(ctx, m.key, c.owner, c.config.Lease)
		if err == nil && state == StateNew {
			continue
		}
		taken := c.facts.marks[:i]
		if err != nil {
			// It may have been taken all the same.
			taken = c.facts.marks[:i+1]
		}
		return state, errors.Join(err, c.release(ctx, taken))
	}
	return StateNew, nil
}

// settle ends the claims by what became of the handler. The request may be gone
// by now, and what it did still counts.
func (c *claims) settle(ctx context.Context, success bool) {
	var err error
	if success {
		err = c.done(ctx)
	} else {
		err = c.release(ctx, c.facts.marks)
	}
	if err != nil {
		c.report(ctx, Event{Kind: EventStoreFailed, Facts: c.facts, Err: err})
	}
	if !success {
		c.report(ctx, Event{Kind: EventReleased, Facts: c.facts})
	}
}

func (c *claims) done(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	// The message before its token: a crash in between must not leave a token that
	// speaks for a message that is not done.
	for i := len(c.facts.marks) - 1; i >= 0; i-- {
		m := c.facts.marks[i]
		if m.keep == 0 {
			m.keep = c.config.Keep
		}
		err = errors.Join(err, c.config.Store.Done(ctx, m.key, c.owner, m.keep))
	}
	return err
}

func (c *claims) release(ctx context.Context, marks []mark) (err error) {
	if len(marks) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	for _, m := range marks {
		err = errors.Join(err, c.config.Store.Release(ctx, m.key, c.owner))
	}
	return err
}
