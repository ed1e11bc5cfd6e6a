package producer

import (
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/gantry-hooks/gantry/tasks"
)

// HookDispatchTask wraps a task so that a plain asynq client may enqueue it. A
// worker appends it to its lane when it comes to it: the order is the order of
// appending, and the task's id makes a repeated run harmless. The caller picks
// the options; the queue must be the one that has the namespace's name.
func HookDispatchTask(task *tasks.Task) (*asynq.Task, error) {
	doc, err := task.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode task: %w", err)
	}
	return asynq.NewTask(tasks.TypeHookDispatch, doc), nil
}
