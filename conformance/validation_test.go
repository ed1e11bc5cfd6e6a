package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
)

type validationCase struct {
	common
	Via        string          `json:"via"`
	Hooks      json.RawMessage `json:"hooks"`
	PriorHooks json.RawMessage `json:"prior_hooks"`
	Expect     struct {
		Accepted *bool        `json:"accepted"`
		Reason   tasks.Reason `json:"reason"`
		Stored   *[]string    `json:"stored"`
	} `json:"expect"`
}

// nothing is a handler that is never called.
func nothing(string, json.RawMessage) tasks.Handler {
	return func(context.Context, *tasks.Event) error { return nil }
}

func runValidation(r *run) {
	var c validationCase
	r.decode(&c)
	if c.Hooks == nil || c.Expect.Accepted == nil {
		r.notUnderstood("case without", "hooks or expect.accepted")
	}
	d := r.dispatcher(producer.Config{})
	if c.PriorHooks != nil {
		list, handlers := named(c.PriorHooks, isFunction, nothing)
		if err := d.RegisterRaw(r.t.Context(), "op", list, handlers); err != nil {
			r.fatalf("register the prior hooks: %v", err)
		}
	}
	var err error
	var stored []string
	switch c.Via {
	case "register":
		list, handlers := named(c.Hooks, isFunction, nothing)
		err = d.RegisterRaw(r.t.Context(), "op", list, handlers)
		stored = ids(d.Hooks("op"))
	case "restore":
		stored, err = r.restore(d, c.Hooks)
	default:
		r.notUnderstood("via", c.Via)
	}
	r.checkAcceptance(&c, err)
	if c.Expect.Stored != nil {
		equal(r, "stored ids", *c.Expect.Stored, stored)
	}
}

// restore reads a stored list as a worker does, and wants a dispatch to say the
// same of it. The operation is registered, so that the list is checked only.
func (r *run) restore(d *producer.Dispatcher, list json.RawMessage) ([]string, error) {
	hooks, err := tasks.ParseHooks(list, tasks.ParseOptions{Mode: tasks.ParseRestore})
	if registered := d.RegisterRaw(r.t.Context(), "op", json.RawMessage("[]"), nil); registered != nil {
		r.fatalf("register nothing: %v", registered)
	}
	dispatched := d.Dispatch(r.t.Context(), "op", r.sampleEvent(tasks.BeforeStep, "op"), producer.WithPersisted(list))
	parsed, _ := rejection(err)
	said, _ := rejection(dispatched)
	if parsed != said || (err == nil) != (dispatched == nil) {
		r.problemf("parser and dispatch differ about a stored list: %v, %v", err, dispatched)
	}
	if err != nil {
		return ids(d.Hooks("op")), err
	}
	return ids(hooks), nil
}

func (r *run) checkAcceptance(c *validationCase, err error) {
	switch {
	case *c.Expect.Accepted && err != nil:
		r.problemf("hooks are refused, want them accepted: %v", err)
	case *c.Expect.Accepted:
	case err == nil:
		r.problemf("hooks are accepted, want them refused with %s", c.Expect.Reason)
	default:
		reason, invalid := rejection(err)
		if !invalid {
			reason = tasks.Reason(fmt.Sprintf("%T: %v", err, err))
		}
		equal(r, "reason", c.Expect.Reason, reason)
	}
}
