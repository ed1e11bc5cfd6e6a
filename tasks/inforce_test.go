package tasks_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/google/go-cmp/cmp"
)

func toolEvent(t testing.TB, identifier, apiName string) *tasks.Event {
	t.Helper()
	ev, err := tasks.DecodeEvent(tasks.BeforeToolCall, "op", []byte(`{"identifier":"`+identifier+`","apiName":"`+apiName+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

func TestInForceSelects(t *testing.T) {
	t.Parallel()
	webhook := &tasks.Webhook{URL: "/x"}
	caller := []tasks.Hook{
		{ID: "other type", Type: tasks.AfterToolCall, Webhook: webhook},
		{ID: "a", Type: tasks.BeforeToolCall, Webhook: webhook},
		{ID: "control", Type: tasks.BeforeToolCall, Webhook: &tasks.Webhook{URL: "/x", ResponseHandling: tasks.HandleToolCall}},
		{ID: "no action", Type: tasks.BeforeToolCall},
		{ID: tasks.ReservedIDPrefix + "beforeToolCall", Type: tasks.BeforeToolCall, Webhook: webhook},
		{ID: "other tool", Type: tasks.BeforeToolCall, Matcher: ptr("^fs/"), Webhook: webhook},
		{ID: "a", Type: tasks.BeforeToolCall, Matcher: ptr("^mail/"), Webhook: webhook},
		{ID: "a", Type: tasks.BeforeToolCall, Handler: noop},
		{ID: "a", Type: tasks.BeforeToolCall, Matcher: ptr(""), Webhook: webhook},
		{ID: "a", Type: tasks.BeforeToolCall, Matcher: ptr("^mail/"), Webhook: webhook},
	}
	env := []tasks.Hook{{ID: tasks.ReservedIDPrefix + "beforeToolCall", Type: tasks.BeforeToolCall, Webhook: webhook}}
	hooks, failures := tasks.InForce(toolEvent(t, "mail", "send"), caller, env)
	if len(failures) != 0 {
		t.Fatalf("failures: %v", failures)
	}
	type row struct {
		from       *tasks.Hook
		occurrence int
	}
	want := []row{{&caller[1], 0}, {&caller[6], 0}, {&caller[7], 1}, {&caller[8], 0}, {&caller[9], 1}, {&env[0], 0}}
	if len(hooks) != len(want) {
		t.Fatalf("%d hooks are in force, want %d", len(hooks), len(want))
	}
	keys := map[string]bool{}
	for i, h := range hooks {
		if h.Hook != want[i].from || h.Occurrence != want[i].occurrence {
			t.Errorf("hook %d is %s (%d)", i, h.Hook.ID, h.Occurrence)
		}
		if h.Key != tasks.HookKey(h.Hook, h.Occurrence) || keys[h.Key] {
			t.Errorf("hook %d has the key %s", i, h.Key)
		}
		keys[h.Key] = true
	}
}

// Occurrences are counted alike for few hooks and for many.
func TestInForceCountsOccurrencesOfMany(t *testing.T) {
	t.Parallel()
	webhook := &tasks.Webhook{URL: "/x"}
	var caller []tasks.Hook
	const names, rounds = 7, 40
	for i := range names * rounds {
		h := tasks.Hook{ID: string(rune('a' + i%names)), Type: tasks.BeforeToolCall, Webhook: webhook}
		if i%names == names-1 {
			h.Matcher = ptr("(") // gives no answer, and counts all the same
		}
		caller = append(caller, h)
	}
	hooks, failures := tasks.InForce(toolEvent(t, "mail", "send"), caller, nil)
	for _, f := range failures {
		hooks = append(hooks, f.HookInForce)
	}
	if len(hooks) != names*rounds {
		t.Fatalf("%d hooks, want %d", len(hooks), names*rounds)
	}
	next := map[string]int{}
	for _, h := range hooks {
		if h.Occurrence != next[h.Hook.ID] || h.Key != tasks.HookKey(h.Hook, h.Occurrence) {
			t.Errorf("hook %s has the occurrence %d and the key %s, want %d", h.Hook.ID, h.Occurrence, h.Key, next[h.Hook.ID])
		}
		next[h.Hook.ID]++
	}
}

func TestInForceTellsMatchersThatFailApart(t *testing.T) {
	t.Parallel()
	webhook := &tasks.Webhook{URL: "/x"}
	hooks, failures := tasks.InForce(toolEvent(t, strings.Repeat("a", 5000), "x"), []tasks.Hook{
		{ID: "slow", Type: tasks.BeforeToolCall, Matcher: ptr(`^(a+)+(?!b)\1c`), Webhook: webhook},
		{ID: "broken", Type: tasks.BeforeToolCall, Matcher: ptr(`(`), Webhook: webhook},
		{ID: "fine", Type: tasks.BeforeToolCall, Webhook: webhook},
	}, nil)
	if len(hooks) != 1 || hooks[0].Hook.ID != "fine" {
		t.Fatalf("in force: %v", hooks)
	}
	ids := []string{}
	for _, f := range failures {
		ids = append(ids, f.Hook.ID)
	}
	if diff := cmp.Diff([]string{"slow", "broken"}, ids); diff != "" {
		t.Fatalf("failures (-want +got):\n%s", diff)
	}
	if !errors.Is(failures[0].Err, tasks.ErrMatchTimeout) {
		t.Errorf("slow matcher: %v, want %v", failures[0].Err, tasks.ErrMatchTimeout)
	}
	wantCode(t, failures[1].Err, tasks.InvalidMatcher)
}

func TestHookKeyPartsDoNotRunTogether(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for i, h := range []tasks.Hook{
		{ID: "a", Type: tasks.BeforeToolCall},
		{ID: "a", Type: tasks.AfterToolCall},
		{ID: "a", Type: tasks.BeforeToolCall, Matcher: ptr("")},
		{ID: "a", Type: tasks.BeforeToolCall, Matcher: ptr("*")},
		{ID: "a\x00beforeToolCall", Type: tasks.BeforeToolCall},
		{ID: "", Type: tasks.BeforeToolCall, Matcher: ptr("a")},
	} {
		key := tasks.HookKey(&h, 0)
		if other, twice := seen[key]; twice {
			t.Errorf("hooks %d and %d share the key %s", i, other, key)
		}
		seen[key] = i
		if strings.ContainsAny(key, "{}: ") {
			t.Errorf("key %s may break a Redis name", key)
		}
	}
}
