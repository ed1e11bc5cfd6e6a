package toolcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
)

// The defaults of Config.
const (
	DefaultBackgroundTimeout = 2 * time.Minute
	DefaultMaxBackground     = 10_000
)

// Controls asks whether a call may go ahead and whether its result may be used;
// a *control.Client does. The end of ctx must give a cancelled verdict or an
// error, never permission.
type Controls interface {
	Evaluate(ctx context.Context, request control.Request) (tasks.Verdict, error)
}

// Mocks asks the handlers of this process for a result in place of the tool's; a
// *producer.Dispatcher does. The result is nil when nobody mocks.
type Mocks interface {
	DispatchBeforeToolCall(ctx context.Context, operationID string, event *tasks.Event) (*tasks.MockResult, error)
}

// Observer takes events to those who observe them; a *producer.Dispatcher does.
// Both methods must return soon after ctx ends.
type Observer interface {
	// Notify hands an event over and returns once it is stored, or, where nothing is
	// stored, once its hooks have run. pending says that Attempted can tell more.
	// lane.ErrUnavailable means that the same notification may be repeated.
	Notify(ctx context.Context, n tasks.Notification) (pending bool, err error)
	// Attempted waits until each hook of the event had its first attempt. Its error
	// says that a critical one failed.
	Attempted(ctx context.Context, operationID, id string) error
}

// CallerHooks says which of the caller's hooks count for an operation when a
// stored list is passed along (docs/behaviour.md §4); a *producer.Dispatcher
// does. It returns nil when it knows of none.
type CallerHooks interface {
	CallerHooks(operationID string, persisted json.RawMessage) (json.RawMessage, error)
}

// Failure is a notification that did not reach everybody whom it should. It is
// reported and changes nothing for the call.
type Failure struct {
	OperationID string
	Type        tasks.HookType
	// ToolCallID and ID name the call and the event.
	ToolCallID, ID string
	// Err is a *producer.CriticalHookDeliveryError, say, or why the event could not be
	// handed over. It holds nothing of the event.
	Err error
}

// Config is what a Runner needs. The zero value lacks its Controls.
type Config struct {
	// Controls decides about calls and results. Required: a runtime without controls
	// has no use for this package.
	Controls Controls
	// Mocks asks local handlers; nil means that nothing is mocked.
	Mocks Mocks
	// Observer takes the events of the call; nil means that nobody observes.
	Observer Observer
	// Hooks knows what this process has registered; nil means that the stored list
	// of a call counts as it is, and else what Controls knows.
	Hooks CallerHooks
	// OnFailure hears of each notification that failed, critical observations among
	// them. It is called from a goroutine of the Runner and must not block. In queue
	// mode it makes the Runner wait, in the background, for the first attempts. nil
	// leaves it to the logs and metrics of Runner and worker.
	OnFailure func(Failure)
	// BackgroundTimeout bounds one hand-over, and one wait for first attempts; 0 means
	// DefaultBackgroundTimeout. While the queue is away a hand-over is repeated, so
	// that too short a value loses notifications in an outage.
	BackgroundTimeout time.Duration
	// MaxBackground bounds the hand-overs that wait or run at a time; 0 means
	// DefaultMaxBackground. What comes on top is given up and reported.
	MaxBackground int
	// Logger receives failures; nil discards them.
	Logger logrus.FieldLogger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

// withDefaults fills in what a zero field stands for.
func (c Config) withDefaults() Config {
	if c.BackgroundTimeout == 0 {
		c.BackgroundTimeout = DefaultBackgroundTimeout
	}
	if c.MaxBackground == 0 {
		c.MaxBackground = DefaultMaxBackground
	}
	if c.Logger == nil {
		c.Logger = logging.Silent()
	}
	return c
}

// validate refuses a configuration that could only fail later.
func (c Config) validate() error {
	switch {
	case c.Controls == nil:
		return errors.New("controls are missing")
	case c.BackgroundTimeout < 0:
		return fmt.Errorf("background timeout %s is negative", c.BackgroundTimeout)
	case c.MaxBackground < 0:
		return fmt.Errorf("background limit %d is negative", c.MaxBackground)
	}
	return nil
}

// Runner runs tool calls. Build one with New and keep it for the life of the
// process; it is safe for concurrent use.
type Runner struct {
	config     Config
	metrics    *metrics
	background *background
}

// New builds a Runner. Nothing runs yet.
func New(config Config) (*Runner, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure tool call runner: %w", err)
	}
	counters, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register tool call metrics: %w", err)
	}
	return &Runner{
		config: config, metrics: counters,
		background: newBackground(config.MaxBackground, counters.pending),
	}, nil
}

// Flush waits until each notification of the operation that was started before is
// handed over. Call it before the operation's terminal event, which could
// overtake them otherwise. It fails with the cause of ctx's end.
func (r *Runner) Flush(ctx context.Context, operationID string) error {
	if err := r.background.flush(ctx, operationID); err != nil {
		return fmt.Errorf("flush notifications of operation %q: %w", operationID, err)
	}
	return nil
}

// Close takes no more notifications and waits for those that were started. When
// ctx ends first, it cuts them off and fails with the cause of ctx's end. No
// goroutine of the Runner is left when it returns. It is idempotent.
func (r *Runner) Close(ctx context.Context) error {
	if err := r.background.close(ctx); err != nil {
		return fmt.Errorf("close tool call runner: %w", err)
	}
	return nil
}
