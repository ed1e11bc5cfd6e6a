package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
	"github.com/gantry-hooks/gantry/cmd/internal/feed"
	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
)

// hooksExplainCmd is "gantry hooks explain".
type hooksExplainCmd struct {
	apiFlags
	Operation string `arg:"" help:"Operation of the tool call." name:"operation"`
	Tool      string `arg:"" help:"Tool and its function, such as mail/send." name:"tool"`
	Phase     string `help:"Before the tool runs, after it, or both." enum:"before,after,both" default:"both" placeholder:"before|after|both"`
	Hooks     string `help:"Explain this file of hooks, without a running system." type:"path" placeholder:"FILE"`
	Strict    bool   `help:"Exit with 1 when a default or a policy would let a call through on error."`
	JSON      bool   `name:"json" help:"One JSON object a phase, one a line."`
}

// Help is the manual of the command.
func (*hooksExplainCmd) Help() string {
	return `Shows which controls a tool call would meet, in the order in which they are asked: whose they are, what an error means, and how
long they have. It asks none of them. Every default that would let a call through on error is listed.

On a running system the hooks are those that are registered for the operation, and those of the deployment. With --hooks they are
those of a file, and those of this environment (AGENT_HOOK_WEBHOOK_*); nothing needs to run. Hooks that a Go process registers in
itself are known to it alone.

Examples:

  gantry hooks explain run-1 mail/send
  gantry hooks explain run-1 mail/send --hooks hooks.yaml
  gantry hooks explain run-1 mail/send --phase before --json | jq '.letsThrough'`
}

// explanation is what is known of one phase.
type explanation struct {
	OperationID string         `json:"operationId"`
	Tool        string         `json:"tool"`
	Type        tasks.HookType `json:"type"`
	// Controls are in the order in which they are asked.
	Controls []client.Control `json:"controls"`
	// Unanswered is what holds when nobody answers by the deadline; "" without a
	// control.
	Unanswered tasks.ErrorPolicy `json:"unanswered,omitempty"`
	// LetsThrough lists what would let a call through on error.
	LetsThrough []leniency `json:"letsThrough"`
}

// leniency is a control whose error lets the call through.
type leniency struct {
	HookID      string `json:"hookId,omitempty"`
	OperationID string `json:"operationId,omitempty"`
	Environment bool   `json:"environment"`
	// Default says that onError is not set; otherwise somebody chose continue.
	Default bool   `json:"default"`
	Message string `json:"message"`
}

// Run explains.
func (c *hooksExplainCmd) Run(ctx context.Context, p *process) error {
	phases := []string{c.Phase}
	if c.Phase == phaseBoth {
		phases = []string{phaseBefore, phaseAfter}
	}
	find, done, err := c.finder(p)
	if err != nil {
		return err
	}
	defer done()
	encoder := json.NewEncoder(p.out)
	lenient := false
	for i, phase := range phases {
		event, err := toolCall{operation: c.Operation, tool: c.Tool}.event(phase)
		if err != nil {
			return err
		}
		controls, err := find(ctx, phase, event)
		if err != nil {
			return err
		}
		e := c.explanation(phase, controls)
		lenient = lenient || len(e.LetsThrough) > 0
		if c.JSON {
			err = encoder.Encode(e)
		} else {
			if i > 0 {
				fmt.Fprintln(p.out)
			}
			err = e.write(p.out, p.theme(p.out))
		}
		if err != nil {
			return err
		}
	}
	if c.Strict && lenient {
		return &exitError{exitFailure}
	}
	return nil
}

// finder finds the controls of a phase.
type finder func(ctx context.Context, phase string, event json.RawMessage) ([]client.Control, error)

// finder reads a file, or asks a running system.
func (c *hooksExplainCmd) finder(p *process) (find finder, done func(), err error) {
	if c.Hooks == "" {
		api, err := c.client(p, 0)
		if err != nil {
			return nil, nil, err
		}
		return func(ctx context.Context, phase string, event json.RawMessage) ([]client.Control, error) {
			document := questionDocument{phase: phase}.document(c.Operation, event)
			controls, err := api.Explain(ctx, client.Question{OperationID: c.Operation, Document: document})
			if err == nil && len(controls) == 0 {
				warnUnregistered(ctx, p, api, c.Operation)
			}
			return controls, explain(err)
		}, api.Close, nil
	}
	hooks, err := feed.ReadHooks(c.Hooks)
	if err != nil {
		return nil, nil, err
	}
	list, ok := hooks.For(c.Operation)
	if !ok {
		return nil, nil, usagef("%s says nothing about operation %q; it has: %s", c.Hooks, c.Operation, strings.Join(hooks.Operations(), ", "))
	}
	own, err := tasks.StoredHooks(list)
	if err != nil {
		return nil, nil, err
	}
	env, err := config.EnvironmentHooks(p.env)
	if err != nil {
		return nil, nil, err
	}
	rounds := []tasks.ControlRound{{OperationID: c.Operation, Hooks: own}}
	return func(_ context.Context, phase string, raw json.RawMessage) ([]client.Control, error) {
		event, err := tasks.ParseEvent(phaseTypes[phase], c.Operation, raw)
		if err != nil {
			return nil, err
		}
		return controlsOf(tasks.ControlsInForce(event, rounds, env)), nil
	}, func() {}, nil
}

// controlsOf shows selected controls as the API does.
func controlsOf(selected []tasks.ControlInForce) []client.Control {
	controls := make([]client.Control, len(selected))
	for i, s := range selected {
		controls[i] = client.Control{
			HookID: s.Hook.ID, OperationID: s.OperationID, Environment: s.Hook.Environment(), Matcher: s.Hook.Matcher,
			OnError: s.Hook.ErrorPolicy(), OnErrorSet: s.Hook.Webhook.OnError != "",
			TimeoutSeconds: s.Hook.Webhook.Timeout,
		}
		if controls[i].TimeoutSeconds == 0 {
			controls[i].TimeoutSeconds = tasks.DefaultTimeout.Seconds()
		}
	}
	return controls
}

func (c *hooksExplainCmd) explanation(phase string, controls []client.Control) *explanation {
	e := &explanation{
		OperationID: c.Operation, Tool: c.Tool, Type: phaseTypes[phase], Controls: controls, LetsThrough: []leniency{},
	}
	if controls == nil {
		e.Controls = []client.Control{}
	}
	for _, control := range controls {
		if e.Unanswered == "" {
			e.Unanswered = tasks.PolicyContinue
		}
		if control.OnError == tasks.PolicyBlock {
			e.Unanswered = tasks.PolicyBlock
			continue
		}
		l := leniency{
			HookID: control.HookID, OperationID: control.OperationID, Environment: control.Environment, Default: !control.OnErrorSet,
			Message: "lets the call through on error (onError: continue)",
		}
		if l.Default {
			l.Message = "lets the call through on error (onError not set)"
		}
		e.LetsThrough = append(e.LetsThrough, l)
	}
	return e
}

// write writes a phase for people.
func (e *explanation) write(w io.Writer, theme screen.Theme) error {
	fmt.Fprintf(w, "%s\n", theme.Paint(screen.Bold, fmt.Sprintf("%s %s, operation %s", e.Type, screen.Clean(e.Tool), screen.Clean(e.OperationID))))
	goesAhead, blocked := "the call goes ahead", "the call is blocked"
	if e.Type == tasks.AfterToolCall {
		goesAhead, blocked = "the result is used", "the result is withheld"
	}
	if len(e.Controls) == 0 {
		_, err := fmt.Fprintf(w, "No control matches: nobody is asked, and %s.\n", goesAhead)
		return err
	}
	table := screen.NewTable(theme, "#", "control", "of", "matcher", "on error", "timeout")
	for i, c := range e.Controls {
		table.Row(explainCells(i+1, c)...)
	}
	if err := table.Write(w); err != nil {
		return err
	}
	for _, l := range e.LetsThrough {
		fmt.Fprintf(w, "%s: %s of %s %s\n", theme.Paint(screen.Yellow, "warning"),
			screen.Clean(hookName(l.HookID)), screen.Clean(owner(l.OperationID)), l.Message)
	}
	text := blocked
	if e.Unanswered == tasks.PolicyContinue {
		text = goesAhead
	}
	_, err := fmt.Fprintf(w, "When nobody answers in time, %s.\n", text)
	return err
}

func explainCells(n int, c client.Control) []screen.Cell {
	onError := screen.Cell{Text: string(c.OnError), Style: screen.Green}
	if c.OnError == tasks.PolicyContinue {
		onError.Style = screen.Yellow
	}
	if !c.OnErrorSet {
		onError.Text += " (not set)"
	}
	matcher := "every tool"
	if c.Matcher != nil {
		matcher = *c.Matcher
	}
	timeout := screen.Cell{}
	if c.TimeoutSeconds > 0 {
		timeout = screen.Text(time.Duration(c.TimeoutSeconds * float64(time.Second)).String())
	}
	return []screen.Cell{
		screen.Number(n), screen.Text(hookName(c.HookID)), screen.Text(owner(c.OperationID)), screen.Text(matcher), onError, timeout,
	}
}

// hookName names a control that may have no id.
func hookName(id string) string {
	if id == "" {
		return "(no id)"
	}
	return id
}
