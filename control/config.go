package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// HookSource knows the caller hooks of operations.
type HookSource interface {
	// ControlHooks returns the raw array of an operation's serialized hooks; nil
	// means that none are registered. An error is never read as "none". It must
	// return once ctx ends, which is at the question's deadline at the latest.
	ControlHooks(ctx context.Context, operationID string) (json.RawMessage, error)
}

// Directory knows what the live workers publish about their environment hooks.
type Directory interface {
	Workers(ctx context.Context) ([]lane.WorkerInfo, error)
}

// Judge asks the controls of a question in this process. It must return once ctx
// ends: cancelled when it was cancelled, by the failure policy when its deadline
// came. An error means that the question, its hooks or the environment is invalid.
// *Evaluator is one.
type Judge interface {
	Evaluate(ctx context.Context, q tasks.Question) (tasks.Verdict, error)
}

// Config configures a Client. The zero value is not usable: Exchange or Evaluator
// is required.
type Config struct {
	// Exchange carries questions to workers. nil means local mode: Evaluator answers
	// in this process.
	Exchange Exchange
	// Evaluator answers in local mode, and is not used otherwise.
	Evaluator Judge
	// Hooks knows the caller hooks of operations that a Request gives none for; nil
	// means that there are none.
	Hooks HookSource
	// Directory tells which environment controls the workers have. With nil nobody
	// knows, so that every question is asked and UnknownEnvironment holds for all of
	// them. Not used in local mode.
	Directory Directory
	// EnvironmentHooks reads the environment hooks of this process anew at each
	// question; an error fails it. With an Exchange they add to what is known to
	// match, and the workers ask their own. nil means none.
	EnvironmentHooks tasks.EnvironmentHooks
	// Timeout bounds the whole chain of a question that names no other; 0 means
	// DefaultTimeout. A long one holds up the runtime when nobody answers, a short one
	// leaves decisions to the failure policy.
	Timeout time.Duration
	// UnknownEnvironment is the failure policy of the environment controls as long as
	// nobody has learned them; "" means PolicyBlock. With PolicyContinue a deployment
	// without a worker lets every call through whose own controls do not block.
	UnknownEnvironment tasks.ErrorPolicy
	// Logger receives unanswered questions and trouble with Redis; nil discards them.
	Logger logrus.FieldLogger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	if c.EnvironmentHooks == nil {
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, nil }
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.UnknownEnvironment == "" {
		c.UnknownEnvironment = tasks.PolicyBlock
	}
	if c.Logger == nil {
		c.Logger = logging.Silent()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Exchange == nil && c.Evaluator == nil:
		return errors.New("control: Exchange or Evaluator is required")
	case c.Timeout < 0:
		return fmt.Errorf("control: Timeout %s is negative", c.Timeout)
	case c.UnknownEnvironment != tasks.PolicyBlock && c.UnknownEnvironment != tasks.PolicyContinue:
		return fmt.Errorf("control: UnknownEnvironment %q is neither block nor continue", c.UnknownEnvironment)
	}
	return nil
}

// margin is how long before its deadline an asker gives a question up, so that
// the verdict can be settled in time. A worker stops twice as early, so that its
// own verdict about controls that took too long comes first.
func margin(timeout time.Duration) time.Duration {
	return min(max(timeout/20, 10*time.Millisecond), 100*time.Millisecond, timeout/4)
}
