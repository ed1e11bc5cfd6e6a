package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/tasks"
)

// pipelineCase is a whole tool call.
type pipelineCase struct {
	common
	Hooks       []json.RawMessage `json:"hooks"`
	Persisted   json.RawMessage   `json:"persisted"`
	EnvHooks    []json.RawMessage `json:"env_hooks"`
	RuntimeMode string            `json:"runtime_mode"`
	Event       json.RawMessage   `json:"event"`
	Tool        map[string]string `json:"tool"`
	Pipeline    bool              `json:"pipeline"`
	// The tool answers without success so many times before it answers well; or it
	// throws this; or it returns this.
	FailsTimes int             `json:"tool_fails_times"`
	Throws     *string         `json:"tool_throws"`
	Returns    json.RawMessage `json:"tool_returns"`
	// Cancel is "before", "during:<id>" of a hook, or "during_tool".
	Cancel string         `json:"cancel"`
	Expect pipelineExpect `json:"expect"`
}

// pipelineExpect is what comes of the call; what is absent is not looked at.
type pipelineExpect struct {
	Executed        *bool           `json:"tool_executed"`
	ToolAttempts    *int            `json:"tool_attempts"`
	Result          json.RawMessage `json:"tool_result"`
	Attempts        *int            `json:"attempts"`
	Mocked          *bool           `json:"mocked"`
	Status          *string         `json:"status"`
	Called          *[]string       `json:"called"`
	MockReturns     *[]bool         `json:"mock_returns"`
	ControlsAsked   *[]string       `json:"controls_asked"`
	Webhooks        *[]string       `json:"webhooks"`
	Logged          *[]string       `json:"logged"`
	ControlContains json.RawMessage `json:"control_payload_contains"`
	WebhookContains json.RawMessage `json:"webhook_payload_contains"`
}

func runPipeline(r *run) {
	var c pipelineCase
	r.decode(&c)
	ctx, cancel := context.WithTimeout(r.t.Context(), dispatchTimeout)
	defer cancel()
	p := newPipelineRun(r, &c, cancel)
	if c.Cancel == "before" {
		cancel()
	}
	outcome, err := p.runner.Run(ctx, p.call, p.execute, toolcall.Options{Retry: toolcall.Retry{
		MaxAttempts: c.FailsTimes + 1, Again: func(a toolcall.Attempt) bool { return a.Err == nil },
	}})
	if err != nil {
		r.fatalf("run: %v", err)
	}
	if err := p.runner.Close(r.t.Context()); err != nil {
		r.fatalf("close the runner: %v", err)
	}
	p.check(outcome)
}

// pipelineRun is one whole call with the parts that it goes through. Of a
// mockRun it has the handlers and what they did.
type pipelineRun struct {
	*mockRun
	c        *pipelineCase
	runner   *toolcall.Runner
	call     toolcall.Call
	cancel   context.CancelFunc
	controls map[string]bool

	executing  sync.Mutex
	executions int
}

func newPipelineRun(r *run, c *pipelineCase, cancel context.CancelFunc) *pipelineRun {
	p := &pipelineRun{mockRun: &mockRun{run: r}, c: c, controls: map[string]bool{}, cancel: cancel}
	answers := map[string]answer{}
	var persisted []json.RawMessage
	if json.Unmarshal(c.Persisted, &persisted) == nil && persisted != nil {
		c.Persisted = joinArray(bare(persisted))
	}
	for _, hook := range slices.Concat(c.Hooks, persisted, c.EnvHooks) {
		id := hookID(hook)
		answers[id] = p.answerOfHook(hook)
		p.controls[id] = isControl(hook)
	}
	p.site = r.site(siteConfig{answers: answers})
	d := r.deployment(p.site, c.RuntimeMode, always(r.environmentHooks(bare(c.EnvHooks))))
	p.dispatcher, p.runner = d.dispatcher, d.runner(r)
	p.event = p.eventOf(c)
	typed, err := tasks.DecodeAs[tasks.BeforeToolCallEvent](p.event)
	if err != nil {
		r.fatalf("read the event: %v", err)
	}
	p.call = toolcall.Call{Context: typed.ToolContext, Persisted: c.Persisted}
	p.site.rec.arrived = p.cancelDuring()
	p.registerHooks()
	return p
}

// eventOf is the event of the case, or a sample with the case's tool.
func (p *pipelineRun) eventOf(c *pipelineCase) *tasks.Event {
	event := p.sampleEvent(tasks.BeforeToolCall, "op")
	if c.Event != nil {
		event = p.run.event(tasks.BeforeToolCall, c.Event)
	}
	for key, value := range c.Tool {
		event = p.run.event(tasks.BeforeToolCall, p.withMember(event.Raw, key, tasks.AppendString(nil, value)))
	}
	return event
}

func (p *pipelineRun) registerHooks() {
	if p.c.Hooks == nil {
		return
	}
	isHandler := func(value json.RawMessage) bool { return isFunction(value) || strings.HasPrefix(string(value), "[") }
	list, handlers := named(joinArray(p.c.Hooks), isHandler, func(id string, value json.RawMessage) tasks.Handler {
		handler := p.handler(id, value)
		return func(ctx context.Context, event *tasks.Event) error {
			p.site.rec.arrived(id)
			return handler(ctx, event)
		}
	})
	if err := p.dispatcher.RegisterRaw(p.t.Context(), p.event.OperationID, list, handlers); err != nil {
		p.fatalf("register: %v", err)
	}
}

// answerOfHook reads how the receiver of a hook answers: a control with its
// reply, another one with its outcome.
func (p *pipelineRun) answerOfHook(hook json.RawMessage) answer {
	a := p.answerOf(hookMember(hook, "outcome"))
	if reply := hookMember(hook, "reply"); reply != nil {
		a.body = reply
	}
	return a
}

// bare takes away what only the receiver's side needs, which the strict form of
// stored hooks has no place for.
func bare(hooks []json.RawMessage) []json.RawMessage {
	stripped := make([]json.RawMessage, len(hooks))
	for i, hook := range hooks {
		members, err := tasks.SplitObject(hook)
		if err != nil {
			stripped[i] = hook
			continue
		}
		members = slices.DeleteFunc(members, func(m tasks.Member) bool { return m.Key == "reply" || m.Key == "outcome" })
		stripped[i] = tasks.AppendObject(nil, members)
	}
	return stripped
}

func isControl(hook json.RawMessage) bool {
	var handling string
	return json.Unmarshal(hookMember(hookMember(hook, "webhook"), "responseHandling"), &handling) == nil &&
		handling == string(tasks.HandleToolCall)
}

// cancelDuring gives up the call when the hook of the case is called.
func (p *pipelineRun) cancelDuring() func(hook string) {
	wanted, during := strings.CutPrefix(p.c.Cancel, "during:")
	switch {
	case during || p.c.Cancel == "" || p.c.Cancel == "before" || p.c.Cancel == "during_tool":
	default:
		p.notUnderstood("cancel", p.c.Cancel)
	}
	return func(hook string) {
		if during && hook == wanted {
			p.cancel()
		}
	}
}

// execute is the tool of the case.
func (p *pipelineRun) execute(_ context.Context, attempt int) (tasks.ToolResult, error) {
	p.executing.Lock()
	p.executions++
	p.executing.Unlock()
	if p.c.Cancel == "during_tool" {
		p.cancel()
	}
	switch {
	case attempt <= p.c.FailsTimes:
		return tasks.ToolResult{Content: "not yet", Error: "busy"}, nil
	case p.c.Throws != nil:
		return tasks.ToolResult{}, errors.New(*p.c.Throws)
	case p.c.Returns == nil:
		return tasks.ToolResult{Content: "done", Success: true}, nil
	}
	result, err := tasks.ParseToolResult(p.c.Returns)
	if err != nil {
		p.t.Errorf("harness does not understand the result: %v", err)
	}
	return result, nil
}

func (p *pipelineRun) check(got toolcall.Outcome) {
	want := p.c.Expect
	p.executing.Lock()
	defer p.executing.Unlock()
	expect(p.run, "tool executed", want.Executed, p.executions > 0)
	expect(p.run, "executions", want.ToolAttempts, p.executions)
	expect(p.run, "attempts", want.Attempts, got.Attempts)
	expect(p.run, "mocked", want.Mocked, got.Mocked)
	expect(p.run, "status", want.Status, string(got.Status))
	if want.Result != nil {
		result, err := tasks.EncodeToolResult(got.Result)
		if err != nil {
			p.fatalf("encode the result: %v", err)
		}
		p.equalJSON("result", want.Result, result)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	expect(p.run, "handlers called", want.Called, append([]string{}, p.called...))
	expect(p.run, "returns of mock()", want.MockReturns, append([]bool{}, p.returns...))
	expect(p.run, "controls asked", want.ControlsAsked, p.reached(true))
	expect(p.run, "webhooks sent", want.Webhooks, p.reached(false))
	if want.Logged != nil {
		equal(p.run, "hooks with a logged failure", sortedSet(*want.Logged), p.site.journal.failures())
	}
	p.checkContains("control", want.ControlContains, true)
	p.checkContains("webhook", want.WebhookContains, false)
	p.checkSafe(p.site.journal, p.denied(got))
}

// expect compares what a case says about something.
func expect[T any](r *run, what string, want *T, got T) {
	if want != nil {
		equal(r, what, *want, got)
	}
}

// reached lists the receivers that were called, of controls or of others.
func (p *pipelineRun) reached(controls bool) []string {
	ids := []string{}
	for _, call := range p.site.rec.called() {
		id := strings.TrimSuffix(strings.TrimSuffix(call, ":fetch"), ":qstash")
		if p.controls[id] == controls {
			ids = append(ids, id)
		}
	}
	return ids
}

// checkContains wants a request with all that is expected.
func (p *pipelineRun) checkContains(what string, want json.RawMessage, controls bool) {
	if want == nil {
		return
	}
	wanted, err := exact(want)
	if err != nil {
		p.fatalf("harness cannot read the expected payload: %v", err)
	}
	var bodies []string
	for _, request := range p.site.rec.received() {
		if p.controls[request.hook] != controls {
			continue
		}
		if got, err := exact(request.body); err == nil && contains(got, wanted) {
			return
		}
		bodies = append(bodies, string(request.body))
	}
	p.problemf("no %s got a payload with %s: %s", what, want, strings.Join(bodies, "\n"))
}

// contains reports whether got has every member of want, at any depth.
func contains(got, want any) bool {
	object, ok := want.(map[string]any)
	if !ok {
		return equalValues(got, want)
	}
	whole, ok := got.(map[string]any)
	if !ok {
		return false
	}
	for key, member := range object {
		if other, ok := whole[key]; !ok || !contains(other, member) {
			return false
		}
	}
	return true
}

// denied is what no log may show: the content of a result that is not used.
func (p *pipelineRun) denied(got toolcall.Outcome) []string {
	var content string
	if json.Unmarshal(hookMember(p.c.Returns, "content"), &content) != nil || len(content) < 4 || got.After == nil || got.After.Allowed() {
		return nil
	}
	return []string{content}
}
