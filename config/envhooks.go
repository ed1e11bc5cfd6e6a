package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gantry-hooks/gantry/tasks"
)

// The variables that give a deployment hooks of its own (docs/behaviour.md §17).
const (
	VarWebhookURL              = "AGENT_HOOK_WEBHOOK_URL"
	VarWebhookToken            = "AGENT_HOOK_WEBHOOK_TOKEN"
	VarWebhookEvents           = "AGENT_HOOK_WEBHOOK_EVENTS"
	VarWebhookResponseHandling = "AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING"
	VarWebhookOnError          = "AGENT_HOOK_WEBHOOK_ON_ERROR"
)

// hookVariables are the five in the order in which an error names them.
var hookVariables = [...]string{
	VarWebhookURL, VarWebhookToken, VarWebhookEvents, VarWebhookResponseHandling, VarWebhookOnError,
}

// ErrEnvironmentHooks is what every EnvironmentHooksError unwraps to.
var ErrEnvironmentHooks = errors.New("invalid environment hooks")

// EnvironmentHooksError says that the variables of the environment's hooks
// are invalid. It names variables and rules, never values.
type EnvironmentHooksError struct {
	// Variables are the names at fault, each once, in the order of the manual.
	Variables []string
	reasons   []string // one for each variable
}

// Error names each variable with its fault.
func (e *EnvironmentHooksError) Error() string {
	faults := make([]string, len(e.Variables))
	for i, name := range e.Variables {
		faults[i] = name + " " + e.reasons[i]
	}
	return ErrEnvironmentHooks.Error() + ": " + strings.Join(faults, "; ")
}

// Unwrap returns ErrEnvironmentHooks.
func (e *EnvironmentHooksError) Unwrap() error { return ErrEnvironmentHooks }

func (e *EnvironmentHooksError) add(name, reason string) {
	if !slices.Contains(e.Variables, name) {
		e.Variables, e.reasons = append(e.Variables, name), append(e.reasons, reason)
	}
}

// EnvironmentHooks returns the hooks that env asks for now, one for each event
// in the order of AGENT_HOOK_WEBHOOK_EVENTS; none without a URL. The variables
// are checked even then, and an empty one is an error, not an absent one. The
// error is an *EnvironmentHooksError (docs/behaviour.md §17).
func EnvironmentHooks(env tasks.Environment) ([]tasks.Hook, error) {
	return buildHooks(readHookValues(env))
}

// CachedEnvironmentHooks returns a function that reads the five variables anew
// at each call, and builds the hooks again only when one of them changed. The
// hooks are shared between calls and must not be modified. It is safe for
// concurrent use if env is.
func CachedEnvironmentHooks(env tasks.Environment) tasks.EnvironmentHooks {
	type answer struct {
		values hookValues
		hooks  []tasks.Hook
		err    error
	}
	var last atomic.Pointer[answer]
	return func() ([]tasks.Hook, error) {
		values := readHookValues(env)
		if known := last.Load(); known != nil && known.values == values {
			return known.hooks, known.err
		}
		hooks, err := buildHooks(values)
		// Clipped, so that a caller's append cannot write into the shared array.
		next := &answer{values: values, hooks: slices.Clip(hooks), err: err}
		last.Store(next)
		return next.hooks, next.err
	}
}

// hookValue is a variable as it stands; a set but empty one is not an unset one.
type hookValue struct {
	text string
	set  bool
}

// hookValues are the variables in the order of hookVariables. They are compared
// with == to see a change.
type hookValues [len(hookVariables)]hookValue

func readHookValues(env tasks.Environment) (values hookValues) {
	for i, name := range hookVariables {
		values[i].text, values[i].set = env(name)
	}
	return values
}

// hookSettings are the variables after parsing, with defaults in place.
type hookSettings struct {
	url      string
	events   []tasks.HookType
	handling tasks.ResponseHandling
	onError  tasks.ErrorPolicy
}

func buildHooks(values hookValues) ([]tasks.Hook, error) {
	settings, faults := parseHookValues(values)
	if len(faults.Variables) > 0 {
		return nil, faults
	}
	if settings.url == "" {
		return nil, nil
	}
	hooks := make([]tasks.Hook, len(settings.events))
	for i, event := range settings.events {
		hooks[i] = settings.hook(event)
	}
	return hooks, nil
}

func (s hookSettings) hook(event tasks.HookType) tasks.Hook {
	webhook := &tasks.Webhook{
		URL:              s.url,
		Delivery:         tasks.DeliverFetch,
		OnError:          tasks.PolicyContinue,
		ResponseHandling: tasks.HandleIgnore,
		// A template: the token itself is put in when a request is sent and is part
		// of no hook.
		Headers:        map[string]string{"Authorization": "Bearer ${" + VarWebhookToken + "}"},
		AllowedEnvVars: []string{VarWebhookToken},
	}
	if s.handling == tasks.HandleToolCall && event.Controllable() {
		webhook.ResponseHandling = tasks.HandleToolCall
		webhook.OnError = s.onError
	}
	return tasks.Hook{ID: tasks.ReservedIDPrefix + string(event), Type: event, Webhook: webhook}
}

func parseHookValues(values hookValues) (hookSettings, *EnvironmentHooksError) {
	url, token, events, handling, onError := values[0], values[1], values[2], values[3], values[4]
	settings := hookSettings{url: url.text}
	faults := &EnvironmentHooksError{}
	if url.set {
		checkHookURL(faults, url.text)
	}
	switch {
	case token.set && strings.TrimSpace(token.text) == "":
		faults.add(VarWebhookToken, "is blank")
	case url.set && !token.set:
		faults.add(VarWebhookToken, "is required with "+VarWebhookURL)
	}
	settings.events = parseHookEvents(faults, events, url.set)
	settings.handling = parseHookHandling(faults, handling, settings.events)
	settings.onError = parseHookPolicy(faults, onError, settings.handling)
	return settings, faults
}

func checkHookURL(faults *EnvironmentHooksError, url string) {
	if url == "" {
		faults.add(VarWebhookURL, "is empty")
		return
	}
	// The rule's own message may quote the URL, which is a value.
	if err := tasks.CheckURL(url); err != nil {
		faults.add(VarWebhookURL, "is neither an http or https URL without credentials nor a path that starts with /")
	}
}

func parseHookEvents(faults *EnvironmentHooksError, value hookValue, required bool) []tasks.HookType {
	if !value.set {
		if required {
			faults.add(VarWebhookEvents, "is required with "+VarWebhookURL)
		}
		return nil
	}
	var events []tasks.HookType
	for name := range strings.SplitSeq(value.text, ",") {
		event := tasks.HookType(strings.TrimSpace(name))
		if event == "" || slices.Contains(events, event) {
			continue
		}
		if !event.Valid() {
			faults.add(VarWebhookEvents, fmt.Sprintf("names an event that is none of the %d", len(tasks.HookTypes())))
		}
		events = append(events, event)
	}
	if len(events) == 0 {
		faults.add(VarWebhookEvents, "names no event")
	}
	return events
}

func parseHookHandling(faults *EnvironmentHooksError, value hookValue, events []tasks.HookType) tasks.ResponseHandling {
	handling := tasks.ResponseHandling(value.text)
	switch {
	case !value.set:
		return tasks.HandleIgnore
	case handling != tasks.HandleIgnore && handling != tasks.HandleToolCall:
		faults.add(VarWebhookResponseHandling, "is neither ignore nor toolCall")
	case handling == tasks.HandleToolCall && !slices.ContainsFunc(events, tasks.HookType.Controllable):
		faults.add(VarWebhookResponseHandling,
			"is toolCall, which needs beforeToolCall or afterToolCall in "+VarWebhookEvents)
	}
	return handling
}

func parseHookPolicy(
	faults *EnvironmentHooksError, value hookValue, handling tasks.ResponseHandling,
) tasks.ErrorPolicy {
	policy := tasks.ErrorPolicy(value.text)
	switch {
	case !value.set:
		return tasks.PolicyContinue
	case policy != tasks.PolicyContinue && policy != tasks.PolicyBlock:
		faults.add(VarWebhookOnError, "is neither continue nor block")
	case policy == tasks.PolicyBlock && handling != tasks.HandleToolCall:
		faults.add(VarWebhookOnError, "is block, which needs "+VarWebhookResponseHandling+"=toolCall")
	}
	return policy
}
