package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// ErrorHookDenied is the error of every result that stands for a denied call.
const ErrorHookDenied = "hook_denied"

// stateBlocked is the type in the state of such a result. It is told to readers
// and never read back: a tool may write the same into its own state.
const stateBlocked = "blocked"

// usageNames are the counters that a denial may keep, in the order in which they
// are written.
var usageNames = [...]string{"totalCost", "totalInputTokens", "totalOutputTokens", "totalToolCalls", "totalTokens"}

// DeniedCall returns the result of a call that a beforeToolCall control blocked:
// it was not executed, and took no time (docs/behaviour.md §14).
func DeniedCall(reason string) ToolResult {
	var none float64
	return ToolResult{
		Content: reason, Error: ErrorHookDenied, ExecutionTime: &none,
		State: AppendObject(nil, []Member{text("type", stateBlocked), text("reason", reason)}),
	}
}

// Denial says what of a denied result survives beside its times and its stop.
// The zero value is right for every result that a tool built.
type Denial struct {
	// Reason is shown to the model.
	Reason string
	// Usage keeps the finite usage counters of the old state. Set it only for a
	// state that the server built from the usage of child runs.
	Usage bool
	// Finish writes onComplete: "finish", as deferred calls of a group have it.
	Finish bool
}

// Replace returns what stands in for old after an afterToolCall control denied
// it: nothing of its content, error, state and registration is left
// (docs/behaviour.md §15). old is not changed.
func (d Denial) Replace(old ToolResult) ToolResult {
	state := []Member{text("type", stateBlocked), text("phase", string(AfterToolCall)), text("reason", d.Reason)}
	if d.Usage {
		state = append(state, usage(old.State)...)
	}
	if d.Finish {
		state = append(state, text("onComplete", "finish"))
	}
	return ToolResult{
		Content: d.Reason, Error: ErrorHookDenied, State: AppendObject(nil, state),
		ExecutionTime: old.ExecutionTime, DeviceExecutionTime: old.DeviceExecutionTime, Stop: old.Stop,
	}
}

func text(key, value string) Member { return Member{Key: key, Value: AppendString(nil, value)} }

// usage returns the counters of a state that are finite numbers.
func usage(state json.RawMessage) []Member {
	last := map[string]json.RawMessage{}
	if eachMember(state, func(key []byte, value json.RawMessage) { last[decodeKey(key)] = value }) != nil {
		return nil
	}
	var kept []Member
	for _, name := range usageNames {
		if value, ok := last[name]; ok && isNumber(value) && finite(value) {
			kept = append(kept, Member{Key: name, Value: value})
		}
	}
	return kept
}

func finite(number json.RawMessage) bool {
	f, err := strconv.ParseFloat(string(number), 64)
	return err == nil && !math.IsInf(f, 0)
}

// ParseToolResult reads a result strictly: a JSON object with the fields of an
// afterToolCall event's result, of their types. Other fields are allowed and left
// out of the struct; an error that is no string becomes a json.RawMessage. An
// error is an *InvalidError. The result shares memory with raw.
func ParseToolResult(raw json.RawMessage) (ToolResult, error) {
	if !utf8.Valid(raw) {
		return ToolResult{}, notUTF8(raw)
	}
	last := make([]json.RawMessage, len(resultFields))
	// A result stands in an event, and that in a task.
	s := scanner{raw: raw, depth: enclosed + 1}
	if !s.object(func(key []byte, value json.RawMessage) {
		if i, ok := resultPlaces[decodeKey(key)]; ok {
			last[i] = value
		}
	}) {
		return ToolResult{}, s.invalid()
	}
	if err := checkFields(resultFields, last, ""); err != nil {
		return ToolResult{}, err
	}
	return readResult(last)
}

var resultPlaces = newSchema(resultFields).index

// readResult fills a result from checked values in the order of resultFields.
func readResult(last []json.RawMessage) (ToolResult, error) {
	var r ToolResult
	for i, f := range resultFields {
		if last[i] == nil {
			continue
		}
		if err := r.set(f.Name, last[i]); err != nil {
			return ToolResult{}, &InvalidError{
				Code: InvalidField, Path: f.Name, Message: f.Name + " is out of range", Fix: "send " + f.describe(),
			}
		}
	}
	return r, nil
}

func (r *ToolResult) set(field string, value json.RawMessage) error {
	switch field {
	case "content":
		r.Content = decodeString(value)
	case "state":
		r.State = value
	case "workRegistration":
		r.WorkRegistration = value
	case "error":
		r.Error = value
		if isString(value) {
			r.Error = decodeString(value)
		}
	default:
		return json.Unmarshal(value, map[string]any{
			"success": &r.Success, "executionTime": &r.ExecutionTime, "deviceExecutionTime": &r.DeviceExecutionTime,
			"stop": &r.Stop, "deferred": &r.Deferred,
		}[field])
	}
	return nil
}

// EncodeToolResult writes a result as it stands in events. An error wraps that of
// encoding/json for a value that JSON cannot hold, or is an *InvalidError.
func EncodeToolResult(r ToolResult) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	raw := json.RawMessage(bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}))
	if _, err := ParseToolResult(raw); err != nil {
		return nil, err
	}
	return raw, nil
}
