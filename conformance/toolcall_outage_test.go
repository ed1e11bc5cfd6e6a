package conformance_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

// TestToolCallsWithoutRedis calls tools while Redis is away: the failure policy of
// each control decides, and what observers were to hear arrives later, once and
// in order.
func TestToolCallsWithoutRedis(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways})
	client := func() *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	store, err := redislane.Open(t.Context(), redislane.Config{Client: client(), Blocking: client()})
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	exchange, err := redisverdict.Open(t.Context(), redisverdict.Config{Client: client(), Blocking: client(), Namespace: store.Namespace()})
	if err != nil {
		t.Fatalf("open the exchange: %v", err)
	}
	dispatcher, err := producer.New(producer.Config{Mode: producer.ModeQueue, Store: store})
	if err != nil {
		t.Fatalf("build the dispatcher: %v", err)
	}
	t.Cleanup(dispatcher.Close)
	controls, err := control.New(control.Config{
		Exchange: exchange, Hooks: dispatcher, Timeout: time.Second, UnknownEnvironment: tasks.PolicyContinue,
	})
	if err != nil {
		t.Fatalf("build the control client: %v", err)
	}
	t.Cleanup(controls.Close)
	runner, err := toolcall.New(toolcall.Config{Controls: controls, Observer: dispatcher, Hooks: dispatcher})
	if err != nil {
		t.Fatalf("build the runner: %v", err)
	}
	strict := hookOf("strict", tasks.BeforeToolCall, tasks.HandleToolCall)
	strict.Webhook.OnError = tasks.PolicyBlock
	for operation, policy := range map[string]tasks.Hook{
		"open": hookOf("lenient", tasks.BeforeToolCall, tasks.HandleToolCall), "closed": strict,
	} {
		err := dispatcher.Register(t.Context(), operation, []tasks.Hook{
			policy, hookOf("w", tasks.BeforeToolCall, ""), hookOf("n", tasks.AfterToolCall, ""),
		})
		if err != nil {
			t.Fatalf("register: %v", err)
		}
	}
	server.Kill()

	for operation, want := range map[string]struct {
		status  toolcall.Status
		outcome tasks.VerdictOutcome
		runs    int
		reason  string
	}{
		"open":   {toolcall.StatusExecuted, tasks.OutcomeUnansweredOpen, 1, ""},
		"closed": {toolcall.StatusBlocked, tasks.OutcomeUnansweredClosed, 0, tasks.ReasonControlError},
	} {
		got, err := runner.Run(t.Context(), toolCall(operation, "c1"), func(context.Context, int) (tasks.ToolResult, error) {
			return tasks.ToolResult{Success: true}, nil
		}, toolcall.Options{})
		if err != nil {
			t.Fatalf("%s: %v", operation, err)
		}
		if got.Status != want.status || got.Attempts != want.runs || got.Result.Content != want.reason ||
			got.Before.Outcome != want.outcome || !got.Before.Unsettled {
			t.Errorf("%s: outcome %+v, verdict %+v", operation, got, got.Before)
		}
	}

	if err := server.Restart(t.Context()); err != nil {
		t.Fatalf("restart: %v", err)
	}
	if err := runner.Close(t.Context()); err != nil {
		t.Fatalf("close: %v", err)
	}
	for operation, want := range map[string]int64{"open": 2, "closed": 1} {
		info, err := store.Lane(t.Context(), operation)
		if err != nil {
			t.Fatalf("%s: %v", operation, err)
		}
		if info.Waiting != want {
			t.Errorf("%s: %d events are stored, want %d", operation, info.Waiting, want)
		}
	}
}
