package taskdoor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

// Path is where the door stands on a server.
const Path = "/v1/qstash/tasks"

// The defaults of Config.
const (
	DefaultMaxBody     = 1 << 20
	DefaultConcurrency = 50
	DefaultLeaseMargin = 30 * time.Second
)

// Verifier decides whether a request comes from QStash; *qstash.Verifier is one.
type Verifier interface {
	Verify(signatureHeaders []string, url string, body []byte) (qstash.Verified, error)
}

// Lanes takes events in; *redislane.Store is one.
type Lanes interface {
	Append(ctx context.Context, operationID string, items []lane.Item) ([]lane.Appended, error)
}

// Deliverer makes one attempt to deliver one event to one webhook;
// *webhook.Deliverer is one.
type Deliverer interface {
	Deliver(ctx context.Context, d webhook.Delivery) webhook.Result
}

// Backoff guesses when QStash comes again after a failure: Initial, and Factor
// times as long each further time, up to Max. It is what the runtime asks of
// QStash; a wrong guess makes later messages ask too often or too seldom.
type Backoff struct {
	Initial time.Duration
	Factor  float64
	Max     time.Duration
}

// Config is what a Door needs.
type Config struct {
	// URL is the door's public URL, byte for byte as the runtimes publish to it.
	// Required: what is signed for another URL is refused, and the request itself says
	// nothing about it that can be trusted.
	URL string
	// Verifier checks what QStash signed. Required.
	Verifier Verifier
	// Keys check what a runtime signed itself; with none, only QStash comes in.
	Keys signature.Keys
	// Lanes takes whole tasks; nil without Redis.
	Lanes Lanes
	// Deliverer delivers at once what is for one hook, and whole tasks without Lanes.
	// nil refuses them.
	Deliverer Deliverer
	// Claims is required. Processes behind one address must share it.
	Claims Claims
	// EnvironmentHooks reads the deployment's own hooks anew for each task; nil means
	// none.
	EnvironmentHooks tasks.EnvironmentHooks
	// Namespace is part of every delivery id and must be that of the runtimes.
	Namespace string
	// MaxBody bounds a message in bytes; 0 means DefaultMaxBody. Make it the largest
	// that the account's plan takes.
	MaxBody int64
	// Concurrency bounds the deliveries made at once; 0 means DefaultConcurrency.
	Concurrency int
	// LeaseMargin is added to the time that the deliveries of a message may take, and
	// is how long the work of a process that died lies idle; 0 means
	// DefaultLeaseMargin.
	LeaseMargin time.Duration
	// Backoff is the one that the runtimes ask of QStash; the zero value means
	// QStash's own.
	Backoff Backoff
	// Now is the clock of the runtimes' signatures; nil means time.Now.
	Now func() time.Time
	// Logger is required.
	Logger logrus.FieldLogger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	if c.EnvironmentHooks == nil {
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, nil }
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Concurrency == 0 {
		c.Concurrency = DefaultConcurrency
	}
	if c.LeaseMargin == 0 {
		c.LeaseMargin = DefaultLeaseMargin
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c Config) validate() error {
	switch address, err := url.Parse(c.URL); {
	case err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https":
		return errors.New("URL must be the public http or https URL of the endpoint")
	case c.Verifier == nil || c.Claims == nil || c.Logger == nil:
		return errors.New("Verifier, Claims and Logger are required")
	case c.Lanes == nil && c.Deliverer == nil:
		return errors.New("Lanes or a Deliverer is required")
	case c.MaxBody < 0 || c.Concurrency < 0 || c.LeaseMargin < 0:
		return errors.New("MaxBody, Concurrency and LeaseMargin must not be negative")
	}
	return nil
}

// after is the pause before QStash's next attempt when retried were repeated so
// far.
func (b Backoff) after(retried int) time.Duration {
	if b.Initial <= 0 {
		// QStash's own: e to the power of 2.5 for each attempt, up to a day.
		seconds := math.Exp(2.5 * float64(retried+1))
		return time.Duration(min(seconds, (24*time.Hour).Seconds()) * float64(time.Second))
	}
	pause := float64(b.Initial) * math.Pow(max(b.Factor, 1), float64(retried))
	if b.Max > 0 {
		pause = min(pause, float64(b.Max))
	}
	return time.Duration(min(pause, float64(7*24*time.Hour)))
}

// New returns a Door, or an error when config cannot work.
func New(config Config) (*Door, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure task door: %w", err)
	}
	counter, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register task door metrics: %w", err)
	}
	return &Door{config: config, metrics: counter, slots: make(chan struct{}, config.Concurrency), closing: make(chan struct{})}, nil
}
