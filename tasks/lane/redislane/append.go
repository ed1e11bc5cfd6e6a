package redislane

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Append adds items to an operation's lane, all or none, and returns what became
// of each, in their order. It is idempotent by item id. Errors: a
// *lane.ReusedError when an id stands for other content; lane.ErrUnavailable when
// Redis did not answer, and then the items may or may not be stored.
func (s *Store) Append(ctx context.Context, operationID string, items []lane.Item) ([]lane.Appended, error) {
	if len(items) == 0 {
		return nil, nil
	}
	q := s.QueueOf(operationID)
	args := make([]any, 0, 3+6*len(items))
	args = append(args, q.Operation, operationID, len(items))
	for i := range items {
		it := &items[i]
		args = append(args, it.ID, it.Digest, milliseconds(it.Delay), it.Waiter.Inbox, string(it.Waiter.Mode), it.Doc)
	}
	rows, err := s.append(ctx, q.Shard, args)
	if err != nil {
		return nil, err
	}
	switch text(rows, 0) {
	case "reused":
		return nil, &lane.ReusedError{ID: text(rows, 1)}
	case "fault":
		return nil, fmt.Errorf("%w: %s", lane.ErrUnavailable, text(rows, 1))
	}
	if len(rows) != len(items)+1 {
		return nil, fmt.Errorf("read append reply: %d rows for %d items", len(rows)-1, len(items))
	}
	out := make([]lane.Appended, len(items))
	for i := range items {
		row := list(rows, i+1)
		out[i] = lane.Appended{ID: items[i].ID, Sequence: number(row, 0), Duplicate: text(row, 1) == "1"}
		if len(row) > 2 {
			out[i].Status = readStatus(row[2:])
		}
	}
	return out, nil
}

// Bounds of gathered appends. A call with many items goes by itself, so that no
// small one waits for it.
const (
	batchAppends     = 64
	smallAppend      = 3 + 6*16
	appendTimeout    = 10 * time.Second
	maxGatheredBytes = 256 << 10
)

// appendCall is one append on its way through a batch. The sender writes rows and
// err before it closes done; the caller reads them after.
type appendCall struct {
	args []any
	// gone is closed when the caller no longer waits; what was not sent by then is
	// not sent at all.
	gone <-chan struct{}
	rows []any
	err  error
	done chan struct{}
}

// append sends one operation's items, together with those of other callers when
// they are few. The caller's context ends its waiting, not the call.
func (s *Store) append(ctx context.Context, shard int, args []any) ([]any, error) {
	if len(args) > smallAppend || size(args) > maxGatheredBytes {
		rows, err := s.run(ctx, s.scripts.append, shard, append([]any{s.window, s.idle}, args...)...)
		return list(rows, 0), err
	}
	if err := ctx.Err(); err != nil {
		return nil, unavailable(err)
	}
	call := &appendCall{args: args, gone: ctx.Done(), done: make(chan struct{})}
	s.appends[shard].add(call)
	select {
	case <-call.done:
		return call.rows, call.err
	case <-ctx.Done():
		return nil, unavailable(ctx.Err())
	}
}

func size(args []any) int {
	n := 0
	for _, a := range args {
		if doc, ok := a.([]byte); ok {
			n += len(doc)
		}
	}
	return n
}

func (c *appendCall) abandoned() bool {
	select {
	case <-c.gone:
		return true
	default:
		return false
	}
}

// sendAppends runs the calls in one script, which serves each operation by itself:
// one that fails leaves the others alone.
func (s *Store) sendAppends(shard int, calls []*appendCall) {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	calls = slices.DeleteFunc(calls, (*appendCall).abandoned)
	if len(calls) == 0 {
		return
	}
	n := 2
	for _, c := range calls {
		n += len(c.args)
	}
	args := append(make([]any, 0, n), s.window, s.idle)
	for _, c := range calls {
		args = append(args, c.args...)
	}
	rows, err := s.run(ctx, s.scripts.append, shard, args...)
	if err == nil && len(rows) != len(calls) {
		err = fmt.Errorf("read append reply: %d rows for %d calls", len(rows), len(calls))
	}
	for i, c := range calls {
		c.rows, c.err = list(rows, i), err
		close(c.done)
	}
}

// Status returns the state of a task and, when the task has not yet come to what
// w asks for, registers w. A task that is not known has Known false and is not
// waited for.
func (s *Store) Status(ctx context.Context, operationID, taskID string, w lane.Waiter) (lane.Status, error) {
	q := s.QueueOf(operationID)
	rows, err := s.run(ctx, s.scripts.status, q.Shard, q.Operation, taskID, w.Inbox, string(w.Mode), s.window)
	if err != nil {
		return lane.Status{}, err
	}
	return readStatus(rows), nil
}

// Forget ends an operation: its registered hooks go, its pending work stays and
// is delivered.
func (s *Store) Forget(ctx context.Context, operationID string) error {
	q := s.QueueOf(operationID)
	err := s.scripts.forget.Run(ctx, s.client, s.keys[q.Shard].script(), q.Operation, s.window, s.idle).Err()
	return unavailable(err)
}

// milliseconds rounds up, so that nothing is early.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func text(rows []any, i int) string {
	if i >= len(rows) {
		return ""
	}
	switch v := rows[i].(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

func number(rows []any, i int) int64 {
	n, _ := strconv.ParseInt(text(rows, i), 10, 64)
	return n
}

func list(rows []any, i int) []any {
	if i >= len(rows) {
		return nil
	}
	l, _ := rows[i].([]any)
	return l
}
