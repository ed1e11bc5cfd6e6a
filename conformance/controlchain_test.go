package conformance_test

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

type controlChainCase struct {
	common
	Phase tasks.HookType `json:"phase"`
	Tool  struct {
		Identifier json.RawMessage `json:"identifier"`
		APIName    json.RawMessage `json:"apiName"`
	} `json:"tool"`
	Hooks       json.RawMessage            `json:"hooks"`
	EnvHooks    []json.RawMessage          `json:"env_hooks"`
	Env         map[string]string          `json:"env"`
	Responses   map[string]json.RawMessage `json:"responses"`
	ResponsesBy string                     `json:"responses_by"`
	// Cancel is "before", or "during:" and the name of a receiver.
	Cancel      string `json:"cancel"`
	RuntimeMode string `json:"runtime_mode"`
	ColdWorker  bool   `json:"cold_worker"`
	// ExpectSameEvent says that each control is sent the same event.
	ExpectSameEvent bool `json:"expect_same_event"`
	Expect          struct {
		verdictExpect
		Called []string        `json:"called"`
		Error  json.RawMessage `json:"error"`
	} `json:"expect"`
}

func runControlChain(r *run) {
	var c controlChainCase
	r.decode(&c)
	q := r.chainQuestion(&c)
	q.ask()
	equal(r, "called", append([]string{}, c.Expect.Called...), q.called())
	r.checkSafe(q.site.journal, q.secrets())
	if c.Expect.Error != nil && string(c.Expect.Error) != "null" && string(c.Expect.Error) != "false" {
		r.checkDispatchError(c.Expect.Error, q.err)
		if q.verdict.Status != "" {
			r.problemf("a question that failed has the verdict %+v", q.verdict)
		}
		return
	}
	if q.err != nil {
		r.fatalf("evaluate: %v", q.err)
	}
	r.checkVerdict(c.Expect.verdictExpect, q.verdict)
	q.checkEvents(&c)
	q.checkControls(&c)
}

func (r *run) chainQuestion(c *controlChainCase) *questionRun {
	q := &questionRun{run: r}
	cfg := siteConfig{env: c.Env, answers: map[string]answer{}}
	switch c.ResponsesBy {
	case "", "id":
	case "url":
		cfg.byURL = true
	default:
		r.notUnderstood("responses_by", c.ResponsesBy)
	}
	for name, raw := range c.Responses {
		cfg.answers[name] = r.answerOf(raw)
	}
	q.site = r.site(cfg)
	d := r.deployment(q.site, c.RuntimeMode, always(r.environmentHooks(c.EnvHooks)))
	q.asking = d.controls
	q.cancels(c.Cancel)
	q.request = control.Request{Event: r.chainEvent(c)}
	hooks := c.Hooks
	if hooks == nil {
		hooks = json.RawMessage("[]")
	}
	if c.ColdWorker {
		q.request.Chain = []control.OperationHooks{{OperationID: "op", Hooks: hooks}}
		return q
	}
	if err := d.dispatcher.RegisterRaw(r.t.Context(), "op", hooks, nil); err != nil {
		r.fatalf("register: %v", err)
	}
	return q
}

func (q *questionRun) cancels(when string) {
	receiver, during := strings.CutPrefix(when, "during:")
	switch {
	case when == "":
	case when == "before":
		q.gone = true
	case during:
		q.during = receiver
	default:
		q.notUnderstood("cancel", when)
	}
}

// chainEvent is an event of the phase about the tool; a name that the tool does
// not have is absent.
func (r *run) chainEvent(c *controlChainCase) *tasks.Event {
	raw := r.sampleEvent(c.Phase, "op").Raw
	for key, value := range map[string]json.RawMessage{"identifier": c.Tool.Identifier, "apiName": c.Tool.APIName} {
		if value == nil {
			value = json.RawMessage(`"<function>"`) // which is dropped
		}
		raw = r.withMember(raw, key, value)
	}
	return r.event(c.Phase, raw)
}

func (q *questionRun) called() []string {
	called := []string{}
	for _, call := range q.site.rec.called() {
		called = append(called, strings.TrimSuffix(call, ":fetch"))
	}
	return called
}

// checkEvents compares what the controls were sent. Beyond the name of the hook
// it is the event, whatever controls before answered.
func (q *questionRun) checkEvents(c *controlChainCase) {
	requests := q.site.rec.received()
	for _, request := range requests {
		sent := q.withMember(request.body, "hookId", json.RawMessage(`""`))
		want := q.withMember(q.withMember(q.request.Event.Raw, "hookId", json.RawMessage(`""`)), "hookType", tasks.AppendString(nil, string(c.Phase)))
		q.equalJSON("event sent to "+request.hook, want, sent)
	}
	if c.ExpectSameEvent && len(requests) < 2 {
		q.problemf("%d requests are too few to compare", len(requests))
	}
}

// checkControls wants the verdict to list the controls that were called, in
// order, and besides only such as failed before they could be.
func (q *questionRun) checkControls(c *controlChainCase) {
	if q.verdict.Status == tasks.VerdictCancelled || q.site.byURL {
		return
	}
	listed := []string{}
	for _, result := range q.verdict.Controls {
		if result.Code != tasks.CodeConfiguration || slices.Contains(c.Expect.Called, result.HookID) {
			listed = append(listed, result.HookID)
		}
	}
	equal(q.run, "controls of the verdict", append([]string{}, c.Expect.Called...), listed)
}
