package conformance_test

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/tasks"
)

type toolContextCase struct {
	common
	Call         json.RawMessage            `json:"call"`
	Runtime      json.RawMessage            `json:"runtime"`
	Context      json.RawMessage            `json:"context"`
	Origin       json.RawMessage            `json:"origin"`
	Plan         json.RawMessage            `json:"plan"`
	BoundDevice  *string                    `json:"bound_device"`
	DevicePolicy json.RawMessage            `json:"device_policy"`
	Expect       map[string]json.RawMessage `json:"expect"`
	ExpectAbsent []string                   `json:"expect_absent"`
}

// runToolContext builds the context with the product and looks at it in each of
// the three events, as receivers get them.
func runToolContext(r *run) {
	var c toolContextCase
	r.decode(&c)
	fields := tasks.EventSchema(tasks.BeforeToolCall)
	for _, name := range slices.Concat(keysOf(c.Expect), c.ExpectAbsent) {
		if !slices.ContainsFunc(fields, func(f tasks.EventField) bool { return f.Name == name }) {
			r.notUnderstood("field", strconv.Quote(name))
		}
	}
	built := toolcall.BuildContext(r.facts(&c))
	for _, typed := range []tasks.TypedEvent{
		tasks.BeforeToolCallEvent{ToolContext: built},
		tasks.AfterToolCallEvent{ToolContext: built},
		tasks.ToolCallErrorEvent{ToolContext: built},
	} {
		event, err := tasks.NewEvent(typed)
		if err != nil {
			r.fatalf("build the event: %v", err)
		}
		for name, want := range c.Expect {
			got, ok := event.Field(name)
			if !ok {
				r.problemf("%s lacks %s", event.Type, name)
				continue
			}
			r.equalJSON(name, want, got)
		}
		for _, name := range c.ExpectAbsent {
			if got, ok := event.Field(name); ok {
				r.problemf("%s has %s: %s", event.Type, name, got)
			}
		}
	}
}

func keysOf(members map[string]json.RawMessage) []string {
	var keys []string
	for key := range members {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// facts hands over what the product asks for. What else a case knows, the
// product cannot be told, and so it must not matter.
func (r *run) facts(c *toolContextCase) toolcall.Facts {
	var call struct {
		ID, Identifier, APIName string
		Arguments               json.RawMessage
		Executor                tasks.Executor
		Source                  *string
	}
	var origin struct {
		toolcall.Origin
		Lineage struct{ ParentOperationID *string }
	}
	f := toolcall.Facts{BoundDevice: c.BoundDevice}
	r.part(c.Call, &call)
	r.part(c.Runtime, &f.Runtime)
	r.part(c.Context, &f.Run)
	r.part(c.Origin, &origin)
	f.Call = toolcall.ModelCall{
		ID: call.ID, Identifier: call.Identifier, APIName: call.APIName, Arguments: string(call.Arguments),
		Executor: call.Executor, Source: call.Source,
	}
	if text := ""; json.Unmarshal(call.Arguments, &text) == nil {
		f.Call.Arguments = text
	}
	f.Origin = origin.Origin
	f.Origin.ParentOperationID = origin.Lineage.ParentOperationID
	if c.Plan != nil && string(c.Plan) != "null" {
		f.Plan = &toolcall.Plan{}
		r.part(c.Plan, f.Plan)
	}
	f.DeviceForbidden = r.forbidsDevice(c.DevicePolicy)
	return f
}

// part reads one of the sources; its names are those of the product, whose case
// encoding/json does not mind.
func (r *run) part(raw json.RawMessage, v any) {
	if raw == nil {
		return
	}
	if err := json.Unmarshal(raw, v); err != nil {
		r.fatalf("harness does not understand the facts: %v", err)
	}
}

// forbidsDevice reads a device policy: a truth value, a word, or an object with
// one of either.
func (r *run) forbidsDevice(raw json.RawMessage) bool {
	var allowed bool
	var word string
	switch {
	case raw == nil || string(raw) == "null":
		return false
	case json.Unmarshal(raw, &allowed) == nil:
		return !allowed
	case json.Unmarshal(raw, &word) == nil:
		if word != "allow" && word != "deny" {
			r.notUnderstood("device policy", word)
		}
		return word == "deny"
	}
	var policy struct {
		CanUseDevice *bool  `json:"canUseDevice"`
		Allowed      *bool  `json:"allowed"`
		Reason       string `json:"reason"`
	}
	r.decodePart(raw, &policy)
	forbids := func(allowed *bool) bool { return allowed != nil && !*allowed }
	return forbids(policy.CanUseDevice) || forbids(policy.Allowed)
}
