package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ParseEvent reads an event of type t strictly: a JSON object in valid UTF-8
// with every required field of EventSchema and no field of the wrong JSON type
// (an optional field is absent rather than null). Other fields are allowed.
// operationID is the operation it is dispatched on: an event that names another
// one is refused, one that names none gets it; "" takes the event's own.
// finalState and mock are cut out; all other bytes are kept. An error is an
// *InvalidError. The result does not share memory with raw.
func ParseEvent(t HookType, operationID string, raw []byte) (*Event, error) {
	if !t.Valid() {
		return nil, &InvalidError{Code: UnknownType, Path: "type", Message: "type is not known", Fix: typeFix}
	}
	fields := indexedSchemas[t]
	parts, err := splitEvent(raw, fields)
	if err != nil {
		return nil, err
	}
	parts.setOperation(operationID, fields)
	if err := checkFields(fields.fields, parts.last, ""); err != nil {
		return nil, err
	}
	own := decodeString(parts.last[fields.operation])
	if operationID != "" && own != operationID {
		return nil, &InvalidError{
			Code: OperationMismatch, Path: "operationId", Message: "event names another operation",
			Fix: "dispatch it on the operation that it names",
		}
	}
	if err := CheckOperationID(own); err != nil {
		return nil, err
	}
	ev := &Event{Type: t, OperationID: own, Raw: parts.write()}
	if fields.identifier >= 0 {
		ev.tool = toolNames(parts.last[fields.identifier], parts.last[fields.apiName])
	}
	return ev, nil
}

// DecodeEvent wraps an event that was stored before: raw must be a JSON object,
// and its fields are not looked at beyond the tool's names. The result shares
// memory with raw.
func DecodeEvent(t HookType, operationID string, raw []byte) (*Event, error) {
	var identifier, apiName json.RawMessage
	err := eachMember(raw, func(key []byte, value json.RawMessage) {
		switch decodeKey(key) {
		case "identifier":
			identifier = value
		case "apiName":
			apiName = value
		}
	})
	if err != nil {
		return nil, eventObject(err)
	}
	return &Event{Type: t, OperationID: operationID, Raw: raw, tool: toolNames(identifier, apiName)}, nil
}

func toolNames(identifier, apiName json.RawMessage) toolName {
	if identifier == nil || apiName == nil || !isString(identifier) || !isString(apiName) {
		return toolName{}
	}
	return toolName{full: decodeString(identifier) + "/" + decodeString(apiName), ok: true}
}

// eventObject tells a value that is no object from JSON that is broken.
func eventObject(err error) error {
	if fault := (*InvalidError)(nil); errors.As(err, &fault) && fault.Code == NotObject {
		return &InvalidError{Code: InvalidEvent, Message: "event is no object", Fix: "send a JSON object"}
	}
	return err
}

// eventParts is an event on its way into the queue.
type eventParts struct {
	raw []byte
	// last holds the last value of each field of the schema; nil means absent.
	last  []json.RawMessage
	spans []span
	// operation is the quoted id to insert; nil when the event has its own.
	operation []byte
	local     bool
}

// span is where a member stands in the raw event.
type span struct {
	start, end int
	local      bool
}

func splitEvent(raw []byte, fields *schema) (*eventParts, error) {
	if !utf8.Valid(raw) {
		return nil, notUTF8(raw)
	}
	parts := &eventParts{
		raw: raw, last: make([]json.RawMessage, len(fields.fields)), spans: make([]span, 0, 16),
	}
	s := scanner{raw: raw, depth: enclosed}
	whole := s.object(func(quoted []byte, value json.RawMessage) {
		key := decodeKey(quoted)
		if i, ok := fields.index[key]; ok {
			parts.last[i] = value
		}
		local := localField(key)
		parts.local = parts.local || local
		parts.spans = append(parts.spans, span{start: s.at - len(value) - s.lead, end: s.at, local: local})
	})
	if !whole {
		return nil, eventObject(s.invalid())
	}
	return parts, nil
}

// localField reports whether a field never leaves the process.
func localField(key string) bool { return key == "finalState" || key == "mock" }

func (p *eventParts) setOperation(id string, fields *schema) {
	if p.last[fields.operation] != nil || id == "" {
		return
	}
	p.operation = AppendString(nil, id)
	p.last[fields.operation] = p.operation
}

// write returns the event's own copy of its bytes. Local fields are cut out with
// one comma each, an operation is inserted at the front; every other byte stays.
func (p *eventParts) write() json.RawMessage {
	if p.operation == nil && !p.local {
		return slices.Clone(p.raw)
	}
	first := bytes.IndexByte(p.raw, '{') + 1
	end := first
	if len(p.spans) > 0 {
		first, end = p.spans[0].start, p.spans[len(p.spans)-1].end
	}
	out := append(make([]byte, 0, len(p.raw)+len(p.operation)+16), p.raw[:first]...)
	written := false
	if p.operation != nil {
		out = append(append(out, `"operationId":`...), p.operation...)
		written = true
	}
	for i, m := range p.spans {
		if m.local {
			continue
		}
		if written && i == 0 {
			out = append(out, ',')
		} else if written {
			out = append(out, p.raw[p.spans[i-1].end:m.start]...)
		}
		out = append(out, p.raw[m.start:m.end]...)
		written = true
	}
	return append(out, p.raw[end:]...)
}

// checkFields checks the values of an object's fields, in the order of the
// schema, so that the first message is stable.
func checkFields(fields []EventField, last []json.RawMessage, path string) error {
	for i := range fields {
		f, value := &fields[i], last[i]
		if value == nil {
			if f.Required {
				return &InvalidError{
					Code: MissingField, Path: path + f.Name, Message: f.Name + " is missing", Fix: "send " + f.describe(),
				}
			}
			continue
		}
		if err := checkField(f, value, path+f.Name); err != nil {
			return err
		}
	}
	return nil
}

func checkField(f *EventField, value json.RawMessage, path string) error {
	if !f.Kind.holds(value) {
		fix := "send " + f.describe()
		if !f.Required {
			fix += ", or leave the field out"
		}
		return &InvalidError{Code: InvalidField, Path: path, Message: f.Name + " has the wrong type", Fix: fix}
	}
	if f.Values != nil && !slices.Contains(f.Values, decodeString(value)) {
		return &InvalidError{Code: InvalidField, Path: path, Message: f.Name + " has an unknown value", Fix: "send " + f.describe()}
	}
	if f.Fields == nil {
		return nil
	}
	if f.Kind == KindObject {
		return checkFields(f.Fields, lastValues(f.Fields, value), path+".")
	}
	return checkItems(f, value, path)
}

func checkItems(f *EventField, value json.RawMessage, path string) error {
	var failed error
	index := 0
	s := scanner{raw: value}
	s.elements(func(item json.RawMessage) {
		place := fmt.Sprintf("%s[%d]", path, index)
		index++
		switch {
		case failed != nil:
		case !isObject(item):
			failed = &InvalidError{Code: InvalidField, Path: place, Message: "item is no object", Fix: "send an array of objects"}
		default:
			failed = checkFields(f.Fields, lastValues(f.Fields, item), place+".")
		}
	})
	return failed
}

// lastValues returns the values of fields in a valid object; the last duplicate
// wins, and nil means absent.
func lastValues(fields []EventField, value json.RawMessage) []json.RawMessage {
	last := make([]json.RawMessage, len(fields))
	_ = eachMember(value, func(quoted []byte, v json.RawMessage) {
		key := decodeKey(quoted)
		if i := slices.IndexFunc(fields, func(f EventField) bool { return f.Name == key }); i >= 0 {
			last[i] = v
		}
	})
	return last
}

func (k FieldKind) holds(value json.RawMessage) bool {
	switch k {
	case KindString:
		return isString(value)
	case KindNumber:
		return isNumber(value)
	case KindBoolean:
		return isBool(value)
	case KindObject:
		return isObject(value)
	case KindArray:
		return isArray(value)
	case KindAny:
		return !isNull(value)
	}
	return false
}

func (f *EventField) describe() string {
	if f.Values != nil {
		return strings.Join(f.Values, " or ")
	}
	return map[FieldKind]string{
		KindString: "a string", KindNumber: "a number", KindBoolean: "true or false", KindObject: "an object",
		KindArray: "an array", KindAny: "a value that is not null",
	}[f.Kind]
}
