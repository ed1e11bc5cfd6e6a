package lanetest

import (
	"slices"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// model is a lane store without Redis, leases or scripts: what the transitions
// mean, said as plainly as possible. Queues are named by operation and hook.
type model struct {
	lanes map[string]*modelLane
	dead  []*delivery
}

type place struct{ operation, hook string }

type modelLane struct {
	// state is idle, ready or claimed; expired says that the lease has ended.
	state   string
	expired bool
	head    int64
	queue   []*occurrence
	settled []string
	delayed []*occurrence
	parked  map[string]*modelPark
}

type modelPark struct {
	// state is parked, ready or claimed.
	state   string
	expired bool
	attempt int
	queue   []*delivery
}

// occurrence is one event; its hooks are fixed when it is appended.
type occurrence struct {
	operation, id string
	sequence      int64
	deliveries    []*delivery
}

// delivery is one hook's share of an event.
type delivery struct {
	event    *occurrence
	hook     string
	standing lane.Standing
	// made counts what the receiver saw; crashes what it may have seen more than
	// once; replayed deliveries are not in the order of events any more.
	made, crashes int
	replayed      bool
}

func (o *occurrence) delivery(hook string) *delivery {
	for _, d := range o.deliveries {
		if d.hook == hook {
			return d
		}
	}
	return nil
}

// attempted says that the lane is through with the event.
func (m *model) attempted(o *occurrence) bool {
	return o.sequence > 0 && o.sequence < m.lanes[o.operation].head
}

func (m *model) lane(operation string) *modelLane {
	l := m.lanes[operation]
	if l == nil {
		l = &modelLane{state: "idle", head: 1, parked: map[string]*modelPark{}}
		m.lanes[operation] = l
	}
	return l
}

func (m *model) append(o *occurrence) {
	l := m.lane(o.operation)
	o.sequence = l.next()
	l.queue = append(l.queue, o)
	if l.state == "idle" {
		l.state = "ready"
	}
}

func (m *model) delay(o *occurrence) {
	l := m.lane(o.operation)
	l.delayed = append(l.delayed, o)
}

func (l *modelLane) next() int64 { return l.head + int64(len(l.queue)) }

// ready names the queues that wait for a worker.
func (m *model) ready() map[place]bool {
	out := map[place]bool{}
	for operation, l := range m.lanes {
		if l.state == "ready" {
			out[place{operation, ""}] = true
		}
		for hook, p := range l.parked {
			if p.state == "ready" {
				out[place{operation, hook}] = true
			}
		}
	}
	return out
}

// sweep takes queues from workers whose lease has ended and returns their number.
func (m *model) sweep() int {
	n := 0
	for _, l := range m.lanes {
		if l.expired {
			l.expired, l.state = false, l.resting()
			n++
		}
		for _, p := range l.parked {
			if p.expired {
				p.expired, p.state = false, "ready"
				n++
			}
		}
	}
	return n
}

func (l *modelLane) resting() string {
	if len(l.queue) > 0 {
		return "ready"
	}
	return "idle"
}

func (l *modelLane) parkedHooks() []string {
	out := []string{}
	for hook := range l.parked {
		out = append(out, hook)
	}
	slices.Sort(out)
	return out
}

// step applies a step of the holder and says what it must be answered.
func (m *model) step(at place, s lane.Step) lane.Progress {
	if at.hook != "" {
		return m.parkedStep(at, s)
	}
	l := m.lanes[at.operation]
	var unparked []string
	for _, a := range s.Actions {
		if unparked != nil {
			break
		}
		if a.Sequence != l.head || len(l.queue) == 0 || slices.Contains(l.settled, a.Hook) {
			continue
		}
		if a.Verb == lane.Pop {
			l.queue, l.head, l.settled = l.queue[1:], l.head+1, nil
			continue
		}
		if a.Verb == lane.Behind && l.parked[a.Hook] == nil {
			unparked = []string{a.Hook}
			continue
		}
		m.settle(l, l.queue[0].delivery(a.Hook), a)
	}
	p := lane.Progress{Settled: slices.Clone(l.settled), Parked: l.parkedHooks(), Unparked: unparked}
	if s.Release || (s.Want > 0 && len(l.queue) == 0) {
		l.state, p.Released = l.resting(), true
		return p
	}
	for i, o := range l.queue[:min(s.Want, len(l.queue))] {
		p.Entries = append(p.Entries, lane.Entry{Sequence: l.head + int64(i), Doc: event(o.id).Doc})
	}
	return p
}

func (m *model) settle(l *modelLane, d *delivery, a lane.Action) {
	l.settled = append(l.settled, a.Hook)
	p := l.parked[a.Hook]
	switch {
	case a.Verb == lane.Delivered:
		d.standing = lane.StandingDelivered
	case a.Verb == lane.Discard:
		d.standing = lane.StandingDiscarded
	case a.Verb == lane.Bury:
		d.standing = lane.StandingDead
		m.dead = append(m.dead, d)
	case p != nil:
		d.standing = lane.StandingWaiting
		p.queue = append(p.queue, d)
	default:
		d.standing = lane.StandingParked
		l.parked[a.Hook] = &modelPark{state: "parked", attempt: a.Attempt, queue: []*delivery{d}}
	}
}

func (m *model) parkedStep(at place, s lane.Step) lane.Progress {
	l := m.lanes[at.operation]
	p := l.parked[at.hook]
	for _, a := range s.Actions {
		if len(p.queue) == 0 || a.Sequence != p.queue[0].event.sequence {
			continue
		}
		d := p.queue[0]
		switch a.Verb {
		case lane.Retry:
			d.standing, p.attempt, p.state = lane.StandingParked, a.Attempt, "parked"
			return lane.Progress{Released: true, Attempt: a.Attempt}
		case lane.Bury:
			d.standing = lane.StandingDead
			m.dead = append(m.dead, d)
		case lane.Discard:
			d.standing = lane.StandingDiscarded
		default:
			d.standing = lane.StandingDelivered
		}
		p.queue, p.attempt = p.queue[1:], 0
	}
	if len(p.queue) == 0 {
		delete(l.parked, at.hook)
		return lane.Progress{Released: true}
	}
	if s.Release {
		p.state = "ready"
		return lane.Progress{Released: true, Attempt: p.attempt}
	}
	out := lane.Progress{Attempt: p.attempt}
	for _, d := range p.queue[:min(s.Want, len(p.queue))] {
		out.Entries = append(out.Entries, lane.Entry{Sequence: d.event.sequence, Doc: event(d.event.id).Doc})
	}
	return out
}

// replay puts dead letter i at the tail of its hook's queue.
func (m *model) replay(i int) {
	d := m.dead[i]
	m.dead = slices.Delete(m.dead, i, i+1)
	d.standing, d.replayed = lane.StandingWaiting, true
	l := m.lanes[d.event.operation]
	p := l.parked[d.hook]
	if p == nil {
		p = &modelPark{state: "parked"}
		l.parked[d.hook] = p
	}
	if p.state == "parked" {
		p.state = "ready"
	}
	p.queue = append(p.queue, d)
}
