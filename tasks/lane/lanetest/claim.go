package lanetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

var claimTests = []test{
	{name: "one holder", run: claimOnce},
	{name: "tokens never repeat", run: claimTokens},
	{name: "tokens never repeat after a forgotten lane", opts: Options{Window: 20 * time.Millisecond, IdleTTL: 20 * time.Millisecond}, run: claimTokensForgotten},
	{name: "limits", run: claimLimits},
	{name: "many workers", run: claimRace},
	{name: "wait hears an append", run: claimWait},
}

func claimOnce(b *bench) {
	b.append(op, event("a"))
	c := b.claim()
	b.nothingReady()
	b.append(op, event("b"))
	b.nothingReady()
	b.sweep()
	b.nothingReady()
	b.equal("state", b.lane(op).State, "claimed")
	b.release(c)
	b.equal("state", b.lane(op).State, "ready")
	b.equal("entries", contents(b.claim().Entries), "a:1 b:2")
}

func claimTokens(b *bench) {
	b.append(op, event("a"))
	seen := map[int64]bool{}
	for range 20 {
		c := b.claim()
		if seen[c.Token] {
			b.Fatalf("token %d came again", c.Token)
		}
		seen[c.Token] = true
		b.release(c)
	}
}

func claimTokensForgotten(b *bench) {
	b.append(op, event("a"))
	first := b.claim()
	b.drained(first, act(lane.Pop, 1, "a", ""))
	b.store.Elapse(b, 60*time.Millisecond)
	_, err := b.store.Lane(b.Context(), op)
	b.is("forgotten lane", err, lane.ErrNotFound)
	b.append(op, event("a"))
	if second := b.claim(); second.Token == first.Token {
		b.Fatalf("token %d came again", second.Token)
	}
}

func claimLimits(b *bench) {
	for i := range 5 {
		b.append(fmt.Sprint("op", i), events("a", "b", "c")...)
	}
	got := b.claims(2, 2)
	b.equal("claims", len(got), 2)
	for _, c := range got {
		b.equal("entries", contents(c.Entries), "a:1 b:2")
	}
	b.equal("ready", b.counts().Ready, int64(3))
	b.equal("rest", len(b.claims(10, 1)), 3)
	s := stepOf(got[0], act(lane.Pop, 1, "a", ""))
	s.Want = 1
	b.equal("next", contents(b.progress(s).Entries), "b:2")
}

func claimRace(b *bench) {
	const lanes, workers = 40, 8
	for i := range lanes {
		b.append(fmt.Sprint("op", i), event("a"))
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	holders, tokens := map[lane.Queue]int{}, map[int64]int{}
	for range workers {
		wg.Go(func() {
			for {
				got, err := b.store.Claim(b.Context(), 0, 3, 1)
				if err != nil || len(got) == 0 {
					return
				}
				mu.Lock()
				for _, c := range got {
					holders[c.Queue]++
					tokens[c.Token]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b.equal("queues", len(holders), lanes)
	b.equal("tokens", len(tokens), lanes)
}

func claimWait(b *bench) {
	type answer struct {
		claims []lane.Claim
		waited time.Duration
		err    error
	}
	await := func(limit int, timeout time.Duration) answer {
		claims, waited, err := b.store.Await(b.Context(), 0, limit, 10, timeout)
		return answer{claims, waited, err}
	}
	done := make(chan answer, 1)
	began := time.Now()
	go func() { done <- await(1, 20*time.Second) }()
	b.append(op, event("a"))
	got := <-done
	took := time.Since(began)
	b.ok("await", got.err)
	if took > 10*time.Second || got.waited > took {
		b.Fatalf("await heard the append after %v, and says that it waited %v", took, got.waited)
	}
	b.equal("claims", len(got.claims), 1)
	b.equal("entries", contents(got.claims[0].Entries), "a:1")
	b.equal("claims in vain", len(await(1, 0).claims), 0)
	b.append("other", event("a"))
	// No slot is free: the wait is only that.
	b.equal("claims of nothing", len(await(0, 20*time.Second).claims), 0)
	b.equal("claims when the time is over", len(await(5, time.Microsecond).claims), 1)
}
