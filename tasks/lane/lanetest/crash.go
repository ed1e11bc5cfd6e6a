package lanetest

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// crash kills a worker, sometimes after a delivery that it could not settle.
func (h *history) crash() {
	w := h.pick()
	if d := h.inFlight(w); d != nil && rapid.Bool().Draw(h.T, "in flight") {
		d.crashes++
		h.attempted(d, lane.Delivered)
	}
	h.expire(w)
}

// inFlight is the delivery that the worker would make next.
func (h *history) inFlight(w *hold) *delivery {
	l := h.model.lanes[w.at.operation]
	if w.at.hook != "" {
		return l.parked[w.at.hook].queue[0]
	}
	if len(l.queue) == 0 {
		return nil
	}
	for _, d := range l.queue[0].deliveries {
		if !slices.Contains(l.settled, d.hook) {
			if slices.Contains(w.parked, d.hook) {
				return nil
			}
			return d
		}
	}
	return nil
}

func (h *history) expire(w *hold) {
	h.store.ExpireLease(h.outer, w.claim.Queue)
	l := h.model.lanes[w.at.operation]
	if w.at.hook == "" {
		l.expired = true
	} else {
		l.parked[w.at.hook].expired = true
	}
	delete(h.held, w.at)
	h.lost = append(h.lost, w)
}

func (h *history) sweep() {
	want := h.model.sweep()
	got, err := h.store.Sweep(h.ctx(), 0, 1000)
	h.ok("sweep", err)
	if got.Expired != want {
		h.Fatalf("sweep found %d ended leases, want %d", got.Expired, want)
	}
}

// retry lets the time of a parked hook come.
func (h *history) retry() {
	var due []place
	for operation, l := range h.model.lanes {
		for hook, p := range l.parked {
			if p.state == "parked" {
				due = append(due, place{operation, hook})
			}
		}
	}
	if len(due) == 0 {
		h.Skip("no hook waits for its retry")
	}
	slices.SortFunc(due, func(a, b place) int { return strings.Compare(a.operation+a.hook, b.operation+b.hook) })
	h.makeDue(rapid.SampledFrom(due).Draw(h.T, "parked"))
}

func (h *history) makeDue(at place) {
	q := h.store.QueueOf(at.operation)
	q.Hook = at.hook
	h.store.MakeDue(h.outer, q)
	h.model.lanes[at.operation].parked[at.hook].state = "ready"
	h.sweep()
}

// delayed lets the time of a delayed event come.
func (h *history) delayed() {
	for _, operation := range modelOperations {
		l := h.model.lanes[operation]
		if l == nil || len(l.delayed) == 0 {
			continue
		}
		o := rapid.SampledFrom(l.delayed).Draw(h.T, "delayed")
		h.arrive(o)
		return
	}
	h.Skip("no event is delayed")
}

func (h *history) arrive(o *occurrence) {
	l := h.model.lanes[o.operation]
	l.delayed = slices.DeleteFunc(l.delayed, func(x *occurrence) bool { return x == o })
	h.store.MakeDelayedDue(h.outer, o.operation, o.id)
	h.sweepWith(func() { h.model.append(o) })
}

// sweepWith is a sweep in which the model also does what f says. A lane whose
// lease has ended may get the event before or after it is taken back.
func (h *history) sweepWith(f func()) {
	want := h.model.sweep()
	f()
	got, err := h.store.Sweep(h.ctx(), 0, 1000)
	h.ok("sweep", err)
	if got.Expired != want {
		h.Fatalf("sweep found %d ended leases, want %d", got.Expired, want)
	}
}

func (h *history) replay() {
	if len(h.model.dead) == 0 {
		h.Skip("nothing is dead")
	}
	i := rapid.IntRange(0, len(h.model.dead)-1).Draw(h.T, "letter")
	d := h.model.dead[i]
	for _, l := range h.letters() {
		if l.OperationID == d.event.operation && l.TaskID == d.event.id && l.Outcome.HookID == d.hook {
			h.ok("replay", h.store.Replay(h.ctx(), l.ID))
			h.model.replay(i)
			return
		}
	}
	h.Fatalf("letter of %s and %s is missing", d.event.id, d.hook)
}

func (h *history) letters() []lane.DeadLetter {
	page, err := h.store.Dead(h.ctx(), lane.DeadFilter{Limit: 1000})
	h.ok("list dead letters", err)
	return page.Letters
}

// extend is the heartbeat: the holder keeps its queue, crashed workers do not
// get theirs back once a sweep took it.
func (h *history) extend() {
	w := h.pick()
	held := []lane.Held{{Queue: w.claim.Queue, Token: w.claim.Token}}
	for _, z := range h.lost {
		if !h.expired(z.at) {
			held = append(held, lane.Held{Queue: z.claim.Queue, Token: z.claim.Token})
		}
	}
	lost, err := h.store.Extend(h.ctx(), 0, held)
	h.ok("extend", err)
	if len(lost) != len(held)-1 || slices.Contains(lost, held[0]) {
		h.Fatalf("lost %v of %v, want all but the first", lost, held)
	}
}

func (h *history) expired(at place) bool {
	l := h.model.lanes[at.operation]
	if at.hook == "" {
		return l.expired
	}
	return l.parked[at.hook] != nil && l.parked[at.hook].expired
}

// late is a step of a worker whose queue was taken from it.
func (h *history) late() {
	for _, z := range slices.Backward(h.lost) {
		if h.expired(z.at) {
			continue
		}
		seq := z.claim.Entries[0].Sequence
		s := stepOf(z.claim, act(lane.Bury, seq, "late", "h1"), act(lane.Pop, seq, "late", ""))
		s.Want, s.Release = 5, rapid.Bool().Draw(h.T, "release")
		if _, err := h.store.Progress(h.ctx(), s); !errors.Is(err, lane.ErrLeaseLost) {
			h.Fatalf("step of a crashed worker: error is %v, want ErrLeaseLost", err)
		}
		return
	}
	h.Skip("nobody is late")
}

// finish lets everything come to its end with receivers that take all, and
// checks what became of each delivery.
func (h *history) finish() {
	for range 10_000 {
		if h.idle() {
			h.compare()
			h.settledAll()
			return
		}
		for _, w := range slices.Collect(maps.Values(h.held)) {
			h.stepOf(w, func(bool) lane.Verb { return lane.Delivered })
		}
		h.sweep()
		for operation, l := range h.model.lanes {
			for _, o := range slices.Clone(l.delayed) {
				h.arrive(o)
			}
			for hook, p := range l.parked {
				if p.state == "parked" {
					h.makeDue(place{operation, hook})
				}
			}
		}
		h.claim(10, 10)
	}
	h.Fatalf("work is left after ten thousand rounds")
}

func (h *history) idle() bool {
	for _, l := range h.model.lanes {
		if l.state != "idle" || len(l.parked)+len(l.delayed) > 0 {
			return false
		}
	}
	return true
}

func (h *history) settledAll() {
	for _, o := range h.events {
		for _, d := range o.deliveries {
			if !d.standing.Final() || (d.standing == lane.StandingDelivered && d.made == 0) {
				h.Fatalf("%s for %s is %q after %d deliveries", o.id, d.hook, d.standing, d.made)
			}
		}
		h.compareStatus(o)
	}
	counts, err := h.store.Counts(h.ctx(), 0)
	h.ok("counts", err)
	if want := (lane.Counts{Dead: int64(len(h.model.dead))}); counts != want {
		h.Fatalf("counts are %+v at rest, want %+v", counts, want)
	}
}

// compare looks at the store as operators do.
func (h *history) compare() {
	for _, operation := range modelOperations {
		h.compareLane(operation)
	}
	if len(h.events) > 0 {
		h.compareStatus(rapid.SampledFrom(h.events).Draw(h.T, "status"))
	}
	counts, err := h.store.Counts(h.ctx(), 0)
	h.ok("counts", err)
	blocked := 0
	for _, l := range h.model.lanes {
		blocked += len(l.parked)
	}
	if counts.Ready != int64(len(h.model.ready())) || counts.Dead != int64(len(h.model.dead)) || counts.Blocked != int64(blocked) {
		h.Fatalf("counts are %+v, want %d ready, %d dead, %d blocked", counts, len(h.model.ready()), len(h.model.dead), blocked)
	}
}

func (h *history) compareLane(operation string) {
	info, err := h.store.Lane(h.ctx(), operation)
	l := h.model.lanes[operation]
	if l == nil {
		if !errors.Is(err, lane.ErrNotFound) {
			h.Fatalf("unknown lane: error is %v, want ErrNotFound", err)
		}
		return
	}
	h.ok("inspect", err)
	var got, want []string
	for _, p := range info.Parked {
		got = append(got, line(p.HookKey, p.State, p.Waiting, p.Attempt))
	}
	for hook, p := range l.parked {
		want = append(want, line(hook, p.state, len(p.queue), p.attempt))
	}
	slices.Sort(got)
	slices.Sort(want)
	g := line(info.State, info.Waiting, info.Delayed, info.Next, got)
	if w := line(l.state, len(l.queue), len(l.delayed), l.next(), want); g != w {
		h.Fatalf("lane %s is %s, want %s", operation, g, w)
	}
}

func (h *history) compareStatus(o *occurrence) {
	s, err := h.store.Status(h.ctx(), o.operation, o.id, lane.Waiter{})
	h.ok("status", err)
	var got, want []string
	for _, x := range s.Outcomes {
		got = append(got, line(x.HookID, x.Standing))
	}
	for _, d := range o.deliveries {
		if d.standing != "" && d.standing != lane.StandingDelivered {
			want = append(want, line(d.hook, d.standing))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	g := line(s.Known, s.Attempted, s.Sequence, got)
	if w := line(true, h.model.attempted(o), o.sequence, want); g != w {
		h.Fatalf("status of %s is %s, want %s", o.id, g, w)
	}
}
