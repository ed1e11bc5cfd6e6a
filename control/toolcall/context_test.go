package toolcall_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/tasks"
)

func known(s string) *string { return &s }

// everything knows each fact from each source, under the source's name.
func everything() toolcall.Facts {
	return toolcall.Facts{
		Call: toolcall.ModelCall{
			ID: "c1", Identifier: "mail", APIName: "send", Arguments: `{"to":"text"}`, Executor: tasks.ExecutorClient, Source: known("call"),
		},
		Runtime: toolcall.Runtime{
			OperationID: "op", StepIndex: 3, UserID: known("runtime"), TopicID: known("runtime"), WorkspaceID: known("runtime"), CanForwardToClient: true,
		},
		Run: toolcall.RunContext{
			CallIndex: 2, ParentMessageID: "m", ParsedArgs: json.RawMessage(`{"to":"parsed"}`), MessageID: known("run"), AgentID: known("run"),
			ThreadID: known("run"), GroupID: known("run"), TopicID: known("run"), WorkspaceID: known("run"),
			ToolMessageID: known("run"), ToolSource: known("run"),
		},
		Origin: toolcall.Origin{
			UserID: known("origin"), AgentID: known("origin"), ThreadID: known("origin"), GroupID: known("origin"), TopicID: known("origin"),
			WorkspaceID: known("origin"), SourceMessageID: known("origin"), SessionID: known("origin"), TaskID: known("origin"),
			DocumentID: known("origin"), ParentOperationID: known("origin"),
		},
		Plan:        &toolcall.Plan{Kind: toolcall.PlanDevice, Target: known("local")},
		BoundDevice: known("dev"),
	}
}

// TestBuildContext takes sources away one after the other.
func TestBuildContext(t *testing.T) {
	t.Parallel()
	required := tasks.ToolContext{
		ToolCallID: "c1", AssistantMessageID: "m", Identifier: "mail", APIName: "send", Args: json.RawMessage(`{"to":"parsed"}`),
		CallIndex: 2, StepIndex: 3, OperationID: "op", Executor: tasks.ExecutorClient,
	}
	with := func(change func(*tasks.ToolContext)) tasks.ToolContext {
		c := required
		change(&c)
		return c
	}
	for name, row := range map[string]struct {
		without func(*toolcall.Facts)
		want    tasks.ToolContext
	}{
		"everything is known": {
			without: func(*toolcall.Facts) {},
			want: with(func(c *tasks.ToolContext) {
				o := known("origin")
				c.UserID, c.AgentID, c.ThreadID, c.GroupID, c.TopicID, c.WorkspaceID = known("runtime"), o, o, o, o, o
				c.SourceMessageID, c.SessionID, c.TaskID, c.DocumentID, c.ParentOperationID = o, o, o, o, o
				c.ToolMessageID, c.ToolSource, c.ExecutionTarget, c.ActiveDeviceID = known("run"), known("run"), known("local"), known("dev")
			}),
		},
		"no origin, no tool source of the run": {
			without: func(f *toolcall.Facts) { f.Origin, f.Run.ToolSource = toolcall.Origin{}, nil },
			want: with(func(c *tasks.ToolContext) {
				r := known("run")
				c.UserID, c.AgentID, c.ThreadID, c.GroupID, c.TopicID, c.WorkspaceID = known("runtime"), r, r, r, r, r
				c.SourceMessageID, c.ToolMessageID, c.ToolSource = r, r, known("call")
				c.ExecutionTarget, c.ActiveDeviceID = known("local"), known("dev")
			}),
		},
		"the runtime only": {
			without: func(f *toolcall.Facts) {
				f.Origin, f.Plan, f.BoundDevice, f.Call.Source = toolcall.Origin{}, nil, nil, nil
				f.Run = toolcall.RunContext{CallIndex: 2, ParentMessageID: "m", ParsedArgs: f.Run.ParsedArgs}
			},
			want: with(func(c *tasks.ToolContext) {
				c.UserID, c.TopicID, c.WorkspaceID = known("runtime"), known("runtime"), known("runtime")
			}),
		},
		"the origin's user": {
			without: func(f *toolcall.Facts) {
				*f = toolcall.Facts{Call: f.Call, Runtime: f.Runtime, Run: f.Run, Origin: toolcall.Origin{UserID: known("origin")}}
				f.Runtime.UserID, f.Runtime.TopicID, f.Runtime.WorkspaceID, f.Call.Source = nil, nil, nil, nil
				f.Run = toolcall.RunContext{CallIndex: 2, ParentMessageID: "m", ParsedArgs: f.Run.ParsedArgs}
			},
			want: with(func(c *tasks.ToolContext) { c.UserID = known("origin") }),
		},
		"an empty string is known": {
			without: func(f *toolcall.Facts) {
				*f = toolcall.Facts{Call: f.Call, Runtime: f.Runtime, Run: f.Run, Origin: toolcall.Origin{AgentID: known("")}}
				f.Runtime.UserID, f.Runtime.TopicID, f.Runtime.WorkspaceID, f.Call.Source = nil, nil, nil, nil
				f.Run = toolcall.RunContext{CallIndex: 2, ParentMessageID: "m", ParsedArgs: f.Run.ParsedArgs, AgentID: known("run")}
			},
			want: with(func(c *tasks.ToolContext) { c.AgentID = known("") }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := everything()
			row.without(&facts)
			got := toolcall.BuildContext(facts)
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Errorf("context (-want +got):\n%s", diff)
			}
			event, err := tasks.NewEvent(tasks.BeforeToolCallEvent{ToolContext: got})
			if err != nil {
				t.Fatalf("no event: %v", err)
			}
			if strings.Contains(string(event.Raw), "null") {
				t.Errorf("event holds null: %s", event.Raw)
			}
		})
	}
}

func TestExecutor(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		asks    tasks.Executor
		forward bool
		want    tasks.Executor
	}{
		{tasks.ExecutorClient, true, tasks.ExecutorClient},
		{tasks.ExecutorClient, false, tasks.ExecutorServer},
		{tasks.ExecutorServer, true, tasks.ExecutorServer},
		{"", true, tasks.ExecutorServer},
		{"Client", true, tasks.ExecutorServer},
	} {
		facts := everything()
		facts.Call.Executor, facts.Runtime.CanForwardToClient = row.asks, row.forward
		if got := toolcall.BuildContext(facts).Executor; got != row.want {
			t.Errorf("asks %q, forward %t: %q, want %q", row.asks, row.forward, got, row.want)
		}
	}
}

func TestActiveDevice(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		plan      *toolcall.Plan
		forbidden bool
		want      bool
	}{
		"no plan":                        {want: true},
		"a device":                       {plan: &toolcall.Plan{Kind: toolcall.PlanDevice}, want: true},
		"a device that is not there":     {plan: &toolcall.Plan{Kind: toolcall.PlanDeviceUnrouted}, want: true},
		"a sandbox":                      {plan: &toolcall.Plan{Kind: "sandbox"}},
		"nothing":                        {plan: &toolcall.Plan{Kind: "none"}},
		"no kind":                        {plan: &toolcall.Plan{}},
		"a device, against the policy":   {plan: &toolcall.Plan{Kind: toolcall.PlanDevice}, forbidden: true},
		"no plan, but there is a policy": {forbidden: true},
	} {
		facts := everything()
		facts.Plan, facts.DeviceForbidden = row.plan, row.forbidden
		if got := toolcall.BuildContext(facts).ActiveDeviceID; (got != nil) != row.want {
			t.Errorf("%s: device %v, want %t", name, got, row.want)
		}
	}
}

func TestArgs(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ parsed, text, want string }{
		{"", `{"to":"a"}`, `{"to":"a"}`},
		{`{"to":"b"}`, `{"to":"a"}`, `{"to":"b"}`},
		{`{}`, `{"to":"a"}`, `{}`},
		{`null`, `{"to":"a"}`, `{"to":"a"}`},
		{`[1]`, `{"to":"a"}`, `{}`},
		{"", ``, `{}`},
		{"", `null`, `{}`},
		{"", `[{"to":"a"}]`, `{}`},
		{"", `"{}"`, `{}`},
		{"", `{"to":"a"`, `{}`},
		{"", `{"to":"a"} {}`, `{}`},
		{"", `{to:"a"}`, `{}`},
		{"", "{\"to\":\"\xff\"}", `{}`},
		{"", ` {"n":12345678901234567890} `, ` {"n":12345678901234567890} `},
	} {
		facts := everything()
		facts.Run.ParsedArgs, facts.Call.Arguments = json.RawMessage(row.parsed), row.text
		if row.parsed == "" {
			facts.Run.ParsedArgs = nil
		}
		got := toolcall.BuildContext(facts)
		if string(got.Args) != row.want {
			t.Errorf("parsed %s, text %s: %s, want %s", row.parsed, row.text, got.Args, row.want)
		}
		if _, err := tasks.NewEvent(tasks.BeforeToolCallEvent{ToolContext: got}); err != nil {
			t.Errorf("parsed %s, text %s: no event: %v", row.parsed, row.text, err)
		}
	}
}
