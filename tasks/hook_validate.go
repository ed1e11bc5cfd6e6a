package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// MaxTimeoutSeconds is the longest timeout of a webhook, in seconds
// (docs/behaviour.md §2).
const MaxTimeoutSeconds = 2147483.647

const (
	typeFix     = "use one of the 16 hook types, in their exact spelling"
	timeoutFix  = "use a number of seconds above 0 and at most 2147483.647"
	variableFix = "use letters, digits and underscores, not starting with a digit"
)

// ValidateHooks checks hooks supplied by Go code by the rules of registration
// (docs/behaviour.md §2) and returns a snapshot that shares nothing with them.
// Hooks with a reserved id are dropped unread. One invalid hook fails the whole
// list with an *InvalidError.
func ValidateHooks(hooks []Hook) ([]Hook, error) {
	kept := make([]Hook, 0, len(hooks))
	for i := range hooks {
		if hooks[i].Environment() {
			continue
		}
		h := cloneHook(&hooks[i])
		if err := validateHook(&h, fmt.Sprintf("hooks[%d]", i)); err != nil {
			return nil, err
		}
		kept = append(kept, h)
	}
	return kept, nil
}

func cloneHook(h *Hook) Hook {
	c := *h
	if h.Matcher != nil {
		matcher := *h.Matcher
		c.Matcher = &matcher
	}
	if h.Webhook != nil {
		w := *h.Webhook
		w.Headers = maps.Clone(w.Headers)
		w.AllowedEnvVars = slices.Clone(w.AllowedEnvVars)
		w.EventFields = slices.Clone(w.EventFields)
		w.Body = bytes.Clone(w.Body)
		c.Webhook = &w
	}
	if h.Options != nil {
		o := *h.Options
		if o.Retry != nil {
			r := *o.Retry
			o.Retry = &r
		}
		c.Options = &o
	}
	return c
}

// validateHook applies the rules that hold for every hook, however it came.
func validateHook(h *Hook, path string) error {
	if !utf8.ValidString(h.ID) {
		return &InvalidError{Code: InvalidID, Path: path + ".id", Message: "id is not valid UTF-8"}
	}
	if !h.Type.Valid() {
		return &InvalidError{Code: UnknownType, Path: path + ".type", Message: "type is not known", Fix: typeFix}
	}
	if err := validateMatcher(h, path+".matcher"); err != nil {
		return err
	}
	if h.Webhook == nil && h.Handler == nil {
		return &InvalidError{Code: NoAction, Path: path, Message: "hook has no action", Fix: "give it a webhook"}
	}
	if h.Webhook != nil {
		if err := validateWebhook(h.Webhook, path+".webhook"); err != nil {
			return err
		}
		if err := validateControl(h, path); err != nil {
			return err
		}
	}
	if h.Options != nil {
		return validateOptions(h.Options, path)
	}
	return nil
}

func validateMatcher(h *Hook, path string) error {
	if h.Matcher == nil {
		return nil
	}
	if !h.Type.Tool() {
		return &InvalidError{
			Code: MatcherNotToolEvent, Path: path, Message: fmt.Sprintf("%s has no tool to match", h.Type),
			Fix: "remove the matcher, or listen to beforeToolCall, afterToolCall or onToolCallError",
		}
	}
	_, err := CompileMatcher(*h.Matcher)
	return at(err, path)
}

// at moves an error of a value to the value's path.
func at(err error, path string) error {
	if fault := (*InvalidError)(nil); errors.As(err, &fault) {
		return fault.Under(path)
	}
	return err
}

func validateWebhook(w *Webhook, path string) error {
	if err := CheckURL(w.URL); err != nil {
		return at(err, path+".url")
	}
	if w.Timeout != 0 && !(w.Timeout > 0 && w.Timeout <= MaxTimeoutSeconds) {
		return &InvalidError{Code: InvalidTimeout, Path: path + ".timeout", Message: "timeout is out of range", Fix: timeoutFix}
	}
	for _, fault := range [...]*InvalidError{
		checkChoice(w.Delivery, "delivery", InvalidDelivery, DeliverFetch, DeliverQStash),
		checkChoice(w.Fallback, "fallback", InvalidFallback, FallbackFetch, FallbackNone),
		checkChoice(w.OnError, "onError", InvalidOnError, PolicyContinue, PolicyBlock),
		checkChoice(w.ResponseHandling, "responseHandling", InvalidResponseHandling, HandleIgnore, HandleToolCall),
	} {
		if fault != nil {
			return fault.Under(path)
		}
	}
	for i, name := range w.AllowedEnvVars {
		if !variableName(name) {
			return &InvalidError{
				Code: InvalidAllowedEnvVar, Path: fmt.Sprintf("%s.allowedEnvVars[%d]", path, i),
				Message: "name is no variable name", Fix: variableFix,
			}
		}
	}
	if w.Body != nil {
		if err := eachMember(w.Body, nil); err != nil {
			return &InvalidError{Code: InvalidBody, Path: path + ".body", Message: "body is no JSON object", Fix: "send a JSON object"}
		}
	}
	return nil
}

func checkChoice[T ~string](value T, key string, code Reason, choices ...T) *InvalidError {
	if value == "" || slices.Contains(choices, value) {
		return nil
	}
	return badChoice(code, choices).Under(key)
}

// variableName reports whether name is letters, digits and underscores, not
// starting with a digit.
func variableName(name string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		letter := c == '_' || c|0x20-'a' < 26
		if !letter && (i == 0 || c-'0' > 9) {
			return false
		}
	}
	return name != ""
}

// validateControl applies the rules between responseHandling and the rest.
func validateControl(h *Hook, path string) error {
	w := h.Webhook
	if !h.Control() {
		if w.OnError == PolicyBlock {
			return &InvalidError{
				Code: OnErrorRequiresControl, Path: path + ".webhook.onError", Message: "a notification cannot block",
				Fix: "set responseHandling to toolCall, or onError to continue",
			}
		}
		return nil
	}
	switch {
	case !h.Type.Controllable():
		return &InvalidError{
			Code: ControlEventType, Path: path + ".webhook.responseHandling", Message: fmt.Sprintf("%s cannot be controlled", h.Type),
			Fix: "use toolCall with beforeToolCall or afterToolCall only",
		}
	case w.Delivery == DeliverQStash:
		return &InvalidError{
			Code: ControlRequiresFetch, Path: path + ".webhook.delivery", Message: "a control waits for its reply and cannot be queued",
			Fix: "use fetch",
		}
	case w.EventFields != nil || w.Body != nil:
		return &InvalidError{
			Code: ControlNoProjectionOrBody, Path: path + ".webhook", Message: "a control is sent the whole event",
			Fix: "remove eventFields and body",
		}
	case h.Handler != nil:
		return &InvalidError{
			Code: ControlNoHandler, Path: path + ".handler", Message: "a control is a webhook only", Fix: "remove the handler",
		}
	}
	return nil
}
