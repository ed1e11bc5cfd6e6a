package lanetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// modelRound is the number of histories that run one after the other.
const modelRound = 100

// RunModel plays random histories of appends, claims, steps, crashes, lost
// replies, retries and replays against a store and a plain model. They must
// agree after every step, and in the end nothing may be lost, doubled without a
// crash, or out of order. It plays the given number of histories, or fewer when
// rapid.checks is under 100.
func RunModel(t *testing.T, newStore NewStore, histories int) {
	for round := 1; histories > 0; round++ {
		n := min(histories, modelRound)
		histories -= n
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			t.Parallel()
			playRound(t, newStore(t, Options{Lease: 10 * time.Minute}), n)
		})
	}
}

func playRound(t *testing.T, store Store, n int) {
	started, played := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		// After a failure rapid looks for a shorter history with the same one, and
		// then each must be played.
		if played >= n && started == played {
			return
		}
		started++
		store.Reset(t)
		h := newHistory(rt, t, store)
		rt.Repeat(h.actions())
		h.finish()
		played++
	})
}

// history is one random run: the store, the model, and the workers that hold queues.
type history struct {
	*rapid.T
	outer  *testing.T
	store  Store
	model  *model
	events []*occurrence
	held   map[place]*hold
	// lost are claims of crashed workers, which must change nothing any more.
	lost   []*hold
	tokens map[int64]bool
	// last is the sequence of the newest first delivery to a hook.
	last map[place]int64
}

// hold is one worker's view of a queue that it claimed.
type hold struct {
	at      place
	claim   lane.Claim
	entries []lane.Entry
	parked  []string
}

func newHistory(rt *rapid.T, outer *testing.T, store Store) *history {
	return &history{
		T: rt, outer: outer, store: store, model: &model{lanes: map[string]*modelLane{}},
		tokens: map[int64]bool{}, last: map[place]int64{}, held: map[place]*hold{},
	}
}

var (
	modelOperations = []string{"{one}", "two 2"}
	modelHooks      = []string{"h1", "h2", "h3"}
)

func (h *history) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":       func(*rapid.T) { h.compare() },
		"append": func(*rapid.T) { h.append() },
		"claim": func(*rapid.T) {
			h.claim(rapid.IntRange(1, 3).Draw(h.T, "limit"), rapid.IntRange(1, 4).Draw(h.T, "batch"))
		},
		"work":    func(*rapid.T) { h.work() },
		"work on": func(*rapid.T) { h.work() },
		"crash":   func(*rapid.T) { h.crash() },
		"sweep":   func(*rapid.T) { h.sweep() },
		"retry":   func(*rapid.T) { h.retry() },
		"replay":  func(*rapid.T) { h.replay() },
		"extend":  func(*rapid.T) { h.extend() },
		"late":    func(*rapid.T) { h.late() },
		"delayed": func(*rapid.T) { h.delayed() },
	}
}

func (h *history) ctx() context.Context { return h.outer.Context() }

func (h *history) ok(what string, err error) {
	h.Helper()
	if err != nil {
		h.Fatalf("%s: %v", what, err)
	}
}

// append adds a few events, some of them known already, some delayed.
func (h *history) append() {
	operation := rapid.SampledFrom(modelOperations).Draw(h.T, "operation")
	n := rapid.IntRange(1, 4).Draw(h.T, "events")
	items := make([]lane.Item, n)
	chosen := make([]*occurrence, n)
	fresh := make([]bool, n)
	for i := range n {
		if known := h.eventsOf(operation); len(known) > 0 && rapid.IntRange(0, 5).Draw(h.T, "known") == 0 {
			chosen[i] = rapid.SampledFrom(known).Draw(h.T, "event")
			items[i] = event(chosen[i].id)
			continue
		}
		chosen[i], fresh[i] = h.newEvent(operation), true
		items[i] = event(chosen[i].id)
		if rapid.IntRange(0, 7).Draw(h.T, "delay") == 0 {
			items[i].Delay = time.Hour
			h.model.delay(chosen[i])
		} else {
			h.model.append(chosen[i])
		}
	}
	rows, err := h.store.Append(h.ctx(), operation, items)
	h.ok("append", err)
	for i, r := range rows {
		if r.Sequence != chosen[i].sequence || r.Duplicate == fresh[i] {
			h.Fatalf("appended %+v, want sequence %d, duplicate %v", r, chosen[i].sequence, !fresh[i])
		}
	}
}

func (h *history) eventsOf(operation string) []*occurrence {
	return slices.DeleteFunc(slices.Clone(h.events), func(o *occurrence) bool { return o.operation != operation })
}

func (h *history) newEvent(operation string) *occurrence {
	o := &occurrence{operation: operation, id: fmt.Sprintf("e%d", len(h.events)+1)}
	first := rapid.IntRange(0, len(modelHooks)).Draw(h.T, "first hook")
	for _, hook := range modelHooks[first:] {
		o.deliveries = append(o.deliveries, &delivery{event: o, hook: hook})
	}
	h.events = append(h.events, o)
	return o
}

func (h *history) claim(limit, batch int) {
	ready := h.model.ready()
	claims, err := h.store.Claim(h.ctx(), 0, limit, batch)
	h.ok("claim", err)
	if want := min(limit, len(ready)); len(claims) != want {
		h.Fatalf("claimed %d queues, want %d of %v", len(claims), want, ready)
	}
	for _, c := range claims {
		at := place{c.OperationID, c.Queue.Hook}
		if !ready[at] {
			h.Fatalf("claimed %v, which is not ready: %v", at, ready)
		}
		delete(ready, at)
		if h.tokens[c.Token] {
			h.Fatalf("token %d came again", c.Token)
		}
		h.tokens[c.Token] = true
		h.taken(at, c, batch)
	}
}

// taken compares a claim with the model and gives it to a worker.
func (h *history) taken(at place, c lane.Claim, batch int) {
	l := h.model.lanes[at.operation]
	var want lane.Progress
	if at.hook == "" {
		l.state = "claimed"
		want = h.model.step(at, lane.Step{Want: batch})
	} else {
		l.parked[at.hook].state = "claimed"
		want = h.model.step(at, lane.Step{Want: batch})
	}
	got := lane.Progress{Entries: c.Entries, Settled: c.Settled, Parked: c.Parked, Attempt: c.Attempt}
	h.same("claim of "+at.operation+at.hook, got, want)
	h.held[at] = &hold{at: at, claim: c, entries: c.Entries, parked: c.Parked}
}

// same compares answers as far as the model knows them.
func (h *history) same(what string, got, want lane.Progress) {
	h.Helper()
	if g, w := describe(got), describe(want); g != w {
		h.Fatalf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func describe(p lane.Progress) string {
	sorted := func(keys []string) string {
		keys = slices.Clone(keys)
		slices.Sort(keys)
		return strings.Join(keys, ",")
	}
	return fmt.Sprintf("released %v, entries [%s], settled [%s], parked [%s], unparked [%s], attempt %d",
		p.Released, contents(p.Entries), sorted(p.Settled), sorted(p.Parked), sorted(p.Unparked), p.Attempt)
}

// pick chooses a held queue; the history skips the action when there is none.
func (h *history) pick() *hold {
	if len(h.held) == 0 {
		h.Skip("nobody holds a queue")
	}
	places := slices.SortedFunc(maps.Keys(h.held), func(a, b place) int {
		return strings.Compare(a.operation+a.hook, b.operation+b.hook)
	})
	return h.held[rapid.SampledFrom(places).Draw(h.T, "queue")]
}

func (h *history) work() {
	w := h.pick()
	for range rapid.IntRange(1, 5).Draw(h.T, "steps") {
		if h.held[w.at] != w {
			return
		}
		h.stepOf(w, h.verb)
	}
}

// verb is what an attempt comes to.
func (h *history) verb(parked bool) lane.Verb {
	switch n := rapid.IntRange(0, 9).Draw(h.T, "verb"); {
	case n < 5:
		return lane.Delivered
	case n < 7 && parked:
		return lane.Retry
	case n < 7:
		return lane.Park
	case n < 9:
		return lane.Bury
	}
	return lane.Discard
}

// stepOf does what a worker would do next with its queue.
func (h *history) stepOf(w *hold, verb func(parked bool) lane.Verb) {
	s := lane.Step{Queue: w.claim.Queue, Token: w.claim.Token}
	ended := len(w.entries) == 0
	if !ended {
		s.Actions, ended = h.actionsOf(w, verb)
	}
	if ended && len(w.entries) > 0 {
		w.entries = w.entries[1:]
	}
	s.Release = rapid.IntRange(0, 9).Draw(h.T, "release") == 0
	if ended && len(w.entries) == 0 {
		s.Want = rapid.IntRange(1, 3).Draw(h.T, "want")
	}
	h.send(w, s)
}

// actionsOf settles the next hook of the head; ended says that the head is done.
func (h *history) actionsOf(w *hold, verb func(parked bool) lane.Verb) (actions []lane.Action, ended bool) {
	seq := w.entries[0].Sequence
	l := h.model.lanes[w.at.operation]
	if w.at.hook != "" {
		d := l.parked[w.at.hook].queue[0]
		v := verb(true)
		h.attempted(d, v)
		a := act(v, seq, d.event.id, d.hook)
		a.Attempt = l.parked[w.at.hook].attempt + 1
		return []lane.Action{a}, v != lane.Retry
	}
	o := l.queue[0]
	for i, d := range o.deliveries {
		if slices.Contains(l.settled, d.hook) {
			continue
		}
		v := lane.Behind
		if !slices.Contains(w.parked, d.hook) {
			v = verb(false)
			h.attempted(d, v)
		}
		actions = append(actions, act(v, seq, o.id, d.hook))
		if v == lane.Behind && l.parked[d.hook] == nil {
			return actions, false
		}
		if i < len(o.deliveries)-1 {
			return actions, false
		}
	}
	return append(actions, act(lane.Pop, seq, o.id, "")), true
}

// attempted is the receiver: it sees a delivery and checks its order.
func (h *history) attempted(d *delivery, v lane.Verb) {
	if v != lane.Delivered {
		return
	}
	d.made++
	if d.made > 1 && d.made > 1+d.crashes {
		h.Fatalf("%s reached %s %d times after %d crashes", d.event.id, d.hook, d.made, d.crashes)
	}
	if d.made > 1 || d.replayed {
		return
	}
	at := place{d.event.operation, d.hook}
	if d.event.sequence <= h.last[at] {
		h.Fatalf("%s reached %s with sequence %d after %d", d.event.id, d.hook, d.event.sequence, h.last[at])
	}
	h.last[at] = d.event.sequence
}

// send makes a step, sometimes twice, as after a lost reply.
func (h *history) send(w *hold, s lane.Step) {
	want := h.model.step(w.at, s)
	got, err := h.store.Progress(h.ctx(), s)
	h.ok("progress", err)
	h.same("step", got, want)
	if rapid.IntRange(0, 4).Draw(h.T, "lost reply") == 0 {
		again, err := h.store.Progress(h.ctx(), s)
		switch {
		case got.Released && !errors.Is(err, lane.ErrLeaseLost):
			h.Fatalf("repeated step of a released queue: %v", err)
		case !got.Released:
			h.ok("repeated step", err)
			h.same("repeated step", again, want)
		}
	}
	if got.Released {
		delete(h.held, w.at)
		return
	}
	w.parked = got.Parked
	if s.Want > 0 {
		w.entries = got.Entries
	}
}
