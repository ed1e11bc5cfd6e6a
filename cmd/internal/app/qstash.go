package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/worker/taskdoor"
)

// ServerTasks is the listener of a worker for tasks from QStash, as Address names
// it.
const ServerTasks = "tasks"

// varQStashToken is read at each publish, so that a new token needs no restart.
const varQStashToken = "QSTASH_TOKEN"

func (a *App) keyPolicy() qstash.KeyPolicy {
	return qstash.KeyPolicy(a.params.Config.QStash.Keys == config.KeysDevelopment)
}

// composePublisher wires the way to QStash. Without a token it publishes nothing
// and says so.
func (a *App) composePublisher() (*qstash.Publisher, error) {
	cfg := a.params.Config
	client, err := a.egress("QStash", egress.Config{Policy: egress.Trusted(), MaxConnsPerHost: cfg.Worker.Concurrency})
	if err != nil {
		return nil, err
	}
	retries := cfg.QStash.Retries
	if retries == 0 {
		retries = -1 // the publisher's zero value means its default
	}
	return qstash.NewPublisher(qstash.PublisherConfig{
		Client: client, URL: cfg.QStash.URL, Policy: a.keyPolicy(), Timeout: cfg.QStash.Timeout, Retries: retries,
		Token: func() string {
			if token, ok := a.params.Env.Lookup(varQStashToken); ok && token != "" {
				return token
			}
			return cfg.QStash.Token.Reveal()
		},
		Backoff: qstash.Backoff{Initial: cfg.Retry.Initial, Factor: cfg.Retry.Factor, Max: cfg.Retry.MaxDelay},
		Label:   cfg.QStash.Label, Namespace: cfg.Redis.Namespace, MaxBody: int(cfg.QStash.MaxBody),
	})
}

// composeDoor wires the endpoint for tasks from QStash if it is to be open;
// deliverer is nil in a process without a worker.
func (a *App) composeDoor(deliverer *webhook.Deliverer) error {
	cfg := a.params.Config
	if !cfg.QStash.Receives() {
		return nil
	}
	verifier, err := a.verifier()
	if err != nil {
		return err
	}
	door := taskdoor.Config{
		URL: cfg.QStash.PublicURL + taskdoor.Path, Verifier: verifier,
		EnvironmentHooks: a.hooks, Namespace: cfg.Redis.Namespace, MaxBody: int64(cfg.QStash.MaxBody), Concurrency: cfg.Worker.Concurrency,
		Backoff: taskdoor.Backoff{Initial: cfg.Retry.Initial, Factor: cfg.Retry.Factor, Max: cfg.Retry.MaxDelay},
		Logger:  a.log, Registerer: a.registry,
	}
	if key := cfg.QStash.DirectKey.Reveal(); key != "" {
		if door.Keys, err = signature.ParseKeys(key); err != nil {
			return fmt.Errorf("read qstash.direct_key: %w", err)
		}
	}
	if deliverer != nil {
		door.Deliverer = deliverer
	}
	claims := taskdoor.ClaimsConfig{Window: cfg.Lane.IdempotencyWindow, Patience: cfg.QStash.Patience}
	if a.store != nil {
		door.Lanes = a.store
		if door.Claims, err = taskdoor.NewRedisClaims(a.conns.commands, cfg.Redis.Namespace, claims); err != nil {
			return err
		}
	} else {
		door.Claims = taskdoor.NewMemoryClaims(claims)
	}
	a.door, err = taskdoor.New(door)
	return err
}

func (a *App) verifier() (*qstash.Verifier, error) {
	q := a.params.Config.QStash
	keys, err := qstash.ParseKeys(q.CurrentSigningKey.Reveal(), q.NextSigningKey.Reveal(), a.keyPolicy())
	if errors.Is(err, qstash.ErrDevelopmentKey) {
		err = fmt.Errorf("%w; for development alone, set GANTRY_QSTASH_KEYS=development", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read qstash.current_signing_key and qstash.next_signing_key: %w", err)
	}
	if !keys.Rotatable() {
		a.log.Warn("qstash.one_key")
	}
	return qstash.NewVerifier(qstash.VerifierConfig{Keys: keys})
}

// withDoor puts the door beside the API, which is reached under the same public
// address.
func (a *App) withDoor(api http.Handler) http.Handler {
	if a.door == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == taskdoor.Path {
			a.door.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// composeDoorServer adds the listener of a worker, which has no API.
func (a *App) composeDoorServer() {
	if a.door == nil || a.has(RoleAPI) {
		return
	}
	mux := http.NewServeMux()
	mux.Handle(taskdoor.Path, a.door)
	server := newHTTPServer(serverParams{
		name: ServerTasks, address: a.params.Config.QStash.Listen, handler: mux, stopTimeout: a.params.Config.API.ShutdownTimeout,
	})
	server.drain = a.door.Drain
	a.servers = append(a.servers, server)
}

// alone reports whether this is a worker without Redis: QStash brings its tasks,
// repeats and orders them.
func (a *App) alone() bool {
	cfg := a.params.Config
	return cfg.Redis.URL == "" && !a.params.Embedded && cfg.QStash.Receives() && a.has(RoleWorker) && !a.has(RoleAPI)
}

// composeAlone wires a worker without Redis.
func (a *App) composeAlone(ctx context.Context) error {
	deliveries, err := a.composeDeliveries(ctx)
	if err != nil {
		return err
	}
	deliverer, err := deliveries.deliverer(deliveryParams{
		name: "notifications", connections: a.params.Config.Worker.Concurrency, registerer: a.registry,
	})
	if err != nil {
		return err
	}
	if err := a.composeDoor(deliverer); err != nil {
		return err
	}
	a.composeDoorServer()
	return a.composeMetrics()
}
