package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// TypedEvent is an event as a Go struct: one of the event structs of this
// package. Optional fields are pointers (or any), so that false, 0 and "" are
// sent when they are set and nothing is sent when they are nil.
type TypedEvent interface {
	// HookType returns the type that the event is dispatched under.
	HookType() HookType
}

// NewEvent encodes a typed event and checks it as ParseEvent does. An error is
// an *InvalidError, or wraps that of encoding/json for a value that JSON cannot
// hold.
func NewEvent(v TypedEvent) (*Event, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	ev, err := ParseEvent(v.HookType(), "", bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}))
	if err != nil {
		return nil, err
	}
	if stateful, ok := v.(interface{ finalState() any }); ok {
		ev.FinalState = stateful.finalState()
	}
	return ev, nil
}

// DecodeAs reads ev into the struct T. Keys are matched exactly, unlike in
// encoding/json, and the last duplicate wins. An error is an *InvalidError: the
// struct is of another type, or a value does not fit its field.
func DecodeAs[T TypedEvent](ev *Event) (T, error) {
	var v T
	if step, ok := any(&v).(*StepEvent); ok && ev.Type.Family() == FamilyStep {
		step.Type, step.FinalState = ev.Type, ev.FinalState
	}
	if v.HookType() != ev.Type {
		return v, &InvalidError{
			Code: InvalidEvent, Message: fmt.Sprintf("event is a %s", ev.Type), Fix: "decode it into the struct of its type",
		}
	}
	if err := json.Unmarshal(ev.known(), &v); err != nil {
		return v, &InvalidError{Code: InvalidEvent, Message: "event does not fit its struct", Fix: "see docs/events.md"}
	}
	return v, nil
}

// known returns the event with the fields of its schema only.
func (e *Event) known() []byte {
	last := map[string]json.RawMessage{}
	if eachMember(e.Raw, func(key []byte, value json.RawMessage) { last[decodeKey(key)] = value }) != nil {
		return e.Raw
	}
	members := make([]Member, 0, len(last))
	for _, f := range EventSchema(e.Type) {
		if value, ok := last[f.Name]; ok {
			members = append(members, Member{Key: f.Name, Value: value})
		}
	}
	return AppendObject(nil, members)
}

// Field returns the value of a top-level field of the event, byte for byte; the
// last duplicate wins. The result shares memory with the event.
func (e *Event) Field(name string) (value json.RawMessage, ok bool) {
	_ = eachMember(e.Raw, func(key []byte, v json.RawMessage) {
		if decodeKey(key) == name {
			value, ok = v, true
		}
	})
	return value, ok
}
