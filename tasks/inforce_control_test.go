package tasks_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
)

func control(id string, policy tasks.ErrorPolicy) tasks.Hook {
	return tasks.Hook{ID: id, Type: tasks.BeforeToolCall, Webhook: &tasks.Webhook{
		URL: "/x", ResponseHandling: tasks.HandleToolCall, OnError: policy,
	}}
}

func matching(h tasks.Hook, matcher string) tasks.Hook {
	h.Matcher = &matcher
	return h
}

func TestControlsInForceSelects(t *testing.T) {
	t.Parallel()
	other := control("other phase", "")
	other.Type = tasks.AfterToolCall
	environment := tasks.ReservedIDPrefix + "beforeToolCall"
	rounds := []tasks.ControlRound{
		{OperationID: "one", Hooks: []tasks.Hook{
			other, control("a", ""), control(environment, ""), matching(control("m", ""), "^fs/"),
			{ID: "notification", Type: tasks.BeforeToolCall, Webhook: &tasks.Webhook{URL: "/x"}},
			{ID: "handler", Type: tasks.BeforeToolCall, Handler: noop},
			matching(control("broken", tasks.PolicyBlock), "("),
			control("a", ""),
		}},
		{OperationID: "two"},
		{OperationID: "three", Hooks: []tasks.Hook{control("a", ""), matching(control("m", ""), "^mail/")}},
	}
	env := []tasks.Hook{{ID: environment, Type: tasks.BeforeToolCall, Webhook: &tasks.Webhook{URL: "/x"}}, control(environment, "")}
	type row struct {
		ID, Operation string
		Occurrence    int
		Failed        bool
	}
	got, keys := []row{}, map[string]bool{}
	for _, c := range tasks.ControlsInForce(toolEvent(t, "mail", "send"), rounds, env) {
		got = append(got, row{c.Hook.ID, c.OperationID, c.Occurrence, c.Err != nil})
		if c.Key != tasks.HookKey(c.Hook, c.Occurrence) || keys[c.Key] {
			t.Errorf("control %s of %s has the key %s", c.Hook.ID, c.OperationID, c.Key)
		}
		keys[c.Key] = true
	}
	want := []row{
		{ID: "a", Operation: "one"},
		{ID: "broken", Operation: "one", Failed: true},
		{ID: "a", Operation: "one", Occurrence: 1},
		{ID: "a", Operation: "three", Occurrence: 2},
		{ID: "m", Operation: "three"},
		{ID: environment},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("controls (-want +got):\n%s", diff)
	}
}

func TestSlowMatcherIsNoMismatch(t *testing.T) {
	t.Parallel()
	slow := matching(control("slow", tasks.PolicyBlock), `^(a+)+(?!b)\1c`)
	got := tasks.ControlsInForce(toolEvent(t, strings.Repeat("a", 5000), "x"), []tasks.ControlRound{{Hooks: []tasks.Hook{slow}}}, nil)
	if len(got) != 1 || !errors.Is(got[0].Err, tasks.ErrMatchTimeout) {
		t.Fatalf("controls: %v", got)
	}
}

func TestStrictestPolicy(t *testing.T) {
	t.Parallel()
	open, wide, closed := control("a", tasks.PolicyContinue), control("b", ""), control("c", tasks.PolicyBlock)
	for _, row := range []struct {
		hooks []tasks.Hook
		want  tasks.ErrorPolicy
	}{
		{nil, tasks.PolicyContinue},
		{[]tasks.Hook{open, wide}, tasks.PolicyContinue},
		{[]tasks.Hook{open, closed, wide}, tasks.PolicyBlock},
	} {
		controls := tasks.ControlsInForce(toolEvent(t, "a", "b"), []tasks.ControlRound{{Hooks: row.hooks}}, nil)
		if got := tasks.StrictestPolicy(controls); got != row.want || len(controls) != len(row.hooks) {
			t.Errorf("%d controls: policy %q, want %q", len(controls), got, row.want)
		}
	}
}
