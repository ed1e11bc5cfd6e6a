package ingress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
)

// eventFix names the shape of an event in a body.
const eventFix = "an event has type, event, id, delay and trace only"

// traceparent is the W3C form, version 00 and later ones of the same length.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// validTrace reports whether s is a traceparent with ids that are not all zero.
func validTrace(s string) bool {
	return traceparent.MatchString(s) && s[:2] != "ff" && strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// eventsDecoder reads the events of one body. It collects every fault, one for
// each event, so that a caller repairs a batch in one go.
type eventsDecoder struct {
	operationID string
	// trace is the request's own, for events without one; "" means none.
	trace  string
	limit  int
	faults []*tasks.InvalidError
	events []producer.EventRequest
}

// decode reads one event, an array of events, {"events": [...]} or lines.
func (d *eventsDecoder) decode(raw []byte, kind bodyKind) ([]producer.EventRequest, error) {
	var err error
	if kind == bodyLines {
		err = d.decodeLines(raw)
	} else {
		err = d.decodeDocument(raw)
	}
	if err != nil {
		return nil, err
	}
	if len(d.faults) > 0 {
		return nil, &invalidBodyError{faults: d.faults}
	}
	return d.events, nil
}

func (d *eventsDecoder) decodeDocument(raw []byte) error {
	if err := tasks.CheckJSON(raw); err != nil {
		return err
	}
	switch first(raw) {
	case '[':
		return d.decodeArray(raw)
	case '{':
	default:
		return &tasks.InvalidError{
			Code: CodeInvalidRequest, Message: "body is neither an object nor an array",
			Fix: `send one event, an array of events, or {"events": [...]}`,
		}
	}
	list, found, err := listMember(raw, "events")
	if err != nil {
		return err
	}
	if found {
		return d.decodeArray(list)
	}
	d.add(raw, "")
	return nil
}

// decodeArray reads a value that is valid JSON.
func (d *eventsDecoder) decodeArray(raw []byte) error {
	items, err := elements(raw, "events")
	if err != nil {
		return err
	}
	if len(items) > d.limit {
		return tooManyEvents(d.limit)
	}
	for i, item := range items {
		d.add(item, fmt.Sprintf("events[%d]", i))
	}
	return nil
}

func (d *eventsDecoder) decodeLines(raw []byte) error {
	number, index := 0, 0
	for line := range bytes.Lines(raw) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if index == d.limit {
			return tooManyEvents(d.limit)
		}
		before := len(d.faults)
		d.add(line, fmt.Sprintf("events[%d]", index))
		if len(d.faults) > before {
			fault := d.faults[before]
			fault.Message = fmt.Sprintf("%s (line %d)", fault.Message, number)
		}
		index++
	}
	return nil
}

func tooManyEvents(limit int) error {
	return newProblem(CodeBatchTooLarge, fmt.Sprintf("the body holds more than the limit of %d events", limit))
}

// add reads one event; path is where it stands.
func (d *eventsDecoder) add(raw []byte, path string) {
	request, err := d.event(raw)
	var fault *tasks.InvalidError
	if errors.As(err, &fault) {
		if path != "" {
			fault = fault.Under(path)
		}
		d.faults = append(d.faults, fault)
		return
	}
	d.events = append(d.events, request)
}

// event reads {type, event, id, delay, trace}. An error is a *tasks.InvalidError.
func (d *eventsDecoder) event(raw []byte) (producer.EventRequest, error) {
	request := producer.EventRequest{Trace: d.trace}
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return request, notEvent(err)
	}
	var hookType, event json.RawMessage
	for _, m := range members {
		switch m.Key {
		case "type":
			hookType = m.Value
		case "event":
			event = m.Value
		case "id", "delay", "trace":
			err = setText(&request, m)
		default:
			err = &tasks.InvalidError{Code: tasks.UnknownField, Path: m.Key, Message: "key is unknown", Fix: eventFix}
		}
		if err != nil {
			return request, err
		}
	}
	name, err := text(hookType, "type")
	if err != nil {
		return request, err
	}
	if !tasks.HookType(name).Valid() {
		return request, &tasks.InvalidError{
			Code: tasks.UnknownType, Path: "type", Message: "type is not known", Fix: "send one of the hook types of docs/events.md",
		}
	}
	if event == nil {
		return request, &tasks.InvalidError{Code: tasks.MissingField, Path: "event", Message: "event is missing", Fix: "send the event object"}
	}
	request.Event, err = tasks.ParseEvent(tasks.HookType(name), d.operationID, event)
	var fault *tasks.InvalidError
	if errors.As(err, &fault) {
		return request, fault.Under("event")
	}
	return request, err
}

// notEvent tells an event that is no object.
func notEvent(err error) error {
	var fault *tasks.InvalidError
	if errors.As(err, &fault) && fault.Code == tasks.NotObject {
		return &tasks.InvalidError{Code: tasks.InvalidEvent, Message: "event is no object", Fix: eventFix}
	}
	return err
}

// setText reads one of the strings beside an event.
func setText(request *producer.EventRequest, m tasks.Member) error {
	value, err := text(m.Value, m.Key)
	if err != nil {
		return err
	}
	switch m.Key {
	case "id":
		request.ID = value
		return tasks.CheckTaskID(value)
	case "trace":
		request.Trace = value
		if !validTrace(value) {
			return &tasks.InvalidError{
				Code: CodeInvalidTrace, Path: "trace", Message: "trace is no W3C traceparent", Fix: "send a traceparent, or leave the key out",
			}
		}
	case "delay":
		request.Delay, err = time.ParseDuration(value)
		if err != nil || request.Delay < 0 {
			return &tasks.InvalidError{
				Code: CodeInvalidDelay, Path: "delay", Message: "delay is no duration of zero or more", Fix: `send one like "5s" or "1h30m"`,
			}
		}
	}
	return nil
}

// text decodes a JSON string; a key with another value, null included, is refused.
func text(value json.RawMessage, key string) (string, error) {
	if value == nil {
		return "", &tasks.InvalidError{Code: tasks.MissingField, Path: key, Message: key + " is missing", Fix: "send a string"}
	}
	var decoded string
	if value[0] != '"' || json.Unmarshal(value, &decoded) != nil {
		return "", &tasks.InvalidError{Code: tasks.InvalidField, Path: key, Message: key + " is no string", Fix: "send a string"}
	}
	return decoded, nil
}

// decodeHooks reads an array of hooks or {"hooks": [...]} by the rules of
// package tasks and returns their stored form (docs/behaviour.md §2).
func decodeHooks(raw []byte) (json.RawMessage, error) {
	if err := tasks.CheckJSON(raw); err != nil {
		return nil, err
	}
	if first(raw) == '{' {
		list, found, err := listMember(raw, "hooks")
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, &tasks.InvalidError{
				Code: tasks.MissingField, Path: "hooks", Message: "hooks is missing", Fix: `send an array of hooks, or {"hooks": [...]}`,
			}
		}
		raw = list
	}
	hooks, err := tasks.ParseHooks(raw, tasks.ParseOptions{Mode: tasks.ParseRegister})
	if err != nil {
		return nil, withoutHandler(raw, err)
	}
	return tasks.EncodeHooks(hooks)
}

// withoutHandler says of a hook with a handler only that it has no action: a
// handler is a function of a Go process, which HTTP cannot carry.
func withoutHandler(raw []byte, err error) error {
	var fault *tasks.InvalidError
	var index int
	if !errors.As(err, &fault) || fault.Code != tasks.InvalidHandler {
		return err
	}
	if _, scanErr := fmt.Sscanf(fault.Path, "hooks[%d].handler", &index); scanErr != nil {
		return err
	}
	items, listErr := elements(raw, "hooks")
	if listErr != nil || index >= len(items) {
		return err
	}
	members, _ := tasks.SplitObject(items[index])
	for _, m := range members {
		if m.Key == "webhook" {
			return err
		}
	}
	return &tasks.InvalidError{
		Code: tasks.NoAction, Path: fmt.Sprintf("hooks[%d]", index), Message: "hook has a handler only, which runs in a Go process",
		Fix: "give it a webhook",
	}
}

// listMember finds the list of an object that may hold nothing else beside it.
func listMember(raw []byte, key string) (list json.RawMessage, found bool, err error) {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return nil, false, err
	}
	unknown := ""
	for _, m := range members {
		if m.Key == key {
			list, found = m.Value, true
			continue
		}
		unknown = m.Key
	}
	if found && unknown != "" {
		return nil, false, &tasks.InvalidError{
			Code: tasks.UnknownField, Path: unknown, Message: "key is unknown", Fix: "send " + key + " only",
		}
	}
	return list, found, nil
}

// elements splits a valid JSON value that must be an array; the bytes of each
// element are kept.
func elements(raw []byte, path string) ([]json.RawMessage, error) {
	var items []json.RawMessage
	if first(raw) != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, &tasks.InvalidError{Code: CodeInvalidRequest, Path: path, Message: path + " is no array", Fix: "send an array"}
	}
	return items, nil
}

// first is the first byte of a JSON value.
func first(raw []byte) byte {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}
