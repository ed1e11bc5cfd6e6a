package conformance_test

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
)

type envHooksCase struct {
	common
	Env            map[string]string `json:"env"`
	CallerHooks    json.RawMessage   `json:"caller_hooks"`
	MustNotContain strs              `json:"must_not_contain"`
	Expect         struct {
		Hooks         *[]json.RawMessage `json:"hooks"`
		Error         bool               `json:"error"`
		Variables     []string           `json:"variables"`
		EffectiveIDs  *[]string          `json:"effective_ids"`
		EffectiveURLs *[]string          `json:"effective_urls"`
		PersistedIDs  *[]string          `json:"persisted_ids"`
	} `json:"expect"`
}

func runEnvHooks(r *run) {
	var c envHooksCase
	r.decode(&c)
	hooks, err := config.EnvironmentHooks(environment(c.Env))
	shown := []string{}
	if err != nil {
		shown = append(shown, err.Error())
	}
	generated := []json.RawMessage{}
	for _, hook := range hooks {
		generated = append(generated, r.hookJSON(hook))
		shown = append(shown, string(generated[len(generated)-1]))
	}
	for _, secret := range c.MustNotContain {
		if strings.Contains(strings.Join(shown, "\n"), secret) {
			r.problemf("%q is shown in %v", secret, shown)
		}
	}
	if c.Expect.Error {
		r.checkEnvError(&c, err)
		r.checkBroken(&c)
		return
	}
	if err != nil {
		r.fatalf("the environment is refused: %v", err)
	}
	if c.Expect.Hooks != nil {
		r.equalJSON("hooks", joinArray(*c.Expect.Hooks), joinArray(generated))
	}
	r.checkEffective(&c, hooks)
	r.checkPersisted(&c)
}

func (r *run) checkEnvError(c *envHooksCase, err error) {
	named, ok := variablesOf(err)
	if !ok {
		r.fatalf("the environment is accepted or refused oddly, want an error about %v: %v", c.Expect.Variables, err)
	}
	for _, variable := range c.Expect.Variables {
		if !slices.Contains(named, variable) || !strings.Contains(err.Error(), variable) {
			r.problemf("the error points at %v, want %s: %v", named, variable, err)
		}
	}
	r.checkValuesHidden(c, err)
}

// checkValuesHidden wants no value in an error; what is short, or a word of the
// manual, stands in any text.
func (r *run) checkValuesHidden(c *envHooksCase, err error) {
	for name, value := range c.Env {
		if len(value) >= 6 && !strings.Contains("continue block ignore toolCall beforeToolCall afterToolCall", value) &&
			strings.Contains(err.Error(), value) {
			r.problemf("the error shows the value of %s: %v", name, err)
		}
	}
}

// environmentDispatcher is a local dispatcher in the case's environment.
func (r *run) environmentDispatcher(c *envHooksCase, s *site) *producer.Dispatcher {
	return r.dispatcher(producer.Config{
		Deliverer: s, Logger: s.journal.logger(), EnvironmentHooks: config.CachedEnvironmentHooks(environment(c.Env)),
	})
}

// checkBroken wants registration and dispatch to fail for the environment's
// sake, with and without hooks of a caller.
func (r *run) checkBroken(c *envHooksCase) {
	s := r.site(siteConfig{env: c.Env})
	d := r.environmentDispatcher(c, s)
	lists := []json.RawMessage{nil, json.RawMessage("[]")}
	if c.CallerHooks != nil {
		lists = append(lists, c.CallerHooks)
	}
	for _, list := range lists {
		registered, handlers := named(list, isFunction, nothing)
		if list != nil {
			if _, ok := variablesOf(d.RegisterRaw(r.t.Context(), "op", registered, handlers)); !ok {
				r.problemf("registering %s does not fail for the environment", list)
			}
		}
		if len(handlers) > 0 {
			continue
		}
		for _, t := range tasks.HookTypes() {
			err := d.Dispatch(r.t.Context(), "op", r.sampleEvent(t, "op"), producer.WithPersisted(list))
			if _, ok := variablesOf(err); !ok {
				r.problemf("dispatching %s with the list %s does not fail for the environment: %v", t, list, err)
			}
		}
	}
	r.checkBrokenControls(c, s)
	if calls := s.rec.called(); len(calls) > 0 {
		r.problemf("something was sent: %v", calls)
	}
}

// checkBrokenControls wants every question to fail for the environment's sake.
func (r *run) checkBrokenControls(c *envHooksCase, s *site) {
	d := r.deployment(s, "local", config.CachedEnvironmentHooks(environment(c.Env)))
	for _, phase := range phases {
		for _, list := range []json.RawMessage{nil, json.RawMessage("[]"), r.storable(c.CallerHooks)} {
			request := control.Request{Event: r.sampleEvent(phase, "op")}
			if list != nil {
				request.Chain = []control.OperationHooks{{OperationID: "op", Hooks: list}}
			}
			v, err := d.controls.Evaluate(r.t.Context(), request)
			if _, ok := variablesOf(err); !ok || v.Status != "" {
				r.problemf("asking about %s with the list %s does not fail for the environment: %+v, %v", phase, list, v, err)
			}
		}
	}
}

// phases are the types that can be asked about.
var phases = []tasks.HookType{tasks.BeforeToolCall, tasks.AfterToolCall}

// storable is a list of hooks if it can be stored as it is, and nil otherwise.
func (r *run) storable(list json.RawMessage) json.RawMessage {
	if _, handlers := named(list, isFunction, nothing); list == nil || len(handlers) > 0 {
		return nil
	}
	return list
}

// checkAsked asks about both phases and wants the controls in force to be asked,
// in their order and at their urls, each under its own policy.
func (r *run) checkAsked(c *envHooksCase, hooks []tasks.Hook) {
	for _, phase := range phases {
		want, policies := []string{}, []string{}
		for _, hook := range hooks {
			if hook.Type == phase && hook.Control() {
				want = append(want, hook.ID+" "+hook.Webhook.URL)
				policies = append(policies, hook.ID+" "+string(hook.ErrorPolicy()))
			}
		}
		s := r.site(siteConfig{env: c.Env})
		d := r.deployment(s, "local", config.CachedEnvironmentHooks(environment(c.Env)))
		request := control.Request{Event: r.sampleEvent(phase, "op")}
		if c.CallerHooks != nil {
			request.Chain = []control.OperationHooks{{OperationID: "op", Hooks: c.CallerHooks}}
		}
		v, err := d.controls.Evaluate(r.t.Context(), request)
		if err != nil || !v.Allowed() {
			r.problemf("ask about %s: %+v, %v", phase, v, err)
		}
		got, listed := []string{}, []string{}
		for _, request := range s.rec.received() {
			got = append(got, request.hook+" "+request.url)
		}
		for _, result := range v.Controls {
			listed = append(listed, result.HookID+" "+string(result.OnError))
		}
		equal(r, "asked about "+string(phase), want, got)
		equal(r, "policies about "+string(phase), policies, listed)
	}
}

// checkEffective compares the hooks in force: as lists, and as what dispatches
// of each type reach.
func (r *run) checkEffective(c *envHooksCase, environment []tasks.Hook) {
	if c.Expect.EffectiveIDs == nil && c.Expect.EffectiveURLs == nil {
		return
	}
	hooks := slices.Concat(r.callerHooks(c), environment)
	urls := []string{}
	for _, hook := range hooks {
		url := ""
		if hook.Webhook != nil {
			url = hook.Webhook.URL
		}
		urls = append(urls, url)
	}
	if want := c.Expect.EffectiveIDs; want != nil {
		equal(r, "ids in force", *want, ids(hooks))
	}
	if want := c.Expect.EffectiveURLs; want != nil {
		equal(r, "urls in force", *want, urls)
	}
	r.checkReached(c, hooks)
}

// callerHooks reads the stored hooks of the caller as a worker does; a list
// with functions can only have been registered.
func (r *run) callerHooks(c *envHooksCase) []tasks.Hook {
	if c.CallerHooks == nil {
		return nil
	}
	list, handlers := named(c.CallerHooks, isFunction, nothing)
	options := tasks.ParseOptions{Mode: tasks.ParseRestore}
	if len(handlers) > 0 {
		options = tasks.ParseOptions{Mode: tasks.ParseRegister, Handlers: handlers}
	}
	hooks, err := tasks.ParseHooks(list, options)
	if err != nil {
		r.fatalf("read the caller's hooks: %v", err)
	}
	return hooks
}

// checkReached dispatches an event of each type and wants the hooks in force of
// that type to be reached, in their order and at their urls.
func (r *run) checkReached(c *envHooksCase, hooks []tasks.Hook) {
	if slices.ContainsFunc(hooks, func(h tasks.Hook) bool { return h.Matcher != nil || h.Handler != nil }) {
		return
	}
	for _, t := range tasks.HookTypes() {
		want := []string{}
		for _, hook := range hooks {
			if hook.Type == t && !hook.Control() {
				want = append(want, hook.ID+" "+hook.Webhook.URL)
			}
		}
		s := r.site(siteConfig{env: c.Env})
		d := r.environmentDispatcher(c, s)
		var options []producer.EventOption
		if c.CallerHooks != nil {
			options = append(options, producer.WithPersisted(c.CallerHooks))
		}
		if err := d.Dispatch(r.t.Context(), "op", r.sampleEvent(t, "op"), options...); err != nil {
			r.problemf("dispatch %s: %v", t, err)
		}
		got := []string{}
		for _, request := range s.rec.received() {
			got = append(got, request.hook+" "+request.url)
		}
		equal(r, "reached by "+string(t), want, got)
	}
	r.checkAsked(c, hooks)
}

// checkPersisted compares what is stored of a registration.
func (r *run) checkPersisted(c *envHooksCase) {
	if c.Expect.PersistedIDs == nil {
		return
	}
	d := r.environmentDispatcher(c, r.site(siteConfig{env: c.Env}))
	if c.CallerHooks != nil {
		list, handlers := named(c.CallerHooks, isFunction, nothing)
		if err := d.RegisterRaw(r.t.Context(), "op", list, handlers); err != nil {
			r.fatalf("register: %v", err)
		}
	}
	stored, err := tasks.EncodeHooks(d.Hooks("op"))
	if err != nil {
		r.fatalf("store the hooks: %v", err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(stored, &list); err != nil {
		r.fatalf("read what is stored: %v", err)
	}
	got := []string{}
	for _, hook := range list {
		got = append(got, hookID(hook))
	}
	equal(r, "persisted ids", *c.Expect.PersistedIDs, got)
}
