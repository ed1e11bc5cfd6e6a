package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/tasks"
)

// The exit codes of every command.
const (
	exitOK      = 0
	exitFailure = 1
	// exitUsage is a wrong command line or invalid settings: nothing was done.
	exitUsage = 2
	// exitInterrupted is a second signal during a graceful end.
	exitInterrupted = 130
)

// process is what a command may touch of its surroundings, so that a test can
// run one without a process.
type process struct {
	in       io.Reader
	out, err io.Writer
	env      tasks.Environment
	names    []string
	// hangups starts to hear requests for a reload, until stop is called; nil means
	// that nobody asks. Commands that do not reload leave the signal its usual
	// meaning.
	hangups func() (requests <-chan os.Signal, stop func())
	// strayLog sends what libraries write to the process-wide log elsewhere; nil
	// leaves it alone.
	strayLog func(w io.Writer)
}

// theme says how to write to w.
func (p *process) theme(w io.Writer) screen.Theme { return screen.ThemeOf(w, p.env) }

// cli is the command line.
type cli struct {
	Config string            `help:"YAML file with settings." placeholder:"FILE" type:"path"`
	Set    map[string]string `help:"Setting by dotted path; wins over everything else. Repeatable." placeholder:"PATH=VALUE" mapsep:"none"`

	Dev      devCmd      `cmd:"" help:"Run everything in one process, with a demonstration."`
	Serve    serveCmd    `cmd:"" help:"Serve the HTTP API."`
	Worker   workerCmd   `cmd:"" help:"Deliver events."`
	Enqueue  enqueueCmd  `cmd:"" help:"Register hooks and send events from files."`
	Evaluate evaluateCmd `cmd:"" help:"Ask the controls about one tool call."`
	Lanes    lanesCmd    `cmd:"" help:"Show lanes: what waits, what is parked and why."`
	Dead     deadCmd     `cmd:"" help:"List, show and replay dead letters."`
	Hooks    hooksCmd    `cmd:"" help:"Check files of hooks, and explain which of them decide about a tool call."`
	Conf     confCmd     `cmd:"" name:"config" help:"Check and document the settings."`
	QStash   qstashCmd   `cmd:"" name:"qstash" help:"Try QStash on this machine."`
	Verify   verifyCmd   `cmd:"" help:"Check the signature of a captured request."`
	Bench    benchCmd    `cmd:"" help:"Measure, next to raw asynq and plain HTTP."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

// usageError is a mistake in how a command was called.
type usageError struct{ err error }

// Error is the mistake.
func (e *usageError) Error() string { return e.err.Error() }

// Unwrap returns the mistake.
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errReported ends a command with exitFailure when it has said why already.
var errReported = errors.New("failed")

// exited carries the exit code of kong's own endings, such as --help, through a
// panic: kong has no other way to end parsing.
type exited int

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, p *process) (code int) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case exited:
			code = int(ended)
		default:
			panic(ended)
		}
	}()
	commands := &cli{}
	parser, err := kong.New(commands,
		kong.Name("gantry"),
		kong.Description("Durable lifecycle hooks for AI-agent runtimes: in order, at least once, with proof.\n\n"+
			"Start with \"gantry dev\". Exit codes: 0 done, 1 failed, 2 wrong usage or invalid settings."),
		kong.Writers(p.out, p.err),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.Vars{"api": defaultAPI},
	)
	if err != nil {
		panic(err) // a mistake in the struct tags, which no input can cause
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(p.err, "gantry: %v; see gantry --help\n", err)
		return exitUsage
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return report(p, parsed.Run(p, commands))
}

// report prints an error, each of its problems on a line, and picks the code.
func report(p *process, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errReported) {
		return exitFailure
	}
	if code, ok := exitCode(err); ok {
		return code
	}
	code := exitFailure
	if problems := config.SettingErrors(err); len(problems) > 0 {
		for _, problem := range problems {
			fmt.Fprintf(p.err, "gantry: %v\n", problem)
		}
		return exitUsage
	}
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		code = exitUsage
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		fmt.Fprintf(p.err, "gantry: %s\n", line)
	}
	return code
}

// The variables of the commands that talk to a running system. They are no
// settings of that system.
const (
	varAPI   = "GANTRY_API_URL"
	varToken = "GANTRY_TOKEN"
)

// load reads the settings of a command. defaults are variables that count as set
// when neither the environment nor a file has them.
func (c *cli) load(p *process, defaults map[string]string) (*config.Config, error) {
	env := p.env
	if len(defaults) > 0 && c.Config == "" {
		env = func(name string) (string, bool) {
			if value, ok := p.env(name); ok && value != "" {
				return value, true
			}
			value, ok := defaults[name]
			return value, ok
		}
	}
	return config.Load(config.Sources{
		File: c.Config, Env: env, Names: p.names, Overrides: c.Set,
		Others: []string{varAPI, varToken, servers.RedisServerEnv, servers.PostgresBinEnv},
	})
}

// newLogger makes the log of a process.
func newLogger(cfg *config.Config, w io.Writer) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(w)
	level, err := logrus.ParseLevel(cfg.Log.Level)
	if err == nil { // the settings are validated
		log.SetLevel(level)
	}
	if cfg.Log.Format == "json" {
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: "2006-01-02T15:04:05.000Z07:00"})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, TimestampFormat: "2006-01-02T15:04:05.000Z07:00"})
	}
	return log
}

func environmentNames(pairs []string) []string {
	names := make([]string, 0, len(pairs))
	for _, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		names = append(names, name)
	}
	return names
}
