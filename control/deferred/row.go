package deferred

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/gantry-hooks/gantry/tasks"
)

// Placeholder is a tool message that waits for its result.
type Placeholder struct {
	// ID names the placeholder, by the rule of tasks.CheckTaskID. Required.
	ID string `json:"id"`
	// OperationID is the operation of the call. A callback that names no parent
	// operation is taken to mean this one; "" means that there is none.
	OperationID string `json:"operationId,omitempty"`
	// ApprovedFrom is the operation that the human approval recorded on the call; its
	// controls are asked first. "" means that nobody had to approve.
	ApprovedFrom string `json:"approvedFrom,omitempty"`
	// Call is what controls are told about the call. Without it only a result that no
	// control is configured for can be published.
	Call *Call `json:"call,omitempty"`
	// Content is what the message holds already. Anything but "" is final.
	Content string `json:"content,omitempty"`
	// State is the message's state as a JSON object; nil means absent. It is never a
	// verdict, whatever it says. A call of a group has onComplete: "finish" in it.
	State json.RawMessage `json:"state,omitempty"`
	// Bridge names the completion bridge of a sub-agent or a group's member that owns
	// the message: then it alone may complete it. "" means that anybody may.
	Bridge string `json:"bridge,omitempty"`
}

// Call is what is needed to tell a control about a call that was made earlier
// (docs/behaviour.md §16).
type Call struct {
	// ToolCallID is the call's native id, AssistantMessageID the message that asked
	// for it. Without one of these four the call cannot be rebuilt.
	ToolCallID         string `json:"toolCallId,omitempty"`
	AssistantMessageID string `json:"assistantMessageId,omitempty"`
	Identifier         string `json:"identifier,omitempty"`
	APIName            string `json:"apiName,omitempty"`
	// Arguments is the text of the arguments as it was stored. Anything but a JSON
	// object counts as an empty one.
	Arguments string `json:"arguments,omitempty"`
	// RecordedCalls is the number of recorded calls of this tool in the operation;
	// the call's own index is one more.
	RecordedCalls int `json:"recordedCalls,omitempty"`
	// Steps is the number of steps that the operation has made.
	Steps int `json:"steps,omitempty"`
	// Context holds further fields of the event by name, such as userId or topicId:
	// any optional text of an afterToolCall event.
	Context map[string]string `json:"context,omitempty"`
}

// Opening is a placeholder on its way into the store.
type Opening struct {
	Placeholder
	// Recorded is kept with a new row, and is no part of what makes it the same one.
	Recorded map[string]json.RawMessage
}

// Row is how a placeholder stands.
type Row struct {
	Placeholder
	// Recorded holds, by operation, the result controls that were in force when the
	// row was opened, as arrays of serialized hooks. They count when nobody knows the
	// operation any more.
	Recorded map[string]json.RawMessage
	// Final says that Result will never change again.
	Final bool
	// Denied says that Result stands in for one that a control denied.
	Denied bool
	// Result is the final result as a JSON object; nil while the row is open. A row
	// that was opened with content has nothing but content and state.
	Result json.RawMessage
	// OpenedAt and SettledAt are times of the store's clock; SettledAt is zero while
	// the row is open.
	OpenedAt, SettledAt time.Time
}

// Document returns what a reader of the message sees: the result, or the
// placeholder's own content and state.
func (r *Row) Document() json.RawMessage {
	if r.Result != nil {
		return r.Result
	}
	return r.Placeholder.Document()
}

// Document returns content and state as a JSON object.
func (p *Placeholder) Document() json.RawMessage {
	members := []tasks.Member{{Key: "content", Value: tasks.AppendString(nil, p.Content)}}
	if p.State != nil {
		members = append(members, tasks.Member{Key: "state", Value: p.State})
	}
	return tasks.AppendObject(nil, members)
}

// rebuildable reports whether a control can be told about the call.
func (c *Call) rebuildable() bool {
	return c != nil && c.ToolCallID != "" && c.AssistantMessageID != "" && c.Identifier != "" && c.APIName != ""
}

// check refuses a placeholder that could not be stored or told about, and
// returns it in the form in which it is stored.
func (p Placeholder) check() (Placeholder, error) {
	if err := tasks.CheckTaskID(p.ID); err != nil {
		return p, err
	}
	for path, id := range map[string]string{"operationId": p.OperationID, "approvedFrom": p.ApprovedFrom} {
		if err := checkOperation(id, path); err != nil {
			return p, err
		}
	}
	if !utf8.ValidString(p.Content) || !utf8.ValidString(p.Bridge) {
		return p, &tasks.InvalidError{Code: tasks.InvalidUTF8, Message: "content or bridge is not valid UTF-8"}
	}
	if err := checkState(p.State); err != nil {
		return p, err
	}
	// What is left of the raw bytes must not depend on how they were spaced, or the
	// same placeholder would look like another one.
	p.State = compact(p.State)
	call, err := p.Call.check()
	p.Call = call
	return p, err
}

// checkOperation refuses what no operation can be called; "" means none.
func checkOperation(id, path string) error {
	if id == "" {
		return nil
	}
	if err := tasks.CheckOperationID(id); err != nil {
		return refused(err, path)
	}
	return nil
}

func checkState(state json.RawMessage) error {
	if state == nil {
		return nil
	}
	if _, err := tasks.SplitObject(state); err != nil {
		return refused(err, "state")
	}
	return nil
}

func (c *Call) check() (*Call, error) {
	if c == nil {
		return nil, nil
	}
	checked := *c
	if !utf8.ValidString(c.Arguments) {
		// No JSON, which counts as an empty object; a repaired text might count.
		checked.Arguments = ""
	}
	if c.RecordedCalls < 0 {
		return nil, &tasks.InvalidError{Code: tasks.InvalidField, Path: "call.recordedCalls", Message: "number of recorded calls is negative"}
	}
	for _, text := range []string{c.ToolCallID, c.AssistantMessageID, c.Identifier, c.APIName} {
		if !utf8.ValidString(text) {
			return nil, &tasks.InvalidError{Code: tasks.InvalidUTF8, Path: "call", Message: "name is not valid UTF-8"}
		}
	}
	for name, value := range c.Context {
		if !contextField(name) || !utf8.ValidString(value) {
			return nil, &tasks.InvalidError{
				Code: tasks.InvalidField, Path: "call.context", Message: fmt.Sprintf("%q cannot be told", name),
				Fix: "name optional texts of an afterToolCall event, see docs/events.md",
			}
		}
	}
	return &checked, nil
}

// contextField reports whether an optional text of a tool event has this name.
func contextField(name string) bool {
	for _, f := range tasks.EventSchema(tasks.AfterToolCall) {
		if f.Name == name {
			return !f.Required && f.Kind == tasks.KindString
		}
	}
	return false
}

func compact(raw json.RawMessage) json.RawMessage {
	var buf bytes.Buffer
	if raw == nil || json.Compact(&buf, raw) != nil {
		return raw
	}
	return buf.Bytes()
}
