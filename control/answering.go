package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
)

const (
	// attemptTimeout bounds one attempt to settle or to give back.
	attemptTimeout = time.Second
	// settlePauseMin and settlePauseMax bound the pause between two attempts.
	settlePauseMin = 20 * time.Millisecond
	settlePauseMax = 200 * time.Millisecond
)

// inHand are the questions that an answerer holds.
type inHand struct {
	mu     sync.Mutex
	shards map[int]map[Held]context.CancelCauseFunc
}

func newInHand() *inHand { return &inHand{shards: map[int]map[Held]context.CancelCauseFunc{}} }

func (m *inHand) add(h Held, cancel context.CancelCauseFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shards[h.Name.Shard] == nil {
		m.shards[h.Name.Shard] = map[Held]context.CancelCauseFunc{}
	}
	m.shards[h.Name.Shard][h] = cancel
}

func (m *inHand) remove(h Held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.shards[h.Name.Shard], h)
}

// of returns what is held of one shard.
func (m *inHand) of(shard int) []Held {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := make([]Held, 0, len(m.shards[shard]))
	for h := range m.shards[shard] {
		held = append(held, h)
	}
	return held
}

// end cuts off the evaluation of a question, if it is still held.
func (m *inHand) end(h Held) {
	m.mu.Lock()
	cancel := m.shards[h.Name.Shard][h]
	m.mu.Unlock()
	if cancel != nil {
		cancel(errEnded)
	}
}

// answer evaluates one question and settles it.
func (a *Answerer) answer(c *Claim, received time.Time) {
	ctx, cancel := context.WithCancelCause(a.work)
	defer cancel(nil)
	a.inHand.add(c.Held, cancel)
	defer a.inHand.remove(c.Held)
	defer a.metrics.answering()()
	if c.Attempt > 1 {
		a.metrics.takenOver.Inc()
		a.line(c).WithField(tasks.LogAttempt, c.Attempt).Warn("control.taken_over")
	}
	if a.stopped() {
		a.release(c)
		return
	}
	deadline := received.Add(c.Left)
	v := a.evaluate(ctx, c, deadline)
	switch {
	case errors.Is(context.Cause(ctx), errEnded):
		a.metrics.settled(fateEnded)
	case ctx.Err() != nil:
		a.release(c)
	default:
		a.settle(c, v, deadline)
	}
}

// evaluate returns nil when there is no verdict: the asker's policy decides then,
// at once.
func (a *Answerer) evaluate(ctx context.Context, c *Claim, deadline time.Time) (v *tasks.Verdict) {
	defer func() {
		if p := recover(); p != nil {
			// A question that breaks the evaluator must not end the worker, and with it
			// every other worker that takes it.
			a.line(c).WithField(tasks.LogErr, fmt.Errorf("evaluate question: panic: %v", p)).Error("control.refused")
			v = nil
		}
	}()
	if c.Fault != nil {
		a.line(c).WithField(tasks.LogErr, c.Fault).Error("control.refused")
		return nil
	}
	chain, cancel := context.WithDeadline(ctx, deadline.Add(-2*margin(c.Question.Timeout)))
	defer cancel()
	got, err := a.cfg.Evaluator.Evaluate(chain, c.Question)
	switch {
	case err != nil:
		a.line(c).WithField(tasks.LogErr, err).Error("control.refused")
		return nil
	case got.Status == tasks.VerdictCancelled, got.Status == "":
		// Only the asker may cancel a question.
		return nil
	}
	got.By = tasks.ByWorker
	return &got
}

// settle writes the verdict until it stands or the question is over. The token
// stands for the writer: it is the same after a lost reply.
func (a *Answerer) settle(c *Claim, v *tasks.Verdict, deadline time.Time) {
	if !time.Now().Before(deadline) {
		a.settled(c, Settled{Fate: FateLate}, nil)
		return
	}
	ctx, cancel := context.WithDeadline(a.settling, deadline)
	defer cancel()
	var log *logging.Throttle
	st := &Settlement{Name: c.Name, Verdict: v, Writer: c.Token, Source: tasks.ByWorker, Digest: c.Digest}
	pause := settlePauseMin
	for {
		attempt, end := context.WithTimeout(ctx, attemptTimeout)
		settled, err := a.cfg.Exchange.Settle(attempt, st)
		end()
		if !errors.Is(err, ErrUnavailable) {
			a.settled(c, settled, err)
			return
		}
		if log == nil {
			log = logging.NewThrottle(a.line(c))
		}
		log.Warn("control.settle_failed", err)
		if !wait.Pause(ctx.Done(), wait.Jitter(pause)) {
			a.metrics.settled(fateGivenUp)
			return
		}
		pause = min(2*pause, settlePauseMax)
	}
}

func (a *Answerer) settled(c *Claim, s Settled, err error) {
	switch {
	case errors.Is(err, ErrNotFound), reused(err):
		a.metrics.settled(fateEnded)
	case err != nil:
		a.line(c).WithField(tasks.LogErr, err).Error("control.settle_failed")
		a.metrics.settled(fateGivenUp)
	default:
		a.metrics.settled(s.Fate)
	}
	if s.Fate == FateLate {
		a.line(c).Warn("control.late")
	}
}

// release gives a question back, so that another worker takes it at once.
func (a *Answerer) release(c *Claim) {
	ctx, cancel := context.WithTimeout(a.settling, attemptTimeout)
	defer cancel()
	a.metrics.settled(fateReleased)
	if err := a.cfg.Exchange.Release(ctx, c.Name.Shard, []Held{c.Held}); err != nil {
		// It comes back when its lease ends.
		a.line(c).WithField(tasks.LogErr, err).Warn("control.release_failed")
	}
}

func (a *Answerer) line(c *Claim) *logrus.Entry {
	return a.log.WithField(tasks.LogOperationID, c.Question.OperationID).WithField(tasks.LogQuestionID, c.Name.ID)
}
