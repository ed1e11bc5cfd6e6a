package producer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

func TestMain(m *testing.M) {
	// The matcher's clock ends by itself some time after its last use.
	servertest.Main(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

const operation = "op"

// event is an onComplete event of the test operation.
func event(t testing.TB) *tasks.Event {
	t.Helper()
	return eventOf(t, tasks.OnComplete, `{"agentId":"ag","operationId":"op","userId":"u","reason":"done"}`)
}

// toolEvent is a beforeToolCall event of the tool shell/run.
func toolEvent(t testing.TB) *tasks.Event {
	t.Helper()
	return eventOf(t, tasks.BeforeToolCall, `{"apiName":"run","identifier":"shell","args":{},"assistantMessageId":"m",
		"callIndex":1,"executor":"server","operationId":"op","stepIndex":0,"toolCallId":"c1","userId":"u"}`)
}

func eventOf(t testing.TB, hookType tasks.HookType, raw string) *tasks.Event {
	t.Helper()
	ev, err := tasks.ParseEvent(hookType, operation, []byte(raw))
	if err != nil {
		t.Fatalf("parse event: %v", err)
	}
	return ev
}

// webhookHook is an onComplete hook with a webhook.
func webhookHook(id string, fallback tasks.Fallback) tasks.Hook {
	return tasks.Hook{ID: id, Type: tasks.OnComplete, Webhook: &tasks.Webhook{
		URL: "https://rx.test/" + id, Fallback: fallback,
	}}
}

// persisted encodes hooks as a stored list.
func persisted(t testing.TB, hooks ...tasks.Hook) json.RawMessage {
	t.Helper()
	raw, err := tasks.EncodeHooks(hooks)
	if err != nil {
		t.Fatalf("encode hooks: %v", err)
	}
	return raw
}

// calls records in which order actions were taken.
type calls struct {
	mu  sync.Mutex
	log []string
}

func (c *calls) add(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, call)
}

func (c *calls) want(t testing.TB, want ...string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if diff := cmp.Diff(want, c.log); diff != "" {
		t.Fatalf("calls (-want +got):\n%s", diff)
	}
}

// handler records a call and returns err.
func (c *calls) handler(id string, err error) tasks.Handler {
	return func(context.Context, *tasks.Event) error {
		c.add(id + ":handler")
		return err
	}
}

// sender delivers to nobody: it records the hook and answers from results.
type sender struct {
	*calls
	results    map[string]webhook.Result
	deliveries []webhook.Delivery
}

func (s *sender) Deliver(_ context.Context, delivery webhook.Delivery) webhook.Result {
	s.add(delivery.Hook.ID + ":fetch")
	s.deliveries = append(s.deliveries, delivery)
	if result, ok := s.results[delivery.Hook.ID]; ok {
		return result
	}
	return webhook.Result{Delivered: true}
}

// logs keeps the lines of a logger.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (*logs) Levels() []logrus.Level { return logrus.AllLevels }

func (l *logs) Fire(entry *logrus.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := entry.Message
	for _, key := range []string{tasks.LogHookID, tasks.LogClass} {
		if value, ok := entry.Data[key]; ok {
			line += fmt.Sprintf(" %s=%v", key, value)
		}
	}
	l.lines = append(l.lines, line)
	return nil
}

func (l *logs) want(t testing.TB, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if diff := cmp.Diff(want, l.lines); diff != "" {
		t.Fatalf("log lines (-want +got):\n%s", diff)
	}
}

// newLogger returns a logger that prints nothing and what it was told.
func newLogger() (*logrus.Logger, *logs) {
	logger, lines := logrus.New(), &logs{}
	logger.SetOutput(&strings.Builder{})
	logger.AddHook(lines)
	return logger, lines
}

// local is a dispatcher of local mode with all that it touches.
type local struct {
	*producer.Dispatcher
	calls  *calls
	sender *sender
	logs   *logs
}

func newLocal(t testing.TB, environment ...tasks.Hook) *local {
	t.Helper()
	logger, lines := newLogger()
	recorded := &calls{}
	bundle := &local{calls: recorded, sender: &sender{calls: recorded, results: map[string]webhook.Result{}}, logs: lines}
	dispatcher, err := producer.New(producer.Config{
		Deliverer: bundle.sender, Logger: logger, Namespace: "test",
		EnvironmentHooks: func() ([]tasks.Hook, error) { return environment, nil },
	})
	if err != nil {
		t.Fatalf("new dispatcher: %v", err)
	}
	t.Cleanup(dispatcher.Close)
	bundle.Dispatcher = dispatcher
	return bundle
}

// register registers hooks or fails the test.
func register(t testing.TB, d *producer.Dispatcher, hooks ...tasks.Hook) {
	t.Helper()
	if err := d.Register(t.Context(), operation, hooks); err != nil {
		t.Fatalf("register: %v", err)
	}
}

// count is the number of lines that start with message.
func (l *logs) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.HasPrefix(line, message) {
			n++
		}
	}
	return n
}
