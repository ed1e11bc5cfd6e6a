package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/control/deferred/redisdeferred"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
	"github.com/gantry-hooks/gantry/webhook"
)

// retrying calls open until Redis answers, so that the start order of a
// deployment does not matter. away reports whether an error says that it did not.
func retrying(ctx context.Context, log logrus.FieldLogger, open func() error, away error) error {
	for {
		err := open()
		if err == nil || !errors.Is(err, away) {
			return err
		}
		log.WithField(tasks.LogErr, err).Warn("redis.unavailable")
		select {
		case <-ctx.Done():
			return fmt.Errorf("connect to redis: %w", err)
		case <-time.After(time.Second):
		}
	}
}

// composeExchange opens the way on which questions travel. It has clients of its
// own, so that events which queue for a connection delay no verdict.
func (a *App) composeExchange(ctx context.Context) error {
	cfg := redisverdict.Config{
		Client: a.conns.control, Blocking: a.conns.verdicts, Namespace: a.params.Config.Redis.Namespace, Shards: a.store.Shards(),
		Embedded: a.conns.embedded != nil,
	}
	return retrying(ctx, a.log, func() (err error) {
		a.exchange, err = redisverdict.Open(ctx, cfg)
		return err
	}, control.ErrUnavailable)
}

// composeAnswerer makes a worker answer questions: with a deliverer of its own,
// whose connections no notification takes.
func (a *App) composeAnswerer(deliveries *deliveries) error {
	cfg := a.params.Config
	if cfg.Control.Role != config.ControlOn {
		return nil
	}
	asker, err := deliveries.deliverer(deliveryParams{name: "controls", connections: cfg.Control.Slots})
	if err != nil {
		return err
	}
	var judge control.Judge
	judge, err = control.NewEvaluator(control.EvaluatorConfig{
		Asker: a.heard(asker), EnvironmentHooks: a.hooks, Namespace: cfg.Redis.Namespace, Logger: a.log, Registerer: a.registry,
	})
	if err != nil {
		return err
	}
	a.answerer, err = control.NewAnswerer(control.AnswererConfig{
		Exchange: a.exchange, Evaluator: judge, Slots: cfg.Control.Slots, Grace: cfg.Worker.Grace, Logger: a.log, Registerer: a.registry,
	})
	return err
}

// heard lets Params.OnAsked hear of what asker asks.
func (a *App) heard(asker control.Asker) control.Asker {
	if a.params.OnAsked == nil {
		return asker
	}
	return askerFunc(func(ctx context.Context, req webhook.ControlRequest) webhook.ControlReply {
		reply := asker.Ask(ctx, req)
		a.params.OnAsked(req, reply)
		return reply
	})
}

type askerFunc func(ctx context.Context, req webhook.ControlRequest) webhook.ControlReply

// Ask is the function.
func (f askerFunc) Ask(ctx context.Context, req webhook.ControlRequest) webhook.ControlReply {
	return f(ctx, req)
}

// composeClient makes this process ask questions.
func (a *App) composeClient() error {
	cfg := a.params.Config
	var err error
	a.client, err = control.New(control.Config{
		Exchange: a.exchange, Hooks: hookSource{a.dispatcher, a.store}, Directory: a.store, EnvironmentHooks: a.hooks,
		Timeout: cfg.Control.Timeout, UnknownEnvironment: tasks.ErrorPolicy(cfg.Control.UnknownEnvironment),
		Logger: a.log, Registerer: a.registry,
	})
	if err != nil {
		return err
	}
	a.defers("questions", func(context.Context) error { a.client.Close(); return nil })
	return nil
}

// composeDeferred makes this process keep results that come later.
func (a *App) composeDeferred(ctx context.Context) error {
	cfg := redisdeferred.Config{
		Client: a.conns.control, Blocking: a.conns.verdicts, Namespace: a.params.Config.Redis.Namespace, Shards: a.store.Shards(),
	}
	var store *redisdeferred.Store
	err := retrying(ctx, a.log, func() (err error) {
		store, err = redisdeferred.Open(ctx, cfg)
		return err
	}, deferred.ErrUnavailable)
	if err != nil {
		return err
	}
	a.deferred, err = deferred.New(deferred.Config{
		Store: store, Controls: a.client, Policies: policies{hookSource{a.dispatcher, a.store}}, EnvironmentHooks: a.hooks,
		Directory: a.store, Notifier: a.dispatcher, Logger: a.log, Registerer: a.registry,
	})
	if err != nil {
		return err
	}
	a.defers("deferred results", func(context.Context) error { a.deferred.Close(); return nil })
	return nil
}

// hookSource knows the caller hooks of operations: those of this process first,
// then those that any process has stored.
type hookSource struct {
	dispatcher *producer.Dispatcher
	store      *redislane.Store
}

// ControlHooks returns an operation's hooks; nil means that none are registered.
func (s hookSource) ControlHooks(ctx context.Context, operationID string) (json.RawMessage, error) {
	hooks, err := s.dispatcher.ControlHooks(ctx, operationID)
	if err != nil || hooks != nil {
		return hooks, err
	}
	hooks, ok, err := s.store.Hooks(ctx, operationID)
	if err != nil || !ok {
		return nil, err
	}
	if len(hooks) == 0 {
		// What is stored is never empty; something else was written to Redis by hand, and
		// reading it as "none" would let calls through.
		return nil, errors.New("stored hooks are empty")
	}
	return hooks, nil
}

// policies are the hooks that count when a deferred result comes.
type policies struct{ hookSource }

// Snapshot returns the hooks of an operation that is registered.
func (p policies) Snapshot(ctx context.Context, operationID string) (json.RawMessage, bool, error) {
	hooks, err := p.ControlHooks(ctx, operationID)
	return hooks, hooks != nil, err
}

// Durable returns nothing: what counts after the end of an operation is recorded
// with the deferred result itself.
func (p policies) Durable(context.Context, string) (json.RawMessage, bool, error) {
	return nil, false, nil
}
