package redislane

import (
	"context"
	"fmt"
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
	args := make([]any, 0, 4+6*len(items))
	args = append(args, q.Operation, operationID, s.window, s.idle)
	for _, it := range items {
		args = append(args, it.ID, it.Digest, milliseconds(it.Delay), it.Waiter.Inbox, string(it.Waiter.Mode), it.Doc)
	}
	rows, err := s.run(ctx, s.scripts.append, q.Shard, args...)
	if err != nil {
		return nil, err
	}
	if text(rows, 0) == "reused" {
		return nil, &lane.ReusedError{ID: text(rows, 1)}
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
