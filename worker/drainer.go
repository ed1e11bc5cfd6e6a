package worker

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
)

// drainer is what draining a lane and draining a parked queue share: attempts,
// the step to Redis, and the budget. One goroutine owns it.
type drainer struct {
	*Worker
	*holding
	claim lane.Claim
	// now is Redis time in milliseconds as last heard, at the local time at.
	now int64
	at  time.Time
	// began and events measure the budget.
	began  time.Time
	events int
	// ready is the number of queues that wait for a slot, as last heard.
	ready int
}

// redisNow estimates Redis time from the last reply and the monotonic clock.
func (d *drainer) redisNow() int64 { return d.now + time.Since(d.at).Milliseconds() }

// mayDeliver reports whether another delivery may start.
func (d *drainer) mayDeliver() bool {
	return !d.stopped() && d.fresh(d.cfg.Store.Lease())
}

// overBudget reports whether the queue should give its slot to another.
func (d *drainer) overBudget() bool {
	return d.ready > 0 && (d.events >= d.cfg.DrainEvents || time.Since(d.began) >= d.cfg.DrainTime)
}

// step sends actions to Redis and retries while the lease lasts, because what
// was delivered must be settled. ok is false when the queue is no longer ours.
func (d *drainer) step(s lane.Step) (p lane.Progress, ok bool) {
	s.Queue, s.Token = d.queue, d.token
	for failures := 0; ; failures++ {
		// Not the holding's context: it may be cancelled, and settling must go on.
		p, err := d.cfg.Store.Progress(d.settling, s)
		if err == nil {
			d.now, d.at, d.ready = p.Now, time.Now(), p.Ready
			return p, true
		}
		log := d.log.WithField(tasks.LogErr, err).WithField(tasks.LogOperationID, d.claim.OperationID)
		switch {
		case errors.Is(err, lane.ErrLeaseLost):
			d.metrics.lost.Inc()
			log.Warn("lane.lease_lost")
			return p, false
		case !d.leaseLasts(), d.settling.Err() != nil:
			log.Warn("lane.abandoned")
			return p, false
		case failures == 0:
			log.Warn("lane.step_failed")
		}
		d.wait(faultPause)
	}
}

func (d *drainer) leaseLasts() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.renewed) < d.cfg.Store.Lease()
}

// wait pauses between two tries of a step, also while the worker is stopping.
func (d *drainer) wait(t time.Duration) {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.settling.Done():
	}
}

// attempt makes one attempt at one hook of a task.
func (d *drainer) attempt(t *tasks.Task, h tasks.HookInForce, sequence int64, n int) (webhook.Delivery, webhook.Result) {
	del := webhook.Delivery{
		Hook: h.Hook, Type: t.Type, Event: t.Event,
		ID:     tasks.DeliveryID(d.cfg.Namespace, t.OperationID, t.ID, h.Key),
		TaskID: t.ID, OperationID: t.OperationID, Sequence: sequence, Token: d.token, Attempt: n, Trace: t.Trace,
		Queued: true,
	}
	if n > 1 && h.Hook.Webhook != nil && h.Hook.Webhook.Delivery == tasks.DeliverQStash {
		del.Unsettled = d.unsettled(del, h)
	}
	d.events++
	d.metrics.inFlight.Inc()
	res := d.cfg.Deliverer.Deliver(d.ctx, del)
	d.metrics.inFlight.Dec()
	return del, res
}

// unsettled reports whether an earlier attempt ended at the relay without being
// followed by a fetch: then the relay may have the request, and no other road is
// taken any more. Not knowing counts as that.
func (d *drainer) unsettled(del webhook.Delivery, h tasks.HookInForce) bool {
	status, err := d.cfg.Store.Status(d.ctx, del.OperationID, del.TaskID, lane.Waiter{})
	if err != nil {
		return true
	}
	for _, o := range status.Outcomes {
		if o.HookID == h.Hook.ID && o.HookType == del.Type && o.Occurrence == h.Occurrence && o.Class == tasks.ClassQStash {
			return true
		}
	}
	return false
}

// ruling is what a failed attempt leads to.
type ruling struct {
	verb    lane.Verb
	delay   time.Duration
	outcome *lane.Outcome
	letter  string
}

// rule turns the failed attempt n into the next state of the delivery, which
// has been tried for age.
func (d *drainer) rule(del webhook.Delivery, res webhook.Result, h tasks.HookInForce, age time.Duration) ruling {
	o := d.outcomeOf(h, del.Type)
	o.Attempt, o.Class, o.Status, o.Message, o.Reason = del.Attempt, res.Class, res.Status, res.Message, res.Reason
	dec := d.cfg.Retry.For(h.Hook).decide(res, del.Attempt, age)
	if dec.retry {
		o.Standing = lane.StandingParked
		return ruling{verb: lane.Park, delay: dec.delay, outcome: o}
	}
	o.Standing, o.Reason = lane.StandingDead, dec.reason
	return ruling{verb: lane.Bury, outcome: o, letter: del.ID}
}

// ruleUnmatched rules on a hook whose matcher gave no answer: it is given up.
func (d *drainer) ruleUnmatched(e lane.Entry, t *tasks.Task, f tasks.MatchFailure) (webhook.Delivery, webhook.Result, ruling) {
	del := webhook.Delivery{
		Hook: f.Hook, Type: t.Type, TaskID: t.ID, OperationID: t.OperationID, Sequence: e.Sequence,
		ID: tasks.DeliveryID(d.cfg.Namespace, t.OperationID, t.ID, f.Key),
	}
	res := webhook.Result{Class: tasks.ClassConfiguration, Final: true, Reason: tasks.ReasonNoRetry, Message: f.Err.Error()}
	return del, res, d.rule(del, res, f.HookInForce, 0)
}

func (d *drainer) outcomeOf(h tasks.HookInForce, t tasks.HookType) *lane.Outcome {
	return &lane.Outcome{HookID: h.Hook.ID, HookType: t, Occurrence: h.Occurrence, Critical: h.Hook.Critical()}
}

// report says once, in one line, what an attempt came to.
func (d *drainer) report(del webhook.Delivery, res webhook.Result, r ruling) {
	standing := lane.StandingDelivered
	if !res.Delivered {
		standing = r.outcome.Standing
	}
	d.metrics.settled(standing, res.Class)
	if d.cfg.OnAttempt != nil {
		d.cfg.OnAttempt(Attempt{Delivery: del, Result: res, Standing: standing, DueIn: r.delay})
	}
	d.logAttempt(del, res, r)
}

// poison is what becomes of an entry that is no task: it is kept as a dead
// letter under its own hash, so that it is quarantined once. t is the task if its
// hooks or its event are at fault. A critical hook may have been among its hooks,
// so that the failure counts as critical.
func poison(e lane.Entry, t *tasks.Task, err error) lane.Action {
	sum := sha256.Sum256(e.Doc)
	a := lane.Action{
		Verb: lane.Bury, Sequence: e.Sequence, DeadID: "poison_" + base64.RawURLEncoding.EncodeToString(sum[:16]),
		Outcome: &lane.Outcome{Standing: lane.StandingDead, Critical: true, Reason: tasks.ReasonPoison, Message: err.Error()},
	}
	if t != nil {
		a.TaskID, a.Outcome.HookType = t.ID, t.Type
	}
	return a
}

// decode reads an entry and the hooks in force for it. With an error the task is
// nil unless the document itself could be read.
func (d *drainer) decode(e lane.Entry) (*tasks.Task, []tasks.HookInForce, []tasks.MatchFailure, error) {
	t, err := tasks.DecodeTask(e.Doc)
	if err != nil {
		return nil, nil, nil, err
	}
	caller, err := tasks.StoredHooks(t.Hooks)
	if err != nil {
		return t, nil, nil, err
	}
	ev, err := tasks.DecodeEvent(t.Type, t.OperationID, t.Event)
	if err != nil {
		return t, nil, nil, err
	}
	env, err := d.cfg.EnvironmentHooks()
	if err != nil {
		return t, nil, nil, &environmentError{err}
	}
	hooks, failures := tasks.InForce(ev, caller, env)
	return t, hooks, failures, nil
}

// environmentError says that the environment hooks became invalid: no event can
// be judged, and the queue waits until they are valid again.
type environmentError struct{ err error }

// Error names the fault.
func (e *environmentError) Error() string { return "read environment hooks: " + e.err.Error() }

// Unwrap returns the fault.
func (e *environmentError) Unwrap() error { return e.err }
