package main

import (
	"context"
	"fmt"

	"github.com/gantry-hooks/gantry/cmd/internal/app"
	"github.com/gantry-hooks/gantry/config"
)

// serveCmd is "gantry serve".
type serveCmd struct {
	WithWorker bool `help:"Deliver events in the same process, too."`
}

// Help is the manual of the command.
func (*serveCmd) Help() string {
	return `Serves the HTTP API on api.listen (127.0.0.1:8484 by default). It needs REDIS_URL and tokens. SIGTERM or Ctrl-C ends it
gracefully, a second one at once; SIGHUP reads the env file again.

Examples:

  REDIS_URL=redis://127.0.0.1:6379 GANTRY_TOKENS_FILE=tokens gantry serve
  gantry --config gantry.yaml serve --with-worker
  gantry --set api.listen=:8484 serve`
}

// Run serves until the end is asked for.
func (c *serveCmd) Run(ctx context.Context, p *process, global *cli) error {
	roles := []app.Role{app.RoleAPI}
	if c.WithWorker {
		roles = append(roles, app.RoleWorker)
	}
	return runRoles(ctx, p, global, roles)
}

// workerCmd is "gantry worker".
type workerCmd struct{}

// Help is the manual of the command.
func (*workerCmd) Help() string {
	return `Takes events from the lanes in Redis and delivers them. Run as many as you like: each lane is in the hands of one at a
time, and a worker that dies is replaced within seconds. It needs REDIS_URL. SIGTERM or Ctrl-C lets running
deliveries finish (worker.grace) and hands the rest back; a second one ends it at once; SIGHUP reads the env
file again.

With GANTRY_PUBLIC_URL and QStash's signing keys it also takes tasks from QStash, at POST /v1/qstash/tasks on
qstash.listen. Then REDIS_URL may be left out: QStash keeps, repeats and paces the tasks, and the worker delivers each
as it comes. Run one such worker, because it remembers what is done in memory only.

Examples:

  REDIS_URL=redis://127.0.0.1:6379 gantry worker
  GANTRY_PUBLIC_URL=https://hooks.example.com gantry --set qstash.listen=:8485 worker
  gantry --set worker.concurrency=200 --set metrics.listen=:9090 worker`
}

// Run delivers until the end is asked for.
func (*workerCmd) Run(ctx context.Context, p *process, global *cli) error {
	return runRoles(ctx, p, global, []app.Role{app.RoleWorker})
}

// runRoles composes roles from the settings and runs them.
func runRoles(ctx context.Context, p *process, global *cli, roles []app.Role) error {
	cfg, err := global.load(p, nil)
	if err != nil {
		return err
	}
	env, err := config.OpenEnvFile(cfg.EnvFile, p.env)
	if err != nil {
		return err
	}
	log := newLogger(cfg, p.err)
	if p.strayLog != nil {
		p.strayLog(strayLines{log})
	}
	system, err := app.New(ctx, app.Params{
		Config: cfg, Env: env, Roles: roles, Logger: log, Version: version(),
	})
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("ended before Redis answered: %w", err)
		}
		return err
	}
	return serveApp(ctx, system, p, nil)
}

// serveApp runs a system, reloading it whenever the process is asked to, and
// closes started once it is up; nil tells nobody.
func serveApp(ctx context.Context, system *app.App, p *process, started chan<- struct{}) error {
	running, end := context.WithCancel(ctx)
	defer end()
	if p.hangups != nil {
		requests, stop := p.hangups()
		defer stop()
		go func() {
			for {
				select {
				case <-requests:
					_ = system.Reload() // it logs its error, and the old environment stays
				case <-running.Done():
					return
				}
			}
		}()
	}
	return system.Run(running, started)
}
