package lanetest

import (
	"sort"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

var waiterTests = []test{
	{name: "registered by the append", run: waitAppend},
	{name: "registered while the event is delivered", run: waitDuring},
	{name: "registered afterwards", run: waitAfter},
	{name: "duplicate joins", run: waitJoin},
	{name: "two inboxes and two modes", run: waitTwo},
	{name: "inboxes with a common end", run: waitSuffix},
	{name: "delayed event", run: waitDelayed},
	{name: "final waits for the parked hook", run: waitFinal},
	{name: "final hears of each end", run: waitEnds},
	{name: "parked hook settles before the pop", run: waitEarly},
	{name: "replay opens the wait again", run: waitReplay},
	{name: "unknown task is not waited for", run: waitUnknown},
	{name: "pending outcome outlives the window", opts: Options{Window: 30 * time.Millisecond, IdleTTL: 30 * time.Millisecond}, run: waitOutlives},
}

func waiting(id, inbox string, m lane.WaitMode) lane.Item {
	it := event(id)
	it.Waiter = lane.Waiter{Inbox: inbox, Mode: m}
	return it
}

func (b *bench) wait(task, inbox string, m lane.WaitMode) lane.Status {
	b.Helper()
	s, err := b.store.Status(b.Context(), op, task, lane.Waiter{Inbox: inbox, Mode: m})
	b.ok("status", err)
	return s
}

// heard returns what the inbox was told since the last call. It sends a notice
// of its own behind it, so that it need not wait for silence. No lane may be ready.
func (b *bench) heard(inbox string) string {
	b.Helper()
	bell := waiting(tasks.NewID(), inbox, lane.WaitFirst)
	row := b.append("bell", bell)[0]
	c := b.claim()
	b.drained(c, act(lane.Pop, row.Sequence, bell.ID, ""))
	var got []string
	for {
		notices, err := b.store.Hear(b.Context(), 0, inbox)
		b.ok("hear", err)
		if len(notices) == 0 {
			b.Fatalf("inbox %s did not hear of a settled task", inbox)
		}
		for _, n := range notices {
			if n.TaskID == bell.ID {
				sort.Strings(got)
				return strings.Join(got, " ")
			}
			b.equal("operation", n.OperationHash, tasks.OperationHash(op))
			got = append(got, n.TaskID)
		}
	}
}

func waitAppend(b *bench) {
	rows := b.append(op, waiting("a", "IN", lane.WaitFirst), event("b"))
	b.equal("known", rows[0].Status, lane.Status{Known: true, Sequence: 1})
	b.equal("no waiter", rows[1].Status, lane.Status{})
	c := b.claim()
	b.equal("before", b.heard("IN"), "")
	b.step(c, act(lane.Delivered, 1, "a", "h1"), act(lane.Park, 1, "a", "h2"))
	b.equal("between", b.heard("IN"), "")
	b.step(c, act(lane.Pop, 1, "a", ""))
	b.equal("after", b.heard("IN"), "a")
	b.equal("once", b.heard("IN"), "")
}

func waitDuring(b *bench) {
	b.append(op, event("a"))
	c := b.claim()
	b.step(c, act(lane.Delivered, 1, "a", "h1"))
	s := b.wait("a", "IN", lane.WaitFirst)
	b.equal("status", s, lane.Status{Known: true, Sequence: 1})
	b.step(c, act(lane.Pop, 1, "a", ""))
	b.equal("heard", b.heard("IN"), "a")
}

func waitAfter(b *bench) {
	b.append(op, event("a"))
	c := b.claim()
	b.step(c, act(lane.Bury, 1, "a", "h1"), act(lane.Pop, 1, "a", ""))
	for _, m := range []lane.WaitMode{lane.WaitFirst, lane.WaitFinal} {
		s := b.wait("a", "IN", m)
		b.equal("settled", s.Settled(m), true)
		b.equal("outcomes", s.Outcomes, []lane.Outcome{*outcome("h1", lane.StandingDead)})
	}
	b.release(c)
	b.equal("heard", b.heard("IN"), "")
}

func waitJoin(b *bench) {
	b.append(op, waiting("a", "IN", lane.WaitFirst))
	row := b.append(op, waiting("a", "OTHER", lane.WaitFirst), waiting("a", "OTHER", lane.WaitFirst))[0]
	b.equal("joined", line(row.Duplicate, row.Status.Known, row.Status.Attempted), "true true false")
	c := b.claim()
	b.step(c, act(lane.Park, 1, "a", "h1"), act(lane.Pop, 1, "a", ""))
	b.equal("first", b.heard("IN"), "a")
	b.equal("joined", b.heard("OTHER"), "a")
	b.release(c)
	row = b.append(op, waiting("a", "LATE", lane.WaitFirst))[0]
	b.equal("late", line(row.Duplicate, row.Status.Attempted, len(row.Status.Outcomes)), "true true 1")
	b.equal("late", b.heard("LATE"), "")
}

func waitTwo(b *bench) {
	b.append(op, waiting("a", "ONE", lane.WaitFirst), waiting("b", "ONE", lane.WaitFinal))
	b.wait("a", "TWO", lane.WaitFinal)
	b.wait("a", "ONE", lane.WaitFinal)
	c := b.claim()
	b.drained(c, act(lane.Park, 1, "a", "h1"), act(lane.Pop, 1, "a", ""), act(lane.Behind, 2, "b", "h1"), act(lane.Pop, 2, "b", ""))
	b.equal("first", b.heard("ONE"), "a")
	b.equal("final", b.heard("TWO"), "")
	c = b.retried(op, "h1")
	b.step(c, act(lane.Delivered, 1, "a", "h1"))
	b.equal("one", b.heard("ONE"), "a")
	b.equal("two", b.heard("TWO"), "a")
	b.drained(c, act(lane.Delivered, 2, "b", "h1"))
	b.equal("one", b.heard("ONE"), "b")
	b.equal("two", b.heard("TWO"), "")
}

func waitSuffix(b *bench) {
	b.append(op, waiting("a", "XIN", lane.WaitFirst))
	b.wait("a", "IN", lane.WaitFirst)
	b.drained(b.claim(), act(lane.Pop, 1, "a", ""))
	b.equal("long", b.heard("XIN"), "a")
	b.equal("short", b.heard("IN"), "a")
}

func waitDelayed(b *bench) {
	it := waiting("a", "IN", lane.WaitFirst)
	it.Delay = time.Hour
	row := b.append(op, it)[0]
	b.equal("status", row.Status, lane.Status{Known: true})
	b.store.MakeDelayedDue(b, op, "a")
	b.sweep()
	b.drained(b.claim(), act(lane.Pop, 1, "a", ""))
	b.equal("heard", b.heard("IN"), "a")
}

func waitFinal(b *bench) {
	b.append(op, waiting("a", "IN", lane.WaitFinal))
	b.drained(b.claim(), act(lane.Park, 1, "a", "h1"), act(lane.Delivered, 1, "a", "h2"), act(lane.Pop, 1, "a", ""))
	b.equal("parked", b.heard("IN"), "")
	c := b.retried(op, "h1")
	b.step(c, act(lane.Retry, 1, "a", "h1"))
	b.equal("retried", b.heard("IN"), "")
	b.equal("settled", b.wait("a", "IN", lane.WaitFinal).Settled(lane.WaitFinal), false)
	b.drained(b.retried(op, "h1"), act(lane.Delivered, 1, "a", "h1"))
	b.equal("delivered", b.heard("IN"), "a")
	b.equal("settled", b.wait("a", "IN", lane.WaitFinal).Settled(lane.WaitFinal), true)
}

func waitEnds(b *bench) {
	for i, v := range []lane.Verb{lane.Delivered, lane.Bury, lane.Discard} {
		seq, id := int64(2*i+1), string(v)
		b.append(op, waiting(id, "IN", lane.WaitFinal), waiting(id+"2", "IN", lane.WaitFinal))
		b.drained(b.claim(), act(v, seq, id, "h1"), act(lane.Pop, seq, id, ""),
			act(lane.Park, seq+1, id+"2", "h1"), act(lane.Pop, seq+1, id+"2", ""))
		b.equal("in the lane", b.heard("IN"), id)
		b.drained(b.retried(op, "h1"), act(v, seq+1, id+"2", "h1"))
		b.equal("parked", b.heard("IN"), id+"2")
	}
}

func waitEarly(b *bench) {
	b.append(op, waiting("a", "IN", lane.WaitFinal))
	c := b.claim()
	b.step(c, act(lane.Park, 1, "a", "h1"))
	b.drained(b.retried(op, "h1"), act(lane.Delivered, 1, "a", "h1"))
	b.equal("second hook is open", b.heard("IN"), "")
	b.equal("status", b.standings(op, "a"), "?")
	b.drained(c, act(lane.Delivered, 1, "a", "h2"), act(lane.Pop, 1, "a", ""))
	b.equal("heard", b.heard("IN"), "a")
}

func waitReplay(b *bench) {
	b.append(op, event("a"))
	b.drained(b.claim(), act(lane.Bury, 1, "a", "h1"), act(lane.Pop, 1, "a", ""))
	b.ok("replay", b.store.Replay(b.Context(), b.dead(lane.DeadFilter{})[0].ID))
	c := b.claim()
	b.equal("settled", b.wait("a", "IN", lane.WaitFinal).Settled(lane.WaitFinal), false)
	b.equal("before", b.heard("IN"), "")
	b.drained(c, act(lane.Delivered, 1, "a", "h1"))
	b.equal("after", b.heard("IN"), "a")
}

func waitUnknown(b *bench) {
	s := b.wait("nobody", "IN", lane.WaitFinal)
	b.equal("status", s, lane.Status{})
	b.equal("remains", len(b.store.Remains(b)), 0)
}

// A parked delivery whose record expired would look delivered, and its waiter
// would hear of an end that has not come.
func waitOutlives(b *bench) {
	b.append(op, waiting("a", "IN", lane.WaitFinal))
	b.drained(b.claim(), act(lane.Park, 1, "a", "h1"), act(lane.Park, 1, "a", "h2"), act(lane.Pop, 1, "a", ""))
	b.store.Elapse(b, 100*time.Millisecond)
	b.drained(b.retried(op, "h1"), act(lane.Delivered, 1, "a", "h1"))
	b.equal("second hook is parked", b.heard("IN"), "")
	b.store.Elapse(b, 100*time.Millisecond)
	b.drained(b.retried(op, "h2"), act(lane.Bury, 1, "a", "h2"))
	b.equal("settled", b.heard("IN"), "a")
}
