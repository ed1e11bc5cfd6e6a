package lanetest

import (
	"strings"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

var laneTests = []test{
	{name: "each verb settles its hook", run: laneVerbs},
	{name: "stale token changes nothing", run: laneStale},
	{name: "repeated step changes nothing", run: laneRepeated},
	{name: "crash at the third of five hooks", run: laneCrash},
	{name: "another head is passed over", run: laneOtherHead},
	{name: "behind finds the hook unparked", run: laneUnparked},
	{name: "other hooks go on", run: laneOthers},
	{name: "poison", run: lanePoison},
	{name: "poison of a task", run: lanePoisonOfTask},
	{name: "release", run: laneRelease},
	{name: "release that wants entries", run: laneReleaseWanting},
}

func laneVerbs(b *bench) {
	b.append(op, event("a"))
	c := b.claim()
	p := b.step(c, act(lane.Delivered, 1, "a", "h1"), act(lane.Park, 1, "a", "h2"), act(lane.Bury, 1, "a", "h3"), act(lane.Discard, 1, "a", "h4"))
	b.equal("settled", strings.Join(p.Settled, " "), "h1 h2 h3 h4")
	b.equal("parked", strings.Join(p.Parked, " "), "h2")
	b.equal("before the pop", b.standings(op, "a"), "? h2=parked h3=dead h4=discarded")
	b.drained(c, act(lane.Pop, 1, "a", ""))
	b.equal("after the pop", b.standings(op, "a"), "h2=parked h3=dead h4=discarded")
	b.append(op, event("b"))
	c = b.claim()
	b.equal("parked", strings.Join(c.Parked, " "), "h2")
	b.equal("settled", len(c.Settled), 0)
	b.drained(c, act(lane.Delivered, 2, "b", "h1"), act(lane.Behind, 2, "b", "h2"), act(lane.Pop, 2, "b", ""))
	b.equal("second", b.standings(op, "b"), "h2=waiting")
	letters := b.dead(lane.DeadFilter{})
	b.equal("letters", len(letters), 1)
	b.equal("letter", string(letters[0].Task)+string(letters[0].Poison), string(event("a").Doc))
	b.equal("outcome", letters[0].Outcome, *outcome("h3", lane.StandingDead))
	info := b.lane(op).Parked
	b.equal("parked hooks", len(info), 1)
	b.equal("parked hook", line(info[0].HookKey, info[0].State, info[0].Waiting, info[0].Attempt), "h2 parked 2 1")
	b.equal("blocked", b.counts().Blocked, int64(1))
	due := b.status(op, "a").Outcomes[0].DueAt
	b.equal("due", due, info[0].DueAt)
	if hour := due - c.Now; hour > 3_600_000 || hour < 3_500_000 {
		b.Fatalf("due in %d ms, want an hour", hour)
	}
}

func laneStale(b *bench) {
	b.append(op, events("a", "b")...)
	old := b.claim()
	b.step(old, act(lane.Park, 1, "a", "h1"))
	b.store.ExpireLease(b, old.Queue)
	b.sweep()
	for _, held := range []bool{false, true} {
		if held {
			b.claim()
		}
		before := b.everything(op)
		for _, v := range []lane.Verb{lane.Delivered, lane.Park, lane.Behind, lane.Bury, lane.Discard, lane.Pop, lane.Retry} {
			s := stepOf(old, act(v, 1, "a", "h2"))
			s.Release, s.Want = v == lane.Pop, 3
			_, err := b.store.Progress(b.Context(), s)
			b.is(string(v), err, lane.ErrLeaseLost)
		}
		lost, err := b.store.Extend(b.Context(), 0, []lane.Held{{Queue: old.Queue, Token: old.Token}})
		b.ok("extend", err)
		b.equal("lost", len(lost), 1)
		b.equal("lane", b.everything(op), before)
		b.equal("status", b.standings(op, "a"), "? h1=parked")
	}
}

func laneRepeated(b *bench) {
	b.append(op, events("a", "b")...)
	c := b.claim()
	s := stepOf(c, act(lane.Park, 1, "a", "h1"), act(lane.Bury, 1, "a", "h2"), act(lane.Discard, 1, "a", "h3"), act(lane.Pop, 1, "a", ""), act(lane.Behind, 2, "b", "h1"))
	s.Want = 5
	first := b.progress(s)
	before := b.everything(op)
	for range 3 {
		again := b.progress(s)
		again.Now = first.Now
		b.equal("reply", again, first)
	}
	b.equal("lane", b.everything(op), before)
	b.equal("parked", b.lane(op).Parked[0].Waiting, int64(2))
	s = stepOf(c, act(lane.Pop, 2, "b", ""))
	s.Want = 5
	b.progress(s)
	before = b.everything(op)
	_, err := b.store.Progress(b.Context(), s)
	b.is("step of a released queue", err, lane.ErrLeaseLost)
	b.equal("lane", b.everything(op), before)
}

func laneCrash(b *bench) {
	b.append(op, events("a", "b")...)
	c := b.claim()
	for _, h := range []string{"h1", "h2"} {
		b.step(c, act(lane.Delivered, 1, "a", h))
	}
	b.store.ExpireLease(b, c.Queue)
	b.equal("expired", b.sweep().Expired, 1)
	c = b.claim()
	b.equal("settled", strings.Join(c.Settled, " "), "h1 h2")
	b.equal("entries", contents(c.Entries), "a:1 b:2")
	p := b.step(c, act(lane.Delivered, 1, "a", "h3"), act(lane.Delivered, 1, "a", "h4"), act(lane.Delivered, 1, "a", "h5"), act(lane.Pop, 1, "a", ""))
	b.equal("settled of b", len(p.Settled), 0)
	b.release(c)
	b.equal("settled of b", len(b.claim().Settled), 0)
}

func laneOtherHead(b *bench) {
	b.append(op, events("a", "b")...)
	c := b.claim()
	before := b.everything(op)
	b.step(c, act(lane.Pop, 2, "b", ""), act(lane.Bury, 2, "b", "h1"), act(lane.Park, 0, "x", "h1"))
	b.equal("lane", b.everything(op), before)
}

func laneUnparked(b *bench) {
	b.parkHead(op, "a", "h1")
	b.append(op, event("b"))
	c := b.claim()
	b.equal("parked", strings.Join(c.Parked, " "), "h1")
	b.drained(b.retried(op, "h1"), act(lane.Delivered, 1, "a", "h1"))
	p := b.step(c, act(lane.Delivered, 2, "b", "h0"), act(lane.Behind, 2, "b", "h1"), act(lane.Pop, 2, "b", ""))
	b.equal("unparked", strings.Join(p.Unparked, " "), "h1")
	b.equal("settled", strings.Join(p.Settled, " "), "h0")
	b.equal("parked", len(p.Parked), 0)
	b.equal("waiting", b.lane(op).Waiting, int64(1))
	b.drained(c, act(lane.Delivered, 2, "b", "h1"), act(lane.Pop, 2, "b", ""))
	b.equal("status", b.standings(op, "b"), "")
}

func laneOthers(b *bench) {
	b.parkHead(op, "a", "h1")
	for i, id := range []string{"b", "c", "d"} {
		seq := int64(i + 2)
		b.append(op, event(id))
		b.drained(b.claim(), act(lane.Behind, seq, id, "h1"), act(lane.Delivered, seq, id, "h2"), act(lane.Pop, seq, id, ""))
	}
	c := b.retried(op, "h1")
	b.equal("queue", contents(c.Entries), "a:1 b:2 c:3 d:4")
	b.equal("state", b.lane(op).State, "idle")
}

func lanePoison(b *bench) {
	b.append(op, events("a", "b")...)
	c := b.claim()
	bury := act(lane.Bury, 1, "", "")
	bury.DeadID = "poison_1"
	for range 2 {
		b.step(c, bury)
	}
	s := stepOf(c, bury, act(lane.Pop, 1, "", ""))
	s.Want = 5
	b.equal("next", contents(b.progress(s).Entries), "b:2")
	letters := b.dead(lane.DeadFilter{})
	b.equal("letters", len(letters), 1)
	b.equal("bytes", string(letters[0].Poison), string(event("a").Doc))
	b.equal("task", letters[0].Task == nil, true)
	b.is("replay", b.store.Replay(b.Context(), letters[0].ID), lane.ErrNotReplayable)
	n, err := b.store.ReplayMany(b.Context(), lane.DeadFilter{}, nil)
	b.ok("replay all", err)
	b.equal("replayed", n, 0)
	b.equal("kept", len(b.dead(lane.DeadFilter{})), 1)
}

// Poison whose task is known tells its waiter, or the event would look delivered.
func lanePoisonOfTask(b *bench) {
	b.append(op, events("a")...)
	b.wait("a", "ear", lane.WaitFinal)
	c := b.claim()
	bury := act(lane.Bury, 1, "a", "")
	bury.DeadID = "poison_3"
	bury.Outcome.Critical = true
	s := stepOf(c, bury, act(lane.Pop, 1, "a", ""))
	s.Want = 1
	b.equal("released", b.progress(s).Released, true)
	b.equal("letter is poison", b.dead(lane.DeadFilter{})[0].Task == nil, true)
	b.equal("heard", b.heard("ear"), "a")
	st := b.status(op, "a")
	b.equal("settled", st.Settled(lane.WaitFinal), true)
	b.equal("outcomes", len(st.Outcomes), 1)
	b.equal("standing", st.Outcomes[0].Standing, lane.StandingDead)
	b.equal("critical", st.Outcomes[0].Critical, true)
}

func laneRelease(b *bench) {
	b.append("one", events("a", "b")...)
	c := b.claim()
	b.append("two", event("a"))
	s := stepOf(c, act(lane.Delivered, 1, "a", "h1"))
	s.Release = true
	b.progress(s)
	got := b.claims(1, 10)
	b.equal("first in line", got[0].OperationID, "two")
	got = b.claims(1, 10)
	b.equal("tail of the line", got[0].OperationID, "one")
	b.equal("settled", strings.Join(got[0].Settled, " "), "h1")
	s = stepOf(got[0], act(lane.Pop, 1, "a", ""), act(lane.Pop, 2, "b", ""))
	s.Release = true
	b.progress(s)
	b.equal("state", b.lane("one").State, "idle")
	b.nothingReady()
}

// A step may ask for entries and give the queue back in one: they must not be
// handed over, and the queue must not rest with them.
func laneReleaseWanting(b *bench) {
	b.append(op, events("a", "b")...)
	c := b.claim()
	s := stepOf(c, act(lane.Pop, 1, "a", ""))
	s.Release, s.Want = true, 5
	p := b.progress(s)
	b.equal("released", line(p.Released, len(p.Entries)), "true 0")
	c = b.claim()
	b.equal("entries", contents(c.Entries), "b:2")
	s = stepOf(c, act(lane.Park, 2, "b", "h1"), act(lane.Pop, 2, "b", ""))
	s.Release, s.Want = true, 5
	b.progress(s)
	b.nothingReady()
	c = b.retried(op, "h1")
	s = stepOf(c)
	s.Release, s.Want = true, 5
	p = b.progress(s)
	b.equal("released", line(p.Released, len(p.Entries)), "true 0")
	b.equal("parked", contents(b.claim().Entries), "b:2")
}
