package worker

import (
	"errors"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
)

// parkedDrain retries the head of a parked queue and, once it is through,
// delivers what waited behind it, in order. It runs beside the lane.
type parkedDrain struct {
	*drainer
	// attempts made for the entry at the head.
	attempts int
}

func (p *parkedDrain) run() {
	p.attempts = p.claim.Attempt
	entries := p.claim.Entries
	for len(entries) > 0 {
		var more []lane.Entry
		for i := range entries {
			m, goOn := p.entry(entries[i], i == len(entries)-1)
			if !goOn {
				return
			}
			more = m
		}
		entries = more
	}
}

// entry makes one attempt at the head; false means that the queue is released,
// lost or waits for its next retry.
func (p *parkedDrain) entry(e lane.Entry, last bool) ([]lane.Entry, bool) {
	t, hooks, failures, err := p.decode(e)
	var env *environmentError
	switch {
	case errors.As(err, &env):
		return p.end(lane.Step{Release: true}, last)
	case err != nil:
		a := poison(e, t, err)
		return p.end(lane.Step{Actions: []lane.Action{a}}, last)
	}
	for _, f := range failures {
		if f.Key == p.queue.Hook {
			return p.end(lane.Step{Actions: []lane.Action{p.unmatched(e, t, f)}}, last)
		}
	}
	h, found := find(hooks, p.queue.Hook)
	if !found {
		return p.end(lane.Step{Actions: []lane.Action{p.removed(e, t)}}, last)
	}
	age := time.Duration(p.redisNow()-e.ParkedAt) * time.Millisecond
	if age > p.cfg.Retry.For(h.Hook).MaxAge {
		return p.end(lane.Step{Actions: []lane.Action{p.expired(e, t, h)}}, last)
	}
	if !p.mayDeliver() {
		p.step(lane.Step{Release: true})
		return nil, false
	}
	return p.deliver(e, t, h, trial{age: age, last: last})
}

// trial is the setting of one attempt: how long the delivery has been tried, and
// whether it is the last entry at hand.
type trial struct {
	age  time.Duration
	last bool
}

func (p *parkedDrain) deliver(e lane.Entry, t *tasks.Task, h tasks.HookInForce, tr trial) ([]lane.Entry, bool) {
	del, res := p.attempt(t, h, e.Sequence, p.attempts+1)
	if res.Cancelled {
		p.step(lane.Step{Release: true})
		return nil, false
	}
	a := lane.Action{Verb: lane.Delivered, Sequence: e.Sequence, TaskID: t.ID, Hook: h.Key}
	r := ruling{}
	if !res.Delivered {
		r = p.rule(del, res, h, tr.age)
		a.Verb, a.Delay, a.Attempt, a.Outcome, a.DeadID = r.verb, r.delay, r.outcome.Attempt, r.outcome, r.letter
		if a.Verb == lane.Park {
			a.Verb = lane.Retry
		}
	}
	p.report(del, res, r)
	more, goOn := p.end(lane.Step{Actions: []lane.Action{a}}, tr.last)
	if a.Verb == lane.Retry {
		p.kick(p.queue.Shard)
	}
	return more, goOn
}

// end settles the head and asks for more when nothing is left at hand.
func (p *parkedDrain) end(s lane.Step, last bool) ([]lane.Entry, bool) {
	switch {
	case s.Release:
	case p.stopped() || p.overBudget():
		s.Release = true
	case last:
		s.Want = p.cfg.Batch
	}
	progress, ok := p.step(s)
	p.attempts = progress.Attempt
	return progress.Entries, ok && !progress.Released
}

// unmatched buries the delivery of a hook whose matcher gave no answer this time.
func (p *parkedDrain) unmatched(e lane.Entry, t *tasks.Task, f tasks.MatchFailure) lane.Action {
	del, res, r := p.ruleUnmatched(e, t, f)
	p.report(del, res, r)
	return lane.Action{Verb: lane.Bury, Sequence: e.Sequence, TaskID: t.ID, Hook: f.Key, Outcome: r.outcome, DeadID: r.letter}
}

func find(hooks []tasks.HookInForce, key string) (tasks.HookInForce, bool) {
	for _, h := range hooks {
		if h.Key == key {
			return h, true
		}
	}
	return tasks.HookInForce{}, false
}

// removed discards the delivery of an environment hook that no longer exists.
func (p *parkedDrain) removed(e lane.Entry, t *tasks.Task) lane.Action {
	p.metrics.settled(lane.StandingDiscarded, "")
	p.log.WithFields(t.LogFields()).WithField(tasks.LogHookKey, p.queue.Hook).
		WithField(tasks.LogReason, tasks.ReasonHookRemoved).Warn("delivery.discarded")
	return lane.Action{
		Verb: lane.Discard, Sequence: e.Sequence, TaskID: t.ID, Hook: p.queue.Hook,
		Outcome: &lane.Outcome{HookType: t.Type, Standing: lane.StandingDiscarded, Reason: tasks.ReasonHookRemoved},
	}
}

// expired buries a delivery whose time ran out while it waited.
func (p *parkedDrain) expired(e lane.Entry, t *tasks.Task, h tasks.HookInForce) lane.Action {
	o := p.outcomeOf(h, t.Type)
	o.Standing, o.Reason, o.Attempt = lane.StandingDead, tasks.ReasonExpired, p.attempts
	o.Message = "waited behind a failing delivery of the same hook until its time ran out"
	id := tasks.DeliveryID(p.cfg.Namespace, t.OperationID, t.ID, h.Key)
	del := webhook.Delivery{Hook: h.Hook, Type: t.Type, ID: id, TaskID: t.ID, OperationID: t.OperationID, Sequence: e.Sequence}
	p.report(del, webhook.Result{Message: o.Message}, ruling{verb: lane.Bury, outcome: o, letter: id})
	return lane.Action{Verb: lane.Bury, Sequence: e.Sequence, TaskID: t.ID, Hook: h.Key, Outcome: o, DeadID: id}
}
