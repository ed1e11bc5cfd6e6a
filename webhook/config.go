package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// DefaultUserAgent is the User-Agent of a Deliverer without one of its own.
const DefaultUserAgent = "Gantry"

// Payloads builds the body of an attempt. It is asked anew for each attempt, and
// returns an error when ctx ends first.
type Payloads interface {
	// Build returns what a notification sends.
	Build(ctx context.Context, del Delivery) ([]byte, error)
	// BuildControl returns what a control is asked with.
	BuildControl(ctx context.Context, hookID string, hookType tasks.HookType, event json.RawMessage) ([]byte, error)
}

// Config says what a Deliverer works with.
type Config struct {
	// Env looks up variables at the time of sending. Required.
	Env tasks.Environment
	// HeaderEnv lists the variables that hooks of callers may use in headers and as
	// signing keys, besides naming them in the hook: exact names, or prefixes with
	// a trailing "*"; "*" alone allows all. nil means HOOK_*; an empty slice allows
	// none. The token of environment hooks is never among them.
	HeaderEnv []string
	// Callers sends the hooks of callers. nil refuses all of them.
	Callers *egress.Client
	// Operator sends environment hooks and application-relative URLs. nil refuses
	// all of them.
	Operator *egress.Client
	// Publisher is the relay for "delivery: qstash"; nil behaves as one without a
	// token.
	Publisher Publisher
	// Payloads builds bodies. Required.
	Payloads Payloads
	// UserAgent is sent with each request, unless the hook sets its own; "" means
	// DefaultUserAgent.
	UserAgent string
	// Now is the clock of signatures and of Retry-After dates; nil means time.Now.
	Now func() time.Time
	// Registerer gets the metrics; nil means that nobody reads them.
	Registerer prometheus.Registerer
}

// Deliverer makes attempts. It keeps no state between them but connections and a
// bounded cache of parsed URLs, and may be used by many goroutines. Build one
// with New; the zero value is unusable.
type Deliverer struct {
	env       tasks.Environment
	allow     envAllowList
	callers   *egress.Client
	operator  *egress.Client
	publisher Publisher
	payloads  Payloads
	userAgent []string
	now       func() time.Time
	metrics   *metrics
	targets   targetCache
}

// New returns a Deliverer, or an error when cfg lacks what is required or
// contradicts itself.
func New(cfg Config) (*Deliverer, error) {
	if cfg.Env == nil {
		return nil, errors.New("check webhook configuration: Env is missing")
	}
	if cfg.Payloads == nil {
		return nil, errors.New("check webhook configuration: Payloads is missing")
	}
	allow, err := parseEnvAllowList(cfg.HeaderEnv)
	if err != nil {
		return nil, fmt.Errorf("check webhook configuration: %w", err)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	d := &Deliverer{
		env: cfg.Env, allow: allow, callers: cfg.Callers, operator: cfg.Operator, publisher: cfg.Publisher,
		payloads: cfg.Payloads, userAgent: []string{cfg.UserAgent}, now: cfg.Now, metrics: m,
	}
	if cfg.UserAgent == "" {
		d.userAgent = []string{DefaultUserAgent}
	}
	if !validHeaderValue(d.userAgent[0]) {
		return nil, errors.New("check webhook configuration: UserAgent is no header value")
	}
	if d.now == nil {
		d.now = time.Now
	}
	return d, nil
}
