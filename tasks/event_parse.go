package tasks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	object, err := splitEvent(raw)
	if err != nil {
		return nil, err
	}
	object.setOperation(operationID)
	if err := checkFields(EventSchema(t), object.last, ""); err != nil {
		return nil, err
	}
	own := decodeString(object.last["operationId"])
	if operationID != "" && own != operationID {
		return nil, &InvalidError{
			Code: OperationMismatch, Path: "operationId", Message: "event names another operation",
			Fix: "dispatch it on the operation that it names",
		}
	}
	if err := CheckOperationID(own); err != nil {
		return nil, err
	}
	return &Event{Type: t, OperationID: own, Raw: object.write(), tool: toolOf(object.last)}, nil
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

func toolOf(last map[string]json.RawMessage) toolName {
	return toolNames(last["identifier"], last["apiName"])
}

func toolNames(identifier, apiName json.RawMessage) toolName {
	if identifier == nil || apiName == nil || !isString(identifier) || !isString(apiName) {
		return toolName{}
	}
	return toolName{full: decodeString(identifier) + "/" + decodeString(apiName), ok: true}
}

// eventObject tells a value that is no object from JSON that is broken.
func eventObject(err error) error {
	if fault, ok := err.(*InvalidError); ok && fault.Code == NotObject { //nolint:errorlint // made here, never wrapped
		return &InvalidError{Code: InvalidEvent, Message: "event is no object", Fix: "send a JSON object"}
	}
	return err
}

// eventObjectParts is an event on its way into the queue.
type eventParts struct {
	raw       []byte
	members   []Member
	last      map[string]json.RawMessage
	operation string
	local     bool
}

func splitEvent(raw []byte) (*eventParts, error) {
	members, err := SplitObject(raw)
	if err != nil {
		return nil, eventObject(err)
	}
	parts := &eventParts{raw: raw, members: members, last: make(map[string]json.RawMessage, len(members))}
	for _, m := range members {
		parts.last[m.Key] = m.Value
		parts.local = parts.local || localField(m.Key)
	}
	return parts, nil
}

// localField reports whether a field never leaves the process.
func localField(key string) bool { return key == "finalState" || key == "mock" }

func (p *eventParts) setOperation(id string) {
	if _, named := p.last["operationId"]; named || id == "" {
		return
	}
	p.operation = id
	p.last["operationId"] = AppendString(nil, id)
}

// write returns the event's bytes. What is not cut or added is copied as it
// is, except for white space between members when something was cut.
func (p *eventParts) write() json.RawMessage {
	if p.operation == "" && !p.local {
		return slices.Clone(p.raw)
	}
	members := make([]Member, 0, len(p.members)+1)
	if p.operation != "" {
		members = append(members, Member{Key: "operationId", Value: p.last["operationId"]})
	}
	for _, m := range p.members {
		if !localField(m.Key) {
			members = append(members, m)
		}
	}
	return AppendObject(make([]byte, 0, len(p.raw)+len(p.operation)+20), members)
}

// checkFields checks the last values of an object's members. Faults are looked
// for in the order of the schema, so that the first message is stable.
func checkFields(fields []EventField, last map[string]json.RawMessage, path string) error {
	for i := range fields {
		f := &fields[i]
		value, present := last[f.Name]
		if !present {
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
		return checkFields(f.Fields, lastMembers(value), path+".")
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
			failed = checkFields(f.Fields, lastMembers(item), place+".")
		}
	})
	return failed
}

// lastMembers returns the members of a valid object; the last duplicate wins.
func lastMembers(value json.RawMessage) map[string]json.RawMessage {
	last := map[string]json.RawMessage{}
	_ = eachMember(value, func(key []byte, v json.RawMessage) { last[decodeKey(key)] = v })
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
