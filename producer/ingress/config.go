package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
)

// Role says what the bearer of a token may do.
type Role string

// The roles; the zero value is no role. RoleOperator may do all that
// RoleRuntime may.
const (
	// RoleRuntime registers hooks, sends events and waits for them.
	RoleRuntime Role = "runtime"
	// RoleOperator also looks at lanes and settles dead letters.
	RoleOperator Role = "operator"
)

// Token is one bearer token and the role that it gives.
type Token struct {
	Role Role
	// Value is the secret. The API keeps a hash of it only.
	Value string
}

// Check reports whether a part that the API needs works now. It must return
// once ctx ends.
type Check func(ctx context.Context) error

// The defaults of Config.
const (
	DefaultMaxBody         = 1 << 20
	DefaultMaxWait         = 5 * time.Minute
	DefaultQuestionTimeout = time.Minute
	DefaultStoreTimeout    = 10 * time.Second
	DefaultBodyTimeout     = 30 * time.Second
	DefaultCheckTimeout    = 2 * time.Second
)

// Config is what an API needs. The zero value is invalid: Events, Store and
// Tokens (or AllowAnonymousLoopback) are required.
type Config struct {
	// Events takes the events. Required, in queue mode.
	Events Events
	// Store keeps hooks, lanes and dead letters. Required; it must be the one that
	// Events appends to.
	Store Store
	// Questions asks controls and keeps their verdicts. nil leaves the routes of the
	// control path out.
	Questions Questions
	// Deferred keeps results that come later. nil leaves its routes out.
	Deferred Deferred
	// QuestionTimeout is what a question has that names no timeout; 0 means
	// DefaultQuestionTimeout. It must be the one of Questions: connections are kept
	// open that long.
	QuestionTimeout time.Duration
	// EnvironmentHooks reads the deployment's own hooks; it is asked before hooks
	// are registered and events are taken, and an error refuses both. nil means
	// that there are none.
	EnvironmentHooks tasks.EnvironmentHooks
	// Tokens are the bearer tokens that are accepted. None is an error unless
	// AllowAnonymousLoopback is set.
	Tokens []Token
	// AllowAnonymousLoopback lets requests without a token act as operator if they
	// come from this machine itself, not through a proxy and not from a page of
	// another site. For development only: every local user is an operator then.
	AllowAnonymousLoopback bool
	// MaxBody bounds a request's body in bytes; 0 means DefaultMaxBody. A body is
	// held in memory, and a batch of events is one write to Redis.
	MaxBody int64
	// MaxEvents bounds the events of one request; 0 means producer.DefaultMaxBatch.
	// More than the limit of Events would be refused there.
	MaxEvents int
	// MaxWait bounds await and wait; 0 means DefaultMaxWait. Proxies in between
	// must let a request be silent for that long.
	MaxWait time.Duration
	// StoreTimeout bounds each step on Events and Store apart from waiting; 0 means
	// DefaultStoreTimeout. Too short a value answers 503 while Redis is slow.
	StoreTimeout time.Duration
	// BodyTimeout bounds the reading of a body; 0 means DefaultBodyTimeout.
	BodyTimeout time.Duration
	// Checks are asked by /readyz, each by its name; nil means always ready.
	Checks map[string]Check
	// CheckTimeout bounds all checks of one /readyz; 0 means DefaultCheckTimeout.
	CheckTimeout time.Duration
	// Metrics answers /metrics; with nil there is no such page.
	Metrics http.Handler
	// Registerer takes the API's own metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
	// Logger receives one line per request and the text of internal errors; nil
	// discards them.
	Logger logrus.FieldLogger
}

// withDefaults fills in what a zero field stands for.
func (c Config) withDefaults() Config {
	if c.EnvironmentHooks == nil {
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, nil }
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.MaxEvents == 0 {
		c.MaxEvents = producer.DefaultMaxBatch
	}
	if c.MaxWait == 0 {
		c.MaxWait = DefaultMaxWait
	}
	if c.QuestionTimeout == 0 {
		c.QuestionTimeout = DefaultQuestionTimeout
	}
	if c.StoreTimeout == 0 {
		c.StoreTimeout = DefaultStoreTimeout
	}
	if c.BodyTimeout == 0 {
		c.BodyTimeout = DefaultBodyTimeout
	}
	if c.CheckTimeout == 0 {
		c.CheckTimeout = DefaultCheckTimeout
	}
	if c.Logger == nil {
		c.Logger = logging.Silent()
	}
	return c
}

// validate refuses a configuration that could only fail later.
func (c Config) validate() error {
	switch {
	case c.Events == nil:
		return errors.New("events is required")
	case c.Store == nil:
		return errors.New("store is required")
	case len(c.Tokens) == 0 && !c.AllowAnonymousLoopback:
		return errors.New("no token is configured, so that nobody could call; add one")
	case c.MaxBody < 0, c.MaxEvents < 0:
		return errors.New("a size limit is negative")
	case c.MaxWait < 0, c.StoreTimeout < 0, c.BodyTimeout < 0, c.CheckTimeout < 0, c.QuestionTimeout < 0:
		return errors.New("a timeout is negative")
	}
	for i, token := range c.Tokens {
		if token.Role != RoleRuntime && token.Role != RoleOperator {
			return fmt.Errorf("token %d has the role %q, want %q or %q", i, token.Role, RoleRuntime, RoleOperator)
		}
		if token.Value == "" {
			return fmt.Errorf("token %d is empty", i)
		}
	}
	return nil
}
