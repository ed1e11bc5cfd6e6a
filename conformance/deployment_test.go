package conformance_test

import (
	"context"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/worker"
)

// siteAsker asks controls through the same way out as a site's deliveries.
type siteAsker struct{ *site }

// Ask implements control.Asker.
func (s siteAsker) Ask(ctx context.Context, req webhook.ControlRequest) webhook.ControlReply {
	d := s.delivering(s.key(req.Hook))
	if d.err != nil {
		return webhook.ControlReply{Class: tasks.ClassConfiguration, Message: d.err.Error()}
	}
	d.receiver.begin(s.scheme(req.Hook))
	return d.deliverer.Ask(ctx, req)
}

// deployment is a dispatcher and a way to ask controls, with the workers behind
// them in queue mode.
type deployment struct {
	site       *site
	dispatcher *producer.Dispatcher
	controls   *control.Client
}

// always are environment hooks that do not change.
func always(hooks []tasks.Hook) tasks.EnvironmentHooks {
	return func() ([]tasks.Hook, error) { return hooks, nil }
}

func (r *run) deployment(s *site, mode string, hooks tasks.EnvironmentHooks) deployment {
	log := s.journal.logger()
	evaluator, err := control.NewEvaluator(control.EvaluatorConfig{Asker: siteAsker{s}, EnvironmentHooks: hooks, Logger: log})
	if err != nil {
		r.fatalf("build the evaluator: %v", err)
	}
	asking := control.Config{EnvironmentHooks: hooks, Logger: log}
	sending := producer.Config{EnvironmentHooks: hooks, Logger: log}
	switch mode {
	case "local", "":
		sending.Mode, sending.Deliverer = producer.ModeLocal, s
		asking.Evaluator = evaluator
	case "queue":
		store := r.store()
		sending.Mode, sending.Store, sending.Namespace = producer.ModeQueue, store, store.Namespace()
		r.worker(worker.Config{
			Store: store, Deliverer: s, EnvironmentHooks: hooks, Namespace: store.Namespace(), Logger: log,
		})
		asking.Exchange = r.exchange(store.Namespace(), control.AnswererConfig{Evaluator: evaluator, Logger: log})
	default:
		r.notUnderstood("runtime_mode", mode)
	}
	d := deployment{site: s, dispatcher: r.dispatcher(sending)}
	asking.Hooks = d.dispatcher
	if d.controls, err = control.New(asking); err != nil {
		r.fatalf("build the control client: %v", err)
	}
	r.t.Cleanup(func() {
		r.lab.later("close the control client", func(context.Context) error { d.controls.Close(); return nil })
	})
	return d
}

// exchange starts somebody who answers, and returns the way to ask.
func (r *run) exchange(namespace string, cfg control.AnswererConfig) control.Exchange {
	exchange, err := redisverdict.Open(r.t.Context(), redisverdict.Config{
		Client: r.lab.client, Blocking: r.lab.blocking, Namespace: namespace, Lease: 30 * time.Second,
	})
	if err != nil {
		r.fatalf("open the exchange: %v", err)
	}
	cfg.Exchange = exchange
	answerer, err := control.NewAnswerer(cfg)
	if err != nil {
		r.fatalf("build the answerer: %v", err)
	}
	if err := answerer.Start(r.t.Context()); err != nil {
		r.fatalf("start the answerer: %v", err)
	}
	r.t.Cleanup(func() { r.lab.later("stop the answerer", answerer.Stop) })
	return exchange
}

// runner runs tool calls against the deployment. Closing it waits for the first
// attempt of every notification.
func (d deployment) runner(r *run) *toolcall.Runner {
	runner, err := toolcall.New(toolcall.Config{
		Controls: d.controls, Mocks: d.dispatcher, Observer: d.dispatcher, Hooks: d.dispatcher,
		Logger: d.site.journal.logger(), OnFailure: func(toolcall.Failure) {},
	})
	if err != nil {
		r.fatalf("build the runner: %v", err)
	}
	return runner
}

func equalValues(a, b any) bool { return cmp.Equal(a, b) }
