package redislane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// inbox is a waiter's inbox.
const inbox = "01JZ0000000000000000000000"

func item(id string) lane.Item {
	doc := []byte("doc " + id)
	return lane.Item{ID: id, Doc: doc, Digest: tasks.ContentDigest(tasks.AfterStep, doc)}
}

func waitingItem(id string) lane.Item {
	it := item(id)
	it.Waiter = lane.Waiter{Inbox: inbox, Mode: lane.WaitFinal}
	return it
}

func delayedItem(id string) lane.Item {
	it := item(id)
	it.Delay = time.Hour
	return it
}

func action(v lane.Verb, sequence int64, task, hook string) lane.Action {
	return lane.Action{
		Verb: v, Sequence: sequence, TaskID: task, Hook: hook, Delay: time.Hour, Attempt: 1,
		Outcome: &lane.Outcome{HookID: hook, Standing: lane.StandingDead}, DeadID: task + "." + hook,
	}
}

func step(c lane.Claim, want int, actions ...lane.Action) lane.Step {
	return lane.Step{Queue: c.Queue, Token: c.Token, Want: want, Actions: actions}
}

func check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

func (s *store) add(t testing.TB, operation string, items ...lane.Item) {
	t.Helper()
	_, err := s.Append(t.Context(), operation, items)
	check(t, "append", err)
}

func (s *store) claimAll(t testing.TB) map[string]lane.Claim {
	t.Helper()
	claims, err := s.Claim(t.Context(), 0, 100, 100)
	check(t, "claim", err)
	out := map[string]lane.Claim{}
	for _, c := range claims {
		out[strings.TrimSuffix(c.OperationID+"/"+c.Queue.Hook, "/")] = c
	}
	return out
}

func (s *store) claimOne(t testing.TB, name string) lane.Claim {
	t.Helper()
	all := s.claimAll(t)
	c, ok := all[name]
	if !ok || len(all) != 1 {
		t.Fatalf("claimed %v, want only %q", all, name)
	}
	return c
}

func docs(c lane.Claim) string {
	var out []string
	for _, e := range c.Entries {
		out = append(out, string(e.Doc))
	}
	return strings.Join(out, ", ")
}

func (s *store) do(t testing.TB, st lane.Step) lane.Progress {
	t.Helper()
	p, err := s.Progress(t.Context(), st)
	check(t, "progress", err)
	return p
}

func (s *store) swept(t testing.TB) lane.Swept {
	t.Helper()
	got, err := s.Sweep(t.Context(), 0, 100)
	check(t, "sweep", err)
	return got
}
