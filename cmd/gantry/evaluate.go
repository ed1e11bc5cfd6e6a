package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
	"github.com/gantry-hooks/gantry/cmd/internal/feed"
	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/tasks"
)

// The exit codes of "gantry evaluate" beside those of every command.
const (
	// exitBlocked is a verdict that blocks.
	exitBlocked = 3
	// exitNoVerdict is a question that was cancelled, or has no verdict yet.
	exitNoVerdict = 4
)

// evaluateCmd is "gantry evaluate".
type evaluateCmd struct {
	apiFlags
	Operation string        `help:"Operation of the tool call." required:"" placeholder:"ID"`
	Tool      string        `help:"Tool and its function, such as mail/send." placeholder:"ID/API" xor:"what"`
	Event     string        `help:"JSON file with the whole event, instead of --tool; - is standard input." placeholder:"FILE" xor:"what"`
	Phase     string        `help:"Before the tool runs, or after it, about its result." enum:"before,after" default:"before" placeholder:"before|after"`
	Args      string        `help:"Arguments of the call, with --tool." placeholder:"JSON"`
	Result    string        `help:"Result of the call, with --tool and --phase after: a JSON object, or the text of a successful one." placeholder:"JSON|TEXT"`
	Hooks     string        `help:"File of hooks to ask instead of the registered ones, as gantry hooks check reads it." type:"path" placeholder:"FILE"`
	Chain     []string      `help:"Operations whose hooks are asked, in order, instead of the call's own alone." placeholder:"ID"`
	ID        string        `help:"Id of the question: the same id and content reads the same verdict." placeholder:"ID"`
	Timeout   time.Duration `help:"What all controls have together; the deployment's control.timeout otherwise."`
	Strict    bool          `help:"Exit with 3 also when an error let the call through."`
	JSON      bool          `name:"json" help:"The verdict as one JSON object."`
}

// Help is the manual of the command.
func (*evaluateCmd) Help() string {
	return `Asks the controls of a running system about one tool call, once, and prints the verdict and why: every control that was asked,
what its answer counts as, and how long it took. The receivers are really asked. Ctrl-C takes the question back.

Hooks that a Go process registers in itself are known to it alone; nobody asks them here.

Exit codes: 0 allow, 3 blocked (with --strict, also what an error let through), 4 cancelled or without a verdict; 1 when it could not be asked, 2 wrong usage.

Examples:

  gantry evaluate --operation run-1 --tool mail/send --args '{"to":"lena@example.org"}'
  gantry evaluate --operation run-1 --tool mail/send --phase after --result 'sent'
  gantry evaluate --operation run-1 --tool mail/send --hooks hooks.yaml --json | jq -r .status
  gantry evaluate --operation run-2 --chain run-1,run-2 --event call.json --timeout 5s`
}

// Run asks.
func (c *evaluateCmd) Run(ctx context.Context, p *process) error {
	question, err := c.question(p)
	if err != nil {
		return err
	}
	api, err := c.client(p, 0)
	if err != nil {
		return err
	}
	defer api.Close()
	began := time.Now()
	verdict, err := api.Evaluate(ctx, question)
	if ctx.Err() != nil {
		fmt.Fprintln(p.err, "gantry: the question was taken back")
		return &exitError{exitNoVerdict}
	}
	if err != nil {
		return explain(err)
	}
	if c.JSON {
		_, err = fmt.Fprintf(p.out, "%s\n", compact(verdict.Raw))
	} else {
		err = writeVerdict(p.out, p.theme(p.out), answered{verdict, time.Since(began)})
	}
	if err != nil {
		return err
	}
	if verdict.Outcome == tasks.OutcomeNone && c.Hooks == "" && len(c.Chain) == 0 {
		warnUnregistered(ctx, p, api, c.Operation)
	}
	switch verdict.Status {
	case tasks.VerdictAllow:
		if c.Strict && failedOpen(verdict.Outcome) {
			return &exitError{exitBlocked}
		}
		return nil
	case tasks.VerdictBlocked:
		return &exitError{exitBlocked}
	}
	return &exitError{exitNoVerdict}
}

// warnUnregistered says so when the API knows nothing of an operation: a
// misspelled id has no controls either.
func warnUnregistered(ctx context.Context, p *process, api *client.Client, operation string) {
	if known, err := api.Registered(ctx, operation); err == nil && !known {
		fmt.Fprintf(p.err, "gantry: no hooks are registered for operation %s through the API; check the id. Hooks that a Go process "+
			"registers in itself are known to it alone.\n", screen.Clean(operation))
	}
}

// question builds what is asked from the flags.
func (c *evaluateCmd) question(p *process) (client.Question, error) {
	var q client.Question
	if err := c.check(); err != nil {
		return q, err
	}
	document := questionDocument{phase: c.Phase, id: c.ID, timeout: c.Timeout, chain: c.Chain}
	var err error
	if c.Hooks != "" {
		if document.hooks, err = feed.ReadHooks(c.Hooks); err != nil {
			return q, err
		}
	}
	event, err := toolCall{operation: c.Operation, tool: c.Tool, args: c.Args, result: c.Result}.event(c.Phase)
	if c.Event != "" {
		event, err = readEvent(p, c.Event)
	}
	if err != nil {
		return q, err
	}
	return client.Question{OperationID: c.Operation, Document: document.document(c.Operation, event), Timeout: c.Timeout}, nil
}

func (c *evaluateCmd) check() error {
	switch {
	case c.Tool == "" && c.Event == "":
		return usagef("nothing to ask about; pass --tool or --event")
	case c.Event != "" && (c.Args != "" || c.Result != ""):
		return usagef("--event is the whole event; drop --args and --result")
	case c.Result != "" && c.Phase == phaseBefore:
		return usagef("a result is there after the call only; add --phase after")
	case c.Timeout < 0:
		return usagef("--timeout is negative")
	}
	return nil
}

// answered is a verdict and how long it took as seen from here.
type answered struct {
	client.Verdict
	took time.Duration
}

// writeVerdict writes a verdict for people.
func writeVerdict(w io.Writer, theme screen.Theme, v answered) error {
	style := screen.Red
	if v.Status == tasks.VerdictAllow {
		style = screen.Green
		if failedOpen(v.Outcome) {
			style = screen.Yellow
		}
	}
	head := theme.Paint(style, strings.ToUpper(string(v.Status)))
	if v.Reason != "" {
		head += "  " + screen.Clean(v.Reason)
	}
	if _, err := fmt.Fprintf(w, "%s\n%s\n", head, because(v.Verdict)); err != nil {
		return err
	}
	if len(v.Controls) > 0 {
		fmt.Fprintln(w)
		table := screen.NewTable(theme, "#", "control", "of", "answer", "status", "on error", "time")
		for i, control := range v.Controls {
			table.Row(controlCells(i+1, control)...)
		}
		if err := table.Write(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintln(w, theme.Paint(screen.Dim, fmt.Sprintf("question %s of operation %s, %s, %s in all",
		screen.Clean(v.ID), screen.Clean(v.OperationID), v.Type, v.took.Round(time.Millisecond))))
	return err
}

func controlCells(n int, c tasks.ControlResult) []screen.Cell {
	answer := screen.Cell{Text: string(c.Class)}
	switch c.Class {
	case tasks.ControlAllow:
		answer.Style = screen.Green
	case tasks.ControlDeny, tasks.ControlCancelled:
		answer.Style = screen.Red
	case tasks.ControlError:
		answer.Style = screen.Yellow
		answer.Text = strings.TrimSpace("error " + string(c.Code) + finer(c))
	case tasks.ControlNotification:
	}
	status := screen.Cell{}
	if c.Status > 0 {
		status = screen.Number(c.Status)
	}
	return []screen.Cell{
		screen.Number(n), screen.Text(c.HookID), screen.Text(owner(c.OperationID)), answer, status,
		screen.Text(string(c.OnError)), screen.Text(fmt.Sprintf("%d ms", c.ElapsedMS)),
	}
}

// finer adds the class of a failure when its code does not say it already.
func finer(c tasks.ControlResult) string {
	if c.Failure == "" || string(c.Failure) == string(c.Code) {
		return ""
	}
	return " (" + string(c.Failure) + ")"
}

// owner names whose hook it is.
func owner(operationID string) string {
	if operationID == "" {
		return "the deployment"
	}
	return operationID
}

// failedOpen reports whether a call was let through although a control failed.
func failedOpen(outcome tasks.VerdictOutcome) bool {
	return outcome == tasks.OutcomeErrorOpen || outcome == tasks.OutcomeUnansweredOpen
}

// because says why a verdict is what it is.
func because(v client.Verdict) string {
	text := outcomeText(v)
	if v.Unsettled {
		text += " Redis could not be reached: the API applied the policy on its own."
	}
	return text
}

func outcomeText(v client.Verdict) string {
	switch v.Outcome {
	case tasks.OutcomeNone:
		return "No control matches this call, so nobody was asked."
	case tasks.OutcomeAllowed:
		return "Each control that was asked let it through."
	case tasks.OutcomeDenied:
		return "Denied by " + lastControl(v) + "."
	case tasks.OutcomeErrorOpen:
		return "A control gave no usable answer, and its onError lets the call through."
	case tasks.OutcomeErrorClosed:
		return "No usable answer from " + lastControl(v) + ", whose onError is block."
	case tasks.OutcomeUnansweredOpen:
		return "No worker answered in time, and no matching control has onError: block."
	case tasks.OutcomeUnansweredClosed:
		return "No worker answered in time: the strictest onError of the matching controls applies, or control.unknown_environment."
	case tasks.OutcomeCancelled:
		return "The question was taken back."
	}
	return "There is no verdict yet."
}

func lastControl(v client.Verdict) string {
	if len(v.Controls) == 0 {
		return "a control"
	}
	last := v.Controls[len(v.Controls)-1]
	return fmt.Sprintf("control %s of %s", screen.Clean(last.HookID), screen.Clean(owner(last.OperationID)))
}

// exitError ends a command that has said everything with a code of its own.
type exitError struct{ code int }

// Error is for callers that do not know the type.
func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// exitCode finds the code that an error asks for.
func exitCode(err error) (code int, ok bool) {
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code, true
	}
	return 0, false
}
