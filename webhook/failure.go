package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// ConfigurationError says that a hook cannot be sent as it is configured, or not
// in this environment; nothing was sent. Its text names headers and variables,
// never their values.
type ConfigurationError struct {
	// Detail says what is wrong.
	Detail string
}

// Error returns the detail.
func (e *ConfigurationError) Error() string { return e.Detail }

func configurationf(format string, args ...any) error {
	return &ConfigurationError{Detail: fmt.Sprintf(format, args...)}
}

// quoted shows a name from a hook in a message, whatever it holds.
func quoted(name string) string {
	const most = 64
	if len(name) > most {
		return fmt.Sprintf("%q...", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// failed builds the result of an attempt that came to class. The detail must be
// safe; "" shows the class where the contract's code does not say it already.
func failed(class tasks.FailureClass, detail string) Result {
	message := "Hook HTTP request failed: " + string(class.Code())
	if detail == "" && string(class) != string(class.Code()) {
		detail = string(class)
	}
	if detail != "" {
		message += " (" + detail + ")"
	}
	return Result{Class: class, Message: message}
}

// failedBefore builds the result of an attempt that broke off before anything
// was sent. Only errors made here or by the egress policy may show their text.
func failedBefore(err error) Result {
	if e, ok := errors.AsType[*ConfigurationError](err); ok {
		return failed(tasks.ClassConfiguration, e.Detail)
	}
	if e, ok := errors.AsType[*egress.DeniedError](err); ok {
		return failed(tasks.ClassEgressDenied, e.Error())
	}
	return failed(tasks.ClassConfiguration, "")
}

// failedSending builds the result of a request without a reply. The caller's
// own context comes first: its end and the attempt's deadline look alike in err.
func failedSending(caller context.Context, err error, connected bool) Result {
	if caller.Err() != nil {
		return Result{Cancelled: true}
	}
	return failedRequest(err, connected)
}

// failedRequest builds the result of a request that ended without a reply for
// reasons that are not the caller's.
func failedRequest(err error, connected bool) Result {
	if errors.Is(err, egress.ErrDenied) {
		return failedBefore(err)
	}
	class := egress.FailureClass(err)
	if class == tasks.ClassTimeout && !connected {
		class = tasks.ClassConnectTimeout
	}
	return failed(class, "")
}

// StatusClass maps the status of a reply to a class; "" means success. Only the
// statuses that name another address are redirects; the others of 3xx count with
// 4xx, as an answer that is not the one asked for. What HTTP has no final status
// for is no reply (docs/behaviour.md §8).
func StatusClass(status int) tasks.FailureClass {
	switch {
	case status >= 200 && status < 300:
		return ""
	case redirects(status):
		return tasks.ClassHTTP3xx
	case status == http.StatusTooManyRequests:
		return tasks.ClassHTTP429
	case status >= 300 && status < 500:
		return tasks.ClassHTTP4xx
	case status >= 500:
		return tasks.ClassHTTP5xx
	}
	return tasks.ClassReset
}

func redirects(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}
