package lanetest

import (
	"fmt"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

var recoveryTests = []test{
	{name: "an ended lease is found once", run: recoverLease},
	{name: "a renewed lease is left alone", run: recoverRenewed},
	{name: "many ended leases", run: recoverMany},
	{name: "nothing to do", run: recoverNothing},
	{name: "late worker that nobody replaced", run: recoverLate},
}

func recoverLease(b *bench) {
	b.append(op, event("a"))
	c := b.claim()
	b.store.ExpireLease(b, c.Queue)
	got := b.sweep()
	b.equal("swept", line(got.Ready, got.Expired, got.Waiting), "1 1 1")
	got = b.sweep()
	b.equal("swept again", line(got.Ready, got.Expired, got.Waiting), "0 0 1")
	b.equal("entries", contents(b.claim().Entries), "a:1")
	b.nothingReady()
}

func recoverRenewed(b *bench) {
	b.append(op, event("a"))
	c := b.claim()
	b.store.ExpireLease(b, c.Queue)
	held := []lane.Held{{Queue: c.Queue, Token: c.Token}, {Queue: c.Queue, Token: c.Token + 1}}
	lost, err := b.store.Extend(b.Context(), 0, held)
	b.ok("extend", err)
	b.equal("lost", lost, held[1:])
	got := b.sweep()
	b.equal("expired", got.Expired, 0)
	if got.Next <= 0 || got.Next > time.Minute {
		b.Fatalf("next is due in %v", got.Next)
	}
	b.nothingReady()
	b.drained(c, act(lane.Pop, 1, "a", ""))
}

func recoverMany(b *bench) {
	const n = 30
	for i := range n {
		b.append(fmt.Sprint("op", i), event("a"))
	}
	for _, c := range b.claims(n, 1) {
		b.store.ExpireLease(b, c.Queue)
	}
	first, err := b.store.Sweep(b.Context(), 0, 10)
	b.ok("sweep", err)
	b.equal("limit", first.Ready, 10)
	b.equal("rest", b.sweep().Ready, n-10)
	b.equal("claims", len(b.claims(100, 1)), n)
}

func recoverNothing(b *bench) {
	if got := b.sweep(); got.Next >= 0 || got.Ready+got.Expired+got.Waiting != 0 {
		b.Fatalf("swept %+v in an empty store", got)
	}
	lost, err := b.store.Extend(b.Context(), 0, nil)
	b.ok("extend nothing", err)
	b.equal("lost", len(lost), 0)
}

func recoverLate(b *bench) {
	b.append(op, event("a"))
	c := b.claim()
	b.store.ExpireLease(b, c.Queue)
	b.drained(c, act(lane.Pop, 1, "a", ""))
	b.equal("expired", b.sweep().Expired, 0)
	b.nothingReady()
	b.equal("due", b.counts().Due, int64(0))
}

var delayTests = []test{
	{name: "never early", run: delayNotEarly},
	{name: "is appended once", run: delayOnce},
	{name: "joins what waits", run: delayJoins},
	{name: "a batch keeps its order", run: delayBatch},
	{name: "while the lane is claimed", run: delayClaimed},
	{name: "longer than the window", opts: Options{Window: 40 * time.Millisecond, IdleTTL: 40 * time.Millisecond}, run: delayLong},
	{name: "keeps its lane", opts: Options{Window: 40 * time.Millisecond, IdleTTL: 40 * time.Millisecond}, run: delayAtRest},
}

// A lane at rest must not be forgotten while an event of it is delayed.
func delayAtRest(b *bench) {
	b.append(op, event("a"), later("b", time.Hour))
	b.drained(b.claim(), act(lane.Pop, 1, "a", ""))
	b.store.Elapse(b, 120*time.Millisecond)
	b.store.MakeDelayedDue(b, op, "b")
	b.sweep()
	c := b.claim()
	b.equal("operation", c.OperationID, op)
	b.equal("entries", contents(c.Entries), "b:2")
}

func later(id string, d time.Duration) lane.Item {
	it := event(id)
	it.Delay = d
	return it
}

func delayNotEarly(b *bench) {
	b.append("clock", event("x"))
	before := b.claim().Now
	const delay = 80
	b.equal("rows", sequences(b.append(op, later("a", delay*time.Millisecond))), "a:0")
	for {
		got := b.sweep()
		if got.Ready > 0 {
			break
		}
		if got.Next < 0 || got.Next > time.Hour {
			b.Fatalf("delayed event is due in %v", got.Next)
		}
		b.nothingReady()
		b.store.Elapse(b, time.Millisecond)
	}
	if c := b.claim(); c.Now < before+delay {
		b.Fatalf("appended %d ms after, want %d", c.Now-before, delay)
	}
}

func delayOnce(b *bench) {
	b.append(op, later("a", time.Hour), event("b"))
	b.equal("lane", line(b.lane(op).Waiting, b.lane(op).Delayed), "1 1")
	b.drained(b.claim(), act(lane.Pop, 1, "b", ""))
	b.equal("status", b.standings(op, "a"), "?")
	b.store.MakeDelayedDue(b, op, "a")
	b.equal("ready", b.sweep().Ready, 1)
	b.equal("ready again", b.sweep().Ready, 0)
	b.equal("duplicate", sequences(b.append(op, later("a", time.Hour))), "a:2=")
	b.drained(b.claim(), act(lane.Pop, 2, "a", ""))
	b.equal("duplicate", sequences(b.append(op, event("a"))), "a:2=")
	b.equal("counts", b.counts(), lane.Counts{})
}

func delayJoins(b *bench) {
	b.append(op, later("a", time.Hour))
	b.equal("again", sequences(b.append(op, later("a", time.Millisecond), event("a"))), "a:0= a:0=")
	b.sweep()
	b.nothingReady()
	b.equal("due", b.counts().Due, int64(1))
}

func delayBatch(b *bench) {
	b.append(op, later("z", time.Minute), later("m", time.Minute), event("now"), later("a", time.Minute))
	for _, id := range []string{"a", "m", "z"} {
		b.equal("status", b.standings(op, id), "?")
	}
	b.store.MakeDelayedDue(b, op, "z")
	b.store.MakeDelayedDue(b, op, "m")
	b.store.MakeDelayedDue(b, op, "a")
	b.sweep()
	b.equal("entries", contents(b.claim().Entries), "now:1 z:2 m:3 a:4")
}

func delayClaimed(b *bench) {
	b.append(op, event("a"), later("b", time.Hour))
	c := b.claim()
	b.store.MakeDelayedDue(b, op, "b")
	b.sweep()
	b.nothingReady()
	s := stepOf(c, act(lane.Pop, 1, "a", ""))
	s.Want = 5
	b.equal("next", contents(b.progress(s).Entries), "b:2")
}

func delayLong(b *bench) {
	b.append(op, later("a", time.Hour))
	b.store.Elapse(b, 120*time.Millisecond)
	b.equal("status", b.standings(op, "a"), "?")
	b.equal("joined", sequences(b.append(op, later("a", time.Hour))), "a:0=")
	b.store.MakeDelayedDue(b, op, "a")
	b.sweep()
	b.equal("joined", sequences(b.append(op, event("a"))), "a:1=")
	c := b.claim()
	b.equal("operation", c.OperationID, op)
	b.equal("entries", contents(c.Entries), "a:1")
}
