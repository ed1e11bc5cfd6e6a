package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

const (
	// maxChain bounds the operations of one question.
	maxChain = 32
	// maxQuestionTime bounds what a question may have.
	maxQuestionTime = time.Hour

	questionFix = "a question has type, event, id, chain, timeout and trace only"
)

// questionOf reads the question in a request's body.
func (a *API) questionOf(ctx context.Context, operationID, trace string) (Question, error) {
	raw, err := a.readBody(ctx)
	if err != nil {
		return Question{}, err
	}
	q, err := decodeQuestion(operationID, raw)
	if err != nil {
		return Question{}, err
	}
	if q.Trace == "" && validTrace(trace) {
		q.Trace = trace
	}
	return q, nil
}

// decodeQuestion reads {type, event, id, chain, timeout, trace}.
func decodeQuestion(operationID string, raw []byte) (Question, error) {
	var q Question
	if err := tasks.CheckJSON(raw); err != nil {
		return q, err
	}
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return q, err
	}
	var hookType, event json.RawMessage
	for _, m := range members {
		switch m.Key {
		case "type":
			hookType = m.Value
		case "event":
			event = m.Value
		case "chain":
			q.Chain, err = decodeChain(m.Value)
		case "id", "timeout", "trace":
			err = setQuestionText(&q, m)
		default:
			err = &tasks.InvalidError{Code: tasks.UnknownField, Path: m.Key, Message: "key is unknown", Fix: questionFix}
		}
		if err != nil {
			return q, err
		}
	}
	if q.ID == "" {
		q.ID = tasks.NewID()
	}
	q.Event, err = decodeToolEvent(operationID, hookType, event)
	return q, err
}

// decodeToolEvent reads the event of a phase that controls decide about.
func decodeToolEvent(operationID string, hookType, event json.RawMessage) (*tasks.Event, error) {
	name, err := text(hookType, "type")
	if err != nil {
		return nil, err
	}
	if !tasks.HookType(name).Controllable() {
		return nil, &tasks.InvalidError{
			Code: tasks.ControlEventType, Path: "type", Message: "controls decide about tool calls only", Fix: "send beforeToolCall or afterToolCall",
		}
	}
	if event == nil {
		return nil, &tasks.InvalidError{Code: tasks.MissingField, Path: "event", Message: "event is missing", Fix: "send the event object"}
	}
	parsed, err := tasks.ParseEvent(tasks.HookType(name), operationID, event)
	var fault *tasks.InvalidError
	if errors.As(err, &fault) {
		return nil, fault.Under("event")
	}
	return parsed, err
}

// setQuestionText reads one of the strings beside an event.
func setQuestionText(q *Question, m tasks.Member) error {
	value, err := text(m.Value, m.Key)
	if err != nil {
		return err
	}
	switch m.Key {
	case "id":
		q.ID = value
		return tasks.CheckTaskID(value)
	case "trace":
		q.Trace = value
		if !validTrace(value) {
			return &tasks.InvalidError{
				Code: CodeInvalidTrace, Path: "trace", Message: "trace is no W3C traceparent", Fix: "send a traceparent, or leave the key out",
			}
		}
	case "timeout":
		q.Timeout, err = time.ParseDuration(value)
		if err != nil || q.Timeout < time.Millisecond || q.Timeout > maxQuestionTime {
			return &tasks.InvalidError{
				Code: tasks.InvalidTimeout, Path: "timeout", Message: "timeout is no duration from 1ms to 1h", Fix: `send one like "30s"`,
			}
		}
	}
	return nil
}

// decodeChain reads [{operationId, hooks?}]. An empty chain is one: environment
// hooks alone are asked then.
func decodeChain(raw json.RawMessage) ([]ChainLink, error) {
	items, err := elements(raw, "chain")
	if err != nil {
		return nil, err
	}
	if len(items) > maxChain {
		return nil, newProblem(CodeBatchTooLarge, fmt.Sprintf("the chain holds more than the limit of %d operations", maxChain))
	}
	chain := make([]ChainLink, len(items))
	for i, item := range items {
		chain[i], err = decodeChainLink(item)
		var fault *tasks.InvalidError
		if errors.As(err, &fault) {
			return nil, fault.Under(fmt.Sprintf("chain[%d]", i))
		}
		if err != nil {
			return nil, err
		}
	}
	return chain, nil
}

func decodeChainLink(raw json.RawMessage) (ChainLink, error) {
	var link ChainLink
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return link, &tasks.InvalidError{Code: CodeInvalidRequest, Message: "is no object", Fix: "send operationId and, if wanted, hooks"}
	}
	var id json.RawMessage
	for _, m := range members {
		switch m.Key {
		case "operationId":
			id = m.Value
		case "hooks":
			if first(m.Value) != '[' {
				return link, &tasks.InvalidError{
					Code: CodeInvalidRequest, Path: "hooks", Message: "hooks is no array", Fix: "send an array, or leave the key out for the registered hooks",
				}
			}
			link.Hooks, err = decodeHooks(m.Value)
		default:
			err = &tasks.InvalidError{Code: tasks.UnknownField, Path: m.Key, Message: "key is unknown", Fix: "send operationId and hooks only"}
		}
		if err != nil {
			return link, err
		}
	}
	if link.OperationID, err = text(id, "operationId"); err != nil {
		return link, err
	}
	return link, tasks.CheckOperationID(link.OperationID)
}
