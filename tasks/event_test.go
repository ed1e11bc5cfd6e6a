package tasks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/google/go-cmp/cmp"
)

// minimal holds the smallest valid event of each type.
var minimal = map[tasks.HookType]string{
	tasks.BeforeStep:                `{"agentId":"","operationId":"op","userId":"u"}`,
	tasks.AfterStep:                 `{"agentId":"a","operationId":"op","userId":"u"}`,
	tasks.OnComplete:                `{"agentId":"a","operationId":"op","userId":"u"}`,
	tasks.OnError:                   `{"agentId":"a","operationId":"op","userId":"u"}`,
	tasks.BeforeToolCall:            `{` + toolContext + `}`,
	tasks.AfterToolCall:             `{` + toolContext + `,"mocked":false,"result":{"content":"","success":false}}`,
	tasks.OnToolCallError:           `{` + toolContext + `,"error":""}`,
	tasks.BeforeHumanIntervention:   `{"operationId":"op","stepIndex":0,"pendingTools":[]}`,
	tasks.AfterHumanIntervention:    `{"operationId":"op","action":"rejectAndContinue"}`,
	tasks.OnStopByHumanIntervention: `{"operationId":"op"}`,
	tasks.BeforeCompact:             `{"operationId":"op","stepIndex":0,"messageCount":1,"tokenCount":2}`,
	tasks.AfterCompact:              `{"operationId":"op","stepIndex":0,"groupId":"g","messagesBefore":2,"messagesAfter":1,"summary":""}`,
	tasks.OnCompactError:            `{"operationId":"op","stepIndex":0,"tokenCount":2,"error":"e"}`,
	tasks.BeforeCallAgent:           `{"operationId":"op","agentId":"a","instruction":"i"}`,
	tasks.AfterCallAgent:            `{"operationId":"op","agentId":"a","subOperationId":"s","success":false}`,
	tasks.OnCallAgentError:          `{"operationId":"op","agentId":"a","error":"e"}`,
}

const toolContext = `"toolCallId":"c","assistantMessageId":"m","identifier":"mail","apiName":"send","args":{},` +
	`"callIndex":1,"stepIndex":0,"operationId":"op","executor":"server"`

func TestParseEventAcceptsTheSmallestOfEachType(t *testing.T) {
	t.Parallel()
	for _, hookType := range tasks.HookTypes() {
		ev, err := tasks.ParseEvent(hookType, "op", []byte(minimal[hookType]))
		if err != nil {
			t.Errorf("%s: %v", hookType, err)
			continue
		}
		if ev.Type != hookType || ev.OperationID != "op" || string(ev.Raw) != minimal[hookType] {
			t.Errorf("%s: got %s of %s: %s", hookType, ev.Type, ev.OperationID, ev.Raw)
		}
	}
}

// TestParseEventChecksEachField takes each field of each schema in turn: away
// when it is required, and replaced by null and by a value of another kind.
func TestParseEventChecksEachField(t *testing.T) {
	t.Parallel()
	wrong := map[tasks.FieldKind]string{
		tasks.KindString: `1`, tasks.KindNumber: `"1"`, tasks.KindBoolean: `0`, tasks.KindObject: `[]`, tasks.KindArray: `{}`, tasks.KindAny: `null`,
	}
	for _, hookType := range tasks.HookTypes() {
		for _, field := range tasks.EventSchema(hookType) {
			last := map[string]json.RawMessage{}
			if err := json.Unmarshal([]byte(minimal[hookType]), &last); err != nil {
				t.Fatal(err)
			}
			for _, bad := range []string{"null", wrong[field.Kind]} {
				last[field.Name] = json.RawMessage(bad)
				raw, err := json.Marshal(last)
				if err != nil {
					t.Fatal(err)
				}
				_, err = tasks.ParseEvent(hookType, "op", raw)
				if invalid := wantCode(t, err, tasks.InvalidField); invalid.Path != field.Name {
					t.Errorf("%s: path is %s, want %s", hookType, invalid.Path, field.Name)
				}
			}
			delete(last, field.Name)
			raw, err := json.Marshal(last)
			if err != nil {
				t.Fatal(err)
			}
			_, err = tasks.ParseEvent(hookType, "", raw)
			if !field.Required {
				if err != nil {
					t.Errorf("%s without %s: %v", hookType, field.Name, err)
				}
				continue
			}
			if invalid := wantCode(t, err, tasks.MissingField); invalid.Path != field.Name || invalid.Fix == "" {
				t.Errorf("%s without %s: %v", hookType, field.Name, err)
			}
		}
	}
}

func TestParseEventRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		why       string
		hookType  tasks.HookType
		operation string
		raw       string
		code      tasks.Reason
		path      string
	}{
		{"an unknown type", "BeforeStep", "op", `{}`, tasks.UnknownType, "type"},
		{"an array", tasks.OnError, "op", `[]`, tasks.InvalidEvent, ""},
		{"null", tasks.OnError, "op", `null`, tasks.InvalidEvent, ""},
		{"broken JSON", tasks.OnError, "op", `{"a":}`, tasks.InvalidJSON, ""},
		{"bad UTF-8", tasks.OnError, "op", "{\"a\":\"\xff\"}", tasks.InvalidUTF8, ""},
		{"another operation", tasks.OnStopByHumanIntervention, "other", `{"operationId":"op"}`, tasks.OperationMismatch, "operationId"},
		{"the last operation of two", tasks.OnStopByHumanIntervention, "op", `{"operationId":"op","operationId":"x"}`, tasks.OperationMismatch, "operationId"},
		{"an empty operation", tasks.OnStopByHumanIntervention, "", `{"operationId":""}`, tasks.InvalidOperationID, "operationId"},
		{"a control character", tasks.OnStopByHumanIntervention, "", `{"operationId":"a\u0000"}`, tasks.InvalidOperationID, "operationId"},
		{"a key in another case", tasks.OnCallAgentError, "op", `{"operationId":"op","agentId":"a","Error":"e"}`, tasks.MissingField, "error"},
		{"an unknown action", tasks.AfterHumanIntervention, "op", `{"operationId":"op","action":"Approve"}`, tasks.InvalidField, "action"},
		{
			"a member of the result", tasks.AfterToolCall, "op",
			`{` + toolContext + `,"mocked":false,"result":{"content":"","success":true,"stop":null}}`, tasks.InvalidField, "result.stop",
		},
		{
			"a pending tool", tasks.BeforeHumanIntervention, "op",
			`{"operationId":"op","stepIndex":0,"pendingTools":[{"identifier":"a","apiName":"b"},{"identifier":"a"}]}`,
			tasks.MissingField, "pendingTools[1].apiName",
		},
		{
			"a pending tool that is no object", tasks.BeforeHumanIntervention, "op",
			`{"operationId":"op","stepIndex":0,"pendingTools":[1]}`, tasks.InvalidField, "pendingTools[0]",
		},
	} {
		_, err := tasks.ParseEvent(row.hookType, row.operation, []byte(row.raw))
		if invalid := wantCode(t, err, row.code); invalid.Path != row.path {
			t.Errorf("%s: path is %q, want %q", row.why, invalid.Path, row.path)
		}
	}
}

func TestParseEventKeepsOtherBytes(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ why, raw, want string }{
		{"nothing to do", ` {"operationId" : "op", "n":1e400 } `, ` {"operationId" : "op", "n":1e400 } `},
		{"insert into an empty object", `{ }`, `{"operationId":"op" }`},
		{"insert at the front", `{ "n": 1 }`, `{ "operationId":"op","n": 1 }`},
		{"cut the first", `{"finalState":{"a":[1]}, "operationId":"op" , "n":1}`, `{"operationId":"op" , "n":1}`},
		{"cut in the middle", `{"operationId":"op" ,"mock":1, "n":1}`, `{"operationId":"op", "n":1}`},
		{"cut the last", "{\"operationId\":\"op\" , \"mock\":null\n}", "{\"operationId\":\"op\"\n}"},
		{"cut each duplicate", `{"mock":1,"operationId":"op","mock":2,"mock":3}`, `{"operationId":"op"}`},
		{"cut an escaped key", `{"\u006dock":1,"operationId":"op"}`, `{"operationId":"op"}`},
		{"cut all and insert", `{"mock":1,"finalState":2}`, `{"operationId":"op"}`},
		{"cut the first and insert", `{"mock":1, "n":2}`, `{"operationId":"op", "n":2}`},
		{"nested ones stay", `{"operationId":"op","x":{"mock":1}}`, `{"operationId":"op","x":{"mock":1}}`},
		{"duplicates and escapes stay", `{"operationId":"op","\u0061":1,"a":2}`, `{"operationId":"op","\u0061":1,"a":2}`},
	} {
		ev, err := tasks.ParseEvent(tasks.OnStopByHumanIntervention, "op", []byte(row.raw))
		if err != nil {
			t.Errorf("%s: %v", row.why, err)
			continue
		}
		if string(ev.Raw) != row.want {
			t.Errorf("%s: %s, want %s", row.why, ev.Raw, row.want)
		}
	}
}

func TestParseEventOwnsItsBytes(t *testing.T) {
	t.Parallel()
	raw := []byte(minimal[tasks.OnError])
	ev, err := tasks.ParseEvent(tasks.OnError, "op", raw)
	if err != nil {
		t.Fatal(err)
	}
	copy(raw, strings.Repeat("x", len(raw)))
	if string(ev.Raw) != minimal[tasks.OnError] {
		t.Fatalf("event changed with its source: %s", ev.Raw)
	}
}

func TestDecodeEventIsLenient(t *testing.T) {
	t.Parallel()
	ev, err := tasks.DecodeEvent(tasks.OnComplete, "op", []byte(`{"userId":null}`))
	if err != nil || ev.OperationID != "op" || ev.Type != tasks.OnComplete {
		t.Fatalf("DecodeEvent = %+v, %v", ev, err)
	}
	if value, ok := ev.Field("userId"); !ok || string(value) != "null" {
		t.Fatalf("Field = %s, %v", value, ok)
	}
	if _, ok := ev.Field("userid"); ok {
		t.Fatal("Field matches another case")
	}
	_, err = tasks.DecodeEvent(tasks.OnComplete, "op", []byte(`"text"`))
	wantCode(t, err, tasks.InvalidEvent)
}

func TestTypedEventsKeepZeroValuesThatAreSet(t *testing.T) {
	t.Parallel()
	zero, empty, no := 0.0, "", false
	steps := int64(0)
	state := struct{ secret string }{"s"}
	ev, err := tasks.NewEvent(tasks.StepEvent{
		Type: tasks.OnComplete, OperationID: "op", UserID: "<u&>", ShouldContinue: &no, Cost: &zero, ErrorMessage: &empty,
		Steps: &steps, ErrorDetail: false, FinalState: state,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"agentId":"","operationId":"op","userId":"<u&>","shouldContinue":false,"cost":0,"steps":0,"errorMessage":"","errorDetail":false}`
	if string(ev.Raw) != want {
		t.Fatalf("Raw = %s, want %s", ev.Raw, want)
	}
	if ev.FinalState != state {
		t.Fatalf("FinalState = %v, want %v", ev.FinalState, state)
	}
}

func TestTypedEventsMatchTheirSchema(t *testing.T) {
	t.Parallel()
	user := "u"
	tool := tasks.ToolContext{
		ToolCallID: "c", AssistantMessageID: "m", Identifier: "mail", APIName: "send", Args: json.RawMessage(`{"n":1.0}`),
		CallIndex: 1, OperationID: "op", Executor: tasks.ExecutorClient, UserID: &user,
	}
	for _, v := range []tasks.TypedEvent{
		tasks.StepEvent{Type: tasks.BeforeStep, OperationID: "op"},
		tasks.StepEvent{Type: tasks.AfterStep, OperationID: "op", Attachments: []tasks.Attachment{{Type: "image"}}},
		tasks.StepEvent{Type: tasks.OnComplete, OperationID: "op"},
		tasks.StepEvent{Type: tasks.OnError, OperationID: "op"},
		tasks.BeforeToolCallEvent{ToolContext: tool},
		tasks.AfterToolCallEvent{ToolContext: tool, Result: tasks.ToolResult{State: json.RawMessage(`{"a":1}`)}},
		tasks.ToolCallErrorEvent{ToolContext: tool},
		tasks.BeforeHumanInterventionEvent{OperationID: "op", PendingTools: []tasks.PendingTool{{Identifier: "a", APIName: "b"}}},
		tasks.AfterHumanInterventionEvent{OperationID: "op", Action: tasks.ActionApprove},
		tasks.StopByHumanInterventionEvent{OperationID: "op", UserID: &user},
		tasks.BeforeCompactEvent{OperationID: "op"},
		tasks.AfterCompactEvent{OperationID: "op"},
		tasks.CompactErrorEvent{OperationID: "op"},
		tasks.BeforeCallAgentEvent{OperationID: "op"},
		tasks.AfterCallAgentEvent{OperationID: "op"},
		tasks.CallAgentErrorEvent{OperationID: "op"},
	} {
		ev, err := tasks.NewEvent(v)
		if err != nil {
			t.Errorf("%s: %v", v.HookType(), err)
			continue
		}
		members, err := tasks.SplitObject(ev.Raw)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, field := range tasks.EventSchema(v.HookType()) {
			names[field.Name] = true
		}
		for _, m := range members {
			if !names[m.Key] {
				t.Errorf("%s: field %s is not in the schema", v.HookType(), m.Key)
			}
		}
	}
}

func TestDecodeAs(t *testing.T) {
	t.Parallel()
	ev, err := tasks.ParseEvent(tasks.AfterToolCall, "op", []byte(`{`+toolContext+`,"mocked":true,"Mocked":"x","result":{"content":"c","success":true,"executionTime":0}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := tasks.DecodeAs[tasks.AfterToolCallEvent](ev)
	if err != nil {
		t.Fatal(err)
	}
	zero := 0.0
	want := tasks.AfterToolCallEvent{
		ToolContext: tasks.ToolContext{
			ToolCallID: "c", AssistantMessageID: "m", Identifier: "mail", APIName: "send", Args: json.RawMessage(`{}`),
			CallIndex: 1, OperationID: "op", Executor: tasks.ExecutorServer,
		},
		Mocked: true,
		Result: tasks.ToolResult{Content: "c", Success: true, ExecutionTime: &zero},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("DecodeAs (-want +got):\n%s", diff)
	}
	_, err = tasks.DecodeAs[tasks.BeforeToolCallEvent](ev)
	wantCode(t, err, tasks.InvalidEvent)
	_, err = tasks.DecodeAs[tasks.StepEvent](ev)
	wantCode(t, err, tasks.InvalidEvent)

	ev, err = tasks.ParseEvent(tasks.OnError, "op", []byte(minimal[tasks.OnError]))
	if err != nil {
		t.Fatal(err)
	}
	ev.FinalState = 7
	step, err := tasks.DecodeAs[tasks.StepEvent](ev)
	if diff := cmp.Diff(tasks.StepEvent{Type: tasks.OnError, AgentID: "a", OperationID: "op", UserID: "u", FinalState: 7}, step); err != nil || diff != "" {
		t.Fatalf("DecodeAs: %v (-want +got):\n%s", err, diff)
	}
}
