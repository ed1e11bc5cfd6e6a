package deferred

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/internal/inbox"
	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Store keeps the rows. Its steps are atomic, and safe to repeat after a lost
// reply; errors are ErrNotFound, ErrReused and ErrUnavailable.
type Store interface {
	// Open stores a row, final or not, unless the same one is there; the row that
	// stands is returned.
	Open(ctx context.Context, o Opening) (Row, error)
	// Read returns a row and, while it is not final, lets inbox hear when it is. ""
	// listens to nothing.
	Read(ctx context.Context, id, inbox string) (Row, error)
	// Publish makes a row final, unless it is; published tells whether this
	// publication is the one that stands.
	Publish(ctx context.Context, p Publication) (row Row, published bool, err error)
	Inboxes
}

// Inboxes hear which rows became final.
type Inboxes interface {
	// Hear blocks until inbox has heard of rows of a shard, for some seconds at most,
	// and returns their ids.
	Hear(ctx context.Context, shard int, inbox string) (ids []string, err error)
	// Shards is the number of shards to listen on, at least 1.
	Shards() int
}

// Publication is a result on its way into a row.
type Publication struct {
	// ID is the placeholder's, Token that of this one attempt: repeating it is known
	// by it.
	ID, Token string
	// Result is a JSON object.
	Result json.RawMessage
	// Denied says that Result stands in for one that a control denied.
	Denied bool
}

// Controls answer questions about tool calls; a *control.Client is one.
type Controls interface {
	Evaluate(ctx context.Context, q control.Request) (tasks.Verdict, error)
}

// PolicyStore knows the caller hooks of operations, as JSON arrays of serialized
// hooks. An error is never an empty list: it fails the completion, and nothing is
// published (docs/behaviour.md §18).
type PolicyStore interface {
	// Snapshot returns the hooks of an operation that runs; ok is false when it has
	// no live snapshot. Its list counts even when it is empty.
	Snapshot(ctx context.Context, operationID string) (hooks json.RawMessage, ok bool, err error)
	// Durable returns the hooks that were recorded with an operation. A record
	// without a list, and no record, are no hooks.
	Durable(ctx context.Context, operationID string) (hooks json.RawMessage, ok bool, err error)
}

// Notifier takes the afterToolCall notification of a published result; a
// *producer.Dispatcher is one. It should store the event and not wait for hooks.
type Notifier interface {
	Notify(ctx context.Context, n tasks.Notification) (pending bool, err error)
}

// Directory lists the workers that are alive, with the environment hooks they have.
type Directory interface {
	Workers(ctx context.Context) ([]lane.WorkerInfo, error)
}

// Config is what a Service needs. Store, Controls and Policies are required.
type Config struct {
	Store    Store
	Controls Controls
	Policies PolicyStore
	// EnvironmentHooks reads the deployment's own hooks anew at each completion; an
	// error fails it. nil means that this process has none.
	EnvironmentHooks tasks.EnvironmentHooks
	// Directory tells of environment hooks that only workers have; nil means that
	// there are none. It is asked only for rows whose call cannot be rebuilt.
	Directory Directory
	// Notifier is told of each published result, once and best effort: a process that
	// dies in between tells nobody. nil tells nobody.
	Notifier Notifier
	// SettleTimeout bounds publishing and notifying, which go on when the caller is
	// gone; 0 means DefaultSettleTimeout.
	SettleTimeout time.Duration
	// Logger receives denials and trouble; nil discards them.
	Logger logrus.FieldLogger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

// DefaultSettleTimeout bounds what must not end with its caller.
const DefaultSettleTimeout = 10 * time.Second

func (c Config) withDefaults() Config {
	if c.EnvironmentHooks == nil {
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, nil }
	}
	if c.SettleTimeout == 0 {
		c.SettleTimeout = DefaultSettleTimeout
	}
	if c.Logger == nil {
		c.Logger = logging.Silent()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Store == nil:
		return errors.New("a store is required")
	case c.Controls == nil:
		return errors.New("controls are required")
	case c.Policies == nil:
		return errors.New("a policy store is required")
	case c.SettleTimeout < 0:
		return fmt.Errorf("settle timeout %s is negative", c.SettleTimeout)
	}
	return nil
}

// Service opens, completes and awaits deferred results. It is safe for concurrent
// use by any number of processes over one store.
type Service struct {
	config  Config
	metrics *metrics
	inbox   *inbox.Inbox[string]
}

// New builds a Service. It touches no network; the first Await starts one
// goroutine per shard, which Close ends.
func New(config Config) (*Service, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure deferred results: %w", err)
	}
	counters, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics of deferred results: %w", err)
	}
	ears := inbox.Config[string]{Source: config.Store, Logger: config.Logger, Lost: logInboxLost, Restored: logInboxHeard}
	return &Service{config: config, metrics: counters, inbox: inbox.New(ears)}, nil
}

// Close ends waiting calls with ErrClosed and returns once no goroutine of the
// Service runs. It is idempotent, and leaves the store open.
func (s *Service) Close() { s.inbox.Close() }

// Open stores a placeholder and returns the row that stands. It is idempotent by
// id and content: the same placeholder again reads the row as it is by now, and
// another one under the same id is ErrReused. Content makes the row final. The
// result controls that the operations have now are recorded with the row, so that
// a result that comes after the end of an operation does not escape them; a policy
// that cannot be read fails the call.
func (s *Service) Open(ctx context.Context, p Placeholder) (Row, error) {
	p, err := p.check()
	if err != nil {
		return Row{}, err
	}
	opening := Opening{Placeholder: p}
	if p.Content == "" {
		if opening.Recorded, err = s.record(ctx, p); err != nil {
			return Row{}, err
		}
	}
	return s.config.Store.Open(ctx, opening)
}

// Get returns a row; ErrNotFound when it is not known or has expired.
func (s *Service) Get(ctx context.Context, id string) (Row, error) {
	if err := tasks.CheckTaskID(id); err != nil {
		return Row{}, err
	}
	return s.config.Store.Read(ctx, id, "")
}
