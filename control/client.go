package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
)

// Client asks questions. It is safe for concurrent use; New makes one, and Close
// ends what it runs. Waiting costs no goroutine but the caller's own.
type Client struct {
	cfg     Config
	log     logrus.FieldLogger
	metrics *clientMetrics
	// inbox and directory are nil in local mode, directory also without a source.
	inbox     *inbox
	directory *directory

	end       context.CancelFunc
	directing sync.WaitGroup
}

// New checks a configuration and makes a Client. With a Directory it starts to
// look at it in the background.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	counters, err := newClientMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, log: cfg.Logger, metrics: counters}
	ctx, cancel := context.WithCancel(context.Background())
	c.end = cancel
	if cfg.Exchange == nil {
		return c, nil
	}
	c.inbox = newInbox(cfg.Exchange, cfg.Logger)
	if cfg.Directory != nil {
		c.directory = newDirectory(cfg.Directory, cfg.Logger)
		c.directing.Go(func() { c.directory.run(ctx) })
	}
	return c, nil
}

// Close ends the client. Calls that still wait cancel their questions. It is
// idempotent.
func (c *Client) Close() {
	c.end()
	if c.inbox != nil {
		c.inbox.close()
	}
	c.directing.Wait()
}

// Evaluate asks and waits for the verdict, until the deadline at most: then, and
// when Redis does not answer, the failure policy decides (docs/behaviour.md §13).
// The end of ctx cancels the question, and the verdict is then cancelled whatever
// others read; with the cause tasks.ErrDetached the question goes on without the
// caller instead, unless it is asked in this process, and the error is ErrPending,
// or ErrUnavailable when nobody has it yet.
// An error means that there is no verdict and so no permission: the request, its
// hooks or the environment is invalid, a source of hooks failed, or the id is used
// (*ReusedError).
func (c *Client) Evaluate(ctx context.Context, req Request) (tasks.Verdict, error) {
	p, v, err := c.prepare(ctx, &req)
	if err != nil {
		return tasks.Verdict{}, err
	}
	if v == nil {
		done := c.metrics.waiting()
		var answer tasks.Verdict
		if c.inbox == nil {
			answer, err = c.judge(ctx, p)
		} else {
			answer, err = c.ask(ctx, p)
		}
		done()
		if err != nil {
			return tasks.Verdict{}, err
		}
		v = &answer
	}
	c.metrics.verdict(v)
	return *v, nil
}

// prepare plans a question; the verdict is not nil when nobody has to be asked.
func (c *Client) prepare(ctx context.Context, req *Request) (*plan, *tasks.Verdict, error) {
	if c.inbox != nil && c.inbox.isClosing() {
		return nil, nil, ErrClosed
	}
	p, err := c.plan(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	var v tasks.Verdict
	switch {
	case ctx.Err() != nil && (!detached(ctx) || c.inbox == nil):
		v = cancelled(p.question.ID, p.question.Type)
	case p.mute():
		v = noControl(&p.question)
	default:
		return p, nil, nil
	}
	return p, &v, nil
}

// judge evaluates in this process.
func (c *Client) judge(ctx context.Context, p *plan) (tasks.Verdict, error) {
	chain, cancel := context.WithDeadline(ctx, p.began.Add(p.question.Timeout))
	defer cancel()
	v, err := c.cfg.Evaluator.Evaluate(chain, p.question)
	switch {
	case err != nil:
		return tasks.Verdict{}, err
	case ctx.Err() != nil:
		// The caller's own deadline is the caller going away as well, not the chain's end.
		gone := cancelled(p.question.ID, p.question.Type)
		gone.Controls = v.Controls
		return gone, nil
	}
	v.By = tasks.ByAsker
	return v, nil
}

// submitTimeout bounds one call of an exchange.
const submitTimeout = 2 * time.Second

// Submit hands a question over and returns at once with its id, to be awaited in
// this process or another. The verdict is not nil when it is known already. With
// ErrUnavailable the question may have been asked; submitting it again with the
// same id is safe. ErrLocal in local mode, else it fails as Evaluate does.
func (c *Client) Submit(ctx context.Context, req Request) (id string, v *tasks.Verdict, err error) {
	if c.inbox == nil {
		return "", nil, ErrLocal
	}
	p, v, err := c.prepare(ctx, &req)
	if err != nil {
		return "", nil, err
	}
	if v == nil {
		ctx, cancel := context.WithTimeout(ctx, submitTimeout)
		defer cancel()
		standing, err := c.cfg.Exchange.Post(ctx, c.posting(p, ""))
		if err != nil {
			return p.question.ID, nil, err
		}
		v = standing.Verdict
	}
	if v != nil {
		c.metrics.verdict(v)
	}
	return p.question.ID, v, nil
}

// Cancel takes a question back, so that workers stop asking for it, and returns
// the verdict that stands: cancelled, or the one that was there before. It fails
// with ErrNotFound, ErrUnavailable, or ErrLocal in local mode.
func (c *Client) Cancel(ctx context.Context, operationID, id string) (tasks.Verdict, error) {
	if c.inbox == nil {
		return tasks.Verdict{}, ErrLocal
	}
	name := c.cfg.Exchange.Name(operationID, id)
	standing, err := c.cfg.Exchange.Look(ctx, name, "")
	if err != nil {
		return tasks.Verdict{}, err
	}
	v := standing.Verdict
	if v == nil {
		taken := cancelled(id, standing.Type)
		settled, err := c.cfg.Exchange.Settle(ctx, &Settlement{
			Name: name, Verdict: &taken, Writer: tasks.NewID(), Source: tasks.ByAsker,
		})
		if err != nil {
			return tasks.Verdict{}, err
		}
		v = &settled.Verdict
	}
	c.metrics.verdict(v)
	return *v, nil
}

// Await waits for the verdict of a question that was submitted, here or in another
// process. It fails with ErrPending when ctx ends first, which leaves the question
// alone; ctx may have ended before, to look once. ErrNotFound when the question is
// not known, ErrLocal in local mode.
func (c *Client) Await(ctx context.Context, operationID, id string) (tasks.Verdict, error) {
	if c.inbox == nil {
		return tasks.Verdict{}, ErrLocal
	}
	w := c.inbox.join(c.cfg.Exchange.Name(operationID, id), "")
	defer c.inbox.leave(w)
	v, err := c.await(ctx, w)
	if err != nil {
		return tasks.Verdict{}, err
	}
	c.metrics.verdict(&v)
	return v, nil
}

func (c *Client) await(ctx context.Context, w *waiter) (tasks.Verdict, error) {
	pause := postPauseMin
	for {
		var after time.Duration
		standing, err := c.look(ctx, w)
		switch {
		case err == nil && standing.Verdict != nil:
			return *standing.Verdict, nil
		case err == nil:
			// The register knows the deadline: past it, it has a verdict.
			after, pause = standing.Left+time.Millisecond, postPauseMin
		case errors.Is(err, ErrUnavailable):
			after, pause = wait.Jitter(pause), min(2*pause, postPauseMax)
		default:
			return tasks.Verdict{}, err
		}
		timer := time.NewTimer(after)
		select {
		case v := <-w.heard:
			if v != nil {
				return *v, nil
			}
		case <-timer.C:
		case <-ctx.Done():
			return tasks.Verdict{}, pending(context.Cause(ctx), err)
		case <-c.inbox.closing:
			return tasks.Verdict{}, pending(ErrClosed, err)
		}
		timer.Stop()
	}
}

func (c *Client) look(ctx context.Context, w *waiter) (Standing, error) {
	// A caller without patience gets one look all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitTimeout)
	defer cancel()
	return c.cfg.Exchange.Look(ctx, w.name, c.inbox.name)
}

func pending(cause, trouble error) error {
	if trouble != nil {
		cause = errors.Join(cause, trouble)
	}
	return fmt.Errorf("%w: %w", ErrPending, cause)
}
