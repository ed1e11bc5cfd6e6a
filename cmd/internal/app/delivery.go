package app

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// deliverer wires payloads, egress and requests into the one thing that makes
// an attempt.
func (a *App) deliverer(ctx context.Context) (*webhook.Deliverer, error) {
	cfg := a.params.Config
	// A delivery needs one connection. Without a bound a busy process opens more,
	// because a connection that has just been used is idle a moment too late.
	connections := cfg.Worker.Concurrency
	callers, err := egress.New(egress.Config{Policy: a.callersPolicy(), MaxConnsPerHost: connections})
	if err != nil {
		return nil, fmt.Errorf("callers' egress: %w", err)
	}
	a.defers("callers' egress", func(context.Context) error { callers.Close(); return nil })
	operator, err := egress.New(egress.Config{Policy: egress.Trusted(), MaxConnsPerHost: connections})
	if err != nil {
		return nil, fmt.Errorf("operator's egress: %w", err)
	}
	a.defers("operator's egress", func(context.Context) error { operator.Close(); return nil })
	directory, err := a.directory(ctx, operator)
	if err != nil {
		return nil, err
	}
	payloads, err := enrich.New(enrich.Config{Directory: directory, Logger: a.log, Registerer: a.registry})
	if err != nil {
		return nil, err
	}
	agent := "Gantry/" + a.params.Version
	if cfg.Webhook.UserAgentSuffix != "" {
		agent += " " + cfg.Webhook.UserAgentSuffix
	}
	return webhook.New(webhook.Config{
		Env: a.params.Env.Lookup, HeaderEnv: cfg.Webhook.HeaderEnv, Callers: callers, Operator: operator,
		Payloads: payloads, UserAgent: agent, Registerer: a.registry,
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
