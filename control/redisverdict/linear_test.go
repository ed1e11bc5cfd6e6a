package redisverdict_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

// input is one call at the verdict of a question: somebody's verdict, or a look
// when it is "". The question may have run out of time meanwhile when it is short.
type input struct {
	id, verdict string
	short       bool
}

// output is the verdict that the call saw, "" for none. When its reply was lost,
// nothing is known, and it may take effect at any later time or never.
type output struct {
	verdict string
	unknown bool
}

const noVerdict, fallback = "", "fallback"

// register is the verdict as it should be: none, and then for ever the first one.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byID := map[string][]porcupine.Operation{}
		for _, op := range history {
			id := op.Input.(input).id
			byID[id] = append(byID[id], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byID {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return noVerdict },
	Step: func(state, in, out any) (bool, any) {
		i, seen := in.(input), out.(output)
		switch {
		case state != noVerdict:
			return seen.unknown || seen.verdict == state, state
		case seen.unknown:
			return true, i.verdict
		case seen.verdict == fallback:
			return i.short, fallback
		default:
			return seen.verdict == i.verdict, i.verdict
		}
	},
}

// history gathers what concurrent callers did.
type history struct {
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *history) record(client int, in input, call func() (string, error)) {
	began := time.Since(h.start).Nanoseconds()
	verdict, err := call()
	ended := time.Since(h.start).Nanoseconds()
	if err != nil && in.verdict == noVerdict {
		return // a look that failed saw nothing and did nothing
	}
	if err != nil {
		ended = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{
		ClientId: client, Input: in, Call: began, Output: output{verdict, err != nil}, Return: ended,
	})
}

// contest is many questions that askers and workers settle at the same time.
type contest struct {
	*history
	t         *testing.T
	server    *servers.Redis
	stores    []*store
	questions []*control.Posting
	// down says that Redis is, until back is closed.
	down atomic.Bool
	back chan struct{}
}

const contestQuestions = 80

// short says which questions run out of time while they are contested.
func short(n int) bool { return n%4 == 3 }

func newContest(t *testing.T) *contest {
	t.Helper()
	c := &contest{
		history: &history{start: time.Now()}, t: t, back: make(chan struct{}), server: servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways}),
	}
	for range 3 {
		c.stores = append(c.stores, open(t, connect(t, c.server.Addr(), 0), redisverdict.Config{Lease: 200 * time.Millisecond}))
	}
	for i := range contestQuestions {
		timeout := time.Minute
		switch {
		case i%8 == 7:
			timeout = time.Millisecond // over before anybody looks
		case short(i):
			timeout = rand.N(1500 * time.Millisecond)
		}
		p := c.stores[0].question(fmt.Sprint(i), timeout)
		c.stores[0].post(t, p)
		c.questions = append(c.questions, p)
	}
	return c
}

func (c *contest) input(id, verdict string) input {
	var n int
	if _, err := fmt.Sscan(id, &n); err != nil {
		c.t.Errorf("question %q: %v", id, err)
	}
	return input{id: id, verdict: verdict, short: short(n)}
}

func (c *contest) look(client int, s *store, n control.Name) {
	c.record(client, c.input(n.ID, noVerdict), func() (string, error) {
		standing, err := s.Look(c.t.Context(), n, "")
		if err != nil || standing.Verdict == nil {
			return noVerdict, err
		}
		return standing.Verdict.Reason, nil
	})
}

// settle sometimes dies on the way.
func (c *contest) settle(client int, s *store, st *control.Settlement) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	if rand.N(5) == 0 {
		defer time.AfterFunc(rand.N(time.Millisecond), cancel).Stop()
	}
	c.record(client, c.input(st.Name.ID, st.Verdict.Reason), func() (string, error) {
		settled, err := s.Settle(ctx, st)
		return settled.Verdict.Reason, err
	})
}

// ask looks, cancels and looks again.
func (c *contest) ask(client int, meet func()) {
	s := c.stores[client%len(c.stores)]
	for i, p := range c.questions {
		if i == contestQuestions/2 {
			meet()
		}
		if c.down.Load() {
			<-c.back
		}
		c.look(client, s, p.Name)
		own := *p
		own.Inbox = fmt.Sprint("asker", client)
		if rand.N(3) == 0 {
			c.settle(client, s, s.own(&own, verdict(p.Name.ID, tasks.VerdictCancelled, fmt.Sprint("cancelled by ", client))))
		}
		c.look(client, s, p.Name)
	}
}

// work takes questions and answers them; of those that are new it forgets every
// third one, as a worker does that was killed.
func (c *contest) work(client int, over <-chan struct{}) {
	s := c.stores[client%len(c.stores)]
	for {
		select {
		case <-over:
			return
		default:
		}
		_, err := s.Sweep(c.t.Context(), 0)
		claims, err2 := s.Claim(c.t.Context(), 0, 3, 5*time.Millisecond)
		if err := errors.Join(err, err2); err != nil && !errors.Is(err, control.ErrUnavailable) {
			c.t.Errorf("take questions: %v", err)
		}
		for _, claim := range claims {
			if claim.Attempt > 1 || rand.N(3) > 0 {
				c.settle(client, s, s.answer(claim, fmt.Sprintf("answer %d of %d", claim.Attempt, client)))
			}
		}
	}
}

// The first verdict stands, whoever writes it, while workers die, questions run
// out of time and Redis crashes and comes back.
func TestVerdictsAreLinearizable(t *testing.T) {
	t.Parallel()
	c := newContest(t)
	const askers, workers = 5, 4
	half, over := make(chan struct{}, askers), make(chan struct{})
	var asking, working sync.WaitGroup
	for i := range askers {
		asking.Go(func() { c.ask(i, func() { half <- struct{}{} }) })
	}
	for i := range workers {
		working.Go(func() { c.work(askers+i, over) })
	}
	<-half
	c.down.Store(true)
	c.server.Kill()
	check(t, "restart redis", c.server.Restart(t.Context()))
	close(c.back)
	c.down.Store(false)
	asking.Wait()
	close(over)
	working.Wait()
	verdicts := map[string]int{}
	for _, p := range c.questions {
		c.look(-1, c.stores[0], p.Name)
		verdicts[kindOf(c.ops[len(c.ops)-1].Output.(output).verdict)]++
	}
	t.Logf("%d operations, verdicts: %v", len(c.ops), verdicts)
	for _, kind := range []string{"answer", "cancelled", fallback} {
		if verdicts[kind] == 0 {
			t.Errorf("no question ended as %s: the test does not see what it should", kind)
		}
	}
	if porcupine.CheckOperationsTimeout(register, c.ops, time.Minute) != porcupine.Ok {
		t.Error("the history of verdicts is not linearizable")
	}
}

func kindOf(verdict string) string {
	var kind string
	_, _ = fmt.Sscan(verdict, &kind)
	return kind
}
