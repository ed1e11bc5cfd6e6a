package producer_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

var _ producer.Store = (*redislane.Store)(nil)

// blockingName is how a test's blocking connections call themselves.
const blockingName = "ears"

// queue is a dispatcher of queue mode on a real Redis.
type queue struct {
	*producer.Dispatcher
	store  *redislane.Store
	client *redis.Client
	logs   *logs
}

func newQueue(t testing.TB) *queue {
	t.Helper()
	return newQueueAt(t, servertest.FlushedClient(t).Options(), nil)
}

// newQueueAt builds a dispatcher on the server and database of options; adjust
// may change its configuration.
func newQueueAt(t testing.TB, options *redis.Options, adjust func(*producer.Config)) *queue {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: options.Addr, DB: options.DB, ContextTimeoutEnabled: true, MaxRetries: -1,
	})
	blocking := redis.NewClient(&redis.Options{
		Addr: options.Addr, DB: options.DB, MaxRetries: -1, ClientName: blockingName,
	})
	store, err := redislane.New(redislane.Config{Client: client, Blocking: blocking})
	if err != nil {
		t.Fatalf("new store: %v", err)
	}
	logger, lines := newLogger()
	config := producer.Config{Mode: producer.ModeQueue, Store: store, Logger: logger}
	if adjust != nil {
		adjust(&config)
	}
	dispatcher, err := producer.New(config)
	if err != nil {
		t.Fatalf("new dispatcher: %v", err)
	}
	t.Cleanup(func() {
		dispatcher.Close()
		_ = blocking.Close()
		_ = client.Close()
	})
	return &queue{Dispatcher: dispatcher, store: store, client: client, logs: lines}
}

// publish announces a worker with these environment hooks.
func (q *queue) publish(t testing.TB, hooks ...lane.PublishedHook) {
	t.Helper()
	if err := q.store.Publish(t.Context(), lane.WorkerInfo{ID: "w", Hooks: hooks}); err != nil {
		t.Fatalf("publish worker: %v", err)
	}
}

// waiting is the number of events in the operation's lane.
func (q *queue) waiting(t testing.TB) int64 {
	t.Helper()
	info, err := q.store.Lane(t.Context(), operation)
	if errors.Is(err, lane.ErrNotFound) {
		return 0
	}
	if err != nil {
		t.Fatalf("look at lane: %v", err)
	}
	return info.Waiting
}

// ruling is what the test's worker makes of a hook; the zero ruling delivers.
type ruling struct {
	verb    lane.Verb
	outcome lane.Outcome
	delay   time.Duration
}

// puppet is a worker that settles hooks by rulings instead of delivering.
type puppet struct {
	store *redislane.Store
	calls *calls

	mu      sync.Mutex
	rulings map[string]ruling
}

// work starts a puppet that runs until the test ends. While hold is not nil, it
// takes nothing before hold is closed.
func work(t testing.TB, store *redislane.Store, rulings map[string]ruling, hold <-chan struct{}) *puppet {
	t.Helper()
	p := &puppet{store: store, calls: &calls{}, rulings: rulings}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if hold != nil {
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		for ctx.Err() == nil {
			if !p.drain(ctx) {
				_, _ = store.Sweep(ctx, 0, 100)
				_, _, _ = store.Await(ctx, 0, 0, 1, 50*time.Millisecond)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// drain claims what is ready and settles it; false means that nothing was.
func (p *puppet) drain(ctx context.Context) bool {
	claims, err := p.store.Claim(ctx, 0, 10, 100)
	if err != nil || len(claims) == 0 {
		return false
	}
	for _, claim := range claims {
		step := lane.Step{Queue: claim.Queue, Token: claim.Token, Release: true}
		for _, entry := range claim.Entries {
			step.Actions = append(step.Actions, p.settle(claim, entry)...)
		}
		_, _ = p.store.Progress(ctx, step)
	}
	return true
}

func (p *puppet) settle(claim lane.Claim, entry lane.Entry) []lane.Action {
	task, err := tasks.DecodeTask(entry.Doc)
	if err != nil {
		panic(fmt.Sprintf("%v: %q", err, entry.Doc))
	}
	hooks, err := tasks.StoredHooks(task.Hooks)
	if err != nil {
		panic(err)
	}
	event, err := tasks.DecodeEvent(task.Type, task.OperationID, task.Event)
	if err != nil {
		panic(err)
	}
	inForce, _ := tasks.InForce(event, hooks, nil)
	var actions []lane.Action
	for _, hook := range inForce {
		if claim.Queue.Lane() || claim.Queue.Hook == hook.Key {
			actions = append(actions, p.action(claim, entry, task.ID, hook))
		}
	}
	if claim.Queue.Lane() {
		actions = append(actions, lane.Action{Verb: lane.Pop, Sequence: entry.Sequence, TaskID: task.ID})
	}
	return actions
}

func (p *puppet) action(claim lane.Claim, entry lane.Entry, taskID string, hook tasks.HookInForce) lane.Action {
	p.calls.add(taskID + "/" + hook.Hook.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	action := lane.Action{Verb: lane.Delivered, Sequence: entry.Sequence, TaskID: taskID, Hook: hook.Key}
	rule, ruled := p.rulings[hook.Hook.ID]
	if !ruled || !claim.Queue.Lane() {
		return action
	}
	outcome := rule.outcome
	outcome.HookID, outcome.HookType, outcome.Occurrence = hook.Hook.ID, hook.Hook.Type, hook.Occurrence
	outcome.Critical = hook.Hook.Critical()
	action.Verb, action.Outcome, action.Delay, action.Attempt = rule.verb, &outcome, rule.delay, outcome.Attempt
	if rule.verb == lane.Bury {
		action.DeadID = tasks.NewID()
	}
	return action
}

// The rulings that the tests use.
func parked(delay time.Duration) ruling {
	return ruling{verb: lane.Park, delay: delay, outcome: lane.Outcome{
		Standing: lane.StandingParked, Attempt: 1, Class: tasks.ClassHTTP5xx, Status: 503, Message: "status 503",
	}}
}

func buried() ruling {
	return ruling{verb: lane.Bury, outcome: lane.Outcome{
		Standing: lane.StandingDead, Attempt: 1, Class: tasks.ClassHTTP4xx, Status: 410,
		Reason: tasks.ReasonEndpointGone, Message: "status 410",
	}}
}

// options name a server without a database of one's own.
func options(addr string) *redis.Options { return &redis.Options{Addr: addr} }

// databaseOf is the number of the logical database that q uses.
func databaseOf(q *queue) string { return strconv.Itoa(q.client.Options().DB) }
