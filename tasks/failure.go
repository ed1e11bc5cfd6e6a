package tasks

// FailureClass says why an attempt failed. The set is closed: metrics, logs,
// dead letters and outcomes use the same words (docs/behaviour.md §8).
type FailureClass string

// The failure classes; the zero value means no failure.
const (
	ClassConfiguration    FailureClass = "configuration"
	ClassDNS              FailureClass = "dns"
	ClassRefused          FailureClass = "refused"
	ClassReset            FailureClass = "reset"
	ClassTLS              FailureClass = "tls"
	ClassConnectTimeout   FailureClass = "connect_timeout"
	ClassTimeout          FailureClass = "timeout"
	ClassHTTP3xx          FailureClass = "http_3xx"
	ClassHTTP4xx          FailureClass = "http_4xx"
	ClassHTTP429          FailureClass = "http_429"
	ClassHTTP5xx          FailureClass = "http_5xx"
	ClassResponseTooLarge FailureClass = "response_too_large"
	ClassInvalidResponse  FailureClass = "invalid_response"
	ClassEgressDenied     FailureClass = "egress_denied"
	ClassBreakerOpen      FailureClass = "breaker_open"
	ClassQStash           FailureClass = "qstash"
)

var failureClasses = []FailureClass{
	ClassConfiguration, ClassDNS, ClassRefused, ClassReset, ClassTLS, ClassConnectTimeout, ClassTimeout,
	ClassHTTP3xx, ClassHTTP4xx, ClassHTTP429, ClassHTTP5xx, ClassResponseTooLarge, ClassInvalidResponse,
	ClassEgressDenied, ClassBreakerOpen, ClassQStash,
}

// FailureClasses returns every class, for metrics that pre-create their labels.
func FailureClasses() []FailureClass { return append([]FailureClass(nil), failureClasses...) }

// TransportCode is one of the contract's six codes for a failed webhook
// request (docs/behaviour.md §8).
type TransportCode string

// The transport codes; the zero value means no failure.
const (
	CodeConfiguration    TransportCode = "configuration"
	CodeHTTPError        TransportCode = "http_error"
	CodeInvalidResponse  TransportCode = "invalid_response"
	CodeNetworkError     TransportCode = "network_error"
	CodeResponseTooLarge TransportCode = "response_too_large"
	CodeTimeout          TransportCode = "timeout"
)

// Code maps a class to the contract's code. A redirect is a network error
// there, because credentials must never reach another host.
func (c FailureClass) Code() TransportCode {
	switch c {
	case "":
		return ""
	case ClassConfiguration, ClassEgressDenied:
		return CodeConfiguration
	case ClassHTTP4xx, ClassHTTP429, ClassHTTP5xx:
		return CodeHTTPError
	case ClassTimeout, ClassConnectTimeout:
		return CodeTimeout
	case ClassResponseTooLarge:
		return CodeResponseTooLarge
	case ClassInvalidResponse:
		return CodeInvalidResponse
	case ClassDNS, ClassRefused, ClassReset, ClassTLS, ClassHTTP3xx, ClassBreakerOpen, ClassQStash:
		return CodeNetworkError
	}
	return CodeNetworkError
}

// CodeOf maps a class to the contract's code where the status of a reply counts:
// a publish that QStash answered is an HTTP error, one without an answer a network
// error. 0 means that no reply arrived.
func (c FailureClass) CodeOf(status int) TransportCode {
	if c == ClassQStash && status != 0 {
		return CodeHTTPError
	}
	return c.Code()
}

// DeliveryReason says why a delivery stands where it stands, beyond the class
// of its last attempt: why it was buried or discarded.
type DeliveryReason string

// The reasons of dead letters and discarded deliveries.
const (
	ReasonAttemptsExhausted DeliveryReason = "attempts_exhausted"
	ReasonExpired           DeliveryReason = "expired"
	ReasonEndpointGone      DeliveryReason = "endpoint_gone"
	ReasonNoRetry           DeliveryReason = "no_retry"
	ReasonPoison            DeliveryReason = "poison"
	ReasonHookRemoved       DeliveryReason = "hook_removed"
)
