package lanetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// bench is one test's store and the steps that tests are made of.
type bench struct {
	testing.TB
	store Store
}

// op is the operation of tests that need only one.
const op = "operation 1"

// event is an item whose content is told by its id.
func event(id string) lane.Item {
	doc := []byte("doc:" + id + "\n\x00\xff{}")
	return lane.Item{ID: id, Doc: doc, Digest: tasks.ContentDigest(tasks.AfterStep, doc)}
}

func events(ids ...string) []lane.Item {
	items := make([]lane.Item, len(ids))
	for i, id := range ids {
		items[i] = event(id)
	}
	return items
}

func (b *bench) ok(what string, err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

func (b *bench) equal(what string, got, want any) {
	b.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		b.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func (b *bench) is(what string, err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("%s: error is %v, want %v", what, err, want)
	}
}

func (b *bench) append(operation string, items ...lane.Item) []lane.Appended {
	b.Helper()
	got, err := b.store.Append(b.Context(), operation, items)
	b.ok("append", err)
	return got
}

// sequences says how each item of an append was numbered; "=" marks a duplicate.
func sequences(rows []lane.Appended) string {
	var out []string
	for _, r := range rows {
		s := fmt.Sprint(r.Sequence)
		if r.Duplicate {
			s += "="
		}
		out = append(out, r.ID+":"+s)
	}
	return strings.Join(out, " ")
}

func (b *bench) claims(limit, batch int) []lane.Claim {
	b.Helper()
	got, err := b.store.Claim(b.Context(), 0, limit, batch)
	b.ok("claim", err)
	return got
}

// claim takes the one queue that must be ready.
func (b *bench) claim() lane.Claim {
	b.Helper()
	got := b.claims(10, 100)
	if len(got) != 1 {
		b.Fatalf("claimed %d queues, want 1: %+v", len(got), got)
	}
	return got[0]
}

func (b *bench) nothingReady() {
	b.Helper()
	b.equal("ready queues", b.claims(10, 100), []lane.Claim(nil))
}

// contents says which entries a queue handed over.
func contents(entries []lane.Entry) string {
	var out []string
	for _, e := range entries {
		id, _, _ := strings.Cut(strings.TrimPrefix(string(e.Doc), "doc:"), "\n")
		out = append(out, fmt.Sprintf("%s:%d", id, e.Sequence))
	}
	return strings.Join(out, " ")
}

// act is an action with what its verb needs.
func act(v lane.Verb, sequence int64, task, hook string) lane.Action {
	a := lane.Action{Verb: v, Sequence: sequence, TaskID: task, Hook: hook}
	switch v {
	case lane.Delivered:
	case lane.Pop:
		a.Hook = ""
	case lane.Park, lane.Retry:
		a.Delay, a.Attempt = time.Hour, 1
		a.Outcome = outcome(hook, lane.StandingParked)
	case lane.Behind:
		a.Outcome = outcome(hook, lane.StandingWaiting)
	case lane.Bury:
		a.Outcome, a.DeadID = outcome(hook, lane.StandingDead), task+"/"+hook
	case lane.Discard:
		a.Outcome = outcome(hook, lane.StandingDiscarded)
	}
	return a
}

func outcome(hook string, s lane.Standing) *lane.Outcome {
	return &lane.Outcome{HookID: hook, HookType: tasks.AfterStep, Standing: s, Class: tasks.ClassRefused, Message: "endpoint \"refused\"", Attempt: 1}
}

func stepOf(c lane.Claim, actions ...lane.Action) lane.Step {
	return lane.Step{Queue: c.Queue, Token: c.Token, Actions: actions}
}

func (b *bench) progress(s lane.Step) lane.Progress {
	b.Helper()
	p, err := b.store.Progress(b.Context(), s)
	b.ok("progress", err)
	return p
}

func (b *bench) step(c lane.Claim, actions ...lane.Action) lane.Progress {
	b.Helper()
	return b.progress(stepOf(c, actions...))
}

// drained takes the actions and asks for more, of which there must be none.
func (b *bench) drained(c lane.Claim, actions ...lane.Action) {
	b.Helper()
	s := stepOf(c, actions...)
	s.Want = 10
	if p := b.progress(s); !p.Released {
		b.Fatalf("queue is still held, with %s", contents(p.Entries))
	}
}

func (b *bench) release(c lane.Claim) {
	b.Helper()
	s := stepOf(c)
	s.Release = true
	if p := b.progress(s); !p.Released {
		b.Fatalf("queue is held after its release")
	}
}

func (b *bench) sweep() lane.Swept {
	b.Helper()
	s, err := b.store.Sweep(b.Context(), 0, 1000)
	b.ok("sweep", err)
	return s
}

func (b *bench) lane(operation string) lane.Info {
	b.Helper()
	info, err := b.store.Lane(b.Context(), operation)
	b.ok("inspect lane", err)
	return info
}

func (b *bench) status(operation, task string) lane.Status {
	b.Helper()
	s, err := b.store.Status(b.Context(), operation, task, lane.Waiter{})
	b.ok("status", err)
	return s
}

// standings says what a task came to: "h1=parked h2=dead", behind a "?" while it
// was not attempted.
func (b *bench) standings(operation, task string) string {
	b.Helper()
	s := b.status(operation, task)
	var out []string
	if !s.Known {
		out = append(out, "unknown")
	} else if !s.Attempted {
		out = append(out, "?")
	}
	for _, o := range s.Outcomes {
		out = append(out, o.HookID+"="+string(o.Standing))
	}
	return strings.Join(out, " ")
}

func (b *bench) counts() lane.Counts {
	b.Helper()
	c, err := b.store.Counts(b.Context(), 0)
	b.ok("counts", err)
	return c
}

func (b *bench) dead(f lane.DeadFilter) []lane.DeadLetter {
	b.Helper()
	var all []lane.DeadLetter
	for {
		page, err := b.store.Dead(b.Context(), f)
		b.ok("list dead letters", err)
		all = append(all, page.Letters...)
		if page.Next == "" {
			return all
		}
		f.Cursor = page.Next
	}
}

// everything is all that operators can see, for "nothing changed".
func (b *bench) everything(operation string) any {
	b.Helper()
	return []any{b.lane(operation), b.counts(), b.dead(lane.DeadFilter{})}
}

// parkedQueue names the queue of a parked hook.
func (b *bench) parkedQueue(operation, hook string) lane.Queue {
	q := b.store.QueueOf(operation)
	q.Hook = hook
	return q
}

// parkHead appends an event and parks its only hook for an hour.
func (b *bench) parkHead(operation, task, hook string) {
	b.Helper()
	rows := b.append(operation, event(task))
	c := b.claim()
	seq := rows[0].Sequence
	b.drained(c, act(lane.Park, seq, task, hook), act(lane.Pop, seq, task, ""))
}

// retried lets a parked hook come due and claims its queue.
func (b *bench) retried(operation, hook string) lane.Claim {
	b.Helper()
	b.store.MakeDue(b, b.parkedQueue(operation, hook))
	b.sweep()
	c := b.claim()
	b.equal("claimed queue", c.Queue, b.parkedQueue(operation, hook))
	return c
}

// line prints values with single spaces between them.
func line(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }
