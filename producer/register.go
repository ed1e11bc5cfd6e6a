package producer

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Register appends hooks to those of the operation, all or none. Hooks with a
// reserved id are dropped first, whatever is wrong with them; the rest is
// validated and copied, so that later changes of the caller's values have no
// effect. An invalid hook is a *tasks.InvalidError. The environment's hooks are
// read as well, even for an empty list, and a broken environment fails the
// call (docs/behaviour.md §2).
func (d *Dispatcher) Register(_ context.Context, operationID string, hooks []tasks.Hook) error {
	return d.register(operationID, func() ([]tasks.Hook, error) { return tasks.ValidateHooks(hooks) })
}

// RegisterRaw is Register for hooks that come as a JSON array. A hook's
// "handler" is a string that names one of handlers, its action in this process;
// nil handlers means that no hook may have one.
func (d *Dispatcher) RegisterRaw(_ context.Context, operationID string, raw json.RawMessage, handlers map[string]tasks.Handler) error {
	return d.register(operationID, func() ([]tasks.Hook, error) {
		return tasks.ParseHooks(raw, tasks.ParseOptions{Mode: tasks.ParseRegister, Handlers: handlers})
	})
}

// register adds what read returns, when all of it and the environment are valid.
func (d *Dispatcher) register(operationID string, read func() ([]tasks.Hook, error)) error {
	if err := tasks.CheckOperationID(operationID); err != nil {
		return err
	}
	if _, err := d.environment(); err != nil {
		return err
	}
	hooks, err := read()
	if err != nil {
		return fmt.Errorf("register hooks of operation %q: %w", operationID, err)
	}
	return d.registry.add(operationID, hooks)
}

// Unregister removes all hooks of the operation. Events that were enqueued
// before carry their hooks and are delivered all the same. In queue mode the
// store ends the operation as well; when it does not answer, the hooks of this
// process are gone, and repeating the call is safe.
func (d *Dispatcher) Unregister(ctx context.Context, operationID string) error {
	d.registry.remove(operationID)
	if d.relayed != nil {
		d.relayed.streams.forget(operationID)
	}
	if d.config.Mode != ModeQueue {
		return nil
	}
	if err := d.config.Store.Forget(ctx, operationID); err != nil {
		return fmt.Errorf("end operation %q: %w", operationID, err)
	}
	return nil
}

// Hooks returns a copy of the operation's registered hooks in their order; nil
// when there are none.
func (d *Dispatcher) Hooks(operationID string) []tasks.Hook {
	registered, _ := d.registry.of(operationID)
	return slices.Clone(registered.all)
}

// HasHooks reports whether any hook is registered for the operation.
func (d *Dispatcher) HasHooks(operationID string) bool {
	registered, _ := d.registry.of(operationID)
	return len(registered.all) > 0
}

// HasHook reports whether a hook with this id is registered for the operation.
func (d *Dispatcher) HasHook(operationID, hookID string) bool {
	registered, _ := d.registry.of(operationID)
	return slices.ContainsFunc(registered.all, func(hook tasks.Hook) bool { return hook.ID == hookID })
}

// CanDeliver reports whether an event of hookType would reach anything now: in
// local mode any hook of that type, in queue mode a webhook of that type,
// environment hooks included (docs/behaviour.md §2). In queue mode the answer
// is yes as long as no worker has published its environment hooks.
func (d *Dispatcher) CanDeliver(ctx context.Context, operationID string, hookType tasks.HookType) (bool, error) {
	environment, err := d.environment()
	if err != nil {
		return false, err
	}
	registered, _ := d.registry.of(operationID)
	hooks := registered.all
	if d.config.Mode != ModeLocal {
		hooks = registered.queued.hooks
	}
	ofType := func(hook tasks.Hook) bool { return hook.Type == hookType }
	if slices.ContainsFunc(hooks, ofType) || slices.ContainsFunc(environment, ofType) {
		return true, nil
	}
	if d.config.Mode != ModeQueue {
		return false, nil
	}
	published, known := d.directory.published(ctx)
	matches := slices.ContainsFunc(published, func(hook lane.PublishedHook) bool { return hook.Type == hookType })
	return matches || !known, nil
}

// environment reads the hooks of this process's own environment.
func (d *Dispatcher) environment() ([]tasks.Hook, error) {
	hooks, err := d.config.EnvironmentHooks()
	if err != nil {
		return nil, fmt.Errorf("read environment hooks: %w", err)
	}
	return hooks, nil
}
