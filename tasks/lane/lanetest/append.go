package lanetest

import (
	"errors"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

var appendTests = []test{
	{name: "numbers and keeps order", run: appendOrder},
	{name: "bytes stay as they are", run: appendBytes},
	{name: "is idempotent", run: appendTwice},
	{name: "duplicates inside a batch", run: appendTwins},
	{name: "reused id stores nothing", run: appendReused},
	{name: "reused id inside a batch", run: appendReusedTwin},
	{name: "joins after delivery", run: appendAfterDelivery},
	{name: "id is forgotten after the window", opts: Options{Window: 40 * time.Millisecond, IdleTTL: time.Hour}, run: appendAfterWindow},
	{name: "one of many with the same id", run: appendRace},
	{name: "operations are apart", run: appendApart},
	{name: "odd operation ids", run: appendOddNames},
	{name: "nothing", run: func(b *bench) { b.equal("rows", b.append(op), []lane.Appended(nil)) }},
}

func appendOrder(b *bench) {
	b.equal("first", sequences(b.append(op, events("a", "b")...)), "a:1 b:2")
	b.equal("second", sequences(b.append(op, events("c")...)), "c:3")
	c := b.claim()
	b.equal("operation", c.OperationID, op)
	b.equal("claimed", contents(c.Entries), "a:1 b:2 c:3")
	b.equal("while claimed", sequences(b.append(op, events("d")...)), "d:4")
	s := stepOf(c, act(lane.Pop, 1, "a", ""), act(lane.Pop, 2, "b", ""), act(lane.Pop, 3, "c", ""))
	s.Want = 10
	b.equal("next", contents(b.progress(s).Entries), "d:4")
	b.drained(c, act(lane.Pop, 4, "d", ""))
	b.equal("after rest", sequences(b.append(op, events("e")...)), "e:5")
	info := b.lane(op)
	b.equal("state", line(info.State, info.Waiting, info.Next), "ready 1 6")
}

func appendBytes(b *bench) {
	it := event("a")
	it.Doc = []byte("\x00\xff\r\n1:2:{\"a\":1e400} \u2028")
	big := event("big")
	big.Doc = make([]byte, 3<<20)
	b.append(op, it, big)
	c := b.claim()
	b.equal("document", c.Entries[0].Doc, it.Doc)
	b.equal("length", len(c.Entries[len(c.Entries)-1].Doc), len(big.Doc))
	b.step(c, act(lane.Park, 1, "a", "h"), act(lane.Pop, 1, "a", ""))
	b.equal("parked document", b.retried(op, "h").Entries[0].Doc, it.Doc)
}

func appendTwice(b *bench) {
	b.append(op, events("a", "b")...)
	b.equal("again", sequences(b.append(op, events("b", "c", "a")...)), "b:2= c:3 a:1=")
	b.equal("entries", contents(b.claim().Entries), "a:1 b:2 c:3")
	b.equal("while claimed", sequences(b.append(op, events("a", "c")...)), "a:1= c:3=")
	b.equal("waiting", b.lane(op).Waiting, int64(3))
}

func appendTwins(b *bench) {
	b.equal("rows", sequences(b.append(op, events("a", "b", "a")...)), "a:1 b:2 a:1=")
	b.equal("entries", contents(b.claim().Entries), "a:1 b:2")
}

func appendReused(b *bench) {
	b.append(op, event("a"))
	before := b.everything(op)
	other := event("a")
	other.Digest = "other"
	_, err := b.store.Append(b.Context(), op, []lane.Item{event("b"), other, event("c")})
	var reused *lane.ReusedError
	if !errors.As(err, &reused) || reused.ID != "a" {
		b.Fatalf("error is %v, want a ReusedError of a", err)
	}
	b.equal("lane", b.everything(op), before)
	b.equal("b", b.standings(op, "b"), "unknown")
	b.equal("b later", sequences(b.append(op, event("b"))), "b:2")
}

func appendReusedTwin(b *bench) {
	delayed, other := event("a"), event("a")
	delayed.Delay, other.Digest = time.Hour, "other"
	for _, first := range []lane.Item{event("a"), delayed} {
		_, err := b.store.Append(b.Context(), op, []lane.Item{event("b"), first, other})
		var reused *lane.ReusedError
		if !errors.As(err, &reused) {
			b.Fatalf("error is %v, want a ReusedError", err)
		}
	}
	b.equal("remains", len(b.store.Remains(b)), 0)
}

func appendAfterDelivery(b *bench) {
	b.append(op, event("a"))
	b.drained(b.claim(), act(lane.Pop, 1, "a", ""))
	b.equal("again", sequences(b.append(op, event("a"))), "a:1=")
	b.nothingReady()
	other := event("a")
	other.Digest = "other"
	_, err := b.store.Append(b.Context(), op, []lane.Item{other})
	var reused *lane.ReusedError
	if !errors.As(err, &reused) {
		b.Fatalf("error is %v, want a ReusedError", err)
	}
}

func appendAfterWindow(b *bench) {
	b.append(op, event("a"))
	b.drained(b.claim(), act(lane.Pop, 1, "a", ""))
	b.store.Elapse(b, 120*time.Millisecond)
	b.equal("status", b.standings(op, "a"), "unknown")
	other := event("a")
	other.Digest = "other"
	b.equal("again", sequences(b.append(op, other)), "a:2")
}

func appendRace(b *bench) {
	const callers = 50
	var wg sync.WaitGroup
	rows := make([][]lane.Appended, callers)
	errs := make([]error, callers)
	for i := range callers {
		wg.Go(func() { rows[i], errs[i] = b.store.Append(b.Context(), op, events("a")) })
	}
	wg.Wait()
	added := 0
	for i := range callers {
		b.ok("append", errs[i])
		if !rows[i][0].Duplicate {
			added++
		}
		b.equal("sequence", rows[i][0].Sequence, int64(1))
	}
	b.equal("added", added, 1)
	b.equal("entries", contents(b.claim().Entries), "a:1")
	b.nothingReady()
}

func appendApart(b *bench) {
	b.equal("one", sequences(b.append("one", events("a", "b")...)), "a:1 b:2")
	b.equal("two", sequences(b.append("two", event("a"))), "a:1")
	got := map[string]string{}
	for _, c := range b.claims(10, 100) {
		got[c.OperationID] = contents(c.Entries)
	}
	b.equal("claims", got, map[string]string{"one": "a:1 b:2", "two": "a:1"})
}

func appendOddNames(b *bench) {
	names := []string{"{", "}", "{}", "{0}", "a}b{c", "a b", "a:b|c", "Операция ⚓", "%d\\n\"'", "*", "\u2028"}
	for _, name := range names {
		b.append(name, event(name))
		c := b.claim()
		b.equal("operation", c.OperationID, name)
		b.drained(c, act(lane.Park, 1, name, "h"), act(lane.Pop, 1, name, ""))
		b.equal("status", b.standings(name, name), "h=parked")
		c = b.retried(name, "h")
		b.drained(c, act(lane.Bury, 1, name, "h"))
		letters := b.dead(lane.DeadFilter{OperationID: name})
		b.equal("letters", len(letters), 1)
		b.equal("task", letters[0].TaskID, name)
		b.ok("replay", b.store.Replay(b.Context(), letters[0].ID))
		b.drained(b.claim(), act(lane.Delivered, 1, name, "h"))
		b.equal("status", b.standings(name, name), "")
	}
}
