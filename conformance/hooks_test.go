package conformance_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
)

// hookMember reads what the harness must know of a raw hook; everything
// else about it is for the product's parser.
func hookMember(raw json.RawMessage, key string) json.RawMessage {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return nil
	}
	for _, m := range slices.Backward(members) {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}

func hookID(raw json.RawMessage) string {
	var id string
	if json.Unmarshal(hookMember(raw, "id"), &id) != nil {
		return ""
	}
	return id
}

// named gives each function of a list its own name, because a handler is not
// told for which hook it runs. isHandler picks the values that stand for one,
// and build makes it. Everything else stays as it is, valid or not.
func named(
	list json.RawMessage, isHandler func(json.RawMessage) bool, build func(id string, value json.RawMessage) tasks.Handler,
) (json.RawMessage, map[string]tasks.Handler) {
	var hooks []json.RawMessage
	if json.Unmarshal(list, &hooks) != nil || hooks == nil {
		return list, nil
	}
	handlers := map[string]tasks.Handler{}
	for i, hook := range hooks {
		members, err := tasks.SplitObject(hook)
		if err != nil {
			continue
		}
		for j, m := range members {
			if m.Key != "handler" || !isHandler(m.Value) {
				continue
			}
			name := "$fn" + strconv.Itoa(i)
			handlers[name] = build(hookID(hook), m.Value)
			members[j].Value = tasks.AppendString(nil, name)
		}
		hooks[i] = tasks.AppendObject(nil, members)
	}
	return joinArray(hooks), handlers
}

// isFunction recognises the sign for a local function.
func isFunction(value json.RawMessage) bool { return string(value) == `"$fn"` }

func joinArray(items []json.RawMessage) json.RawMessage {
	parts := make([][]byte, len(items))
	for i, item := range items {
		parts[i] = item
	}
	return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
}

// environmentHooks builds hooks of the deployment from their JSON. The parser
// rightly drops their ids, so they pass it under others.
func (r *run) environmentHooks(list []json.RawMessage) []tasks.Hook {
	renamed := make([]json.RawMessage, len(list))
	for i, hook := range list {
		renamed[i] = r.withMember(hook, "id", tasks.AppendString(nil, "environment"))
	}
	hooks, err := tasks.ParseHooks(joinArray(renamed), tasks.ParseOptions{Mode: tasks.ParseRestore})
	if err != nil {
		r.fatalf("harness cannot build the environment's hooks: %v", err)
	}
	for i := range hooks {
		hooks[i].ID = hookID(list[i])
		if !hooks[i].Environment() {
			r.notUnderstood("environment hook", strconv.Quote(hooks[i].ID))
		}
	}
	return hooks
}

// withMember sets a member of a JSON object.
func (r *run) withMember(raw json.RawMessage, key string, value json.RawMessage) json.RawMessage {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		r.fatalf("harness does not understand the object %s: %v", raw, err)
	}
	members = slices.DeleteFunc(members, func(m tasks.Member) bool { return m.Key == key })
	return tasks.AppendObject(nil, append(members, tasks.Member{Key: key, Value: value}))
}

// hookJSON is a hook as it would be shown. The encoder leaves out hooks of the
// environment, so they pass it under another id.
func (r *run) hookJSON(hook tasks.Hook) json.RawMessage {
	id := hook.ID
	hook.ID = "hook"
	list, err := tasks.EncodeHooks([]tasks.Hook{hook})
	if err != nil {
		r.fatalf("encode hook %q: %v", id, err)
	}
	return r.withMember(list[1:len(list)-1], "id", tasks.AppendString(nil, id))
}

func ids(hooks []tasks.Hook) []string {
	names := make([]string, len(hooks))
	for i := range hooks {
		names[i] = hooks[i].ID
	}
	return names
}

// rejection returns the product's reason for a refusal.
func rejection(err error) (tasks.Reason, bool) {
	var invalid *tasks.InvalidError
	if errors.As(err, &invalid) {
		return invalid.Code, true
	}
	return "", false
}

// variablesOf returns the variables that an error about the environment names.
func variablesOf(err error) ([]string, bool) {
	var invalid *config.EnvironmentHooksError
	if errors.As(err, &invalid) {
		return invalid.Variables, true
	}
	return nil, false
}

// sampleEvent is an event of a type with its required fields only.
func (r *run) sampleEvent(t tasks.HookType, operationID string) *tasks.Event {
	raw := sampleObject(tasks.EventSchema(t))
	raw = r.withMember(raw, "operationId", tasks.AppendString(nil, operationID))
	event, err := tasks.ParseEvent(t, operationID, raw)
	if err != nil {
		r.fatalf("harness cannot make an event of type %s: %v", t, err)
	}
	return event
}

func sampleObject(fields []tasks.EventField) json.RawMessage {
	var members []tasks.Member
	for _, f := range fields {
		if f.Required {
			members = append(members, tasks.Member{Key: f.Name, Value: sampleValue(f)})
		}
	}
	return tasks.AppendObject(nil, members)
}

func sampleValue(f tasks.EventField) json.RawMessage {
	switch f.Kind {
	case tasks.KindString:
		if len(f.Values) > 0 {
			return tasks.AppendString(nil, f.Values[0])
		}
		return json.RawMessage(`"x"`)
	case tasks.KindNumber:
		return json.RawMessage(`1`)
	case tasks.KindBoolean:
		return json.RawMessage(`true`)
	case tasks.KindArray:
		return json.RawMessage(`[]`)
	case tasks.KindObject:
		return sampleObject(f.Fields)
	default:
		panic(fmt.Sprintf("no sample of kind %s", f.Kind))
	}
}
