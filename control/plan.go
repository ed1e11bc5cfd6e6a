package control

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// plan is a question that can be asked, and the controls that it is known to
// reach.
type plan struct {
	// began is when the question was asked: its time runs from then on.
	began    time.Time
	question tasks.Question
	chain    []OperationHooks
	controls []tasks.ControlInForce
	// known says that the workers' environment controls are among controls.
	known  bool
	policy tasks.ErrorPolicy
}

// mute reports whether nobody has to be asked.
func (p *plan) mute() bool { return p.known && len(p.controls) == 0 }

// plan reads a request. An error means that nothing was sent.
func (c *Client) plan(ctx context.Context, req *Request) (*plan, error) {
	began, timeout := time.Now(), req.Timeout
	if timeout == 0 {
		timeout = c.cfg.Timeout
	}
	if err := checkRequest(req); err != nil {
		return nil, err
	}
	reading, cancel := context.WithDeadline(ctx, began.Add(timeout))
	defer cancel()
	rounds, err := c.rounds(reading, req)
	if err != nil {
		return nil, err
	}
	env, known, err := c.environment(reading, timeout/4)
	if err != nil {
		return nil, err
	}
	controls, err := Select(req.Event, rounds, env)
	if err != nil {
		return nil, err
	}
	p := &plan{began: began, chain: req.Chain, controls: controls, known: known, policy: tasks.StrictestPolicy(controls)}
	if !known && c.cfg.UnknownEnvironment == tasks.PolicyBlock {
		p.policy = tasks.PolicyBlock
	}
	p.question = tasks.Question{
		ID: req.ID, OperationID: req.Event.OperationID, Type: req.Event.Type, Event: req.Event.Raw,
		Rounds: rounds, Timeout: timeout, Trace: req.Trace,
	}
	if p.question.ID == "" {
		p.question.ID = tasks.NewID()
	}
	return p, nil
}

// environment returns the hooks of this process and those that workers publish
// beside them; known is false when nobody knows what workers have. It waits for
// patience at most, when it is asked for the first time.
func (c *Client) environment(ctx context.Context, patience time.Duration) (env []tasks.Hook, known bool, err error) {
	if env, err = c.cfg.EnvironmentHooks(); err != nil {
		return nil, false, fmt.Errorf("read environment hooks: %w", err)
	}
	if c.directory == nil {
		return env, c.cfg.Exchange == nil, nil
	}
	published, known := c.directory.controls(ctx, patience)
	if len(env) == 0 || len(published) == 0 {
		return append(published[:len(published):len(published)], env...), known, nil
	}
	all := make([]tasks.Hook, 0, len(published)+len(env))
	for i := range published {
		own := func(h tasks.Hook) bool { return h.Control() && sameControl(&published[i], &h) }
		if !slices.ContainsFunc(env, own) {
			all = append(all, published[i])
		}
	}
	return append(all, env...), known, nil
}

func checkRequest(req *Request) error {
	if req.Event == nil {
		return &tasks.InvalidError{Code: tasks.InvalidEvent, Path: "event", Message: "event is missing", Fix: "give a tool event"}
	}
	if req.ID != "" {
		if err := tasks.CheckTaskID(req.ID); err != nil {
			return err
		}
	}
	if req.Timeout < 0 || (req.Timeout > 0 && req.Timeout < time.Millisecond) {
		return &tasks.InvalidError{
			Code: tasks.InvalidTimeout, Path: "timeout", Message: "timeout is no time", Fix: "give at least a millisecond, or 0",
		}
	}
	for i := range req.Chain {
		if err := tasks.CheckOperationID(req.Chain[i].OperationID); err != nil {
			return inRound(err, i)
		}
	}
	return tasks.CheckOperationID(req.Event.OperationID)
}

// rounds completes the chain of a request with the hooks that are registered.
func (c *Client) rounds(ctx context.Context, req *Request) ([]tasks.Round, error) {
	if req.Chain == nil {
		hooks, err := c.hooksOf(ctx, req.Event.OperationID)
		if err != nil || hooks == nil {
			return nil, err
		}
		return []tasks.Round{{OperationID: req.Event.OperationID, Hooks: hooks}}, nil
	}
	rounds := make([]tasks.Round, len(req.Chain))
	for i, link := range req.Chain {
		hooks := link.Hooks
		if hooks == nil {
			var err error
			if hooks, err = c.hooksOf(ctx, link.OperationID); err != nil {
				return nil, err
			}
		}
		rounds[i] = tasks.Round{OperationID: link.OperationID, Hooks: hooks}
	}
	return rounds, nil
}

func (c *Client) hooksOf(ctx context.Context, operationID string) (json.RawMessage, error) {
	if c.cfg.Hooks == nil {
		return nil, nil
	}
	hooks, err := c.cfg.Hooks.ControlHooks(ctx, operationID)
	if err != nil {
		return nil, fmt.Errorf("read hooks of operation %q: %w", operationID, err)
	}
	return hooks, nil
}

// digest fingerprints what the caller asked: phase, event, and the chain that it
// named. Registered hooks may change between two askings of the same question.
func (p *plan) digest() string {
	if p.chain == nil {
		return tasks.ContentDigest(p.question.Type, p.question.Event)
	}
	h := sha256.New()
	h.Write([]byte(p.question.Type))
	part := func(b []byte) {
		h.Write(binary.AppendUvarint(nil, uint64(len(b))))
		h.Write(b)
	}
	part(p.question.Event)
	for _, link := range p.chain {
		part([]byte(link.OperationID))
		if link.Hooks != nil {
			part(link.Hooks)
		} else {
			h.Write([]byte{0xff})
		}
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:9])
}

// Asked is a control that a question would reach.
type Asked struct {
	HookID string
	// OperationID is whose hook it is; "" for an environment hook.
	OperationID string
	Environment bool
	// Matcher selects tools; nil means every tool.
	Matcher *string
	// OnError is the failure policy, never ""; OnErrorSet says that the hook names it,
	// and does not have it by default.
	OnError    tasks.ErrorPolicy
	OnErrorSet bool
	// Timeout bounds the control's answer; 0 for an environment hook of a worker,
	// which only the worker knows.
	Timeout time.Duration
	// Err says why the matcher gave no answer: the control then fails with the class
	// configuration. nil otherwise.
	Err error
}

// Controls returns the controls that a question would reach, in order, without
// asking anybody. It fails as Evaluate does.
func (c *Client) Controls(ctx context.Context, req Request) ([]Asked, error) {
	p, err := c.plan(ctx, &req)
	if err != nil {
		return nil, err
	}
	list := make([]Asked, 0, len(p.controls))
	for i := range p.controls {
		list = append(list, describe(&p.controls[i]))
	}
	return list, nil
}

func describe(c *tasks.ControlInForce) Asked {
	a := Asked{
		HookID: c.Hook.ID, OperationID: c.OperationID, Environment: c.Hook.Environment(), Matcher: c.Hook.Matcher,
		OnError: c.Hook.ErrorPolicy(), OnErrorSet: c.Hook.Webhook.OnError != "", Err: c.Err,
	}
	switch t := c.Hook.Webhook.Timeout; {
	case t > 0:
		a.Timeout = time.Duration(t * float64(time.Second))
	case c.Hook.Webhook.URL != "":
		a.Timeout = tasks.DefaultTimeout
	}
	return a
}
