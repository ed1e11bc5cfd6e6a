package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/demo"
	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
)

// imitateQStash starts a QStash of this process's own for hooks that ask for
// "delivery: qstash", unless the deployment has a token of the real one. stop ends
// it.
func (d *dev) imitateQStash(ctx context.Context) (stop func(), err error) {
	if _, real := d.env.Lookup("QSTASH_TOKEN"); real || d.cfg.QStash.Token.Reveal() != "" {
		return func() {}, nil
	}
	// Nobody else knows the token, so that only this process can send with it.
	token := tasks.NewID()
	server, err := compat.New(compat.Config{
		Token: token, Keys: compat.Keys{Current: qstash.DevCurrentKey, Next: qstash.DevNextKey}, OnAttempt: d.relayed,
	})
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		server.Close()
		return nil, fmt.Errorf("listen for QStash messages: %w", err)
	}
	q := &d.cfg.QStash
	q.URL, q.Token, q.Keys = "http://"+listener.Addr().String(), config.Secret(token), config.KeysDevelopment
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := serveQStash(serving, server, listener); err != nil {
			fmt.Fprintf(d.err, "The imitated QStash ended: %v\n", err)
		}
	}()
	return func() {
		end()
		<-ended
		server.Close()
	}, nil
}

// relayed shows an attempt of the imitated QStash.
func (d *dev) relayed(a compat.Attempt) {
	status := "no reply"
	if a.Status != 0 {
		status = fmt.Sprint(a.Status)
	}
	r := demo.Relayed{Attempt: a.Retried + 1}
	if to, err := url.Parse(a.URL); err == nil {
		r.Host, r.Path = to.Host, to.EscapedPath()
	}
	switch a.Outcome {
	case compat.OutcomeDelivered:
		r.Text, r.Delivered = "QStash delivered "+status, true
	case compat.OutcomeRetry:
		r.Text = fmt.Sprintf("QStash got %s, retry in %s", status, a.RetryIn.Round(time.Millisecond))
	case compat.OutcomeFailed, compat.OutcomeCancelled:
		r.Text = fmt.Sprintf("QStash got %s: %s", status, a.Outcome)
	}
	d.view.Relayed(r)
}
