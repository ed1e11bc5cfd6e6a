package webhook

import (
	"context"
	"net/http"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// Publisher hands a request to a relay, which carries it to its destination and
// repeats it there until it is taken. It returns once ctx ends, or earlier by a
// bound of its own, and never panics.
type Publisher interface {
	Publish(ctx context.Context, p Publication) PublishResult
}

// Publication is a request for a relay to carry.
type Publication struct {
	// URL is the destination.
	URL string
	// Header holds the headers of the request, with the names as configured and the
	// values as they go out, secrets included.
	Header http.Header
	// Body is the payload; it is not changed.
	Body []byte
	// Timeout bounds the relay's own attempts at the destination; 0 leaves it to the
	// relay.
	Timeout time.Duration
	// Delay postpones the first attempt at the destination; 0 makes it at once.
	Delay time.Duration
	// DeliveryID is the same for each publish of a delivery, so that a relay can
	// recognise one that it has already.
	DeliveryID string
	// OperationID asks the relay to make one attempt at a time among the requests of
	// this operation; "" leaves it free.
	OperationID string
	// Type is the hook type, for the relay's own log; "" names none.
	Type tasks.HookType
	// Retry is the hook's own retry policy; nil means the deployment's.
	Retry *tasks.RetryOptions
}

// PublishOutcome is what a publish came to, as far as it is known.
type PublishOutcome string

// The outcomes; the zero value means PublishUnknown (docs/behaviour.md §9).
const (
	// PublishAccepted says that the relay has the request.
	PublishAccepted PublishOutcome = "accepted"
	// PublishRejected says that the relay answered and will not take this request.
	PublishRejected PublishOutcome = "rejected"
	// PublishThrottled says that the relay takes no request now.
	PublishThrottled PublishOutcome = "throttled"
	// PublishFailed says that the relay answered with a failure of its own, or with
	// what is no answer.
	PublishFailed PublishOutcome = "failed"
	// PublishNotSent says that nothing reached the relay.
	PublishNotSent PublishOutcome = "not_sent"
	// PublishUnknown says that the request was sent and no whole answer arrived: the
	// relay may have it.
	PublishUnknown PublishOutcome = "unknown"
)

// PublishResult is what became of a publish. The zero value is one of which
// nothing is known.
type PublishResult struct {
	// Outcome is what is known about it.
	Outcome PublishOutcome
	// Status is the HTTP status of the relay's answer; 0 when none arrived.
	Status int
	// MessageID is the relay's name for the request; "" unless it was accepted.
	MessageID string
	// Duplicate says that the relay had a request with this delivery id already.
	Duplicate bool
	// RetryAfter is what the relay asked for; 0 means nothing.
	RetryAfter time.Duration
	// Limit is the quota that the answer tells of; nil when it tells of none.
	Limit *RelayLimit
	// Class is the class of a failure that needs another than tasks.ClassQStash; ""
	// means that one.
	Class tasks.FailureClass
	// Message is a safe text for a failure that needs another than the default; it
	// must hold no secret and no remote text. "" means the default.
	Message string
}

// RelayLimit is a quota of a relay.
type RelayLimit struct {
	// Daily tells the quota of a day from that of a burst.
	Daily bool
	// Limit and Remaining are numbers of requests; -1 when not told.
	Limit, Remaining int64
	// Reset is when the quota is full again; zero when not told.
	Reset time.Time
}
