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

// webhookHooks returns the hooks that queue mode delivers: those with a
// webhook, whatever handler stands beside it.
func webhookHooks(hooks []tasks.Hook) []tasks.Hook {
	kept := make([]tasks.Hook, 0, len(hooks))
	for _, hook := range hooks {
		if hook.Webhook != nil {
			hook.Handler = nil
			kept = append(kept, hook)
		}
	}
	return kept
}

// matchingHooks returns the hooks that go with an event into its task, in their
// order. A hook whose matcher gave no answer goes along: the worker asks it
// again and records the failure where operators look for it.
func matchingHooks(event *tasks.Event, caller []tasks.Hook) []tasks.Hook {
	steps := evaluation(event, caller, nil)
	matching := make([]tasks.Hook, len(steps))
	for i, s := range steps {
		matching[i] = *s.Hook
	}
	return matching
}

// anyInForce reports whether a hook of this process's environment matches, or
// may match because its matcher gave no answer.
func anyInForce(event *tasks.Event, environment []tasks.Hook) bool {
	return len(evaluation(event, nil, environment)) > 0
}
