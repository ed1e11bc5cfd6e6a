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
	done := make(chan error, 1)
	go func() { done <- b.store.Wait(b.Context(), 0, 20*time.Second) }()
	b.append(op, event("a"))
	began := time.Now()
	b.ok("wait", <-done)
	if took := time.Since(began); took > 10*time.Second {
		b.Fatalf("wait heard the append after %v", took)
	}
	b.claim()
	b.ok("wait in vain", b.store.Wait(b.Context(), 0, 0))
	b.ok("wait in vain", b.store.Wait(b.Context(), 0, time.Microsecond))
}
