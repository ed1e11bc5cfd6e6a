package ingress

import (
	"context"
	"encoding/json"

	"github.com/gantry-hooks/gantry/tasks"
)

// operationInput is a request about one operation.
type operationInput struct {
	Op string `path:"op" doc:"Id of the operation: 1 to 512 bytes of UTF-8 without control characters, percent-encoded as one path segment."`
}

// hooksOutput answers with an operation's hooks.
type hooksOutput struct {
	Body HookList
}

// putHooks replaces an operation's hooks.
func (a *API) putHooks(ctx context.Context, in *operationInput) (*hooksOutput, error) {
	hooks, err := a.hooksOf(ctx, in.Op)
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.detached(ctx)
	defer cancel()
	if err := a.config.Store.PutHooks(ctx, in.Op, hooks); err != nil {
		return nil, err
	}
	return &hooksOutput{Body: HookList{OperationID: in.Op, Hooks: hooks}}, nil
}

// addHooks appends to an operation's hooks.
func (a *API) addHooks(ctx context.Context, in *operationInput) (*hooksOutput, error) {
	hooks, err := a.hooksOf(ctx, in.Op)
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.detached(ctx)
	defer cancel()
	all, err := a.config.Store.AddHooks(ctx, in.Op, hooks)
	if err != nil {
		return nil, err
	}
	return &hooksOutput{Body: HookList{OperationID: in.Op, Hooks: all}}, nil
}

// hooksOf reads the hooks of a request. Registering reads the environment too,
// even for an empty list (docs/behaviour.md §2).
func (a *API) hooksOf(ctx context.Context, operationID string) (json.RawMessage, error) {
	if err := operation(operationID); err != nil {
		return nil, err
	}
	raw, err := a.readBody(ctx)
	if err != nil {
		return nil, err
	}
	hooks, err := decodeHooks(raw)
	if err != nil {
		return nil, err
	}
	return hooks, a.environment(ctx)
}

// getHooks reads an operation's hooks.
func (a *API) getHooks(ctx context.Context, in *operationInput) (*hooksOutput, error) {
	if err := operation(in.Op); err != nil {
		return nil, err
	}
	ctx, cancel := a.step(ctx)
	defer cancel()
	hooks, ok, err := a.config.Store.Hooks(ctx, in.Op)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, newProblem(CodeNotFound, "no hooks are registered for the operation, or it has ended")
	}
	if tasks.CheckJSON(hooks) != nil {
		return nil, storedHooksInvalid(nil)
	}
	return &hooksOutput{Body: HookList{OperationID: in.Op, Hooks: hooks}}, nil
}

// noOutput answers without a body.
type noOutput struct{}

// deleteHooks ends an operation; what is pending still delivers.
func (a *API) deleteHooks(ctx context.Context, in *operationInput) (*noOutput, error) {
	if err := operation(in.Op); err != nil {
		return nil, err
	}
	ctx, cancel := a.detached(ctx)
	defer cancel()
	if err := a.config.Store.Forget(ctx, in.Op); err != nil {
		return nil, err
	}
	return &noOutput{}, nil
}

// storedHooks reads the list that goes with an operation's events. nil is no
// list, which is not the same as an empty one.
func (a *API) storedHooks(ctx context.Context, operationID string) (json.RawMessage, error) {
	hooks, ok, err := a.config.Store.Hooks(ctx, operationID)
	if err != nil || !ok {
		return nil, err
	}
	// What was registered here is valid. Something else may have been written to
	// Redis by hand, and it is not the event's fault.
	if _, err := tasks.StoredHooks(hooks); err != nil || len(hooks) == 0 {
		return nil, storedHooksInvalid(err)
	}
	return hooks, nil
}

// StoredHooksError is what Questions fails with when the stored hooks of an
// operation are invalid; err says why and may be shown.
func StoredHooksError(err error) error { return storedHooksInvalid(err) }

// storedHooksInvalid tells how to get out of it.
func storedHooksInvalid(err error) *Problem {
	detail := "the stored hooks of the operation are invalid; register them anew with PUT"
	if err != nil {
		detail += ": " + err.Error()
	}
	return newProblem(CodeStoredHooksInvalid, detail)
}
