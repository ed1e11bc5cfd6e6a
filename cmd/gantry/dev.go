package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/cmd/internal/app"
	"github.com/gantry-hooks/gantry/cmd/internal/client"
	"github.com/gantry-hooks/gantry/cmd/internal/demo"
	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/examples"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/worker"
)

// devCmd is "gantry dev".
type devCmd struct {
	Listen string `help:"Address of the API; the next free port is taken if this one is not free." placeholder:"HOST:PORT"`
	NoDemo bool   `help:"Play no demonstration."`
	Once   bool   `help:"End after the demonstration: 0 when everything arrived as promised, else 1."`
}

// Help is the manual of the command.
func (*devCmd) Help() string {
	return `Runs the API, a worker and a receiver in one process, on this machine only, and plays an agent run of three
operations through them: you see what is delivered where, in which order, what is retried, and how a policy is
asked before tools run and denies one call. Without
REDIS_URL an embedded Redis is used, which keeps nothing. Callers on this machine need no token, and hooks
may reach this machine. Retries come after a second instead of five, so that you see them.
Hooks with "delivery: qstash" go through an imitation of QStash in this process, unless QSTASH_TOKEN is set.

Examples:

  gantry dev
  gantry dev --no-demo --listen 127.0.0.1:9000
  REDIS_URL=redis://127.0.0.1:6379 gantry dev`
}

// The defaults of the demonstration, where nobody sets something else.
var devDefaults = map[string]string{
	"GANTRY_NAMESPACE": "gantry-dev", "GANTRY_LOG_LEVEL": "warn", "GANTRY_WORKER_GRACE": "5s", "GANTRY_SHUTDOWN_TIMEOUT": "3s",
	"GANTRY_RETRY_INITIAL": "1s", "GANTRY_RETRY_FACTOR": "2", "GANTRY_RETRY_JITTER": "0.1",
}

const (
	varDemoToken      = "HOOK_DEMO_TOKEN"
	varDemoSigningKey = "HOOK_DEMO_SIGNING_KEY"
	// demoPace is the time between two events of the demonstration.
	demoPace = 40 * time.Millisecond
	// demoTimeout is far more than the demonstration takes.
	demoTimeout = 2 * time.Minute
)

// Run starts everything and stays up until the end is asked for.
func (c *devCmd) Run(ctx context.Context, p *process, global *cli) error {
	if c.Once && c.NoDemo {
		return usagef("--once and --no-demo leave nothing to do; drop one of them")
	}
	if c.Listen != "" {
		if global.Set == nil {
			global.Set = map[string]string{}
		}
		global.Set["api.listen"] = c.Listen
	}
	cfg, err := global.load(p, devDefaults)
	if err != nil {
		return err
	}
	if err := checkLoopback(cfg.API.Listen); err != nil {
		return err
	}
	env, err := config.OpenEnvFile(cfg.EnvFile, demoEnvironment(p.env))
	if err != nil {
		return err
	}
	d := &dev{devCmd: c, process: p, cfg: cfg, env: env, theme: p.theme(p.out)}
	return d.run(ctx)
}

// checkLoopback keeps an API without tokens on this machine.
func checkLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("api.listen is not host:port")
	}
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return usagef("gantry dev asks nobody for a token, so it listens on this machine only; use 127.0.0.1, or gantry serve")
}

// demoEnvironment adds the secrets of the demonstration to base, unless it has
// its own.
func demoEnvironment(base tasks.Environment) tasks.Environment {
	drawn := map[string]string{varDemoToken: tasks.NewID(), varDemoSigningKey: tasks.NewID() + tasks.NewID()}
	return func(name string) (string, bool) {
		value, ok := base(name)
		if secret, own := drawn[name]; own && value == "" {
			return secret, true
		}
		return value, ok
	}
}

// dev is one run of "gantry dev".
type dev struct {
	*devCmd
	*process
	cfg      *config.Config
	env      *config.EnvFile
	theme    screen.Theme
	receiver *demo.Receiver
	view     *demo.View
	play     *demo.Run
	app      *app.App
}

func (d *dev) run(ctx context.Context) (err error) {
	token, _ := d.env.Lookup(varDemoToken)
	key, _ := d.env.Lookup(varDemoSigningKey)
	if d.receiver, err = demo.StartReceiver(examples.AgentRunReceiver, demo.Secrets{Token: token, SigningKey: key}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stopReceiver(ctx)) }()
	d.view = demo.NewView(d.out, d.theme)
	stopQStash, err := d.imitateQStash(ctx)
	if err != nil {
		return err
	}
	defer stopQStash()
	suffix := ""
	if d.cfg.Redis.URL != "" {
		suffix = "-" + tasks.NewID()[20:] // a Redis that keeps things knows earlier runs
	}
	if d.play, err = demo.NewRun(d.receiver, suffix); err != nil {
		return err
	}
	log := newLogger(d.cfg, d.err)
	log.SetFormatter(shownElsewhere{log.Formatter})
	if d.strayLog != nil {
		d.strayLog(strayLines{log})
	}
	d.app, err = app.New(ctx, app.Params{
		Config: d.cfg, Env: d.env, Roles: []app.Role{app.RoleWorker, app.RoleAPI}, Logger: log, Version: version(),
		Anonymous: true, Embedded: true, TrustLoopback: true, NextFreePort: true,
		OnAttempt: func(a worker.Attempt) { d.view.Attempt(a); d.play.Attempt(a) }, OnAsked: d.view.Asked,
	})
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	defer end()
	failed := make(chan error, 1)
	started := make(chan struct{})
	go func() { failed <- serveApp(running, d.app, d.process, started) }()
	select {
	case <-started:
	case err := <-failed:
		return err
	}
	err = d.show(ctx)
	if err == nil && !d.Once {
		d.hints()
		return <-failed // stays up until ctx ends
	}
	end()
	return errors.Join(err, <-failed)
}

func (d *dev) stopReceiver(ctx context.Context) error {
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return d.receiver.Stop(stop)
}

// show says where everything is and plays the demonstration.
func (d *dev) show(ctx context.Context) error {
	if d.app.RedisAddr() != "" {
		fmt.Fprintln(d.err, d.process.theme(d.err).Paint(screen.Yellow,
			"Embedded Redis: it keeps nothing and is not a real server. Set REDIS_URL to use one."))
	} else {
		fmt.Fprintf(d.err, "Redis: %s, namespace %s (REDIS_URL). This worker delivers whatever waits in that namespace.\n",
			d.cfg.Redis.URL, d.cfg.Redis.Namespace)
	}
	if at := d.app.Address(app.ServerAPI); at != d.cfg.API.Listen {
		fmt.Fprintf(d.err, "%s is taken; the API listens on %s.\n", d.cfg.API.Listen, at)
	}
	if d.NoDemo {
		return nil
	}
	api, err := client.New(client.Config{URL: d.apiURL()})
	if err != nil {
		return err
	}
	defer api.Close()
	fmt.Fprintf(d.out, "Playing an agent run: %d events of %d operations, through the API, to the receiver at %s.\n\n",
		d.play.Events(), d.play.Operations(), d.receiver.Address())
	bounded, cancel := context.WithTimeoutCause(ctx, demoTimeout, errors.New("the demonstration did not come to its end"))
	defer cancel()
	if err := d.play.Play(bounded, api, demoPace); err != nil {
		if ctx.Err() != nil {
			return nil // the end was asked for
		}
		return err
	}
	return d.conclude()
}

// conclude writes the judgement of the demonstration.
func (d *dev) conclude() error {
	judgement, err := d.play.Judge()
	if err != nil {
		return err
	}
	fmt.Fprintln(d.out)
	if err := judgement.Write(d.out, d.theme); err != nil {
		return err
	}
	total := judgement.Totals()
	fmt.Fprintf(d.out, "\n%d of %d delivered, in order: %s. %d attempts were repeated, %d delivery is dead: its endpoint said that it is gone.\n",
		total.Delivered, total.Expected, yes(total.InOrder), total.Retried, total.Dead)
	fmt.Fprintf(d.out, "%d tool calls were asked about before they ran: %d allowed, %d denied.\n", judgement.Asked, judgement.Allowed, judgement.Denied)
	if err := judgement.Check(); err != nil {
		return fmt.Errorf("the demonstration went wrong: %w", err)
	}
	return nil
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

func (d *dev) apiURL() string { return "http://" + d.app.Address(app.ServerAPI) }

// hints say how to go on.
func (d *dev) hints() {
	writeHints(d.out, d.theme, hinted{api: d.apiURL(), receiver: "http://" + d.receiver.Address(), guarded: d.play.Guarded(), played: !d.NoDemo})
}

// hinted is what the hints speak of.
type hinted struct {
	api, receiver string
	// guarded is the operation of the demonstration whose tools are asked about.
	guarded string
	played  bool
}

func writeHints(w io.Writer, theme screen.Theme, h hinted) {
	api, receiver := h.api, h.receiver
	option := ""
	if api != defaultAPI {
		option = " --api " + api
	}
	fmt.Fprintf(w, `
%s  %s   documents %s/openapi.json   metrics %s/metrics
%s  %s

%s
  curl -X PUT %s/v1/operations/my-run/hooks -H 'content-type: application/json' \
    -d '[{"id":"hello","type":"afterStep","webhook":{"url":"%s/hello"}}]'
  curl '%s/v1/operations/my-run/events?await=10s&awaitMode=final' -H 'content-type: application/json' \
    -d '{"type":"afterStep","event":{"agentId":"me","userId":"me","stepIndex":0,"content":"hello"}}'

%s  gantry lanes%s · gantry dead list%s · gantry --help
%s%s
`,
		theme.Paint(screen.Bold, "API     "), api, api, api,
		theme.Paint(screen.Bold, "Receiver"), receiver,
		theme.Paint(screen.Bold, "Send an event of your own (it shows up here):"),
		api, receiver, api,
		theme.Paint(screen.Bold, "Look around:"), option, option, askHint(theme, h, option),
		theme.Paint(screen.Dim, "Everything listens on this machine only. Ctrl-C ends it."))
}

// askHint tells how to ask about a tool call of the demonstration.
func askHint(theme screen.Theme, h hinted, option string) string {
	if !h.played {
		return ""
	}
	return fmt.Sprintf("%s  gantry evaluate%s --operation %s --tool billing/refund --args '{\"amount\":\"890.00\"}'\n",
		theme.Paint(screen.Bold, "Ask before a tool runs:"), option, h.guarded)
}

// shownElsewhere leaves out the log lines of attempts and controls, which the view
// shows.
type shownElsewhere struct{ logrus.Formatter }

// Format writes every other line.
func (f shownElsewhere) Format(e *logrus.Entry) ([]byte, error) {
	switch e.Message {
	case "delivery.parked", "delivery.dead", "control.asked":
		return nil, nil
	}
	return f.Formatter.Format(e)
}
