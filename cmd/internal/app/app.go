package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/worker"
	"github.com/gantry-hooks/gantry/worker/taskdoor"
)

// Role is a part of the system that a process runs.
type Role string

// The roles.
const (
	// RoleAPI serves the HTTP API.
	RoleAPI Role = "api"
	// RoleWorker drains lanes.
	RoleWorker Role = "worker"
)

// Params are what New builds a system from.
type Params struct {
	Config *config.Config
	// Env is the reloadable environment of hooks and headers. Required.
	Env *config.EnvFile
	// Roles are the parts to run; at least one.
	Roles  []Role
	Logger *logrus.Logger
	// Version is shown to receivers.
	Version string
	// Anonymous lets loopback callers use the API without a token ("gantry dev").
	Anonymous bool
	// Embedded allows an empty Redis address.
	Embedded bool
	// NextFreePort lets the API take one of the next ports when its own is taken
	// ("gantry dev").
	NextFreePort bool
	// TrustLoopback lets callers' hooks reach this machine ("gantry dev").
	TrustLoopback bool
	// OnAttempt hears of every delivery attempt; nil means nobody does.
	OnAttempt func(worker.Attempt)
	// OnAsked hears of every control that was asked here; nil means nobody does.
	OnAsked func(webhook.ControlRequest, webhook.ControlReply)
}

// logServer is the key of a listener's name.
const logServer = "server"

// App is a composed system. New makes one, Start runs it, Stop ends it.
type App struct {
	params   Params
	log      *logrus.Logger
	registry *prometheus.Registry
	conns    *connections
	store    *redislane.Store
	hooks    tasks.EnvironmentHooks
	exchange *redisverdict.Store
	// dispatcher, client and deferred are set with RoleAPI; worker, and answerer if it
	// is switched on, with RoleWorker.
	dispatcher *producer.Dispatcher
	client     *control.Client
	deferred   *deferred.Service
	worker     *worker.Worker
	answerer   *control.Answerer
	// door is set when tasks may come in from QStash.
	door     *taskdoor.Door
	servers  []*httpServer
	cleanups []cleanup
	// failed receives the first error of a server that ended by itself.
	failed chan error
}

// cleanup is a named undoing; they run last in, first out.
type cleanup struct {
	name string
	undo func(ctx context.Context) error
	// actor says that it ends something that runs; all of these end at once.
	actor bool
}

// New composes a system: it connects, checks and wires, and undoes all of it on
// an error. ctx bounds the waiting for Redis.
func New(ctx context.Context, p Params) (*App, error) {
	a := &App{params: p, log: p.Logger, registry: prometheus.NewRegistry(), failed: make(chan error, 4)}
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := a.compose(ctx); err != nil {
		return nil, errors.Join(err, a.undo(context.WithoutCancel(ctx)))
	}
	return a, nil
}

func (a *App) compose(ctx context.Context) error {
	cfg := a.params.Config
	if !a.params.Embedded && !a.alone() {
		if err := cfg.RequireRedis(); err != nil {
			return err
		}
	}
	a.hooks = config.CachedEnvironmentHooks(a.params.Env.Lookup)
	if _, err := a.hooks(); err != nil {
		return err
	}
	if a.alone() {
		return a.composeAlone(ctx)
	}
	// Before the wait for Redis, which would hide the mistake.
	var err error
	if a.has(RoleAPI) {
		if _, err = a.tokens(); err != nil {
			return err
		}
	}
	if a.conns, err = connect(cfg, a.log); err != nil {
		return err
	}
	a.defers("redis", func(context.Context) error { a.conns.close(); return nil })
	if a.store, err = a.conns.store(ctx, cfg, a.log); err != nil {
		return err
	}
	if err = a.composeExchange(ctx); err != nil {
		return err
	}
	a.registry.MustRegister(worker.NewQueueCollector(a.store))
	if a.has(RoleWorker) {
		if err := a.composeWorker(ctx); err != nil {
			return err
		}
	} else if err := a.composeDoor(nil); err != nil {
		return err
	}
	a.composeDoorServer()
	if a.has(RoleAPI) {
		if err := a.composeAPI(ctx); err != nil {
			return err
		}
	}
	return a.composeMetrics()
}

func (a *App) has(r Role) bool { return slices.Contains(a.params.Roles, r) }

func (a *App) defers(name string, undo func(ctx context.Context) error) {
	a.cleanups = append(a.cleanups, cleanup{name: name, undo: undo})
}

// running notes how to end what Start has started.
func (a *App) running(name string, stop func(ctx context.Context) error) {
	a.cleanups = append(a.cleanups, cleanup{name: name, undo: stop, actor: true})
}

// undo ends the actors, all at once and each within its own time, and then what
// they stood on.
func (a *App) undo(ctx context.Context) error {
	first := len(a.cleanups)
	for first > 0 && a.cleanups[first-1].actor {
		first--
	}
	errs := make([]error, len(a.cleanups))
	var actors sync.WaitGroup
	for i := first; i < len(a.cleanups); i++ {
		actors.Go(func() { errs[i] = a.cleanups[i].run(ctx) })
	}
	actors.Wait()
	for i := first - 1; i >= 0; i-- {
		errs[i] = a.cleanups[i].run(ctx)
	}
	a.cleanups = nil
	return errors.Join(errs...)
}

func (c *cleanup) run(ctx context.Context) error {
	if err := c.undo(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	return nil
}

func (a *App) composeWorker(ctx context.Context) error {
	cfg := a.params.Config
	deliveries, err := a.composeDeliveries(ctx)
	if err != nil {
		return err
	}
	deliverer, err := deliveries.deliverer(deliveryParams{
		name: "notifications", connections: cfg.Worker.Concurrency, registerer: a.registry,
	})
	if err != nil {
		return err
	}
	if err := a.composeDoor(deliverer); err != nil {
		return err
	}
	if err := a.composeAnswerer(deliveries); err != nil {
		return err
	}
	jitter := cfg.Retry.Jitter
	if jitter == 0 {
		jitter = -1 // the worker's zero value means its default
	}
	a.worker, err = worker.New(worker.Config{
		Store: a.store, Deliverer: deliverer, EnvironmentHooks: a.hooks, Namespace: cfg.Redis.Namespace,
		Silent:      a.answerer == nil,
		Concurrency: cfg.Worker.Concurrency, Batch: cfg.Worker.Batch,
		DrainEvents: cfg.Worker.DrainEvents, DrainTime: cfg.Worker.DrainTime,
		Heartbeat: cfg.Lane.Heartbeat, Grace: cfg.Worker.Grace,
		Retry: worker.RetryPolicy{
			InitialDelay: cfg.Retry.Initial, Factor: cfg.Retry.Factor, MaxDelay: cfg.Retry.MaxDelay, Jitter: jitter,
			Attempts: cfg.Retry.Attempts, ClientErrorAttempts: cfg.Retry.ClientErrorAttempts, MaxAge: cfg.Retry.MaxAge,
		},
		Asynq: a.conns.asynq, OnAttempt: a.params.OnAttempt, Logger: a.log, Registerer: a.registry,
	})
	return err
}

// Start runs what was composed. On an error nothing is left running.
func (a *App) Start(ctx context.Context) error {
	if a.worker != nil {
		if err := a.worker.Start(ctx); err != nil {
			return errors.Join(err, a.undo(context.WithoutCancel(ctx)))
		}
		a.running("worker", a.worker.Stop)
	}
	if a.answerer != nil {
		if err := a.answerer.Start(ctx); err != nil {
			return errors.Join(err, a.undo(context.WithoutCancel(ctx)))
		}
		a.running("answerer", a.answerer.Stop)
	}
	for _, s := range a.servers {
		if err := s.start(a.failed); err != nil {
			return errors.Join(err, a.undo(context.WithoutCancel(ctx)))
		}
		a.running(s.name, s.stop)
		a.log.WithField(logServer, s.name).WithField(tasks.LogAddress, s.bound.String()).Info("server.started")
	}
	return nil
}

// Stop ends the system: servers and worker at once, so that a caller who is slow
// to go takes nothing of the worker's grace period, then the connections. What
// still comes in is kept in Redis for the next worker.
func (a *App) Stop(ctx context.Context) error { return a.undo(ctx) }

// Run starts the system, closes started (nil tells nobody), and stops the system
// when ctx ends or a part of it fails.
func (a *App) Run(ctx context.Context, started chan<- struct{}) error {
	if err := a.Start(ctx); err != nil {
		return err
	}
	if started != nil {
		close(started)
	}
	var failure error
	select {
	case <-ctx.Done():
	case failure = <-a.failed:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.stopTimeout())
	defer cancel()
	return errors.Join(failure, a.Stop(stop))
}

// stopTimeout leaves the worker its grace period and the servers theirs.
func (a *App) stopTimeout() time.Duration {
	return max(a.params.Config.Worker.Grace, a.params.Config.API.ShutdownTimeout) + 10*time.Second
}

// Reload reads the env file again. On an error the old environment stays.
func (a *App) Reload() error {
	if err := a.params.Env.Reload(); err != nil {
		a.log.WithField(tasks.LogErr, err).Error("environment.reload_failed")
		return err
	}
	a.log.Info("environment.reloaded")
	return nil
}

// Store returns the lanes.
func (a *App) Store() *redislane.Store { return a.store }

// Dispatcher returns the producer of the API role; nil without it.
func (a *App) Dispatcher() *producer.Dispatcher { return a.dispatcher }

// Questions returns the client that asks about tool calls; nil without the API
// role.
func (a *App) Questions() *control.Client { return a.client }

// RedisAddr returns the address of the embedded Redis; "" when it is another's.
func (a *App) RedisAddr() string {
	if a.conns == nil || a.conns.embedded == nil {
		return ""
	}
	return a.conns.embedded.server.Addr()
}
