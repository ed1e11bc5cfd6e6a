package lanetest

import (
	"encoding/json"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

var operationTests = []test{
	{name: "hooks are put, added and read", run: hooksStored},
	{name: "concurrent additions are all kept", run: hooksRace},
	{name: "forget keeps pending work", run: forgetPending},
	{name: "nothing is left after the window", opts: Options{Window: 30 * time.Millisecond, IdleTTL: 30 * time.Millisecond}, run: forgetNothingLeft},
	{name: "an idle operation ends by itself", opts: Options{Window: 20 * time.Millisecond, IdleTTL: 40 * time.Millisecond}, run: forgetIdle},
	{name: "parked work keeps the operation", opts: Options{Window: 20 * time.Millisecond, IdleTTL: 20 * time.Millisecond}, run: forgetParked},
	{name: "lanes are listed", run: lanesListed},
	{name: "workers publish and withdraw", run: workersPublish},
}

func (b *bench) hooks(operation string) string {
	b.Helper()
	raw, ok, err := b.store.Hooks(b.Context(), operation)
	b.ok("read hooks", err)
	if !ok {
		return "none"
	}
	return string(raw)
}

func hooksStored(b *bench) {
	b.equal("before", b.hooks(op), "none")
	b.ok("put", b.store.PutHooks(b.Context(), op, json.RawMessage(`[]`)))
	b.equal("empty", b.hooks(op), "[]")
	for _, c := range []struct{ add, want string }{
		{`[]`, `[]`},
		{`[{"a":1}]`, `[{"a":1}]`},
		{`[]`, `[{"a":1}]`},
		{`[{"b":"]"},{"c":1e400}]`, `[{"a":1},{"b":"]"},{"c":1e400}]`},
	} {
		all, err := b.store.AddHooks(b.Context(), op, json.RawMessage(c.add))
		b.ok("add", err)
		b.equal("all", string(all), c.want)
		b.equal("read", b.hooks(op), c.want)
	}
	b.ok("put", b.store.PutHooks(b.Context(), op, json.RawMessage(`[{"z":"é\u0000"}]`)))
	b.equal("replaced", b.hooks(op), `[{"z":"é\u0000"}]`)
	b.equal("other operation", b.hooks("other"), "none")
	b.ok("forget", b.store.Forget(b.Context(), op))
	b.equal("forgotten", b.hooks(op), "none")
	b.ok("forget nothing", b.store.Forget(b.Context(), "never seen"))
}

func hooksRace(b *bench) {
	const callers = 20
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			if _, err := b.store.AddHooks(b.Context(), op, json.RawMessage(fmt.Sprintf(`[%d]`, i))); err != nil {
				b.Errorf("add hooks: %v", err)
			}
			if _, err := b.store.Append(b.Context(), op, events(fmt.Sprint(i))); err != nil {
				b.Errorf("append: %v", err)
			}
		})
	}
	wg.Wait()
	var all []int
	b.ok("decode hooks", json.Unmarshal([]byte(b.hooks(op)), &all))
	sort.Ints(all)
	for i := range callers {
		b.equal("hook", all[i], i)
	}
	b.equal("hooks", len(all), callers)
	b.equal("events", len(b.claim().Entries), callers)
}

func forgetPending(b *bench) {
	b.ok("put", b.store.PutHooks(b.Context(), op, json.RawMessage(`[1]`)))
	b.append(op, event("a"), event("b"), later("c", time.Hour))
	c := b.claim()
	b.step(c, act(lane.Park, 1, "a", "h1"), act(lane.Pop, 1, "a", ""))
	b.ok("forget", b.store.Forget(b.Context(), op))
	b.equal("hooks", b.hooks(op), "none")
	b.drained(c, act(lane.Behind, 2, "b", "h1"), act(lane.Pop, 2, "b", ""))
	b.equal("parked", contents(b.retried(op, "h1").Entries), "a:1 b:2")
	b.store.MakeDelayedDue(b, op, "c")
	b.sweep()
	b.equal("delayed", contents(b.claim().Entries), "c:3")
}

func forgetNothingLeft(b *bench) {
	b.ok("put", b.store.PutHooks(b.Context(), op, json.RawMessage(`[1]`)))
	b.append(op, waiting("a", "IN", lane.WaitFinal), event("b"), later("c", time.Hour))
	b.store.MakeDelayedDue(b, op, "c")
	b.sweep()
	b.drained(b.claim(), act(lane.Park, 1, "a", "h1"), act(lane.Pop, 1, "a", ""),
		act(lane.Behind, 2, "b", "h1"), act(lane.Pop, 2, "b", ""), act(lane.Discard, 3, "c", "h2"), act(lane.Pop, 3, "c", ""))
	b.ok("forget", b.store.Forget(b.Context(), op))
	b.drained(b.retried(op, "h1"), act(lane.Delivered, 1, "a", "h1"), act(lane.Delivered, 2, "b", "h1"))
	b.equal("heard", b.heard("IN"), "a")
	b.store.Elapse(b, 100*time.Millisecond)
	b.equal("remains", b.store.Remains(b), []string(nil))
}

func forgetIdle(b *bench) {
	b.ok("put", b.store.PutHooks(b.Context(), op, json.RawMessage(`[1]`)))
	b.append(op, event("a"))
	b.drained(b.claim(), act(lane.Delivered, 1, "a", "h1"), act(lane.Pop, 1, "a", ""))
	b.store.Elapse(b, 120*time.Millisecond)
	b.equal("remains", b.store.Remains(b), []string(nil))
	b.equal("hooks", b.hooks(op), "none")
}

func forgetParked(b *bench) {
	b.parkHead(op, "a", "h1")
	b.store.Elapse(b, 80*time.Millisecond)
	b.equal("parked", len(b.lane(op).Parked), 1)
	b.equal("next", b.lane(op).Next, int64(2))
	b.drained(b.retried(op, "h1"), act(lane.Delivered, 1, "a", "h1"))
	b.store.Elapse(b, 80*time.Millisecond)
	b.equal("remains", b.store.Remains(b), []string(nil))
}

func lanesListed(b *bench) {
	b.parkHead("parked", "a", "h1")
	b.append("done", event("a"))
	b.drained(b.claim(), act(lane.Pop, 1, "a", ""))
	b.append("claimed", event("a"))
	b.claim()
	b.append("ready", event("a"))
	b.append("delayed", later("a", time.Hour))
	infos, err := b.store.Lanes(b.Context(), 100)
	b.ok("list lanes", err)
	got := map[string]string{}
	for _, i := range infos {
		got[i.OperationID] = line(i.State, i.Waiting, i.Delayed, len(i.Parked))
	}
	b.equal("lanes", got, map[string]string{
		"parked": "idle 0 0 1", "claimed": "claimed 1 0 0", "ready": "ready 1 0 0", "delayed": "idle 0 1 0",
	})
	infos, err = b.store.Lanes(b.Context(), 2)
	b.ok("list two", err)
	b.equal("limited", len(infos), 2)
	_, err = b.store.Lane(b.Context(), "unknown")
	b.is("unknown lane", err, lane.ErrNotFound)
}

func workersPublish(b *bench) {
	ctx, matcher := b.Context(), "fs/.*"
	one := lane.WorkerInfo{ID: "one", Hooks: []lane.PublishedHook{{Type: tasks.AfterStep, Matcher: &matcher, Control: true}}}
	b.ok("publish", b.store.Publish(ctx, one))
	b.ok("publish", b.store.Publish(ctx, lane.WorkerInfo{ID: "two"}))
	b.ok("publish again", b.store.Publish(ctx, one))
	infos, err := b.store.Workers(ctx)
	b.ok("list workers", err)
	sort.Slice(infos, func(i, j int) bool { return infos[i].ID < infos[j].ID })
	b.equal("workers", len(infos), 2)
	if infos[0].SeenAt <= 0 {
		b.Fatalf("worker was seen at %d", infos[0].SeenAt)
	}
	infos[0].SeenAt = 0
	b.equal("one", infos[0], one)
	b.ok("withdraw", b.store.Withdraw(ctx, "one"))
	b.ok("withdraw unknown", b.store.Withdraw(ctx, "nobody"))
	infos, err = b.store.Workers(ctx)
	b.ok("list workers", err)
	b.equal("workers", len(infos), 1)
}
