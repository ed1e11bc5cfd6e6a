package tasks

import "strings"

// Reason is the stable code of a refused input: what API errors, logs and the
// command line show, and what callers may branch on. docs/behaviour.md §2
// names the rules behind the codes.
type Reason string

// The reasons for which hooks are refused.
const (
	InvalidHook               Reason = "invalid_hook"
	InvalidID                 Reason = "invalid_id"
	UnknownType               Reason = "unknown_type"
	UnknownField              Reason = "unknown_field"
	NoAction                  Reason = "no_action"
	InvalidHandler            Reason = "invalid_handler"
	InvalidMatcher            Reason = "invalid_matcher"
	MatcherNotToolEvent       Reason = "matcher_not_tool_event"
	InvalidWebhook            Reason = "invalid_webhook"
	InvalidURL                Reason = "invalid_url"
	InvalidTimeout            Reason = "invalid_timeout"
	InvalidDelivery           Reason = "invalid_delivery"
	InvalidFallback           Reason = "invalid_fallback"
	InvalidOnError            Reason = "invalid_on_error"
	InvalidResponseHandling   Reason = "invalid_response_handling"
	InvalidAllowedEnvVar      Reason = "invalid_allowed_env_var"
	InvalidHeaders            Reason = "invalid_headers"
	InvalidBody               Reason = "invalid_body"
	InvalidEventFields        Reason = "invalid_event_fields"
	InvalidOptions            Reason = "invalid_options"
	OnErrorRequiresControl    Reason = "on_error_block_requires_control"
	ControlEventType          Reason = "control_event_type"
	ControlRequiresFetch      Reason = "control_requires_fetch"
	ControlNoProjectionOrBody Reason = "control_no_projection_or_body"
	ControlNoHandler          Reason = "control_no_handler"
)

// The reasons for which JSON, events and tasks are refused.
const (
	InvalidJSON        Reason = "invalid_json"
	InvalidUTF8        Reason = "invalid_utf8"
	InvalidEvent       Reason = "invalid_event"
	MissingField       Reason = "missing_field"
	InvalidField       Reason = "invalid_field"
	OperationMismatch  Reason = "operation_mismatch"
	InvalidTask        Reason = "invalid_task"
	InvalidTaskID      Reason = "invalid_task_id"
	InvalidOperationID Reason = "invalid_operation_id"
	UnsupportedVersion Reason = "unsupported_version"
	// NotObject is JSON that is valid but no object where one is needed.
	NotObject Reason = "not_object"
)

// InvalidError says why an input was refused, where, and what would be right.
// Nothing of a batch with an invalid member is kept. The zero value is invalid.
type InvalidError struct {
	// Code is the rule that was broken.
	Code Reason
	// Path is the place in the input, such as hooks[2].webhook.url; "" means the
	// input as a whole.
	Path string
	// Message says what is wrong. It repeats names of keys and types, never values
	// that may hold a secret.
	Message string
	// Fix says what would be right; "" when Message says it already.
	Fix string
}

// Error joins path, message, fix and code into one line.
func (e *InvalidError) Error() string {
	var b strings.Builder
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Message)
	if e.Fix != "" {
		b.WriteString("; ")
		b.WriteString(e.Fix)
	}
	b.WriteString(" (")
	b.WriteString(string(e.Code))
	b.WriteString(")")
	return b.String()
}

// Under returns a copy of e whose path stands below prefix, for callers that
// read the input out of a larger document.
func (e *InvalidError) Under(prefix string) *InvalidError {
	moved := *e
	switch {
	case e.Path == "":
		moved.Path = prefix
	case e.Path[0] == '[':
		moved.Path = prefix + e.Path
	default:
		moved.Path = prefix + "." + e.Path
	}
	return &moved
}
