package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/worker"
)

type dispatchCase struct {
	common
	RuntimeMode string `json:"runtime_mode"`
	// Registered is null or absent for "never registered", Persisted absent for
	// "none passed"; an empty list is something else in both.
	Registered       json.RawMessage            `json:"registered"`
	Persisted        json.RawMessage            `json:"persisted"`
	EnvHooks         []json.RawMessage          `json:"env_hooks"`
	QStashToken      bool                       `json:"qstash_token"`
	Env              map[string]string          `json:"env"`
	Dispatch         dispatched                 `json:"dispatch"`
	Outcomes         map[string]json.RawMessage `json:"outcomes"`
	UnregisterFirst  bool                       `json:"unregister_first"`
	EmailLookupFails bool                       `json:"email_lookup_fails"`
	Expect           struct {
		Calls  []string        `json:"calls"`
		Error  json.RawMessage `json:"error"`
		Logged []string        `json:"logged"`
	} `json:"expect"`
}

type dispatched struct {
	Type  tasks.HookType  `json:"type"`
	Event json.RawMessage `json:"event"`
}

// hookOutcome is what becomes of one hook's actions.
type hookOutcome struct {
	Handler string          `json:"handler"`
	Fetch   json.RawMessage `json:"fetch"`
	QStash  json.RawMessage `json:"qstash"`
}

const qstashToken = "conformance-qstash-token"

var errHandler = errors.New("handler throws")

func runDispatch(r *run) {
	var c dispatchCase
	r.decode(&c)
	if c.Dispatch.Event == nil {
		r.notUnderstood("dispatch without", "event")
	}
	d := newDispatchRun(r, &c)
	d.register()
	err := d.dispatch()
	equal(r, "calls", append([]string{}, c.Expect.Calls...), d.site.rec.called())
	r.checkDispatchError(c.Expect.Error, err)
	equal(r, "hooks with a logged failure", sortedSet(c.Expect.Logged), d.site.journal.failures())
	r.checkSafe(d.site.journal, d.secrets())
}

// dispatchRun is one dispatch with the parts that it goes through.
type dispatchRun struct {
	*run
	c          *dispatchCase
	site       *site
	dispatcher *producer.Dispatcher
	operation  string
	event      *tasks.Event
	throws     map[string]bool
}

func newDispatchRun(r *run, c *dispatchCase) *dispatchRun {
	d := &dispatchRun{run: r, c: c, throws: map[string]bool{}}
	env := map[string]string{}
	for name, value := range c.Env {
		env[name] = value
	}
	if c.QStashToken {
		env["QSTASH_TOKEN"] = qstashToken
	}
	answers, relayed := map[string]answer{}, map[string]answer{}
	for id, raw := range c.Outcomes {
		var o hookOutcome
		r.decodePart(raw, &o)
		switch o.Handler {
		case "", "ok":
		case "throw":
			d.throws[id] = true
		default:
			r.notUnderstood("outcome of a handler", o.Handler)
		}
		answers[id], relayed[id] = r.answerOf(o.Fetch), r.relayAnswer(o.QStash)
	}
	emails := &directory{email: func(user string) (string, bool, error) { return user + "@x.test", true, nil }}
	if c.EmailLookupFails {
		emails.email = func(string) (string, bool, error) { return "", false, errDirectory }
	}
	d.site = r.site(siteConfig{env: env, answers: answers, relayed: relayed, directory: emails})
	d.event = r.event(c.Dispatch.Type, c.Dispatch.Event)
	d.operation = d.event.OperationID
	d.dispatcher = d.build()
	return d
}

// event reads the event as a runtime would hand it over; one that lacks what
// its type requires is taken as an event that was stored.
func (r *run) event(t tasks.HookType, raw json.RawMessage) *tasks.Event {
	raw = r.withoutFunctions(raw)
	event, err := tasks.ParseEvent(t, "", raw)
	if err == nil {
		return event
	}
	r.notef("event is not strict: %v", err)
	operation := "op"
	if id := hookMember(raw, "operationId"); id != nil && json.Unmarshal(id, &operation) != nil {
		r.fatalf("harness does not understand operationId %s", id)
	}
	if event, err = tasks.DecodeEvent(t, operation, raw); err != nil {
		r.fatalf("read the event: %v", err)
	}
	return event
}

// build makes the dispatcher, and the worker of queue mode.
func (d *dispatchRun) build() *producer.Dispatcher {
	hooks := d.environmentHooks(d.c.EnvHooks)
	environment := func() ([]tasks.Hook, error) { return hooks, nil }
	cfg := producer.Config{EnvironmentHooks: environment, Logger: d.site.journal.logger()}
	switch d.c.RuntimeMode {
	case "local", "":
		cfg.Mode, cfg.Deliverer = producer.ModeLocal, d.site
	case "queue":
		store := d.store()
		cfg.Mode, cfg.Store, cfg.Namespace = producer.ModeQueue, store, store.Namespace()
		d.worker(worker.Config{
			Store: store, Deliverer: d.site, EnvironmentHooks: environment, Namespace: store.Namespace(),
			Logger: d.site.journal.logger(),
		})
	default:
		d.notUnderstood("runtime_mode", d.c.RuntimeMode)
	}
	return d.run.dispatcher(cfg)
}

func (d *dispatchRun) register() {
	if d.c.Registered != nil && string(d.c.Registered) != "null" {
		list, handlers := named(d.c.Registered, isFunction, func(id string, _ json.RawMessage) tasks.Handler {
			return func(context.Context, *tasks.Event) error {
				d.site.rec.call(id + ":handler")
				if d.throws[id] {
					return errHandler
				}
				return nil
			}
		})
		if err := d.dispatcher.RegisterRaw(d.t.Context(), d.operation, list, handlers); err != nil {
			d.fatalf("register: %v", err)
		}
	}
	if !d.c.UnregisterFirst {
		return
	}
	if err := d.dispatcher.Unregister(d.t.Context(), d.operation); err != nil {
		d.fatalf("unregister: %v", err)
	}
}

// dispatchTimeout is far beyond the longest timeout of a hook.
const dispatchTimeout = 90 * time.Second

func (d *dispatchRun) dispatch() error {
	ctx, cancel := context.WithTimeout(d.t.Context(), dispatchTimeout)
	defer cancel()
	var options []producer.EventOption
	if d.c.Persisted != nil {
		options = append(options, producer.WithPersisted(d.c.Persisted))
	}
	return d.dispatcher.Dispatch(ctx, d.operation, d.event, options...)
}

// expectedError is an expected error; only that of a critical delivery has a
// text and a name that are part of the contract.
type expectedError struct {
	Name    string       `json:"name"`
	HookID  *string      `json:"hookId"`
	Message *string      `json:"message"`
	Reason  tasks.Reason `json:"reason"`
}

const criticalName = "CriticalHookDeliveryError"

func (r *run) checkDispatchError(raw json.RawMessage, err error) {
	if raw == nil || string(raw) == "null" {
		if err != nil {
			r.problemf("dispatch raised %v, want no error", err)
		}
		return
	}
	var want expectedError
	if err == nil {
		r.problemf("dispatch raised nothing, want %s", raw)
		return
	}
	switch {
	case string(raw) == "true":
	case json.Unmarshal(raw, &want.Name) == nil:
	default:
		r.decodePart(raw, &want)
	}
	var critical *producer.CriticalHookDeliveryError
	if want.Name == criticalName {
		if !errors.As(err, &critical) {
			r.problemf("dispatch raised %T: %v, want %s", err, err, criticalName)
			return
		}
		r.checkCritical(want, critical)
		return
	}
	r.checkRefusal(want, err)
}

func (r *run) checkCritical(want expectedError, got *producer.CriticalHookDeliveryError) {
	if !errors.Is(got, producer.ErrCriticalHookDelivery) || got.Cause == nil || len(got.Causes) == 0 {
		r.problemf("critical error lacks its identity or its causes: %#v", got)
	}
	if want.HookID != nil {
		equal(r, "hookId of the error", *want.HookID, got.HookID)
	}
	if want.Message != nil {
		equal(r, "message of the error", *want.Message, got.Error())
	}
	if want.Reason != "" {
		r.notUnderstood("reason of a critical error", want.Reason)
	}
}

// checkRefusal wants an error that is about the hooks or the environment, and
// not about a delivery. Its text is the product's own.
func (r *run) checkRefusal(want expectedError, err error) {
	if errors.Is(err, producer.ErrCriticalHookDelivery) {
		r.problemf("dispatch raised a critical delivery, want a refusal (%s): %v", want.Name, err)
		return
	}
	reason, invalid := rejection(err)
	if _, environment := variablesOf(err); !invalid && !environment {
		r.problemf("dispatch raised %T, which refuses nothing: %v", err, err)
	}
	if known := tasks.Reason(want.Name); want.Reason == "" && strings.Contains(want.Name, "_") {
		want.Reason = known
	}
	if want.Reason != "" {
		equal(r, "reason of the error", want.Reason, reason)
	}
	r.notef("error %q is taken for any refusal: %v", want.Name, err)
}

// secrets is what no log may show: values of variables and headers, bodies of
// requests and replies.
func (d *dispatchRun) secrets() []string {
	secrets := []string{qstashToken, string(d.event.Raw)}
	for _, value := range d.c.Env {
		secrets = append(secrets, value)
	}
	for _, a := range d.site.answers {
		secrets = append(secrets, string(a.body))
	}
	for _, request := range d.site.rec.all() {
		secrets = append(secrets, string(request.body))
	}
	lists := [][]json.RawMessage{d.c.EnvHooks}
	for _, raw := range []json.RawMessage{d.c.Registered, d.c.Persisted} {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			lists = append(lists, list)
		}
	}
	for _, hook := range slices.Concat(lists...) {
		var w struct {
			Headers map[string]json.RawMessage `json:"headers"`
			Body    json.RawMessage            `json:"body"`
		}
		if json.Unmarshal(hookMember(hook, "webhook"), &w) != nil {
			continue
		}
		secrets = append(secrets, string(w.Body))
		for _, raw := range w.Headers {
			var value string
			if json.Unmarshal(raw, &value) == nil {
				secrets = append(secrets, value)
			}
		}
	}
	// What is shorter stands in any line.
	return slices.DeleteFunc(secrets, func(s string) bool { return len(s) < 4 })
}

// codeOf is the code of a failed attempt as receivers and cases know it.
func codeOf(result webhook.Result) string { return string(result.Class.CodeOf(result.Status)) }
