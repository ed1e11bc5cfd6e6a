package conformance_test

import (
	"encoding/json"

	"github.com/gantry-hooks/gantry/tasks"
)

type matcherCase struct {
	common
	Pattern        json.RawMessage `json:"pattern"`
	Identifier     json.RawMessage `json:"identifier"`
	APIName        json.RawMessage `json:"apiName"`
	Match          *bool           `json:"match"`
	InvalidPattern bool            `json:"invalid_pattern"`
}

func runMatcher(r *run) {
	var c matcherCase
	r.decode(&c)
	if (c.Match == nil) != c.InvalidPattern {
		r.notUnderstood("case with", "neither or both of match and invalid_pattern")
	}
	for _, t := range tasks.HookTypes() {
		if t.Tool() {
			r.matchOn(&c, t)
		}
	}
}

// matchOn registers and restores a hook with the pattern and asks it about an
// event.
func (r *run) matchOn(c *matcherCase, t tasks.HookType) {
	hook := json.RawMessage(`{"id":"m","webhook":{"url":"https://rx.test/"}}`)
	hook = r.withMember(hook, "type", tasks.AppendString(nil, string(t)))
	if c.Pattern != nil {
		hook = r.withMember(hook, "matcher", c.Pattern)
	}
	event := json.RawMessage(`{"operationId":"op"}`)
	if c.Identifier != nil {
		event = r.withMember(event, "identifier", c.Identifier)
	}
	if c.APIName != nil {
		event = r.withMember(event, "apiName", c.APIName)
	}
	decoded, err := tasks.DecodeEvent(t, "op", event)
	if err != nil {
		r.fatalf("read the event: %v", err)
	}
	for _, mode := range []tasks.ParseMode{tasks.ParseRegister, tasks.ParseRestore} {
		hooks, err := tasks.ParseHooks(joinArray([]json.RawMessage{hook}), tasks.ParseOptions{Mode: mode})
		if c.InvalidPattern {
			if reason, _ := rejection(err); reason != tasks.InvalidMatcher {
				r.problemf("%s of a hook for %s with the pattern %s: %v, want %s", mode, t, c.Pattern, err, tasks.InvalidMatcher)
			}
			continue
		}
		if err != nil {
			r.problemf("%s of a hook for %s: %v", mode, t, err)
			continue
		}
		// Twice, because a pattern keeps no state.
		for range 2 {
			got, err := hooks[0].Matches(decoded)
			if err != nil || got != *c.Match {
				r.problemf("%s: pattern %s on %s: %t, %v, want %t", t, c.Pattern, event, got, err, *c.Match)
			}
			inForce, _ := tasks.InForce(decoded, hooks, nil)
			if (len(inForce) == 1) != *c.Match {
				r.problemf("%s: pattern %s on %s puts %d hooks in force", t, c.Pattern, event, len(inForce))
			}
		}
	}
}
