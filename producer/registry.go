package producer

import (
	"slices"
	"sync"

	"github.com/gantry-hooks/gantry/tasks"
)

// registry holds the hooks that were registered in this process, by operation.
// A stored registration is never changed, only replaced, so that readers need
// no copy.
type registry struct {
	mu  sync.RWMutex
	ops map[string]registration
}

// registration is what one operation has registered.
type registration struct {
	// all are the hooks in their order; queued those of them that have a webhook,
	// with the stored form of each.
	all    []tasks.Hook
	queued storedHooks
}

// newRegistry returns an empty registry.
func newRegistry() *registry { return &registry{ops: make(map[string]registration)} }

// add appends hooks to those of the operation. An empty list counts as a
// registration too.
func (r *registry) add(operationID string, hooks []tasks.Hook) error {
	queued, err := newStoredHooks(hooks)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.ops[operationID]
	r.ops[operationID] = registration{
		all: slices.Concat(before.all, hooks),
		queued: storedHooks{
			hooks: slices.Concat(before.queued.hooks, queued.hooks),
			raw:   slices.Concat(before.queued.raw, queued.raw),
		},
	}
	return nil
}

// remove forgets the operation.
func (r *registry) remove(operationID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ops, operationID)
}

// of returns what the operation has registered, read-only, and whether it was
// registered at all.
func (r *registry) of(operationID string) (registration, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	found, ok := r.ops[operationID]
	return found, ok
}
