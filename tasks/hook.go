package tasks

import (
	"context"
	"encoding/json"
	"strings"
	"time"
)

// ReservedIDPrefix starts the id of every environment hook. A caller's hook
// that uses it is dropped before validation (docs/behaviour.md §2).
const ReservedIDPrefix = "server-env-webhook:"

// Delivery says how a webhook is carried to its receiver.
type Delivery string

// The ways of delivery; the zero value means DeliverFetch.
const (
	DeliverFetch  Delivery = "fetch"
	DeliverQStash Delivery = "qstash"
)

// Fallback says what follows a delivery that failed.
type Fallback string

// The fallbacks; the zero value means FallbackFetch. FallbackNone makes the
// hook critical: its failure is raised, never only logged.
const (
	FallbackFetch Fallback = "fetch"
	FallbackNone  Fallback = "none"
)

// ErrorPolicy says what an error of a control hook means for the tool call.
type ErrorPolicy string

// The error policies; the zero value means PolicyContinue.
const (
	PolicyContinue ErrorPolicy = "continue"
	PolicyBlock    ErrorPolicy = "block"
)

// ResponseHandling says what a webhook's reply means.
type ResponseHandling string

// The ways to handle a reply; the zero value means HandleIgnore.
const (
	HandleIgnore   ResponseHandling = "ignore"
	HandleToolCall ResponseHandling = "toolCall"
)

// Handler is a hook's action in the runtime's own process. It runs in local
// mode only and is never stored. event is its own copy.
type Handler func(ctx context.Context, event *Event) error

// Hook is one registered hook: what it listens to and the one action it takes.
// The zero value is invalid; ValidateHooks and ParseHooks say why a hook is
// refused.
type Hook struct {
	// ID is the caller's name of the hook. It may be empty and need not be unique.
	ID string
	// Type is the moment at which the hook runs.
	Type HookType
	// Matcher selects tools by "identifier/apiName"; nil means absent. Only tool
	// events may have one, and "" and "*" match everything.
	Matcher *string
	// Handler is the in-process action; nil when the hook is a webhook only.
	Handler Handler
	// Webhook is the HTTP action; nil when the hook has a handler only.
	Webhook *Webhook
	// Options are Gantry's own settings, under the extra key "gantry"; nil means
	// the deployment's defaults.
	Options *HookOptions
}

// Webhook is the HTTP action of a hook, exactly as configured: header values
// stay templates and nothing in it is secret.
type Webhook struct {
	// URL is absolute (http or https) or an application-relative path.
	URL string
	// Delivery, Fallback, OnError and ResponseHandling are "" when absent.
	Delivery         Delivery
	Fallback         Fallback
	OnError          ErrorPolicy
	ResponseHandling ResponseHandling
	// Timeout bounds one attempt, in seconds as configured; 0 means absent, and
	// the default of 30 s applies.
	Timeout float64
	// Headers are templates by name; nil means absent.
	Headers map[string]string
	// AllowedEnvVars are the variables that header templates may name; nil means absent.
	AllowedEnvVars []string
	// EventFields projects the payload; nil means absent (all fields), which is
	// not the same as an empty slice (no fields).
	EventFields []string
	// Body is a raw JSON object merged over the payload; nil means absent.
	Body json.RawMessage
}

// HookOptions are the settings of a hook that only Gantry knows.
type HookOptions struct {
	// Retry replaces parts of the deployment's retry policy; nil keeps it.
	Retry *RetryOptions `json:"retry,omitempty"`
	// SigningKeyEnv is the name of the variable that holds the hook's signing
	// keys (separated by spaces during a rotation), never a key itself.
	SigningKeyEnv string `json:"signingKeyEnv,omitempty"`
}

// RetryOptions are the parts of a retry policy that a hook may set; a zero
// field keeps the deployment's value.
type RetryOptions struct {
	// Attempts is the number of attempts in all, at least 1.
	Attempts int `json:"attempts,omitempty"`
	// ClientErrorAttempts is the number of attempts in all for failures that a
	// retry rarely mends: 4xx other than 408, 425 and 429, redirects, configuration
	// and egress denials.
	ClientErrorAttempts int `json:"clientErrorAttempts,omitempty"`
	// MaxAgeSeconds bounds the time from the first attempt to the last.
	MaxAgeSeconds float64 `json:"maxAgeSeconds,omitempty"`
	// InitialDelaySeconds, Factor and MaxDelaySeconds shape the backoff.
	InitialDelaySeconds float64 `json:"initialDelaySeconds,omitempty"`
	Factor              float64 `json:"factor,omitempty"`
	MaxDelaySeconds     float64 `json:"maxDelaySeconds,omitempty"`
}

// DefaultTimeout bounds an attempt of a webhook without a timeout of its own
// (docs/behaviour.md §8).
const DefaultTimeout = 30 * time.Second

// Environment reports whether h came from the deployment's environment, which
// makes it the operator's own.
func (h *Hook) Environment() bool { return strings.HasPrefix(h.ID, ReservedIDPrefix) }

// Control reports whether h decides about a tool call instead of observing it.
func (h *Hook) Control() bool {
	return h.Webhook != nil && h.Webhook.ResponseHandling == HandleToolCall
}

// Critical reports whether a failed delivery of h must be raised.
func (h *Hook) Critical() bool { return h.Webhook != nil && h.Webhook.Fallback == FallbackNone }
