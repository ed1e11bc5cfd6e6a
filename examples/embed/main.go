// Command embed is an agent runtime in Go that carries its own Gantry: it
// dispatches events through Redis and delivers them with a worker in the same
// process. Any number of such processes may share one Redis; a deployment that
// runs "gantry worker" leaves the worker out.
//
//	go run ./examples/embed -redis redis://127.0.0.1:6379/0
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"

	"github.com/redis/go-redis/v9"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/worker"
)

func main() {
	redisURL := flag.String("redis", "redis://127.0.0.1:6379/0", "address of Redis")
	receiver := flag.String("receiver", "http://127.0.0.1:8485/hello", "address of the receiver; gantry dev has one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, settings{redisURL: *redisURL, receiver: *receiver, out: os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

// settings are what the program is told.
type settings struct {
	redisURL, receiver string
	out                io.Writer
}

// run plays a small agent run of one step.
func run(ctx context.Context, s settings) (err error) {
	store, closeStore, err := openStore(ctx, s.redisURL)
	if err != nil {
		return err
	}
	defer closeStore()
	deliveries, err := startWorker(ctx, store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, deliveries.Stop(context.WithoutCancel(ctx))) }()
	dispatcher, err := producer.New(producer.Config{Mode: producer.ModeQueue, Store: store})
	if err != nil {
		return err
	}
	defer dispatcher.Close()
	return play(ctx, dispatcher, s)
}

// play registers a critical hook and dispatches to it.
func play(ctx context.Context, dispatcher *producer.Dispatcher, s settings) error {
	operation := "run-" + tasks.NewID()
	err := dispatcher.Register(ctx, operation, []tasks.Hook{{
		ID: "hello", Type: tasks.AfterStep, Webhook: &tasks.Webhook{URL: s.receiver, Fallback: tasks.FallbackNone},
	}})
	if err != nil {
		return err
	}
	step := 0
	event, err := tasks.NewEvent(tasks.StepEvent{
		Type: tasks.AfterStep, AgentID: "agent", OperationID: operation, UserID: "user", StepIndex: &step,
	})
	if err != nil {
		return err
	}
	// Dispatch returns once the hook had its first attempt. The event stays in the
	// queue when that failed, and the id lets a repeated call join it.
	err = dispatcher.Dispatch(ctx, operation, event, producer.WithID("step-0"))
	var critical *producer.CriticalHookDeliveryError
	switch {
	case errors.As(err, &critical):
		fmt.Fprintf(s.out, "not delivered yet: %v\n", critical.Cause)
	case err != nil:
		return err
	default:
		fmt.Fprintln(s.out, "delivered")
	}
	return dispatcher.Unregister(ctx, operation)
}

// openStore connects to the lanes. Blocking calls have a client of their own,
// because they would starve the other's pool.
func openStore(ctx context.Context, url string) (*redislane.Store, func(), error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, nil, errors.New("the address of Redis is not usable")
	}
	options.ContextTimeoutEnabled = true
	client, blocking := redis.NewClient(options), redis.NewClient(options)
	closeBoth := func() { _, _ = client.Close(), blocking.Close() }
	store, err := redislane.Open(ctx, redislane.Config{Client: client, Blocking: blocking})
	if err != nil {
		closeBoth()
		return nil, nil, err
	}
	return store, closeBoth, nil
}

// startWorker delivers to public addresses and to this machine.
func startWorker(ctx context.Context, store *redislane.Store) (*worker.Worker, error) {
	policy := egress.Public()
	policy.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	client, err := egress.New(egress.Config{Policy: policy})
	if err != nil {
		return nil, err
	}
	payloads, err := enrich.New(enrich.Config{})
	if err != nil {
		return nil, err
	}
	noEnvironment := func(string) (string, bool) { return "", false }
	deliverer, err := webhook.New(webhook.Config{Env: noEnvironment, Callers: client, Payloads: payloads})
	if err != nil {
		return nil, err
	}
	log := logrus.New()
	log.SetLevel(logrus.WarnLevel)
	w, err := worker.New(worker.Config{Store: store, Deliverer: deliverer, Logger: log})
	if err != nil {
		return nil, err
	}
	return w, w.Start(ctx)
}
