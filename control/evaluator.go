package control

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// Asker asks one control; *webhook.Deliverer is one. It may be called by several
// goroutines.
type Asker interface {
	Ask(ctx context.Context, req webhook.ControlRequest) webhook.ControlReply
}

// EvaluatorConfig says what an Evaluator works with.
type EvaluatorConfig struct {
	// Asker asks the controls. Required.
	Asker Asker
	// EnvironmentHooks are the deployment's own hooks, read anew for each question;
	// nil means that there are none.
	EnvironmentHooks tasks.EnvironmentHooks
	// Namespace is a part of the ids under which controls are asked, so that two
	// deployments are told apart. It may be empty.
	Namespace string
	// Logger hears of every control that is asked; nil means silence. Decisions are
	// debug lines, denials info, errors warnings.
	Logger logrus.FieldLogger
	// Registerer takes the metrics; nil means that nobody reads them.
	Registerer prometheus.Registerer
}

// Evaluator answers questions by asking the controls in force, one after the
// other, and applies their failure policy. It keeps no state between questions
// and may be used by several goroutines. Build one with NewEvaluator.
type Evaluator struct {
	asker       Asker
	environment tasks.EnvironmentHooks
	namespace   string
	log         logrus.FieldLogger
	metrics     *evaluatorMetrics
}

// NewEvaluator returns an Evaluator, or an error when cfg lacks what is required
// or a metric is refused.
func NewEvaluator(cfg EvaluatorConfig) (*Evaluator, error) {
	if cfg.Asker == nil {
		return nil, errors.New("check evaluator configuration: Asker is missing")
	}
	m, err := newEvaluatorMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	e := &Evaluator{
		asker: cfg.Asker, environment: cfg.EnvironmentHooks, namespace: cfg.Namespace, log: cfg.Logger, metrics: m,
	}
	if e.environment == nil {
		e.environment = func() ([]tasks.Hook, error) { return nil, nil }
	}
	if e.log == nil {
		e.log = logging.Silent()
	}
	return e, nil
}

// Evaluate asks the controls of q and returns the verdict (docs/behaviour.md
// §13). The first deny, or error under onError block, ends the chain. ctx carries
// the deadline of the whole chain: what it leaves no time for counts as a timeout
// of each control that is left. Any other end of ctx is a cancellation, which
// gives a cancelled verdict whatever was answered, and even if no control
// matches.
//
// An error means that there is no verdict and that nothing was sent: q or one of
// its lists of hooks is invalid (*tasks.InvalidError), or the environment's hooks
// are.
func (e *Evaluator) Evaluate(ctx context.Context, q tasks.Question) (tasks.Verdict, error) {
	if err := tasks.CheckTaskID(q.ID); err != nil {
		return tasks.Verdict{}, err
	}
	if err := tasks.CheckOperationID(q.OperationID); err != nil {
		return tasks.Verdict{}, err
	}
	ev, err := tasks.DecodeEvent(q.Type, q.OperationID, q.Event)
	if err != nil {
		return tasks.Verdict{}, err
	}
	env, err := e.environment()
	if err != nil {
		return tasks.Verdict{}, err
	}
	controls, err := Select(ev, q.Rounds, env)
	if err != nil {
		return tasks.Verdict{}, err
	}
	c := &chain{Evaluator: e, q: &q, verdict: tasks.Verdict{
		Version: tasks.WireVersion, ID: q.ID, Type: q.Type, By: tasks.ByWorker,
		Controls: make([]tasks.ControlResult, 0, len(controls)),
	}}
	c.run(ctx, controls)
	e.metrics.verdict(c.verdict.Outcome)
	return c.verdict, nil
}

// chain is one evaluation under way.
type chain struct {
	*Evaluator
	q       *tasks.Question
	verdict tasks.Verdict
	// open says that a control failed and let the call through.
	open bool
}

func (c *chain) run(ctx context.Context, controls []tasks.ControlInForce) {
	for i := range controls {
		if webhook.Cancelled(ctx) || c.decide(ctx, &controls[i]) {
			break
		}
	}
	switch {
	case webhook.Cancelled(ctx):
		// Nobody waits for what was decided meanwhile, and it must not stand.
		c.settle(tasks.VerdictCancelled, tasks.OutcomeCancelled, "")
	case c.verdict.Status != "":
	case len(controls) == 0:
		c.settle(tasks.VerdictAllow, tasks.OutcomeNone, "")
	case c.open:
		c.settle(tasks.VerdictAllow, tasks.OutcomeErrorOpen, "")
	default:
		c.settle(tasks.VerdictAllow, tasks.OutcomeAllowed, "")
	}
}

func (c *chain) settle(status tasks.VerdictStatus, outcome tasks.VerdictOutcome, reason string) {
	c.verdict.Status, c.verdict.Outcome, c.verdict.Reason = status, outcome, reason
}

// decide lets one control decide and reports whether the chain ends with it.
func (c *chain) decide(ctx context.Context, control *tasks.ControlInForce) bool {
	got := c.ask(ctx, control)
	policy := control.Hook.ErrorPolicy()
	c.verdict.Controls = append(c.verdict.Controls, tasks.ControlResult{
		HookID: control.Hook.ID, OperationID: control.OperationID, Class: got.reply.Class, Code: got.reply.Code(),
		Failure: got.reply.Failure, OnError: policy, Status: got.status, ElapsedMS: got.elapsed.Milliseconds(),
	})
	c.metrics.asked(&got)
	c.logAsked(control, &got)
	switch got.reply.Class {
	case tasks.ControlAllow, tasks.ControlNotification:
		return false
	case tasks.ControlDeny:
		c.settle(tasks.VerdictBlocked, tasks.OutcomeDenied, got.reply.Reason)
		return true
	case tasks.ControlCancelled:
		c.settle(tasks.VerdictCancelled, tasks.OutcomeCancelled, "")
		return true
	case tasks.ControlError:
	}
	// A class that is not known is an error like any other.
	if policy == tasks.PolicyBlock {
		c.settle(tasks.VerdictBlocked, tasks.OutcomeErrorClosed, tasks.ReasonControlError)
		return true
	}
	c.open = true
	c.metrics.failedOpen(got.reply.Code())
	return false
}
