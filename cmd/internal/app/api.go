package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/producer/ingress"
)

// composeAPI wires the HTTP API to a dispatcher of its own. Hooks of operations
// are kept in Redis, so that any API process may take any event.
func (a *App) composeAPI(ctx context.Context) error {
	cfg := a.params.Config
	tokens, err := a.tokens()
	if err != nil {
		return err
	}
	a.dispatcher, err = producer.New(producer.Config{
		Mode: producer.ModeQueue, Store: a.store, EnvironmentHooks: a.hooks, Namespace: cfg.Redis.Namespace,
		Logger: a.log, Registerer: a.registry,
	})
	if err != nil {
		return err
	}
	a.defers("dispatcher", func(context.Context) error { a.dispatcher.Close(); return nil })
	if err := a.composeClient(); err != nil {
		return err
	}
	if err := a.composeDeferred(ctx); err != nil {
		return err
	}
	checks := map[string]ingress.Check{}
	for name, check := range a.checks() {
		checks[name] = check
	}
	api, err := ingress.New(ingress.Config{
		Events: a.dispatcher, Store: a.store, EnvironmentHooks: a.hooks,
		Questions: questions{a.client}, Deferred: deferredResults{a.deferred}, QuestionTimeout: cfg.Control.Timeout,
		Tokens: tokens, AllowAnonymousLoopback: a.params.Anonymous,
		MaxBody: int64(cfg.API.MaxBody), Checks: checks,
		Metrics:    promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}),
		Registerer: a.registry, Logger: a.log,
	})
	if err != nil {
		return err
	}
	server := newHTTPServer(serverParams{
		name: ServerAPI, address: cfg.API.Listen, handler: a.withDoor(api.Handler()), stopTimeout: cfg.API.ShutdownTimeout,
	})
	if a.params.NextFreePort {
		server.ports = freePortTries
	}
	server.drain = func() {
		api.Drain()
		if a.door != nil {
			a.door.Drain()
		}
	}
	a.servers = append(a.servers, server)
	return nil
}

// tokens reads who may call. No token at all is an error unless the API is
// anonymous.
func (a *App) tokens() ([]ingress.Token, error) {
	if !a.params.Anonymous {
		if err := a.params.Config.RequireTokens(); err != nil {
			return nil, err
		}
	}
	configured, err := a.params.Config.API.ReadTokens()
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	tokens := make([]ingress.Token, len(configured))
	for i, token := range configured {
		tokens[i] = ingress.Token{Role: ingress.Role(token.Role), Value: token.Value.Reveal()}
	}
	return tokens, nil
}
