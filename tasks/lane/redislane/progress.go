package redislane

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// progressTimeout bounds one round trip of settled work. It is independent of
// the callers' contexts, because what was delivered must be settled even when
// the worker is being stopped.
const progressTimeout = 3 * time.Second

// Progress applies a step to a held queue. lane.ErrLeaseLost means that nothing
// was changed; lane.ErrUnavailable that the step may have happened, and sending
// it again is safe. Concurrent steps of a shard share round trips.
func (s *Store) Progress(ctx context.Context, step lane.Step) (lane.Progress, error) {
	call := &progressCall{step: step, done: make(chan struct{})}
	s.progress[step.Queue.Shard].add(call)
	select {
	case <-call.done:
		return call.progress, call.err
	case <-ctx.Done():
		return lane.Progress{}, fmt.Errorf("%w: %w", lane.ErrUnavailable, ctx.Err())
	}
}

// progressCall is one step on its way through a batch. The sender writes progress
// and err before it closes done; the caller reads them after.
type progressCall struct {
	step     lane.Step
	progress lane.Progress
	err      error
	done     chan struct{}
}

// batchSteps bounds one progress script.
const batchSteps = 64

func (s *Store) sendSteps(shard int, calls []*progressCall) {
	ctx, cancel := context.WithTimeout(context.Background(), progressTimeout)
	defer cancel()
	rows, err := s.exchangeSteps(ctx, shard, calls)
	for i, c := range calls {
		if err != nil {
			c.err = err
		} else {
			c.progress, c.err = readProgress(c.step.Queue, rows, i)
		}
		close(c.done)
	}
}

func (s *Store) exchangeSteps(ctx context.Context, shard int, calls []*progressCall) ([]any, error) {
	steps := make([][]any, len(calls))
	for i, c := range calls {
		var err error
		if steps[i], err = encodeStep(c.step); err != nil {
			return nil, err
		}
	}
	doc, err := json.Marshal(steps)
	if err != nil {
		return nil, fmt.Errorf("encode steps: %w", err)
	}
	rows, err := s.run(ctx, s.scripts.progress, shard, doc, s.window, s.idle)
	if err != nil {
		return nil, err
	}
	if len(rows) != len(calls)+2 {
		return nil, fmt.Errorf("read progress reply: %d rows for %d steps", len(rows)-2, len(calls))
	}
	return rows, nil
}

// encodeStep writes a step as progress.lua reads it: arrays, most of them short,
// because the script decodes every one.
func encodeStep(step lane.Step) ([]any, error) {
	release := 0
	if step.Release {
		release = 1
	}
	w := make([]any, 0, 4+len(step.Actions))
	w = append(w, queueID(step.Queue), strconv.FormatInt(step.Token, 10), step.Want, release)
	for i := range step.Actions {
		a, err := encodeAction(&step.Actions[i])
		if err != nil {
			return nil, err
		}
		w = append(w, a)
	}
	return w, nil
}

func encodeAction(a *lane.Action) ([]any, error) {
	if a.Verb == lane.Pop {
		return []any{a.Verb, a.Sequence, a.TaskID}, nil
	}
	outcome := []byte("{}")
	if a.Outcome != nil {
		var err error
		if outcome, err = json.Marshal(a.Outcome); err != nil {
			return nil, fmt.Errorf("encode outcome: %w", err)
		}
	}
	return []any{a.Verb, a.Sequence, a.TaskID, a.Hook, milliseconds(a.Delay), a.Attempt, string(outcome), a.DeadID}, nil
}

func readProgress(q lane.Queue, rows []any, i int) (lane.Progress, error) {
	row := list(rows, i+2)
	if text(row, 0) == "lost" {
		return lane.Progress{}, lane.ErrLeaseLost
	}
	if text(row, 0) == "fault" {
		return lane.Progress{}, fmt.Errorf("%w: %s", lane.ErrUnavailable, text(row, 1))
	}
	return lane.Progress{
		Released: text(row, 0) == "released",
		Now:      number(rows, 0), Ready: int(number(rows, 1)),
		Attempt: int(number(row, 2)),
		Settled: strings.Fields(text(row, 3)), Parked: strings.Fields(text(row, 4)), Unparked: strings.Fields(text(row, 5)),
		Entries: readEntries(q, number(row, 1), list(row, 6)),
	}, nil
}
