package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"

	"github.com/gantry-hooks/gantry/cmd/internal/bench"
)

// benchCmd is "gantry bench". The hidden commands are the processes that a bench
// starts from this binary.
type benchCmd struct {
	Delivery  benchRunCmd `cmd:"" help:"Throughput of ordered delivery, backlog and live."`
	Sparse    benchRunCmd `cmd:"" help:"Throughput with one event per operation."`
	Idle      benchRunCmd `cmd:"" help:"Latency and cost of an idle worker."`
	Memory    benchRunCmd `cmd:"" help:"Bytes in Redis per pending event."`
	Crash     benchRunCmd `cmd:"" help:"Recovery after a worker is killed."`
	Isolation benchRunCmd `cmd:"" help:"Healthy operations beside a hanging endpoint."`
	Control   benchRunCmd `cmd:"" help:"Verdicts about tool calls, next to direct calls of the same hook."`

	Sink          benchSinkCmd   `cmd:"" hidden:"" help:"The receiver of a bench."`
	Worker        benchWorkerCmd `cmd:"" hidden:"" help:"The worker of a bench."`
	AsynqWorker   benchWorkerCmd `cmd:"" hidden:"" help:"The contender's worker of a bench."`
	ControlWorker benchWorkerCmd `cmd:"" hidden:"" help:"The worker of a bench that answers questions."`
}

// benches are the benches by the names of their commands.
var benches = map[string]func(context.Context) (*bench.Report, error){
	"delivery": bench.Delivery, "sparse": bench.Sparse, "idle": bench.Idle,
	"memory": bench.Memory, "crash": bench.Crash, "isolation": bench.Isolation, "control": bench.Control,
}

// benchRunCmd runs the bench that its command names.
type benchRunCmd struct {
	JSON bool   `name:"json" help:"One JSON object on one line."`
	Out  string `help:"Write the JSON to this file as well." placeholder:"FILE" type:"path"`
}

// Help is the manual of the command.
func (*benchRunCmd) Help() string {
	return `Starts what it needs (a private redis-server, a receiver in a process of its own) and cleans up. Gantry and its contenders
run one after the other in the same run; figures are medians of three. Exit code 1 when a target is missed.

Examples:

  gantry bench delivery
  gantry bench idle --json --out idle.json`
}

// Run measures.
func (c *benchRunCmd) Run(ctx context.Context, p *process, parsed *kong.Context) error {
	name := parsed.Selected().Name
	report, err := benches[name](ctx)
	if err != nil {
		return fmt.Errorf("bench %s: %w", name, err)
	}
	if c.Out != "" {
		if err := writeReport(c.Out, report); err != nil {
			return err
		}
	}
	write := report.Text
	if c.JSON {
		write = report.JSON
	}
	if err := write(p.out); err != nil {
		return err
	}
	if !report.Met {
		return errors.New("a target is missed")
	}
	return nil
}

func writeReport(path string, report *bench.Report) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return report.JSON(io.Writer(f))
}

type benchSinkCmd struct{}

// Run receives until its standard input ends.
func (*benchSinkCmd) Run(p *process) error { return bench.RunSink(p.in, p.out) }

type benchWorkerCmd struct {
	Addr string `arg:""`
	URL  string `arg:"" name:"url"`
}

// Run delivers until the end is asked for.
func (c *benchWorkerCmd) Run(ctx context.Context, parsed *kong.Context) error {
	return bench.RunWorker(ctx, parsed.Selected().Name, c.Addr, c.URL)
}
