package control

import (
	"errors"
	"fmt"

	"github.com/gantry-hooks/gantry/tasks"
)

// Select returns the controls that a question about ev asks, in order: the
// caller's of each round, then those of env, which are the deployment's own.
// Every round is read before anything is selected; one bad entry fails the whole
// question with an *tasks.InvalidError, even where its list would not have been
// used (docs/behaviour.md §4, §13).
func Select(ev *tasks.Event, rounds []tasks.Round, env []tasks.Hook) ([]tasks.ControlInForce, error) {
	if !ev.Type.Controllable() {
		return nil, &tasks.InvalidError{
			Code: tasks.ControlEventType, Path: "type", Message: fmt.Sprintf("%s cannot be controlled", ev.Type),
			Fix: "ask about beforeToolCall or afterToolCall",
		}
	}
	read := make([]tasks.ControlRound, len(rounds))
	for i, round := range rounds {
		hooks, err := tasks.StoredHooks(round.Hooks)
		if err != nil {
			return nil, inRound(err, i)
		}
		read[i] = tasks.ControlRound{OperationID: round.OperationID, Hooks: hooks}
	}
	return tasks.ControlsInForce(ev, read, env), nil
}

// inRound moves an error of a list of hooks to its round.
func inRound(err error, round int) error {
	if fault, ok := errors.AsType[*tasks.InvalidError](err); ok {
		return fault.Under(fmt.Sprintf("rounds[%d]", round))
	}
	return err
}
