package redislane

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
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
	doc := append(make([]byte, 0, 96*len(calls)), '[')
	for i, c := range calls {
		if i > 0 {
			doc = append(doc, ',')
		}
		var err error
		if doc, err = appendStep(doc, &c.step); err != nil {
			return nil, err
		}
	}
	doc = append(doc, ']')
	rows, err := s.run(ctx, s.scripts.progress, shard, doc, s.window, s.idle)
	if err != nil {
		return nil, err
	}
	if len(rows) != len(calls)+2 {
		return nil, fmt.Errorf("read progress reply: %d rows for %d steps", len(rows)-2, len(calls))
	}
	return rows, nil
}

// appendStep writes a step as progress.lua reads it: arrays, most of them short,
// because the script decodes every one.
func appendStep(b []byte, step *lane.Step) ([]byte, error) {
	release := int64(0)
	if step.Release {
		release = 1
	}
	b = tasks.AppendString(append(b, '['), queueID(step.Queue))
	b = append(b, ',', '"')
	b = strconv.AppendInt(b, step.Token, 10)
	b = append(b, '"', ',')
	b = strconv.AppendInt(b, int64(step.Want), 10)
	b = strconv.AppendInt(append(b, ','), release, 10)
	for i := range step.Actions {
		var err error
		if b, err = appendAction(append(b, ','), &step.Actions[i]); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendAction(b []byte, a *lane.Action) ([]byte, error) {
	b = tasks.AppendString(append(b, '['), string(a.Verb))
	b = strconv.AppendInt(append(b, ','), a.Sequence, 10)
	b = tasks.AppendString(append(b, ','), a.TaskID)
	if a.Verb == lane.Pop {
		return append(b, ']'), nil
	}
	outcome := "{}"
	if a.Outcome != nil {
		doc, err := json.Marshal(a.Outcome)
		if err != nil {
			return nil, fmt.Errorf("encode outcome: %w", err)
		}
		outcome = string(doc)
	}
	b = tasks.AppendString(append(b, ','), a.Hook)
	b = strconv.AppendInt(append(b, ','), milliseconds(a.Delay), 10)
	b = strconv.AppendInt(append(b, ','), int64(a.Attempt), 10)
	b = tasks.AppendString(append(b, ','), outcome)
	b = tasks.AppendString(append(b, ','), a.DeadID)
	return append(b, ']'), nil
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
