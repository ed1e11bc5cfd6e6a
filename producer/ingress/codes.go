package ingress

import (
	"net/http"

	"github.com/gantry-hooks/gantry/tasks"
)

// The codes of problem documents that no other part of Gantry has.
const (
	// CodeUnauthenticated is a request without a valid token.
	CodeUnauthenticated tasks.Reason = "unauthenticated"
	// CodeForbidden is a token whose role does not suffice.
	CodeForbidden tasks.Reason = "forbidden"
	// CodeRouteNotFound is a path that the API does not have.
	CodeRouteNotFound tasks.Reason = "route_not_found"
	// CodeMethodNotAllowed is a path that does not have the method.
	CodeMethodNotAllowed tasks.Reason = "method_not_allowed"
	// CodeNotFound is a thing that does not exist, or no longer.
	CodeNotFound tasks.Reason = "not_found"
	// CodeBodyIncomplete is a body that ended early.
	CodeBodyIncomplete tasks.Reason = "body_incomplete"
	// CodeBodyTimeout is a body that did not arrive in time.
	CodeBodyTimeout tasks.Reason = "body_timeout"
	// CodeBodyTooLarge is a body over the limit of bytes.
	CodeBodyTooLarge tasks.Reason = "body_too_large"
	// CodeBatchTooLarge is a batch over the limit of events or ids.
	CodeBatchTooLarge tasks.Reason = "batch_too_large"
	// CodeUnsupportedMediaType is a content-type that is not read.
	CodeUnsupportedMediaType tasks.Reason = "unsupported_media_type"
	// CodeUnsupportedEncoding is a compressed body.
	CodeUnsupportedEncoding tasks.Reason = "unsupported_encoding"
	// CodeIDReused is an event id that stands for another event.
	CodeIDReused tasks.Reason = "id_reused"
	// CodeStoredHooksInvalid is an operation whose stored hooks are not valid.
	CodeStoredHooksInvalid tasks.Reason = "stored_hooks_invalid"
	// CodeNoCall is a deferred result that controls must see and whose call is not
	// known well enough to ask them.
	CodeNoCall tasks.Reason = "no_call"
	// CodeBridged is a deferred result that only its completion bridge may complete.
	CodeBridged tasks.Reason = "bridged"
	// CodeInvalidQuery is a query parameter that is unknown or wrong.
	CodeInvalidQuery tasks.Reason = "invalid_query"
	// CodeInvalidCursor is a cursor that did not come from a listing.
	CodeInvalidCursor tasks.Reason = "invalid_cursor"
	// CodeInvalidRequest is a body that is valid JSON of the wrong shape.
	CodeInvalidRequest tasks.Reason = "invalid_request"
	// CodeInvalidDelay is a delay that is no duration.
	CodeInvalidDelay tasks.Reason = "invalid_delay"
	// CodeInvalidTrace is a trace that is no W3C traceparent.
	CodeInvalidTrace tasks.Reason = "invalid_trace"
	// CodeClientClosed is a caller that went away; nobody reads it.
	CodeClientClosed tasks.Reason = "client_closed"
	// CodeInternal is everything else. Its text is in the log only.
	CodeInternal tasks.Reason = "internal"
	// CodeUnavailable is a store that does not answer.
	CodeUnavailable tasks.Reason = "unavailable"
	// CodeEnvironmentInvalid is a deployment whose environment hooks are invalid.
	CodeEnvironmentInvalid tasks.Reason = "environment_invalid"
	// CodeNotReady is a failed check of /readyz.
	CodeNotReady tasks.Reason = "not_ready"
	// CodeShuttingDown is a server that takes no new work.
	CodeShuttingDown tasks.Reason = "shutting_down"
)

// statusClientClosed is the customary status of a request whose caller left.
const statusClientClosed = 499

// statuses is the one table from code to HTTP status. docs/http-api.md shows it
// to callers.
var statuses = map[tasks.Reason]int{
	tasks.InvalidJSON:  http.StatusBadRequest,
	tasks.InvalidUTF8:  http.StatusBadRequest,
	CodeBodyIncomplete: http.StatusBadRequest,

	CodeUnauthenticated:  http.StatusUnauthorized,
	CodeForbidden:        http.StatusForbidden,
	CodeRouteNotFound:    http.StatusNotFound,
	CodeNotFound:         http.StatusNotFound,
	CodeMethodNotAllowed: http.StatusMethodNotAllowed,
	CodeBodyTimeout:      http.StatusRequestTimeout,

	CodeIDReused:           http.StatusConflict,
	CodeStoredHooksInvalid: http.StatusConflict,
	CodeNoCall:             http.StatusConflict,
	CodeBridged:            http.StatusConflict,

	CodeBodyTooLarge:         http.StatusRequestEntityTooLarge,
	CodeBatchTooLarge:        http.StatusRequestEntityTooLarge,
	CodeUnsupportedMediaType: http.StatusUnsupportedMediaType,
	CodeUnsupportedEncoding:  http.StatusUnsupportedMediaType,

	tasks.InvalidHook:               http.StatusUnprocessableEntity,
	tasks.InvalidID:                 http.StatusUnprocessableEntity,
	tasks.UnknownType:               http.StatusUnprocessableEntity,
	tasks.UnknownField:              http.StatusUnprocessableEntity,
	tasks.NoAction:                  http.StatusUnprocessableEntity,
	tasks.InvalidHandler:            http.StatusUnprocessableEntity,
	tasks.InvalidMatcher:            http.StatusUnprocessableEntity,
	tasks.MatcherNotToolEvent:       http.StatusUnprocessableEntity,
	tasks.InvalidWebhook:            http.StatusUnprocessableEntity,
	tasks.InvalidURL:                http.StatusUnprocessableEntity,
	tasks.InvalidTimeout:            http.StatusUnprocessableEntity,
	tasks.InvalidDelivery:           http.StatusUnprocessableEntity,
	tasks.InvalidFallback:           http.StatusUnprocessableEntity,
	tasks.InvalidOnError:            http.StatusUnprocessableEntity,
	tasks.InvalidResponseHandling:   http.StatusUnprocessableEntity,
	tasks.InvalidAllowedEnvVar:      http.StatusUnprocessableEntity,
	tasks.InvalidHeaders:            http.StatusUnprocessableEntity,
	tasks.InvalidBody:               http.StatusUnprocessableEntity,
	tasks.InvalidEventFields:        http.StatusUnprocessableEntity,
	tasks.InvalidOptions:            http.StatusUnprocessableEntity,
	tasks.OnErrorRequiresControl:    http.StatusUnprocessableEntity,
	tasks.ControlEventType:          http.StatusUnprocessableEntity,
	tasks.ControlRequiresFetch:      http.StatusUnprocessableEntity,
	tasks.ControlNoProjectionOrBody: http.StatusUnprocessableEntity,
	tasks.ControlNoHandler:          http.StatusUnprocessableEntity,
	tasks.InvalidEvent:              http.StatusUnprocessableEntity,
	tasks.MissingField:              http.StatusUnprocessableEntity,
	tasks.InvalidField:              http.StatusUnprocessableEntity,
	tasks.OperationMismatch:         http.StatusUnprocessableEntity,
	tasks.InvalidTask:               http.StatusUnprocessableEntity,
	tasks.InvalidTaskID:             http.StatusUnprocessableEntity,
	tasks.InvalidOperationID:        http.StatusUnprocessableEntity,
	tasks.UnsupportedVersion:        http.StatusUnprocessableEntity,
	tasks.NotObject:                 http.StatusUnprocessableEntity,
	CodeInvalidQuery:                http.StatusUnprocessableEntity,
	CodeInvalidCursor:               http.StatusUnprocessableEntity,
	CodeInvalidRequest:              http.StatusUnprocessableEntity,
	CodeInvalidDelay:                http.StatusUnprocessableEntity,
	CodeInvalidTrace:                http.StatusUnprocessableEntity,

	CodeClientClosed:       statusClientClosed,
	CodeInternal:           http.StatusInternalServerError,
	CodeUnavailable:        http.StatusServiceUnavailable,
	CodeEnvironmentInvalid: http.StatusServiceUnavailable,
	CodeNotReady:           http.StatusServiceUnavailable,
	CodeShuttingDown:       http.StatusServiceUnavailable,
}

// statusOf looks a code up; a code that is not in the table is internal.
func statusOf(code tasks.Reason) int {
	if status, ok := statuses[code]; ok {
		return status
	}
	return http.StatusInternalServerError
}
