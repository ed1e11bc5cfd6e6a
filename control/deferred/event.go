package deferred

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gantry-hooks/gantry/tasks"
)

// build makes the afterToolCall event of the call with a result, from what was
// stored of it (docs/behaviour.md §16).
func (w *completing) build(result json.RawMessage) (*tasks.Event, error) {
	c, operation := w.row.Call, w.operation()
	members := []tasks.Member{
		text("toolCallId", c.ToolCallID),
		text("assistantMessageId", c.AssistantMessageID),
		text("identifier", c.Identifier),
		text("apiName", c.APIName),
		{Key: "args", Value: c.arguments()},
		number("callIndex", max(0, value(w.RecordedCalls, c.RecordedCalls))+1),
		number("stepIndex", max(0, value(w.Steps, c.Steps)-1)),
		text("operationId", operation),
		text("executor", string(tasks.ExecutorServer)),
	}
	for _, name := range slices.Sorted(maps.Keys(c.Context)) {
		members = append(members, text(name, c.Context[name]))
	}
	members = append(members, tasks.Member{Key: "mocked", Value: json.RawMessage(`false`)}, tasks.Member{Key: "result", Value: result})
	raw := tasks.AppendObject(nil, members)
	if operation == "" {
		// The event names no operation, because there is none; but the question needs
		// a place of its own.
		event, err := tasks.DecodeEvent(tasks.AfterToolCall, "deferred:"+tasks.OperationHash(w.ID), raw)
		return event, rebuilding(err)
	}
	event, err := tasks.ParseEvent(tasks.AfterToolCall, operation, raw)
	return event, rebuilding(err)
}

// operation is the last one that is asked: the callback's parent, if it has one.
func (w *completing) operation() string {
	if len(w.rounds) == 0 {
		return ""
	}
	return w.rounds[len(w.rounds)-1].operationID
}

func rebuilding(err error) error {
	if err != nil {
		return fmt.Errorf("rebuild call: %w", err)
	}
	return nil
}

// arguments returns the stored arguments if they are a JSON object that an event
// can hold, else an empty one.
func (c *Call) arguments() json.RawMessage {
	_, err := tasks.SplitObject([]byte(c.Arguments))
	// An event and a task around it.
	if err != nil || tasks.CheckJSON([]byte("[["+c.Arguments+"]]")) != nil {
		return json.RawMessage(`{}`)
	}
	return json.RawMessage(c.Arguments)
}

func text(key, value string) tasks.Member {
	return tasks.Member{Key: key, Value: tasks.AppendString(nil, value)}
}

func number(key string, n int) tasks.Member {
	return tasks.Member{Key: key, Value: strconv.AppendInt(nil, int64(n), 10)}
}

func value(override *int, n int) int {
	if override != nil {
		return *override
	}
	return n
}
