package main

import (
	"context"
	"errors"
	"net/netip"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// parts are what a runtime needs of Gantry: somebody who takes its events, and
// somebody who answers its questions.
type parts struct {
	dispatcher *producer.Dispatcher
	controls   *control.Client
	closers    []func()
}

// close ends what connect started, last first.
func (p *parts) close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
}

// connect builds the parts: in this process alone, or in front of a Redis.
func connect(ctx context.Context, s settings) (*parts, error) {
	p := &parts{}
	var err error
	if s.redisURL == "" {
		err = p.local()
	} else {
		err = p.queue(ctx, s)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// local sends webhooks and asks controls from here.
func (p *parts) local() error {
	reach := egress.Public()
	// The policy of this example is on this machine.
	reach.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	client, err := egress.New(egress.Config{Policy: reach})
	if err != nil {
		return err
	}
	p.closers = append(p.closers, client.Close)
	payloads, err := enrich.New(enrich.Config{})
	if err != nil {
		return err
	}
	noEnvironment := func(string) (string, bool) { return "", false }
	deliverer, err := webhook.New(webhook.Config{Env: noEnvironment, Callers: client, Payloads: payloads})
	if err != nil {
		return err
	}
	evaluator, err := control.NewEvaluator(control.EvaluatorConfig{Asker: deliverer})
	if err != nil {
		return err
	}
	return p.build(producer.Config{Deliverer: deliverer}, control.Config{Evaluator: evaluator})
}

// queue hands events and questions to workers. Questions have clients of their
// own, so that no queue of events holds them up, and so do blocking calls, which
// would starve a pool.
func (p *parts) queue(ctx context.Context, s settings) error {
	options, err := redis.ParseURL(s.redisURL)
	if err != nil {
		return errors.New("the address of Redis is not usable")
	}
	options.ContextTimeoutEnabled = true
	var clients [4]*redis.Client
	for i := range clients {
		clients[i] = redis.NewClient(options)
		p.closers = append(p.closers, func() { _ = clients[i].Close() })
	}
	store, err := redislane.Open(ctx, redislane.Config{Client: clients[0], Blocking: clients[1], Namespace: s.namespace})
	if err != nil {
		return err
	}
	exchange, err := redisverdict.Open(ctx, redisverdict.Config{
		Client: clients[2], Blocking: clients[3], Namespace: store.Namespace(), Shards: store.Shards(),
	})
	if err != nil {
		return err
	}
	return p.build(
		producer.Config{Mode: producer.ModeQueue, Store: store},
		control.Config{Exchange: exchange, Directory: store},
	)
}

// build makes the dispatcher and the client, which reads from it what hooks an
// operation has registered.
func (p *parts) build(sending producer.Config, asking control.Config) (err error) {
	if p.dispatcher, err = producer.New(sending); err != nil {
		return err
	}
	p.closers = append(p.closers, p.dispatcher.Close)
	asking.Hooks = p.dispatcher
	if p.controls, err = control.New(asking); err != nil {
		return err
	}
	p.closers = append(p.closers, p.controls.Close)
	return nil
}
