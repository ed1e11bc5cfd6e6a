package producer

import (
	"slices"
	"sync"

	"github.com/gantry-hooks/gantry/tasks"
)

// registry holds the hooks that were registered in this process, by operation.
// A stored list is never changed, only replaced, so that readers need no copy.
type registry struct {
	mu  sync.RWMutex
	ops map[string][]tasks.Hook
}

// newRegistry returns an empty registry.
func newRegistry() *registry { return &registry{ops: make(map[string][]tasks.Hook)} }

// add appends hooks to those of the operation. An empty list counts as a
// registration too.
func (r *registry) add(operationID string, hooks []tasks.Hook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops[operationID] = slices.Concat(r.ops[operationID], hooks)
}

// remove forgets the operation.
func (r *registry) remove(operationID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ops, operationID)
}

// hooks returns the operation's hooks, read-only, and whether it was registered.
func (r *registry) hooks(operationID string) ([]tasks.Hook, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	hooks, ok := r.ops[operationID]
	return hooks, ok
}
