package worker

import (
	"errors"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// laneDrain hands the events of a lane to their hooks, in order. Actions that
// follow from no delivery gather and travel with the next one that does.
type laneDrain struct {
	*drainer
	settled map[string]bool
	parked  map[string]bool
	actions []lane.Action
}

// verdicts of the loops below.
type next int

const (
	goOn   next = iota // take the next entry
	reread             // the head did not move as expected: read it again
	leave              // the queue is released or lost
)

func (l *laneDrain) run() {
	l.settled, l.parked = set(l.claim.Settled), set(l.claim.Parked)
	entries := l.claim.Entries
	for {
		verdict := goOn
		var more []lane.Entry
		for i := range entries {
			more, verdict = l.entry(entries[i], i == len(entries)-1)
			if verdict != goOn {
				break
			}
		}
		switch verdict {
		case leave:
			return
		case reread:
			more = nil
		}
		if len(more) == 0 {
			if more = l.fetch(); len(more) == 0 {
				return
			}
		}
		entries = more
	}
}

// fetch flushes what gathered and asks for the next batch; none means that the
// queue is released or lost.
func (l *laneDrain) fetch() []lane.Entry {
	s := lane.Step{Want: l.cfg.Batch}
	if l.stopped() || l.overBudget() {
		s = lane.Step{Release: true}
	}
	p, ok := l.flush(s)
	if !ok || p.Released {
		return nil
	}
	return p.Entries
}

// entry settles every hook of one event. last says that no further entry is at
// hand, so that the step that ends it asks for more.
func (l *laneDrain) entry(e lane.Entry, last bool) ([]lane.Entry, next) {
	t, hooks, failures, err := l.decode(e)
	if err != nil {
		return nil, l.undecodable(e, t, err)
	}
	for _, f := range failures {
		l.unmatched(e, t, f)
	}
	for i, h := range hooks {
		if l.settled[h.Key] {
			continue
		}
		if l.parked[h.Key] {
			l.behind(e, t, h)
			continue
		}
		more, verdict := l.deliver(e, t, h, ending{event: i == len(hooks)-1, batch: last})
		if verdict != goOn {
			return nil, verdict
		}
		if i == len(hooks)-1 {
			return more, goOn
		}
	}
	l.pop(e, t.ID)
	return nil, goOn
}

func (l *laneDrain) pop(e lane.Entry, taskID string) {
	l.actions = append(l.actions, lane.Action{Verb: lane.Pop, Sequence: e.Sequence, TaskID: taskID})
	l.settled = nil
}

func (l *laneDrain) undecodable(e lane.Entry, t *tasks.Task, err error) next {
	var env *environmentError
	if errors.As(err, &env) {
		l.flush(lane.Step{Release: true})
		return leave
	}
	a := poison(e, t, err)
	l.actions = append(l.actions, a)
	l.pop(e, a.TaskID)
	l.metrics.settled(lane.StandingDead, "")
	l.log.WithField(tasks.LogOperationID, l.claim.OperationID).WithField(tasks.LogSequence, e.Sequence).
		WithField(tasks.LogErr, err).Error("lane.poison_quarantined")
	return goOn
}

// unmatched buries the delivery of a hook whose matcher gave no answer: it is
// neither a match nor a miss, and another try would take as long.
func (l *laneDrain) unmatched(e lane.Entry, t *tasks.Task, f tasks.MatchFailure) {
	if l.settled[f.Key] {
		return
	}
	del, res, r := l.ruleUnmatched(e, t, f)
	l.actions = append(l.actions, l.action(e, t, f.HookInForce, r))
	l.report(del, res, r)
}

// behind queues the delivery behind its parked hook.
func (l *laneDrain) behind(e lane.Entry, t *tasks.Task, h tasks.HookInForce) {
	o := l.outcomeOf(h, t.Type)
	o.Standing = lane.StandingWaiting
	l.actions = append(l.actions, lane.Action{Verb: lane.Behind, Sequence: e.Sequence, TaskID: t.ID, Hook: h.Key, Outcome: o})
	l.metrics.settled(lane.StandingWaiting, "")
}

func (l *laneDrain) action(e lane.Entry, t *tasks.Task, h tasks.HookInForce, r ruling) lane.Action {
	return lane.Action{
		Verb: r.verb, Sequence: e.Sequence, TaskID: t.ID, Hook: h.Key,
		Delay: r.delay, Attempt: attemptOf(r), Outcome: r.outcome, DeadID: r.letter,
	}
}

func attemptOf(r ruling) int {
	if r.outcome == nil {
		return 0
	}
	return r.outcome.Attempt
}

// ending says whether a delivery is the last of its event and of its batch.
type ending struct{ event, batch bool }

// deliver attempts one hook and settles it in Redis before anything else starts.
func (l *laneDrain) deliver(e lane.Entry, t *tasks.Task, h tasks.HookInForce, end ending) ([]lane.Entry, next) {
	// A delivery queued behind a hook that was unparked meanwhile must be made
	// first; the store says so, and it must say so before this one is made.
	if l.queuedBehind() {
		if _, verdict := l.settle(lane.Step{}); verdict != goOn {
			return nil, verdict
		}
	}
	if !l.mayDeliver() {
		l.flush(lane.Step{Release: true})
		return nil, leave
	}
	del, res := l.attempt(t, h, e.Sequence, 1)
	if res.Cancelled {
		l.flush(lane.Step{Release: true})
		return nil, leave
	}
	r := ruling{verb: lane.Delivered}
	if !res.Delivered {
		r = l.rule(del, res, h, 0)
	}
	// The pop of an event says that its last hook is settled, too.
	if !res.Delivered || !end.event {
		l.actions = append(l.actions, l.action(e, t, h, r))
	}
	l.report(del, res, r)
	step := lane.Step{}
	if end.event {
		l.pop(e, t.ID)
		step = l.after(end)
	}
	more, verdict := l.settle(step)
	if r.verb == lane.Park {
		l.kick(l.queue.Shard)
	}
	return more, verdict
}

// after chooses what the step that ends an event asks for besides.
func (l *laneDrain) after(end ending) lane.Step {
	switch {
	case l.stopped() || l.overBudget():
		return lane.Step{Release: true}
	case end.batch:
		return lane.Step{Want: l.cfg.Batch}
	}
	return lane.Step{}
}

func (l *laneDrain) queuedBehind() bool {
	for i := range l.actions {
		if l.actions[i].Verb == lane.Behind {
			return true
		}
	}
	return false
}

// settle flushes and reads the answer.
func (l *laneDrain) settle(s lane.Step) ([]lane.Entry, next) {
	p, ok := l.flush(s)
	switch {
	case !ok || p.Released:
		return nil, leave
	case len(p.Unparked) > 0:
		return nil, reread
	}
	return p.Entries, goOn
}

func (l *laneDrain) flush(s lane.Step) (lane.Progress, bool) {
	s.Actions = l.actions
	p, ok := l.step(s)
	l.actions = nil
	if ok {
		l.settled, l.parked = set(p.Settled), set(p.Parked)
	}
	return p, ok
}

func set(keys []string) map[string]bool {
	if len(keys) == 0 {
		return nil
	}
	m := make(map[string]bool, len(keys))
	for _, k := range keys {
		m[k] = true
	}
	return m
}
