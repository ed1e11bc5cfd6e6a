package producer

import (
	"context"
	"fmt"
	"sync"

	"github.com/gantry-hooks/gantry/tasks"
)

// MockResult stands in for the execution of a tool.
type MockResult = tasks.MockResult

// DispatchBeforeToolCall asks the handlers registered in this process for a
// mock, in order: the first offer is taken and ends the asking. A handler that
// fails is logged and ignored, except that an offer made before counts. It
// sends no webhook; observations are a Dispatch WithoutHandlers. The result is nil when nobody mocks, and always in queue mode
// (docs/behaviour.md §14).
func (d *Dispatcher) DispatchBeforeToolCall(ctx context.Context, operationID string, event *tasks.Event) (*MockResult, error) {
	request := EventRequest{Event: event}
	if err := request.check(operationID); err != nil {
		return nil, err
	}
	if event.Type != tasks.BeforeToolCall {
		return nil, fmt.Errorf("%w: a %s event cannot be mocked", ErrInvalidRequest, event.Type)
	}
	if d.config.Mode != ModeLocal {
		return nil, nil
	}
	registered, _ := d.registry.of(operationID)
	run := localRun{dispatcher: d, operationID: operationID, request: request}
	slot := &mockSlot{}
	defer slot.close()
	for _, s := range evaluation(event, registered.all, nil) {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("ask for a mock: %w", context.Cause(ctx))
		}
		if s.Hook.Handler == nil {
			continue
		}
		if offer := run.ask(ctx, s, slot); offer != nil {
			return offer, nil
		}
	}
	return nil, nil
}

// ask runs one handler and returns the offer that stands then.
func (r *localRun) ask(ctx context.Context, s step, slot *mockSlot) *MockResult {
	if s.err != nil {
		r.logHandler(s, s.err)
		return nil
	}
	event := copyEvent(r.request.Event)
	event.Mock = slot.offer
	if err := call(ctx, s.Hook.Handler, event); err != nil {
		r.logHandler(s, err)
	}
	return slot.taken()
}

// mockSlot takes the first offer. Handlers may offer from goroutines of their own.
type mockSlot struct {
	mu     sync.Mutex
	first  *MockResult
	closed bool
}

// offer reports whether result was the first and in time.
func (m *mockSlot) offer(result tasks.ToolResult) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.first != nil {
		return false
	}
	m.first = &MockResult{IsMocked: true, Result: result}
	return true
}

// taken returns the offer, or nil.
func (m *mockSlot) taken() *MockResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first
}

// close refuses offers that come after the call has returned.
func (m *mockSlot) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
}
