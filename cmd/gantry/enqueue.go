package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sync/errgroup"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
	"github.com/gantry-hooks/gantry/cmd/internal/feed"
	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// enqueueCmd is "gantry enqueue".
type enqueueCmd struct {
	apiFlags
	Hooks    string        `help:"YAML or JSON file: a list of hooks for every operation of the events, or {operations: {ID: [hooks]}}." type:"path" placeholder:"FILE"`
	Events   string        `help:"JSONL file with one event a line; - is standard input." required:"" placeholder:"FILE"`
	Await    string        `help:"Wait until each event had its first attempts (first) or has come to its end (final)." enum:"none,first,final" default:"none" placeholder:"first|final"`
	Timeout  time.Duration `help:"How long to wait with --await." default:"10m"`
	Run_     string        `name:"run" help:"Name of a deliberate repetition: the same file with another name is delivered again." placeholder:"NAME"`
	RetryFor time.Duration `help:"How long to go on trying while the system is unavailable." default:"1m"`
	Continue bool          `help:"Send what is right of a file with bad lines; without it, nothing is sent."`
	JSON     bool          `name:"json" help:"Totals as one JSON object."`
}

// Help is the manual of the command.
func (*enqueueCmd) Help() string {
	return `Registers hooks and sends events to a running system, in the order of the file. A line is an object with type and event,
and, if wanted, operationId (else that of the event), id, delay ("5s") and trace. Events without an id get one
that follows from their content: sending a file again joins what is there and delivers nothing twice.

Exit code 1 when a line is bad, when something could not be sent, or, with --await, when a delivery is dead or the
time was over.

Examples:

  gantry enqueue --hooks examples/agent-run/hooks.json --events examples/agent-run/events.jsonl --await final
  gantry enqueue --events today.jsonl --run second-try
  tail -n 100 events.jsonl | gantry enqueue --hooks hooks.yaml --events -`
}

// enqueueing is one run of the command.
type enqueueing struct {
	*enqueueCmd
	*process
	api     *client.Client
	theme   screen.Theme
	totals  feed.Totals
	pending []feed.Pending
	bad     int
}

// Run sends the files.
func (c *enqueueCmd) Run(ctx context.Context, p *process) error {
	hooks, events, faults, err := c.read(p)
	if err != nil {
		return err
	}
	e := &enqueueing{enqueueCmd: c, process: p, theme: p.theme(p.err), bad: len(faults)}
	if len(faults) > 0 {
		printFaults(p, faults)
		if !c.Continue {
			return fmt.Errorf("%d bad lines, so nothing was sent; repair them, or pass --continue to leave them out", len(faults))
		}
	}
	if e.api, err = c.client(p, c.RetryFor); err != nil {
		return err
	}
	defer e.api.Close()
	if err := e.register(ctx, hooks, events); err != nil {
		return explain(err)
	}
	if err := e.send(ctx, events); err != nil {
		return fmt.Errorf("%w\n%d of %d events are sent; repeat the command to go on, nothing is delivered twice", explain(err), e.totals.Sent, len(events))
	}
	if c.Await != "none" {
		if err := e.await(ctx); err != nil {
			return explain(err)
		}
	}
	return e.conclude()
}

// read reads both files before anything is sent.
func (c *enqueueCmd) read(p *process) (*feed.Hooks, []feed.Event, []error, error) {
	var hooks *feed.Hooks
	if c.Hooks != "" {
		var err error
		if hooks, err = feed.ReadHooks(c.Hooks); err != nil {
			return nil, nil, nil, err
		}
	}
	in, name, err := openInput(p, c.Events)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() { _ = in.Close() }()
	events, faults, err := feed.ReadEvents(feed.Source{Name: name, Reader: in, Run: c.Run_})
	return hooks, events, faults, err
}

// maxFaults bounds the bad lines that are printed.
const maxFaults = 20

func printFaults(p *process, faults []error) {
	for _, fault := range faults[:min(len(faults), maxFaults)] {
		fmt.Fprintf(p.err, "gantry: %s\n", screen.Clean(fault.Error()))
	}
	if more := len(faults) - maxFaults; more > 0 {
		fmt.Fprintf(p.err, "gantry: and %d more\n", more)
	}
}

// register replaces the hooks of each operation that the files name.
func (e *enqueueing) register(ctx context.Context, hooks *feed.Hooks, events []feed.Event) error {
	if hooks == nil {
		return nil
	}
	operations := hooks.Operations()
	if len(operations) == 0 {
		seen := map[string]bool{}
		for _, event := range events {
			if !seen[event.OperationID] {
				seen[event.OperationID] = true
				operations = append(operations, event.OperationID)
			}
		}
	}
	bar := e.bar(len(operations), "hooks")
	for _, id := range operations {
		list, _ := hooks.For(id)
		if err := e.api.PutHooks(ctx, id, list); err != nil {
			return fmt.Errorf("register hooks of operation %q: %w", id, err)
		}
		bar.add(1)
	}
	bar.end(fmt.Sprintf("registered the hooks of %d operations", len(operations)))
	return nil
}

func (e *enqueueing) send(ctx context.Context, events []feed.Event) error {
	bar := e.bar(len(events), "events")
	for _, batch := range feed.Batches(events) {
		pending, err := feed.Send(ctx, e.api, batch, &e.totals)
		if err != nil {
			bar.end("")
			return err
		}
		if e.Await != "none" {
			e.pending = append(e.pending, pending...)
		}
		bar.add(len(batch.Events))
	}
	bar.end(fmt.Sprintf("sent %d events: %d new, %d sent before, %d without a hook that matches",
		e.totals.Sent, e.totals.Sent-e.totals.Duplicates-e.totals.Skipped, e.totals.Duplicates, e.totals.Skipped))
	return nil
}

// awaitParallel is how many events are waited for at once.
const awaitParallel = 16

func (e *enqueueing) await(ctx context.Context) error {
	bar := e.bar(len(e.pending), "await")
	until := feed.Until{Mode: lane.WaitMode(e.Await), Deadline: time.Now().Add(e.Timeout)}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(awaitParallel)
	results := make(chan result, awaitParallel)
	go func() {
		for _, p := range e.pending {
			group.Go(func() error {
				outcomes, err := feed.Await(ctx, e.api, p, until)
				if err != nil && !errors.Is(err, feed.ErrUnsettled) {
					return err
				}
				results <- result{pending: p, outcomes: outcomes, unsettled: err != nil}
				return nil
			})
		}
		_ = group.Wait() // waited for again below, for its error
		close(results)
	}()
	for r := range results {
		e.count(r)
		bar.add(1)
	}
	bar.end(fmt.Sprintf("%d delivered, %d not, %d still on their way", e.totals.Delivered, e.totals.NotDelivered, e.totals.Unsettled))
	return group.Wait()
}

// result is how one event stands at the end of the waiting.
type result struct {
	pending   feed.Pending
	outcomes  []client.Outcome
	unsettled bool
}

func (e *enqueueing) count(r result) {
	switch {
	case r.unsettled:
		e.totals.Unsettled++
	case len(r.outcomes) == 0:
		e.totals.Delivered++
	default:
		e.totals.NotDelivered++
	}
	for _, o := range r.outcomes {
		if !e.JSON && o.Standing != lane.StandingDelivered {
			fmt.Fprintf(e.err, "%s: event %s of operation %s: hook %s is %s %s%s\n", e.theme.Paint(screen.Yellow, "not delivered"),
				screen.Clean(r.pending.ID), screen.Clean(r.pending.OperationID), screen.Clean(o.HookID), o.Standing, o.Class, reason(o))
		}
	}
}

func reason(o client.Outcome) string {
	if o.Reason == "" {
		return ""
	}
	return " (" + string(o.Reason) + ")"
}

func (e *enqueueing) conclude() error {
	if e.JSON {
		if err := json.NewEncoder(e.out).Encode(e.totals); err != nil {
			return err
		}
	}
	if e.bad > 0 || e.totals.Unsettled > 0 || e.Await == string(lane.WaitFinal) && e.totals.NotDelivered > 0 {
		return errReported
	}
	return nil
}

// bar shows progress: on a terminal a bar, elsewhere a line at the end.
type bar struct {
	bar *progressbar.ProgressBar
	out io.Writer
}

func (e *enqueueing) bar(total int, what string) *bar { return newBar(e.err, e.theme, total, what) }

func newBar(w io.Writer, theme screen.Theme, total int, what string) *bar {
	b := &bar{out: w}
	if theme.Terminal && total > 0 {
		b.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
			progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionEnableColorCodes(false))
	}
	return b
}

func (b *bar) add(n int) {
	if b.bar != nil {
		_ = b.bar.Add(n) // a bar that cannot be drawn is no reason to stop
	}
}

// end clears the bar and writes what was done; "" writes nothing.
func (b *bar) end(text string) {
	if b.bar != nil {
		_ = b.bar.Finish()
		_ = b.bar.Clear()
	}
	if text != "" {
		fmt.Fprintln(b.out, text)
	}
}
