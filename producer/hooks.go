package producer

import (
	"encoding/json"
	"fmt"

	"github.com/gantry-hooks/gantry/tasks"
)

// parsePersisted reads a persisted list, which may be absent. The result is
// shared and read-only.
func parsePersisted(raw json.RawMessage) ([]tasks.Hook, error) {
	hooks, err := tasks.StoredHooks(raw)
	if err != nil {
		return nil, fmt.Errorf("read persisted hooks: %w", err)
	}
	return hooks, nil
}

// storedHooks are hooks with a webhook, whatever handler stood beside it, and
// the stored form of each.
type storedHooks struct {
	hooks []tasks.Hook
	raw   []json.RawMessage
}

// newStoredHooks picks the hooks that queue mode delivers and encodes them.
func newStoredHooks(hooks []tasks.Hook) (storedHooks, error) {
	var stored storedHooks
	for i := range hooks {
		if hooks[i].Webhook == nil {
			continue
		}
		list, err := tasks.EncodeHooks(hooks[i : i+1])
		if err != nil {
			return storedHooks{}, fmt.Errorf("encode hook %q: %w", hooks[i].ID, err)
		}
		hook := hooks[i]
		hook.Handler = nil
		stored.hooks = append(stored.hooks, hook)
		// An array of one, without its brackets.
		stored.raw = append(stored.raw, list[1:len(list)-1])
	}
	return stored, nil
}

// matching returns the hooks that go with an event into its task, in their
// order, and the array of their stored forms; nil when there are none. A hook
// whose matcher gave no answer goes along: the worker asks it again and records
// the failure where operators look for it.
func (s storedHooks) matching(event *tasks.Event) ([]*tasks.Hook, json.RawMessage) {
	var hooks []*tasks.Hook
	var list json.RawMessage
	steps := evaluation(event, s.hooks, nil)
	for i := range s.hooks {
		if len(hooks) == len(steps) {
			break
		}
		if steps[len(hooks)].Hook != &s.hooks[i] {
			continue
		}
		list = append(append(list, ','), s.raw[i]...)
		hooks = append(hooks, &s.hooks[i])
	}
	if hooks == nil {
		return nil, nil
	}
	list[0] = '['
	return hooks, append(list, ']')
}

// only returns the array with the stored form of one hook; nil when it is not
// among s.
func (s storedHooks) only(hook *tasks.Hook) json.RawMessage {
	for i := range s.hooks {
		if &s.hooks[i] == hook {
			return append(append(json.RawMessage{'['}, s.raw[i]...), ']')
		}
	}
	return nil
}

// anyInForce reports whether a hook of this process's environment matches, or
// may match because its matcher gave no answer.
func anyInForce(event *tasks.Event, environment []tasks.Hook) bool {
	return len(evaluation(event, nil, environment)) > 0
}
