package app

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// deliveries make requests: each deliverer has connections of its own, all share
// the payload builder and what it remembers.
type deliveries struct {
	*App
	payloads webhook.Payloads
	// publisher hands deliveries to QStash.
	publisher webhook.Publisher
}

// deliveryParams are what deliverers differ in.
type deliveryParams struct {
	// name stands in messages.
	name string
	// connections bounds the connections to one host. A request needs one. Without a
	// bound a busy process opens more, because a connection that has just been used is
	// idle a moment too late.
	connections int
	// registerer takes the metrics; nil keeps them unregistered.
	registerer prometheus.Registerer
}

// composeDeliveries wires what all deliverers share.
func (a *App) composeDeliveries(ctx context.Context) (*deliveries, error) {
	client, err := a.egress("directory", egress.Config{Policy: egress.Trusted(), MaxConnsPerHost: a.params.Config.Worker.Concurrency})
	if err != nil {
		return nil, err
	}
	directory, err := a.directory(ctx, client)
	if err != nil {
		return nil, err
	}
	payloads, err := enrich.New(enrich.Config{Directory: directory, Logger: a.log, Registerer: a.registry})
	if err != nil {
		return nil, err
	}
	publisher, err := a.composePublisher()
	if err != nil {
		return nil, err
	}
	return &deliveries{App: a, payloads: payloads, publisher: publisher}, nil
}

// egress makes a client that ends with the system.
func (a *App) egress(name string, cfg egress.Config) (*egress.Client, error) {
	client, err := egress.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("egress of %s: %w", name, err)
	}
	a.defers("egress of "+name, func(context.Context) error { client.Close(); return nil })
	return client, nil
}

// deliverer wires payloads, egress and requests into the one thing that makes
// an attempt.
func (d *deliveries) deliverer(p deliveryParams) (*webhook.Deliverer, error) {
	cfg := d.params.Config
	callers, err := d.egress(p.name, egress.Config{Policy: d.callersPolicy(), MaxConnsPerHost: p.connections})
	if err != nil {
		return nil, err
	}
	operator, err := d.egress("the operator's "+p.name, egress.Config{Policy: egress.Trusted(), MaxConnsPerHost: p.connections})
	if err != nil {
		return nil, err
	}
	agent := "Gantry/" + d.params.Version
	if cfg.Webhook.UserAgentSuffix != "" {
		agent += " " + cfg.Webhook.UserAgentSuffix
	}
	return webhook.New(webhook.Config{
		Env: d.params.Env.Lookup, HeaderEnv: cfg.Webhook.HeaderEnv, Callers: callers, Operator: operator,
		Payloads: d.payloads, Publisher: d.publisher, UserAgent: agent, Registerer: p.registerer,
	})
}

// callersPolicy is what hooks of callers may reach: public addresses and what
// the operator opened.
func (a *App) callersPolicy() egress.Policy {
	p := egress.Public()
	for _, entry := range a.params.Config.Webhook.EgressAllow {
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			p.AllowCIDRs = append(p.AllowCIDRs, prefix)
		} else if addr, err := netip.ParseAddr(entry); err == nil {
			p.AllowCIDRs = append(p.AllowCIDRs, netip.PrefixFrom(addr, addr.BitLen()))
		} else {
			p.AllowHosts = append(p.AllowHosts, entry)
		}
	}
	if a.params.TrustLoopback {
		p.AllowCIDRs = append(p.AllowCIDRs, netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"))
		p.AllowHosts = append(p.AllowHosts, "localhost")
	}
	return p
}

// directory finds users' addresses; nil when none is configured. It is the
// operator's own and may be internal.
func (a *App) directory(ctx context.Context, client *egress.Client) (enrich.Directory, error) {
	e := a.params.Config.Enrich
	switch e.Kind {
	case config.EnrichPostgres:
		dsn, err := e.ReadDSN()
		if err != nil {
			return nil, err
		}
		p, err := enrich.NewPostgres(ctx, enrich.PostgresConfig{DSN: dsn.Reveal(), Query: e.Query, StatementTimeout: e.StatementTimeout})
		if err != nil {
			return nil, err
		}
		a.defers("postgres", func(context.Context) error { p.Close(); return nil })
		return p, nil
	case config.EnrichHTTP:
		return enrich.NewHTTP(enrich.HTTPConfig{URL: e.URL, Client: client, Timeout: 5 * time.Second})
	case config.EnrichFile:
		return enrich.NewFile(enrich.FileConfig{Path: e.File})
	}
	return nil, nil
}
