package lanetest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

var deadTests = []test{
	{name: "list, filter and page", run: deadFilter},
	{name: "page on behind a removed letter", run: deadPageOn},
	{name: "bad cursor", run: deadCursor},
	{name: "replay joins the tail", run: deadTail},
	{name: "replay once", run: deadOnce},
	{name: "replay makes a pending retry due", run: deadPendingRetry},
	{name: "replay keeps the order of events", run: deadOrder},
	{name: "replay while the hook is attempted", run: deadWhileAttempted},
	{name: "replay after the operation was forgotten", opts: Options{Window: 20 * time.Millisecond, IdleTTL: 20 * time.Millisecond}, run: deadForgotten},
	{name: "quarantine", run: deadQuarantine},
	{name: "twelve thousand", slow: true, run: deadMany},
}

// buryAll appends n events and buries the delivery of each to hook.
func (b *bench) buryAll(operation, hook string, n int) {
	b.Helper()
	items := make([]lane.Item, n)
	for i := range items {
		items[i] = event(fmt.Sprintf("t%05d", i))
	}
	rows := b.append(operation, items...)
	c := b.claim()
	s := stepOf(c)
	for _, r := range rows {
		s.Actions = append(s.Actions, act(lane.Bury, r.Sequence, r.ID, hook), act(lane.Pop, r.Sequence, r.ID, ""))
		// Letter ids in descending order of the events, so that no listing gives the right order by chance.
		s.Actions[len(s.Actions)-2].DeadID = fmt.Sprintf("%s/%s/%05d", operation, hook, n-int(r.Sequence))
	}
	s.Want = 1
	b.progress(s)
}

func deadFilter(b *bench) {
	b.buryAll("one", "h1", 5)
	b.buryAll("two", "h1", 3)
	b.buryAll("three", "h2", 4)
	count := func(f lane.DeadFilter) int {
		b.Helper()
		var n [3]int
		for i, limit := range []int{0, 1, 2} {
			f.Limit = limit
			n[i] = len(b.dead(f))
		}
		b.equal("pages", n[1:], []int{n[0], n[0]})
		return n[0]
	}
	b.equal("all", count(lane.DeadFilter{}), 12)
	b.equal("operation", count(lane.DeadFilter{OperationID: "one"}), 5)
	b.equal("hook", count(lane.DeadFilter{HookID: "h1"}), 8)
	b.equal("both", count(lane.DeadFilter{HookID: "h1", OperationID: "two"}), 3)
	b.equal("class", count(lane.DeadFilter{Class: tasks.ClassRefused}), 12)
	b.equal("other class", count(lane.DeadFilter{Class: tasks.ClassTimeout}), 0)
	b.equal("type", count(lane.DeadFilter{Type: tasks.AfterStep}), 12)
	b.equal("other type", count(lane.DeadFilter{Type: tasks.OnError}), 0)
	page, err := b.store.Dead(b.Context(), lane.DeadFilter{Limit: 1})
	b.ok("list", err)
	b.equal("total", page.Total, int64(12))
	got, err := b.store.DeadLetter(b.Context(), page.Letters[0].ID)
	b.ok("read letter", err)
	b.equal("letter", got, page.Letters[0])
	b.equal("dead", b.counts().Dead, int64(12))
	for _, id := range []string{"", "0.", "x.y", "99.a", "0.nobody"} {
		_, err := b.store.DeadLetter(b.Context(), id)
		b.is("letter "+id, err, lane.ErrNotFound)
		b.is("replay "+id, b.store.Replay(b.Context(), id), lane.ErrNotFound)
	}
}

func deadPageOn(b *bench) {
	b.buryAll(op, "h1", 30)
	seen := map[string]bool{}
	f := lane.DeadFilter{Limit: 4}
	for {
		page, err := b.store.Dead(b.Context(), f)
		b.ok("list", err)
		for _, l := range page.Letters {
			if seen[l.ID] {
				b.Fatalf("letter %s was listed twice", l.ID)
			}
			seen[l.ID] = true
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			break
		}
		b.ok("replay", b.store.Replay(b.Context(), page.Letters[len(page.Letters)-1].ID))
	}
	b.equal("letters", len(seen), 30)
}

func deadCursor(b *bench) {
	for _, cursor := range []string{"x", "0|1", "-1|1|a", "99|1|a", "0|x|a", "|||"} {
		if _, err := b.store.Dead(b.Context(), lane.DeadFilter{Cursor: cursor}); err == nil {
			b.Fatalf("cursor %q was accepted", cursor)
		}
	}
}

func deadTail(b *bench) {
	b.buryAll(op, "h1", 1)
	b.append(op, event("b"))
	b.drained(b.claim(), act(lane.Park, 2, "b", "h1"), act(lane.Pop, 2, "b", ""))
	b.ok("replay", b.store.Replay(b.Context(), b.dead(lane.DeadFilter{})[0].ID))
	b.equal("status", b.standings(op, "t00000"), "h1=waiting")
	c := b.claim()
	b.equal("queue", contents(c.Entries), "b:2 t00000:1")
	b.drained(c, act(lane.Delivered, 2, "b", "h1"), act(lane.Delivered, 1, "t00000", "h1"))
	b.equal("status", b.standings(op, "t00000"), "")
	b.equal("counts", b.counts(), lane.Counts{})
}

func deadOnce(b *bench) {
	b.buryAll(op, "h1", 1)
	id := b.dead(lane.DeadFilter{})[0].ID
	b.ok("replay", b.store.Replay(b.Context(), id))
	b.is("again", b.store.Replay(b.Context(), id), lane.ErrNotFound)
	c := b.claim()
	b.equal("attempt", c.Attempt, 0)
	b.equal("queue", contents(c.Entries), "t00000:1")
	b.nothingReady()
	b.drained(c, act(lane.Bury, 1, "t00000", "h1"))
	b.equal("dead again", len(b.dead(lane.DeadFilter{})), 1)
}

func deadPendingRetry(b *bench) {
	b.buryAll(op, "h1", 1)
	b.append(op, event("b"))
	b.drained(b.claim(), act(lane.Park, 2, "b", "h1"), act(lane.Pop, 2, "b", ""))
	b.sweep()
	b.nothingReady()
	b.ok("replay", b.store.Replay(b.Context(), b.dead(lane.DeadFilter{})[0].ID))
	c := b.claim()
	b.equal("attempt", c.Attempt, 1)
	b.equal("due", b.counts().Due, int64(1))
	b.equal("entries", len(c.Entries), 2)
	b.sweep()
	b.nothingReady()
}

func deadOrder(b *bench) {
	b.buryAll("one", "h1", 150)
	b.buryAll("two", "h2", 3)
	heard := 0
	n, err := b.store.ReplayMany(b.Context(), lane.DeadFilter{}, func(lane.DeadLetter) { heard++ })
	b.ok("replay all", err)
	b.equal("replayed", []int{n, heard}, []int{153, 153})
	b.equal("left", len(b.dead(lane.DeadFilter{})), 0)
	for _, c := range b.claims(10, 1000) {
		for i, e := range c.Entries {
			b.equal("sequence", e.Sequence, int64(i+1))
		}
	}
}

func deadWhileAttempted(b *bench) {
	b.buryAll(op, "h1", 1)
	b.append(op, event("b"))
	c := b.claim()
	b.equal("parked", len(c.Parked), 0)
	b.ok("replay", b.store.Replay(b.Context(), b.dead(lane.DeadFilter{})[0].ID))
	b.drained(c, act(lane.Park, 2, "b", "h1"), act(lane.Pop, 2, "b", ""))
	b.equal("status", b.standings(op, "b"), "h1=waiting")
	c = b.claim()
	b.equal("queue", contents(c.Entries), "t00000:1 b:2")
	b.nothingReady()
}

func deadForgotten(b *bench) {
	b.buryAll(op, "h1", 3)
	b.store.Elapse(b, 60*time.Millisecond)
	if _, err := b.store.Lane(b.Context(), op); !errors.Is(err, lane.ErrNotFound) {
		b.Fatalf("lane is still known: %v", err)
	}
	n, err := b.store.ReplayMany(b.Context(), lane.DeadFilter{}, nil)
	b.ok("replay all", err)
	b.equal("replayed", n, 3)
	rows := b.append(op, event("new"))
	b.equal("number", sequences(rows), "new:4")
	for _, c := range b.claims(10, 10) {
		b.equal("operation", c.OperationID, op)
		if c.Queue.Lane() {
			b.equal("lane", contents(c.Entries), "new:4")
			b.drained(c, act(lane.Behind, 4, "new", "h1"), act(lane.Pop, 4, "new", ""))
			continue
		}
		b.equal("queue", contents(c.Entries), "t00000:1 t00001:2 t00002:3")
	}
}

func deadQuarantine(b *bench) {
	for range 2 {
		b.ok("quarantine", b.store.Quarantine(b.Context(), op, "poison_x", []byte("\xff{")))
	}
	letters := b.dead(lane.DeadFilter{})
	b.equal("letters", len(letters), 1)
	b.equal("letter", fmt.Sprintf("%q %s %s", letters[0].Poison, letters[0].OperationID, letters[0].Outcome.Reason), `"\xff{" `+op+" poison")
	b.is("replay", b.store.Replay(b.Context(), letters[0].ID), lane.ErrNotReplayable)
}

func deadMany(b *bench) {
	const operations, each = 12, 1000
	for i := range operations {
		b.buryAll(fmt.Sprint("op", i), "h1", each)
	}
	b.equal("listed", len(b.dead(lane.DeadFilter{Limit: 1000})), operations*each)
	b.equal("filtered", len(b.dead(lane.DeadFilter{OperationID: "op3"})), each)
	n, err := b.store.ReplayMany(b.Context(), lane.DeadFilter{}, nil)
	b.ok("replay", err)
	b.equal("replayed", n, operations*each)
	claims := b.claims(operations+1, each+1)
	b.equal("queues", len(claims), operations)
	for _, c := range claims {
		var bad []string
		for i, e := range c.Entries {
			if e.Sequence != int64(i+1) {
				bad = append(bad, fmt.Sprintf("%d at %d", e.Sequence, i))
			}
		}
		b.equal("out of order", strings.Join(bad, ", "), "")
		b.equal("entries", len(c.Entries), each)
	}
}
