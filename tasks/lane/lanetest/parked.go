package lanetest

import (
	"strings"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

var parkedTests = []test{
	{name: "keeps order per hook", run: parkedOrder},
	{name: "each verb", run: parkedVerbs},
	{name: "retry keeps the head", run: parkedRetry},
	{name: "stale token changes nothing", run: parkedStale},
	{name: "repeated step changes nothing", run: parkedRepeated},
	{name: "unparks with the last delivery", run: parkedUnparks},
	{name: "crash keeps the attempt", run: parkedCrash},
	{name: "poison", run: parkedPoison},
	{name: "release", run: parkedRelease},
}

// queueUp parks a for h1 and lets b and c wait behind it.
func (b *bench) queueUp() {
	b.Helper()
	b.append(op, events("a", "b", "c")...)
	b.drained(b.claim(),
		act(lane.Park, 1, "a", "h1"), act(lane.Pop, 1, "a", ""),
		act(lane.Behind, 2, "b", "h1"), act(lane.Pop, 2, "b", ""),
		act(lane.Behind, 3, "c", "h1"), act(lane.Pop, 3, "c", ""))
}

func parkedOrder(b *bench) {
	b.queueUp()
	b.nothingReady()
	b.sweep()
	b.nothingReady()
	c := b.retried(op, "h1")
	b.equal("operation", c.OperationID, op)
	b.equal("attempt", c.Attempt, 1)
	b.equal("entries", contents(c.Entries), "a:1 b:2 c:3")
	if at := c.Entries[0].ParkedAt; at > c.Now || at < c.Now-60_000 {
		b.Fatalf("parked at %d, now is %d", at, c.Now)
	}
	s := stepOf(c, act(lane.Delivered, 1, "a", "h1"), act(lane.Delivered, 2, "b", "h1"))
	s.Want = 1
	b.equal("next", contents(b.progress(s).Entries), "c:3")
}

func parkedVerbs(b *bench) {
	b.queueUp()
	c := b.retried(op, "h1")
	p := b.step(c, act(lane.Bury, 1, "a", "h1"))
	b.equal("attempt of the next", p.Attempt, 0)
	b.equal("a", b.standings(op, "a"), "h1=dead")
	b.equal("b", b.standings(op, "b"), "h1=waiting")
	b.step(c, act(lane.Discard, 2, "b", "h1"))
	b.equal("b", b.standings(op, "b"), "h1=discarded")
	b.drained(c, act(lane.Delivered, 3, "c", "h1"))
	b.equal("c", b.standings(op, "c"), "")
	b.equal("parked", len(b.lane(op).Parked), 0)
	b.equal("letters", len(b.dead(lane.DeadFilter{HookID: "h1"})), 1)
}

func parkedRetry(b *bench) {
	b.queueUp()
	for n := 2; n < 5; n++ {
		c := b.retried(op, "h1")
		b.equal("attempt", c.Attempt, n-1)
		b.equal("head", contents(c.Entries[:1]), "a:1")
		retry := act(lane.Retry, 1, "a", "h1")
		retry.Attempt = n
		if p := b.step(c, retry); !p.Released {
			b.Fatalf("queue is held after a retry")
		}
		b.sweep()
		b.nothingReady()
		b.equal("attempt", b.lane(op).Parked[0].Attempt, n)
	}
	c := b.retried(op, "h1")
	if p := b.step(c, act(lane.Delivered, 1, "a", "h1")); p.Attempt != 0 {
		b.Fatalf("attempt of the next head is %d, want 0", p.Attempt)
	}
	retry := act(lane.Retry, 2, "b", "h1")
	b.step(c, retry)
	b.equal("b", b.standings(op, "b"), "h1=parked")
	b.equal("head", contents(b.retried(op, "h1").Entries), "b:2 c:3")
}

func parkedStale(b *bench) {
	b.queueUp()
	old := b.retried(op, "h1")
	b.store.ExpireLease(b, old.Queue)
	b.sweep()
	before := b.everything(op)
	for _, v := range []lane.Verb{lane.Delivered, lane.Bury, lane.Discard, lane.Retry} {
		_, err := b.store.Progress(b.Context(), stepOf(old, act(v, 1, "a", "h1")))
		b.is(string(v), err, lane.ErrLeaseLost)
	}
	b.equal("lane", b.everything(op), before)
}

func parkedRepeated(b *bench) {
	b.queueUp()
	c := b.retried(op, "h1")
	s := stepOf(c, act(lane.Bury, 1, "a", "h1"), act(lane.Delivered, 2, "b", "h1"))
	s.Want = 5
	first := b.progress(s)
	before := b.everything(op)
	for range 3 {
		again := b.progress(s)
		again.Now = first.Now
		b.equal("reply", again, first)
	}
	b.equal("lane", b.everything(op), before)
	retry := stepOf(c, act(lane.Retry, 3, "c", "h1"))
	b.progress(retry)
	before = b.everything(op)
	_, err := b.store.Progress(b.Context(), retry)
	b.is("repeated retry", err, lane.ErrLeaseLost)
	b.equal("lane", b.everything(op), before)
}

func parkedUnparks(b *bench) {
	b.queueUp()
	c := b.retried(op, "h1")
	if p := b.step(c, act(lane.Delivered, 1, "a", "h1"), act(lane.Delivered, 2, "b", "h1"), act(lane.Delivered, 3, "c", "h1")); !p.Released {
		b.Fatalf("empty queue is still held")
	}
	b.equal("counts", b.counts(), lane.Counts{})
	b.append(op, event("d"))
	b.equal("parked", len(b.claim().Parked), 0)
}

func parkedCrash(b *bench) {
	b.queueUp()
	c := b.retried(op, "h1")
	b.store.ExpireLease(b, c.Queue)
	b.equal("expired", b.sweep().Expired, 1)
	again := b.claim()
	b.equal("attempt", again.Attempt, 1)
	b.equal("entries", contents(again.Entries), "a:1 b:2 c:3")
	if again.Token == c.Token {
		b.Fatalf("token %d came again", c.Token)
	}
}

func parkedPoison(b *bench) {
	b.queueUp()
	c := b.retried(op, "h1")
	bury := act(lane.Bury, 1, "", "")
	bury.DeadID = "poison_2"
	s := stepOf(c, bury)
	s.Want = 5
	b.equal("next", contents(b.progress(s).Entries), "b:2 c:3")
	letters := b.dead(lane.DeadFilter{})
	b.equal("letters", len(letters), 1)
	b.equal("bytes", string(letters[0].Poison), string(event("a").Doc))
	b.is("replay", b.store.Replay(b.Context(), letters[0].ID), lane.ErrNotReplayable)
}

func parkedRelease(b *bench) {
	b.queueUp()
	c := b.retried(op, "h1")
	s := stepOf(c, act(lane.Delivered, 1, "a", "h1"))
	s.Release = true
	b.progress(s)
	b.equal("state", b.lane(op).Parked[0].State, "ready")
	c = b.claim()
	b.equal("entries", contents(c.Entries), "b:2 c:3")
	b.equal("attempt", c.Attempt, 0)
	b.release(c)
	info := b.lane(op)
	b.equal("lane", line(info.State, info.Waiting, len(info.Parked)), "idle 0 1")
	b.equal("hook", strings.TrimSpace(info.Parked[0].HookKey), "h1")
}
