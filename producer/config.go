package producer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// Mode says where hooks run (docs/behaviour.md §4).
type Mode string

// The modes; the zero value means ModeLocal.
const (
	// ModeLocal runs handlers and sends webhooks in this process.
	ModeLocal Mode = "local"
	// ModeQueue hands events to workers through Redis; handlers do not run.
	ModeQueue Mode = "queue"
	// ModeQStash hands events to workers through QStash, for a runtime that reaches
	// no Redis. Nobody hears what becomes of them; handlers do not run.
	ModeQStash Mode = "qstash"
)

// The defaults of Config.
const (
	DefaultAwaitTimeout  = 2 * time.Minute
	DefaultMaxBatch      = 10_000
	DefaultMaxBatchBytes = 64 << 20
)

// directoryAge is how long a published list of environment hooks is believed.
const directoryAge = 2 * time.Second

// Deliverer makes one attempt to deliver one event to one webhook. It must
// return once ctx ends, and never panic.
type Deliverer interface {
	Deliver(ctx context.Context, delivery webhook.Delivery) webhook.Result
}

// Config is what a Dispatcher needs. The zero value is a local dispatcher for
// handlers only.
type Config struct {
	// Mode is where hooks run; "" means ModeLocal.
	Mode Mode
	// Store holds the lanes. Required in queue mode, unused in local mode.
	Store Store
	// QStash is what QStash mode needs; unused in the others.
	QStash QStashConfig
	// Deliverer sends webhooks in local mode. With nil, each webhook of local mode
	// fails as a configuration failure. Unused in queue mode.
	Deliverer Deliverer
	// EnvironmentHooks reads the deployment's own hooks anew at each registration
	// and dispatch; an error fails both. With nil there are none. In queue mode the
	// workers deliver their own and these only add to what is known to match. In
	// QStash mode no others are known: what they do not match is not handed over.
	EnvironmentHooks tasks.EnvironmentHooks
	// Logger receives the failures of local mode and trouble with waiting; nil
	// discards them.
	Logger logrus.FieldLogger
	// Now is the clock of enqueuedAt, for people only; nil means time.Now.
	Now func() time.Time
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
	// AwaitTimeout bounds Dispatch in queue mode, Await and AwaitFirst when the
	// caller's context has no deadline; 0 means DefaultAwaitTimeout. Too short a
	// value makes a busy lane look unsettled.
	AwaitTimeout time.Duration
	// MaxBatch is the largest number of events of one EnqueueMany; 0 means
	// DefaultMaxBatch. A batch is one script, and Redis answers nobody else while
	// it runs.
	MaxBatch int
	// MaxBatchBytes bounds the task documents of one EnqueueMany, in bytes; 0 means
	// DefaultMaxBatchBytes. Each event carries its hooks along, so that many small
	// events of an operation with many hooks are large. What takes Redis longer than
	// a call may last is never stored, however often it is repeated.
	MaxBatchBytes int
	// Namespace separates deployments in delivery ids of local mode. It should be
	// the namespace of the lanes; "" is a namespace of its own.
	Namespace string
}

// withDefaults fills in what a zero field stands for.
func (c Config) withDefaults() Config {
	if c.Mode == "" {
		c.Mode = ModeLocal
	}
	if c.EnvironmentHooks == nil {
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, nil }
	}
	if c.Logger == nil {
		c.Logger = logging.Silent()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Mode == ModeQStash {
		c.QStash = c.QStash.withDefaults()
	}
	if c.AwaitTimeout == 0 {
		c.AwaitTimeout = DefaultAwaitTimeout
	}
	if c.MaxBatch == 0 {
		c.MaxBatch = DefaultMaxBatch
	}
	if c.MaxBatchBytes == 0 {
		c.MaxBatchBytes = DefaultMaxBatchBytes
	}
	return c
}

// validate refuses a configuration that could only fail later.
func (c Config) validate() error {
	switch {
	case c.Mode == ModeQStash:
		if err := c.QStash.validate(); err != nil {
			return err
		}
	case c.Mode != ModeLocal && c.Mode != ModeQueue:
		return fmt.Errorf("mode %q is none of %q, %q and %q", c.Mode, ModeLocal, ModeQueue, ModeQStash)
	case c.Mode == ModeQueue && c.Store == nil:
		return errors.New("queue mode needs a store")
	}
	switch {
	case c.AwaitTimeout < 0:
		return fmt.Errorf("await timeout %s is negative", c.AwaitTimeout)
	case c.MaxBatch < 0:
		return fmt.Errorf("max batch %d is negative", c.MaxBatch)
	case c.MaxBatchBytes < 0:
		return fmt.Errorf("max batch bytes %d is negative", c.MaxBatchBytes)
	}
	return nil
}
