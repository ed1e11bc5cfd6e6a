package conformance_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
)

type mockCase struct {
	common
	Hooks       json.RawMessage   `json:"hooks"`
	RuntimeMode string            `json:"runtime_mode"`
	Event       json.RawMessage   `json:"event"`
	Tool        map[string]string `json:"tool"`
	Pipeline    bool              `json:"pipeline"`
	Expect      struct {
		Result      json.RawMessage `json:"result"`
		Called      *[]string       `json:"called"`
		MockReturns *[]bool         `json:"mock_returns"`
		Logged      *[]string       `json:"logged"`
		Webhooks    *[]string       `json:"webhooks_from_this_call"`
	} `json:"expect"`
}

func runMock(r *run) {
	var kind struct {
		Pipeline bool `json:"pipeline"`
	}
	if err := json.Unmarshal(r.raw, &kind); err != nil {
		r.notUnderstood("pipeline of", err)
	}
	if kind.Pipeline {
		runPipeline(r)
		return
	}
	var c mockCase
	r.decode(&c)
	m := &mockRun{run: r, site: r.site(siteConfig{})}
	m.register(&c)
	result, err := m.dispatcher.DispatchBeforeToolCall(r.t.Context(), m.event.OperationID, m.event)
	if err != nil {
		r.fatalf("dispatch: %v", err)
	}
	m.check(&c, result)
}

// mockRun is one DispatchBeforeToolCall and what its handlers did.
type mockRun struct {
	*run
	site       *site
	dispatcher *producer.Dispatcher
	event      *tasks.Event

	mu      sync.Mutex
	called  []string
	returns []bool
}

func (m *mockRun) register(c *mockCase) {
	cfg := producer.Config{Logger: m.site.journal.logger(), Deliverer: m.site}
	switch c.RuntimeMode {
	case "local", "":
	case "queue":
		cfg.Mode, cfg.Store, cfg.Deliverer = producer.ModeQueue, m.store(), nil
	default:
		m.notUnderstood("runtime_mode", c.RuntimeMode)
	}
	m.dispatcher = m.run.dispatcher(cfg)
	m.event = m.sampleEvent(tasks.BeforeToolCall, "op")
	if c.Event != nil {
		m.event = m.run.event(tasks.BeforeToolCall, c.Event)
	}
	for key, value := range c.Tool {
		m.event = m.run.event(tasks.BeforeToolCall, m.withMember(m.event.Raw, key, tasks.AppendString(nil, value)))
	}
	isHandler := func(value json.RawMessage) bool { return isFunction(value) || strings.HasPrefix(string(value), "[") }
	list, handlers := named(c.Hooks, isHandler, m.handler)
	if err := m.dispatcher.RegisterRaw(m.t.Context(), m.event.OperationID, list, handlers); err != nil {
		m.fatalf("register: %v", err)
	}
}

// handler does the steps of a case one after the other.
func (m *mockRun) handler(id string, value json.RawMessage) tasks.Handler {
	var raw []json.RawMessage
	if !isFunction(value) {
		m.decodePart(value, &raw)
	}
	var steps []func(context.Context, *tasks.Event) error
	for _, step := range raw {
		steps = append(steps, m.step(step))
	}
	return func(ctx context.Context, event *tasks.Event) error {
		m.mu.Lock()
		m.called = append(m.called, id)
		m.mu.Unlock()
		for _, step := range steps {
			if err := step(ctx, event); err != nil {
				return err
			}
		}
		return nil
	}
}

func (m *mockRun) step(raw json.RawMessage) func(context.Context, *tasks.Event) error {
	if string(raw) == `"throw"` {
		return func(context.Context, *tasks.Event) error { return errHandler }
	}
	var step struct {
		Mock    json.RawMessage `json:"mock"`
		DelayMS *float64        `json:"delay_ms"`
	}
	m.decodePart(raw, &step)
	switch {
	case step.Mock != nil && step.DelayMS == nil:
		var result tasks.ToolResult
		if err := json.Unmarshal(step.Mock, &result); err != nil {
			m.fatalf("harness does not understand the mock: %v", err)
		}
		return func(_ context.Context, event *tasks.Event) error {
			returned := event.Mock(result)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.returns = append(m.returns, returned)
			return nil
		}
	case step.DelayMS != nil && step.Mock == nil:
		delay := time.Duration(*step.DelayMS * float64(time.Millisecond))
		return func(ctx context.Context, _ *tasks.Event) error {
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	m.notUnderstood("step of a handler", string(raw))
	return nil
}

func (m *mockRun) check(c *mockCase, result *producer.MockResult) {
	got := json.RawMessage("null")
	if result != nil {
		var err error
		if got, err = json.Marshal(result); err != nil {
			m.fatalf("encode the result: %v", err)
		}
	}
	if c.Expect.Result == nil {
		m.notUnderstood("expect without", "result")
	}
	m.equalJSON("result", c.Expect.Result, got)
	m.mu.Lock()
	defer m.mu.Unlock()
	if want := c.Expect.Called; want != nil {
		equal(m.run, "handlers called", *want, append([]string{}, m.called...))
	}
	if want := c.Expect.MockReturns; want != nil {
		equal(m.run, "returns of mock()", *want, append([]bool{}, m.returns...))
	}
	if want := c.Expect.Logged; want != nil {
		equal(m.run, "hooks with a logged failure", sortedSet(*want), m.site.journal.failures())
	}
	if want := c.Expect.Webhooks; want != nil {
		sent := []string{}
		for _, call := range m.site.rec.called() {
			sent = append(sent, strings.TrimSuffix(strings.TrimSuffix(call, ":fetch"), ":qstash"))
		}
		equal(m.run, "webhooks sent", *want, sent)
	}
}
