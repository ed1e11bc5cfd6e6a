package producer

import (
	"errors"
	"math"
	"slices"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// isCritical reports whether err raises a critical failure.
func isCritical(err error) bool { return errors.Is(err, ErrCriticalHookDelivery) }

// hookName is a hook as an outcome names it.
type hookName struct {
	id         string
	hookType   tasks.HookType
	occurrence int
}

// hookOrder is the place of each caller hook of an event in its evaluation
// order. Hooks that it does not know, those of the environment, come last.
type hookOrder map[hookName]int

// newHookOrder numbers the hooks of one event, all of one type.
func newHookOrder(hooks []*tasks.Hook) hookOrder {
	order := make(hookOrder, len(hooks))
	occurrences := make(map[string]int, len(hooks))
	for i, hook := range hooks {
		// Hooks that differ in their matcher count on their own.
		key := tasks.HookKey(hook, 0)
		name := hookName{hook.ID, hook.Type, occurrences[key]}
		occurrences[key]++
		if _, taken := order[name]; !taken {
			order[name] = i
		}
	}
	return order
}

// sorted returns outcomes in evaluation order.
func (o hookOrder) sorted(outcomes []lane.Outcome) []lane.Outcome {
	place := func(outcome lane.Outcome) int {
		if i, ok := o[hookName{outcome.HookID, outcome.HookType, outcome.Occurrence}]; ok {
			return i
		}
		return math.MaxInt
	}
	ordered := slices.Clone(outcomes)
	slices.SortStableFunc(ordered, func(a, b lane.Outcome) int {
		pa, pb := place(a), place(b)
		switch {
		case pa < pb:
			return -1
		case pa > pb:
			return 1
		}
		return 0
	})
	return ordered
}
