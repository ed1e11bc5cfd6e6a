package enrich

import (
	"encoding/json"
	"slices"

	"github.com/gantry-hooks/gantry/tasks"
)

// The keys of a tool result that redaction looks at (docs/behaviour.md §10).
const (
	keyWorkRegistration = "workRegistration"
	keyType             = "type"
	keyArgs             = "args"
	keyData             = "data"
)

// registrationSkill is the kind of work registration that holds the raw
// arguments and data of a call.
const registrationSkill = "skill"

var null = json.RawMessage("null")

// redactResult takes args out of a skill's work registration in the result and
// sets its data to null. Every other value keeps its bytes, and so does a
// result without such a registration.
func (o *object) redactResult() error {
	result, ok, err := splitNested(o.find(keyResult))
	if !ok || err != nil {
		return err
	}
	at := lastOf(result, keyWorkRegistration)
	if at < 0 {
		return nil
	}
	registration, ok, err := splitNested(result[at].Value)
	if !ok || err != nil {
		return err
	}
	kind := lastOf(registration, keyType)
	if kind < 0 || text(registration[kind].Value) != registrationSkill {
		return nil
	}
	result[at].Value = tasks.AppendObject(nil, redactSkill(registration))
	o.set(keyResult, tasks.AppendObject(nil, keepLast(result, keyWorkRegistration)))
	return nil
}

func redactSkill(registration []tasks.Member) []tasks.Member {
	registration = slices.DeleteFunc(registration, func(m tasks.Member) bool { return m.Key == keyArgs })
	registration = keepLast(registration, keyData)
	if at := lastOf(registration, keyData); at >= 0 {
		registration[at].Value = null
		return registration
	}
	return append(registration, tasks.Member{Key: keyData, Value: null})
}

// splitNested returns the members of raw in their order; ok is false when raw
// is no object.
func splitNested(raw json.RawMessage) (members []tasks.Member, ok bool, err error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, false, nil
	}
	members, err = tasks.SplitObject(raw)
	return members, err == nil, err
}

func lastOf(members []tasks.Member, key string) int {
	for i := len(members) - 1; i >= 0; i-- {
		if members[i].Key == key {
			return i
		}
	}
	return -1
}

// keepLast drops the earlier duplicates of key. A JSON parser would not see
// them, but a reader of the bytes could find there what was redacted.
func keepLast(members []tasks.Member, key string) []tasks.Member {
	last := lastOf(members, key)
	i := -1
	return slices.DeleteFunc(members, func(m tasks.Member) bool {
		i++
		return i < last && m.Key == key
	})
}
