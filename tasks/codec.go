package tasks

import (
	"encoding/json"
	"errors"
	"strconv"
)

// Encode returns the task document of wire version 1 (docs/wire.md). The bytes
// of Event and Hooks are written as they are, Extra after the known fields in
// the order of its keys. An error is an *InvalidError: the document would not be
// one that DecodeTask accepts.
func (t *Task) Encode() ([]byte, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	dst := make([]byte, 0, 192+len(t.ID)+len(t.OperationID)+len(t.Event)+len(t.Hooks))
	dst = append(dst, `{"v":1,"id":`...)
	dst = AppendString(dst, t.ID)
	dst = AppendString(appendKey(dst, "operationId"), t.OperationID)
	dst = AppendString(appendKey(dst, "type"), string(t.Type))
	dst = append(appendKey(dst, "event"), t.Event...)
	if t.Hooks != nil {
		dst = append(appendKey(dst, "hooks"), t.Hooks...)
	}
	dst = strconv.AppendInt(appendKey(dst, "enqueuedAt"), t.EnqueuedAt, 10)
	if t.Trace != "" {
		dst = AppendString(appendKey(dst, "trace"), t.Trace)
	}
	for _, key := range sortedKeys(t.Extra) {
		dst = append(AppendString(append(dst, ','), key), ':')
		dst = append(dst, t.Extra[key]...)
	}
	return append(dst, '}'), nil
}

// check refuses what DecodeTask would refuse.
func (t *Task) check() error {
	if err := CheckTaskID(t.ID); err != nil {
		return err
	}
	if err := CheckOperationID(t.OperationID); err != nil {
		return err
	}
	if !t.Type.Valid() {
		return taskFault("type", "type is not known", typeFix)
	}
	if checkJSON(t.Event, enclosed) != nil || firstByte(t.Event) != '{' {
		return taskFault("event", "event is no JSON object", "send a JSON object")
	}
	if t.Hooks != nil && (checkJSON(t.Hooks, enclosed) != nil || firstByte(t.Hooks) != '[') {
		return taskFault("hooks", "hooks are no JSON array", "send an array, or leave the field out")
	}
	for key, value := range t.Extra {
		if taskKey(key) || checkJSON(value, enclosed) != nil {
			return taskFault(key, "extra field is no JSON value or hides a known one", "leave the field out")
		}
	}
	return nil
}

func firstByte(raw []byte) byte {
	s := scanner{raw: raw}
	s.space()
	return s.peek()
}

func taskFault(field, message, fix string) error {
	return &InvalidError{Code: InvalidTask, Path: field, Message: message, Fix: fix}
}

func taskKey(key string) bool {
	switch key {
	case "v", "id", "operationId", "type", "event", "hooks", "enqueuedAt", "trace":
		return true
	}
	return false
}

// DecodeTask reads a task document. It is strict on the shape of the known
// fields, looks at neither the event's fields nor the hooks, and keeps unknown
// fields in Extra. An error is an *InvalidError: the document is poison and will
// never become a task. Raw fields share memory with raw.
func DecodeTask(raw []byte) (*Task, error) {
	d := taskDecoder{task: &Task{}}
	if err := eachMember(raw, d.member); err != nil {
		if fault := (*InvalidError)(nil); errors.As(err, &fault) && fault.Code == NotObject {
			return nil, taskFault("", "task is no object", "send a JSON object")
		}
		return nil, err
	}
	if err := d.finish(); err != nil {
		return nil, err
	}
	return d.task, nil
}

// taskDecoder collects the last value of each known field.
type taskDecoder struct {
	task                                        *Task
	version, id, operation, hookType, at, trace json.RawMessage
	event, hooks                                json.RawMessage
}

func (d *taskDecoder) member(quoted []byte, value json.RawMessage) {
	switch key := decodeKey(quoted); key {
	case "v":
		d.version = value
	case "id":
		d.id = value
	case "operationId":
		d.operation = value
	case "type":
		d.hookType = value
	case "event":
		d.event = value
	case "hooks":
		d.hooks = value
	case "enqueuedAt":
		d.at = value
	case "trace":
		d.trace = value
	default:
		if d.task.Extra == nil {
			d.task.Extra = map[string]json.RawMessage{}
		}
		d.task.Extra[key] = value
	}
}

func (d *taskDecoder) finish() error {
	if string(d.version) != "1" {
		return &InvalidError{Code: UnsupportedVersion, Path: "v", Message: "version is missing or not supported", Fix: "send 1"}
	}
	for _, f := range [...]struct {
		name  string
		value json.RawMessage
		holds bool
	}{
		{"id", d.id, d.id != nil && isString(d.id)},
		{"operationId", d.operation, d.operation != nil && isString(d.operation)},
		{"type", d.hookType, d.hookType != nil && isString(d.hookType)},
		{"event", d.event, d.event != nil && isObject(d.event)},
		{"hooks", d.hooks, d.hooks == nil || isArray(d.hooks)},
		{"enqueuedAt", d.at, d.at == nil || isNumber(d.at)},
		{"trace", d.trace, d.trace == nil || isString(d.trace)},
	} {
		if !f.holds {
			return taskFault(f.name, f.name+" is missing or has the wrong type", "see docs/wire.md")
		}
	}
	return d.decode()
}

func (d *taskDecoder) decode() error {
	t := d.task
	t.ID, t.OperationID = decodeString(d.id), decodeString(d.operation)
	t.Type = HookType(decodeKey(d.hookType))
	t.Event, t.Hooks = d.event, d.hooks
	if d.trace != nil {
		t.Trace = decodeString(d.trace)
	}
	if d.at != nil {
		at, err := strconv.ParseInt(string(d.at), 10, 64)
		if err != nil {
			return taskFault("enqueuedAt", "enqueuedAt is no whole number", "send Unix milliseconds")
		}
		t.EnqueuedAt = at
	}
	if err := CheckTaskID(t.ID); err != nil {
		return err
	}
	if err := CheckOperationID(t.OperationID); err != nil {
		return err
	}
	if !t.Type.Valid() {
		return taskFault("type", "type is not known", typeFix)
	}
	return nil
}
