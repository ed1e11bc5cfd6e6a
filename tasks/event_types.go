package tasks

import (
	"bytes"
	"encoding/json"
)

// TypedEvent is an event as a Go struct: one of the event types of this
// package. Optional fields are pointers, so that false, 0 and "" survive when
// they are set.
type TypedEvent interface {
	// HookType returns the type that the event is dispatched under.
	HookType() HookType
}

// NewEvent encodes a typed event and checks it as ParseEvent does. An error is
// an *InvalidError, or that of encoding/json for a value that JSON cannot hold.
func NewEvent(v TypedEvent) (*Event, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	ev, err := ParseEvent(v.HookType(), "", bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}))
	if err != nil {
		return nil, err
	}
	if step, ok := v.(StepEvent); ok {
		ev.FinalState = step.FinalState
	}
	return ev, nil
}

// StepEvent is the one shape of beforeStep, afterStep, onComplete and onError
// (docs/behaviour.md §1.1).
type StepEvent struct {
	// Type is one of the four types that share the shape.
	Type HookType `json:"-"`

	AgentID     string  `json:"agentId"`
	OperationID string  `json:"operationId"`
	UserID      string  `json:"userId"`
	TopicID     *string `json:"topicId,omitempty"`

	StepIndex      *int    `json:"stepIndex,omitempty"`
	StepType       *string `json:"stepType,omitempty"`
	StepLabel      *string `json:"stepLabel,omitempty"`
	ShouldContinue *bool   `json:"shouldContinue,omitempty"`

	FinalState any `json:"-"`
}

// HookType returns e.Type.
func (e StepEvent) HookType() HookType { return e.Type }

// ToolResult is what a tool call came to (docs/behaviour.md §1.2).
type ToolResult struct {
	// Content is what the model reads, Success whether the call succeeded.
	Content string `json:"content"`
	Success bool   `json:"success"`
	// ExecutionTime and DeviceExecutionTime are in milliseconds.
	ExecutionTime       *float64 `json:"executionTime,omitempty"`
	DeviceExecutionTime *float64 `json:"deviceExecutionTime,omitempty"`
	// Error is whatever is known of the failure; nil means absent.
	Error any `json:"error,omitempty"`
	// State is the tool's own state object; nil means absent.
	State json.RawMessage `json:"state,omitempty"`
	// Stop asks the run to stop; Deferred says that the real result comes later.
	Stop     *bool `json:"stop,omitempty"`
	Deferred *bool `json:"deferred,omitempty"`
	// WorkRegistration is an object; nil means absent.
	WorkRegistration json.RawMessage `json:"workRegistration,omitempty"`
}
