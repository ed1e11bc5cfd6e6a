package worker

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// RetryPolicy says when a failed delivery is attempted again and when it is
// given up (docs/behaviour.md, Retry). The zero value means the defaults.
type RetryPolicy struct {
	// InitialDelay comes after the first failure and grows by Factor with each
	// further one, up to MaxDelay. Defaults 5s, 3, 6h.
	InitialDelay time.Duration
	Factor       float64
	MaxDelay     time.Duration
	// Jitter is the part of the delay that is added at random at most, so that
	// retries of one outage do not meet again. Default 0.25; negative means none.
	Jitter float64
	// Attempts is the number of attempts in all. Default 12.
	Attempts int
	// ClientErrorAttempts replaces Attempts for failures that a retry rarely mends:
	// other 4xx than 408, 425 and 429, redirects, configuration and egress denials.
	// Default 5.
	ClientErrorAttempts int
	// MaxAge is the time from the first attempt after which none is made. Default 24h.
	MaxAge time.Duration
}

// WithDefaults fills the zero fields.
func (p RetryPolicy) WithDefaults() RetryPolicy {
	setDefault(&p.InitialDelay, 5*time.Second)
	setDefault(&p.Factor, 3)
	setDefault(&p.MaxDelay, 6*time.Hour)
	setDefault(&p.Jitter, 0.25)
	setDefault(&p.Attempts, 12)
	setDefault(&p.ClientErrorAttempts, 5)
	setDefault(&p.MaxAge, 24*time.Hour)
	return p
}

// Validate reports what is wrong with a policy that has its defaults.
func (p RetryPolicy) Validate() error {
	var errs []error
	if p.InitialDelay < 0 || p.MaxDelay < p.InitialDelay {
		errs = append(errs, errors.New("retry: the initial delay must not be negative nor above the largest delay"))
	}
	if p.Factor < 1 {
		errs = append(errs, errors.New("retry: the factor must be at least 1"))
	}
	if p.Jitter > 1 {
		errs = append(errs, errors.New("retry: the jitter must be at most 1"))
	}
	if p.Attempts < 1 || p.ClientErrorAttempts < 1 || p.MaxAge <= 0 {
		errs = append(errs, errors.New("retry: attempts must be at least 1 and the age positive"))
	}
	return errors.Join(errs...)
}

// For applies a hook's own settings.
func (p RetryPolicy) For(h *tasks.Hook) RetryPolicy {
	if h.Options == nil || h.Options.Retry == nil {
		return p
	}
	o := h.Options.Retry
	replace(&p.Attempts, o.Attempts)
	if o.Attempts > 0 {
		p.ClientErrorAttempts = min(p.ClientErrorAttempts, o.Attempts)
	}
	replace(&p.ClientErrorAttempts, o.ClientErrorAttempts)
	replace(&p.MaxAge, seconds(o.MaxAgeSeconds))
	replace(&p.InitialDelay, seconds(o.InitialDelaySeconds))
	replace(&p.Factor, o.Factor)
	replace(&p.MaxDelay, seconds(o.MaxDelaySeconds))
	return p
}

func replace[T comparable](field *T, value T) {
	var zero T
	if value != zero {
		*field = value
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// decision is what follows a failed attempt: another one after delay, or none,
// for reason.
type decision struct {
	retry  bool
	delay  time.Duration
	reason tasks.DeliveryReason
}

// decide judges a failure that was the given attempt (from 1) of a delivery
// that has been tried for age.
func (p RetryPolicy) decide(r webhook.Result, attempt int, age time.Duration) decision {
	if r.Final {
		return decision{reason: r.Reason}
	}
	if attempt >= p.limit(r) {
		return decision{reason: tasks.ReasonAttemptsExhausted}
	}
	delay := max(p.backoff(attempt), r.RetryAfter)
	if age+delay > p.MaxAge {
		return decision{reason: tasks.ReasonExpired}
	}
	return decision{retry: true, delay: delay}
}

func (p RetryPolicy) limit(r webhook.Result) int {
	switch r.Class {
	case tasks.ClassHTTP4xx:
		if r.Status != 408 && r.Status != 425 {
			return p.ClientErrorAttempts
		}
	case tasks.ClassConfiguration, tasks.ClassEgressDenied, tasks.ClassHTTP3xx:
		return p.ClientErrorAttempts
	}
	return p.Attempts
}

// backoff is never under the exact delay: jitter only adds.
func (p RetryPolicy) backoff(attempt int) time.Duration {
	d := float64(p.InitialDelay) * math.Pow(p.Factor, float64(attempt-1))
	d = min(d, float64(p.MaxDelay))
	if p.Jitter > 0 {
		d += d * p.Jitter * rand.Float64()
	}
	return time.Duration(d)
}
