package producer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// prepared is an event that is ready to be appended.
type prepared struct {
	item lane.Item
	// hooks are the caller hooks in the task, in order of evaluation.
	hooks []*tasks.Hook
	// skip says that no hook matches, so that nothing needs to be stored.
	skip bool
}

// dispatchQueue appends an event and waits for the first attempt of each hook.
func (d *Dispatcher) dispatchQueue(ctx context.Context, operationID string, request EventRequest) error {
	ready, err := d.newPreparation(operationID).prepare(ctx, request)
	if err != nil {
		return err
	}
	if ready.skip {
		d.metrics.event(eventSkipped, 1)
		return nil
	}
	key := awaited{operationID, ready.item.ID}
	// The ear comes first: the worker may be done before the append returns.
	w := d.inbox.Join(key.notice())
	defer d.inbox.Leave(w)
	ready.item.Waiter = lane.Waiter{Inbox: d.inbox.Name(), Mode: lane.WaitFirst}
	appended, err := d.append(ctx, operationID, []lane.Item{ready.item})
	if err != nil {
		return err
	}
	if appended[0].Duplicate {
		d.metrics.joins.Inc()
	}
	status := appended[0].Status
	if !status.Settled(lane.WaitFirst) {
		if status, err = d.settle(ctx, waiting{key, w}, lane.WaitFirst); err != nil {
			return err
		}
	}
	return newResult(key, status, ready.hooks).Err()
}

// append stores items, all or none, and tells in its error what may have happened.
func (d *Dispatcher) append(ctx context.Context, operationID string, items []lane.Item) ([]lane.Appended, error) {
	if wait.Closed(d.inbox.Done()) {
		return nil, ErrClosed
	}
	appended, err := d.config.Store.Append(ctx, operationID, items)
	var reused *lane.ReusedError
	switch {
	case err == nil && len(appended) == len(items):
		d.countAppended(appended)
		return appended, nil
	case errors.As(err, &reused):
		d.metrics.event(eventRefused, len(items))
		return nil, fmt.Errorf("append to operation %q: %w", operationID, err)
	case err == nil:
		err = fmt.Errorf("store answered %d of %d items", len(appended), len(items))
	}
	// Whatever else went wrong, the script may have run: never say that it did not.
	d.metrics.event(eventUnavailable, len(items))
	unavailable := &UnavailableError{OperationID: operationID, Err: err}
	for _, item := range items {
		unavailable.EventIDs = append(unavailable.EventIDs, item.ID)
	}
	return nil, unavailable
}

// countAppended counts new and joined events.
func (d *Dispatcher) countAppended(appended []lane.Appended) {
	duplicates := 0
	for _, a := range appended {
		if a.Duplicate {
			duplicates++
		}
	}
	d.metrics.event(eventDuplicate, duplicates)
	d.metrics.event(eventAppended, len(appended)-duplicates)
}

// preparation turns the events of one call into items. It reads what the
// events share once.
type preparation struct {
	dispatcher  *Dispatcher
	operationID string
	// list is the last persisted list that was read, from raw.
	raw  json.RawMessage
	list storedHooks
	// environment is read once per call; nil until then.
	environment *[]tasks.Hook
}

// newPreparation starts a call for an operation.
func (d *Dispatcher) newPreparation(operationID string) *preparation {
	return &preparation{dispatcher: d, operationID: operationID}
}

// prepare validates one event, picks the caller hooks that go with it, and
// encodes it.
func (p *preparation) prepare(ctx context.Context, request EventRequest) (prepared, error) {
	if err := request.check(p.operationID); err != nil {
		return prepared{}, err
	}
	caller, err := p.callerHooks(request)
	if err != nil {
		return prepared{}, err
	}
	environment, err := p.readEnvironment()
	if err != nil {
		return prepared{}, err
	}
	hooks, list := caller.matching(request.Event)
	if len(hooks) == 0 && !p.dispatcher.environmentMatches(ctx, request.Event, environment) {
		return prepared{skip: true, item: lane.Item{ID: request.ID}}, nil
	}
	ready, err := p.encode(request, list)
	ready.hooks = hooks
	return ready, err
}

// callerHooks are the hooks of the persisted list if one is passed, even an
// empty one, else those of the registration (docs/behaviour.md §4).
func (p *preparation) callerHooks(request EventRequest) (storedHooks, error) {
	if len(request.Persisted) == 0 {
		registered, _ := p.dispatcher.registry.of(p.operationID)
		return registered.queued, nil
	}
	// The events of a batch share one list as a rule.
	if bytes.Equal(request.Persisted, p.raw) {
		return p.list, nil
	}
	hooks, err := parsePersisted(request.Persisted)
	if err != nil {
		return storedHooks{}, err
	}
	list, err := newStoredHooks(hooks)
	if err != nil {
		return storedHooks{}, err
	}
	p.raw, p.list = request.Persisted, list
	return list, nil
}

// readEnvironment reads this process's environment hooks once per call.
func (p *preparation) readEnvironment() ([]tasks.Hook, error) {
	if p.environment == nil {
		hooks, err := p.dispatcher.environment()
		if err != nil {
			return nil, err
		}
		p.environment = &hooks
	}
	return *p.environment, nil
}

// encode builds the task document.
func (p *preparation) encode(request EventRequest, hooks json.RawMessage) (prepared, error) {
	id := request.ID
	if id == "" {
		id = tasks.NewID()
	}
	task := tasks.Task{
		ID: id, OperationID: p.operationID, Type: request.Event.Type, Event: request.Event.Raw, Hooks: hooks,
		EnqueuedAt: p.dispatcher.config.Now().UnixMilli(), Trace: request.Trace,
	}
	doc, err := task.Encode()
	if err != nil {
		return prepared{}, fmt.Errorf("encode event %q: %w", id, err)
	}
	item := lane.Item{
		ID: id, Doc: doc, Digest: tasks.ContentDigest(task.Type, task.Event), Delay: request.Delay,
	}
	return prepared{item: item}, nil
}

// environmentMatches reports whether an environment hook may match: one of this
// process or of any live worker. Unknown counts as a match, so that no event is
// dropped for want of knowledge.
func (d *Dispatcher) environmentMatches(ctx context.Context, event *tasks.Event, own []tasks.Hook) bool {
	if anyInForce(event, own) {
		return true
	}
	published, known := d.directory.published(ctx)
	if !known {
		return true
	}
	for _, hook := range published {
		if hook.Type != event.Type || hook.Control {
			continue
		}
		candidate := tasks.Hook{Type: hook.Type, Matcher: hook.Matcher}
		if matches, err := candidate.Matches(event); matches || err != nil {
			return true
		}
	}
	return false
}
