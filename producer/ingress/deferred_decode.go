package ingress

import (
	"encoding/json"
	"errors"
	"strconv"

	"github.com/gantry-hooks/gantry/tasks"
)

// shape reads the members of an object, each by its own reader; what has none is
// unknown.
type shape map[string]func(m tasks.Member) error

func (s shape) read(raw []byte, fix string) error {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return err
	}
	for _, m := range members {
		read := s[m.Key]
		if read == nil {
			return &tasks.InvalidError{Code: tasks.UnknownField, Path: m.Key, Message: "key is unknown", Fix: fix}
		}
		if err := read(m); err != nil {
			return err
		}
	}
	return nil
}

// intoText reads a string.
func intoText(into *string) func(tasks.Member) error {
	return func(m tasks.Member) (err error) {
		*into, err = text(m.Value, m.Key)
		return err
	}
}

// intoCount reads a whole number of zero or more.
func intoCount(set func(int)) func(tasks.Member) error {
	return func(m tasks.Member) error {
		n, err := strconv.ParseUint(string(m.Value), 10, 31)
		if err != nil {
			return &tasks.InvalidError{Code: tasks.InvalidField, Path: m.Key, Message: m.Key + " is no whole number of zero or more", Fix: "send one"}
		}
		set(int(n))
		return nil
	}
}

// intoObject keeps a JSON object as it is.
func intoObject(into *json.RawMessage) func(tasks.Member) error {
	return func(m tasks.Member) error {
		if first(m.Value) != '{' {
			return &tasks.InvalidError{Code: tasks.InvalidField, Path: m.Key, Message: m.Key + " is no object", Fix: "send an object"}
		}
		*into = m.Value
		return nil
	}
}

// decodePlaceholder reads the body that opens a placeholder.
func decodePlaceholder(id string, raw []byte) (Placeholder, error) {
	p := Placeholder{ID: id}
	if err := tasks.CheckJSON(raw); err != nil {
		return p, err
	}
	err := shape{
		"operationId": intoText(&p.OperationID), "approvedFrom": intoText(&p.ApprovedFrom),
		"content": intoText(&p.Content), "bridge": intoText(&p.Bridge), "state": intoObject(&p.State),
		"call": func(m tasks.Member) error {
			call, err := decodeCall(m.Value)
			p.Call = call
			return under(err, "call")
		},
	}.read(raw, "a placeholder has operationId, approvedFrom, call, content, state and bridge only")
	return p, err
}

// decodeCall reads what is known of a call.
func decodeCall(raw json.RawMessage) (*DeferredCall, error) {
	var c DeferredCall
	err := shape{
		"toolCallId": intoText(&c.ToolCallID), "assistantMessageId": intoText(&c.AssistantMessageID),
		"identifier": intoText(&c.Identifier), "apiName": intoText(&c.APIName), "arguments": intoText(&c.Arguments),
		"recordedCalls": intoCount(func(n int) { c.RecordedCalls = n }), "steps": intoCount(func(n int) { c.Steps = n }),
		"context": func(m tasks.Member) error {
			members, err := tasks.SplitObject(m.Value)
			if err != nil {
				return &tasks.InvalidError{Code: tasks.InvalidField, Path: m.Key, Message: "context is no object", Fix: "send an object of strings"}
			}
			c.Context = make(map[string]string, len(members))
			for _, field := range members {
				if c.Context[field.Key], err = text(field.Value, field.Key); err != nil {
					return under(err, m.Key)
				}
			}
			return nil
		},
	}.read(raw, "a call has toolCallId, assistantMessageId, identifier, apiName, arguments, recordedCalls, steps and context only")
	return &c, err
}

// decodeCompletion reads the body of a callback.
func decodeCompletion(id string, raw []byte) (Completion, error) {
	c := Completion{ID: id}
	if err := tasks.CheckJSON(raw); err != nil {
		return c, err
	}
	count := func(into **int) func(tasks.Member) error { return intoCount(func(n int) { *into = &n }) }
	err := shape{
		"operationId": intoText(&c.OperationID), "bridge": intoText(&c.Bridge), "result": intoObject(&c.Result),
		"recordedCalls": count(&c.RecordedCalls), "steps": count(&c.Steps),
		"preserveUsage": func(m tasks.Member) error {
			if json.Unmarshal(m.Value, &c.PreserveUsage) != nil || string(m.Value) == "null" {
				return &tasks.InvalidError{Code: tasks.InvalidField, Path: m.Key, Message: "preserveUsage is neither true nor false", Fix: "send one of them"}
			}
			return nil
		},
		"trace": func(m tasks.Member) (err error) {
			if c.Trace, err = text(m.Value, m.Key); err == nil && !validTrace(c.Trace) {
				err = &tasks.InvalidError{
					Code: CodeInvalidTrace, Path: "trace", Message: "trace is no W3C traceparent", Fix: "send a traceparent, or leave the key out",
				}
			}
			return err
		},
	}.read(raw, "a completion has result, operationId, bridge, preserveUsage, recordedCalls, steps and trace only")
	if err == nil && c.Result == nil {
		err = &tasks.InvalidError{Code: tasks.MissingField, Path: "result", Message: "result is missing", Fix: "send the result object"}
	}
	return c, err
}

// under moves a refusal below path.
func under(err error, path string) error {
	var fault *tasks.InvalidError
	if errors.As(err, &fault) {
		return fault.Under(path)
	}
	return err
}
