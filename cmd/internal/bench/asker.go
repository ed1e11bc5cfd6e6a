package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

const (
	// controlWorker is the kind of a worker process that answers questions.
	controlWorker = "control-worker"
	// controlSlots is the number of questions that it answers at once.
	controlSlots = 100
	// askerName names the connections of the asking process in Redis, and askerPool
	// bounds those for questions, as the command's settings do.
	askerName = "bench-asker"
	askerPool = 8
)

// asker is what a runtime has: a dispatcher, and a client that asks.
type asker struct {
	*gantry
	client              *control.Client
	questions, verdicts *redis.Client
	lanes               publisher
	// commands counts what the client sends to Redis.
	commands *commandCounter
	began    time.Time
}

// asker composes an asking process on the system's Redis.
func (s *system) asker(ctx context.Context) (*asker, error) {
	a := &asker{
		gantry: &gantry{
			commands: s.connectAs(askerPool, askerName), blocking: s.connectAs(2, askerName),
		},
		questions: s.connectAs(askerPool, askerName), verdicts: s.connectAs(2, askerName), commands: &commandCounter{},
	}
	a.questions.AddHook(a.commands)
	var err error
	if a.store, err = redislane.Open(ctx, redislane.Config{Client: a.gantry.commands, Blocking: a.blocking}); err != nil {
		return nil, err
	}
	a.lanes = publisher{a.store}
	if a.dispatcher, err = producer.New(producer.Config{Mode: producer.ModeQueue, Store: a.store, Logger: s.log}); err != nil {
		return nil, err
	}
	exchange, err := redisverdict.Open(ctx, redisverdict.Config{Client: a.questions, Blocking: a.verdicts})
	if err != nil {
		return nil, err
	}
	a.client, err = control.New(control.Config{Exchange: exchange, Hooks: a.dispatcher, Directory: a.store, Logger: s.log})
	return a, err
}

func (a *asker) close() {
	a.client.Close()
	a.dispatcher.Close()
	for _, c := range []*redis.Client{a.gantry.commands, a.blocking, a.questions, a.verdicts} {
		_ = c.Close()
	}
}

// caller registers one control for an operation, and asks about its mail tool.
func (a *asker) caller(ctx context.Context, operation, url string) (caller, error) {
	matcher := "^mail/"
	err := a.dispatcher.Register(ctx, operation, []tasks.Hook{{
		ID: "policy", Type: tasks.BeforeToolCall, Matcher: &matcher,
		Webhook: &tasks.Webhook{URL: url, ResponseHandling: tasks.HandleToolCall, OnError: tasks.PolicyBlock},
	}})
	if err != nil {
		return caller{}, err
	}
	event, err := toolEvent(operation, "mail", "send")
	if err != nil {
		return caller{}, err
	}
	return caller{client: a.client, operation: operation, event: event, body: event.Raw}, nil
}

func toolEvent(operation, identifier, apiName string) (*tasks.Event, error) {
	raw := fmt.Sprintf(`{"operationId":%q,"toolCallId":"call-1","assistantMessageId":"msg-1","identifier":%q,"apiName":%q,`+
		`"args":{"to":"lena@example.org","subject":"The report","body":"It is done."},"callIndex":1,"stepIndex":3,"executor":"server","userId":"user-42"}`,
		operation, identifier, apiName)
	return tasks.ParseEvent(tasks.BeforeToolCall, operation, []byte(raw))
}

// notify sends notifications at the rate of the bench until ctx ends, which is no
// error.
func (a *asker) notify(ctx context.Context, l load) error {
	a.began = time.Now()
	err := inParallel(ctx, 8, 8, func(ctx context.Context, p int) error {
		gap := 8 * time.Second / besideRate
		first := a.began.Add(time.Duration(p) * gap / 8) // one after the other, not all at once
		for i := 0; ; i++ {
			op := l.operation((i*8 + p) % l.operations)
			ev, err := l.event(op, i*8/l.operations, 0)
			if err != nil {
				return err
			}
			if _, err := a.dispatcher.Enqueue(ctx, op, ev); err != nil {
				return err
			}
			select {
			case <-time.After(time.Until(first.Add(time.Duration(i+1) * gap))):
			case <-ctx.Done():
				return nil
			}
		}
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is how it ends
	}
	return err
}

// publisher plays a worker without environment hooks.
type publisher struct{ store *redislane.Store }

func (p publisher) publish(ctx context.Context) error {
	return p.store.Publish(ctx, lane.WorkerInfo{ID: "bench"})
}

// commandCounter counts the commands of a Redis client.
type commandCounter struct{ atomic.Int64 }

// DialHook changes nothing.
func (c *commandCounter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook counts one.
func (c *commandCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts several.
func (c *commandCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// answerer composes the side that answers, with clients of its own.
func (s *system) answerer(ctx context.Context) (a *control.Answerer, closed func(), err error) {
	questions, verdicts := s.connectAs(askerPool, ""), s.connectAs(2, "")
	closed = func() { _, _ = questions.Close(), verdicts.Close() }
	exchange, err := redisverdict.Open(ctx, redisverdict.Config{Client: questions, Blocking: verdicts})
	if err != nil {
		return nil, closed, err
	}
	deliverer, err := s.deliverer()
	if err != nil {
		return nil, closed, err
	}
	evaluator, err := control.NewEvaluator(control.EvaluatorConfig{Asker: deliverer, Logger: s.log})
	if err != nil {
		return nil, closed, err
	}
	a, err = control.NewAnswerer(control.AnswererConfig{Exchange: exchange, Evaluator: evaluator, Slots: controlSlots, Logger: s.log})
	return a, closed, err
}

// startAnswerer answers in this process.
func (s *system) startAnswerer(ctx context.Context) (stop func() error, err error) {
	a, closed, err := s.answerer(ctx)
	if err == nil {
		err = a.Start(ctx)
	}
	if err != nil {
		closed()
		return nil, err
	}
	return func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		defer closed()
		return a.Stop(stopping)
	}, nil
}

// controlWorker is the body of a worker's process: it delivers and answers until
// it is killed.
func (s *system) controlWorker(ctx context.Context) error {
	g, err := s.gantry(ctx, gantryOptions{})
	if err != nil {
		return err
	}
	if err := g.worker.Start(ctx); err != nil {
		return err
	}
	if _, err := s.startAnswerer(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// launchWorker starts a worker in a process of its own.
func (s *system) launchWorker(kind string) (kill func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.Command(self, "bench", kind, s.redis.Addr(), s.sink.base)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	return func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return err
	}, nil
}
