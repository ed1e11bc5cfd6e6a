package redislane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Claim takes up to limit ready queues of a shard, each with up to batch entries,
// under a new token and lease. None is no error.
func (s *Store) Claim(ctx context.Context, shard, limit, batch int) ([]lane.Claim, error) {
	rows, err := s.run(ctx, s.scripts.claim, shard, limit, batch, s.lease.Milliseconds(), s.window, s.idle)
	if err != nil {
		return nil, err
	}
	now := number(rows, 0)
	claims := make([]lane.Claim, 0, len(rows)-1)
	for i := 1; i < len(rows); i++ {
		row := list(rows, i)
		q, ok := parseQueueID(shard, text(row, 0))
		if !ok {
			continue
		}
		claims = append(claims, lane.Claim{
			Queue: q, OperationID: text(row, 1), Token: number(row, 2), Attempt: int(number(row, 4)),
			Settled: strings.Fields(text(row, 5)), Parked: strings.Fields(text(row, 6)), Now: now,
			Entries: readEntries(q, number(row, 3), list(row, 7)),
		})
	}
	return claims, nil
}

// readEntries numbers the entries of a lane from its head; those of a parked
// queue carry their numbers. A parked entry that somebody wrote by hand keeps
// its bytes and gets the number 0.
func readEntries(q lane.Queue, head int64, rows []any) []lane.Entry {
	entries := make([]lane.Entry, len(rows))
	for i := range rows {
		raw := text(rows, i)
		if q.Lane() {
			entries[i] = lane.Entry{Sequence: head + int64(i), Doc: []byte(raw)}
			continue
		}
		entries[i] = readParked(raw)
	}
	return entries
}

func readParked(raw string) lane.Entry {
	seq, rest, ok := strings.Cut(raw, ":")
	at, doc, ok2 := strings.Cut(rest, ":")
	if !ok || !ok2 || !exact(seq) || !exact(at) {
		return lane.Entry{Doc: []byte(raw)}
	}
	entry := lane.Entry{Doc: []byte(doc)}
	entry.Sequence, _ = strconv.ParseInt(seq, 10, 64)
	entry.ParkedAt, _ = strconv.ParseInt(at, 10, 64)
	return entry
}

// exact reports whether lib.lua (split_parked) takes s for a number too: the two
// must agree, or the entry at the head could never be settled.
func exact(s string) bool {
	return s != "" && len(s) <= 15 && strings.Trim(s, "0123456789") == ""
}

// Extend renews the leases of held queues, all of one shard, and returns those
// that were lost.
func (s *Store) Extend(ctx context.Context, shard int, held []lane.Held) ([]lane.Held, error) {
	if len(held) == 0 {
		return nil, nil
	}
	args := make([]any, 0, 1+2*len(held))
	args = append(args, s.lease.Milliseconds())
	for _, h := range held {
		args = append(args, queueID(h.Queue), h.Token)
	}
	rows, err := s.run(ctx, s.scripts.extend, shard, args...)
	if err != nil {
		return nil, err
	}
	if len(rows) != len(held) {
		return nil, fmt.Errorf("read extend reply: %d rows for %d queues", len(rows), len(held))
	}
	var lost []lane.Held
	for i, h := range held {
		if number(rows, i) == 0 {
			lost = append(lost, h)
		}
	}
	return lost, nil
}

// Sweep makes ready up to limit queues and delayed events of a shard that are due.
func (s *Store) Sweep(ctx context.Context, shard, limit int) (lane.Swept, error) {
	rows, err := s.run(ctx, s.scripts.sweep, shard, limit, s.window, s.idle)
	if err != nil {
		return lane.Swept{}, err
	}
	next := time.Duration(number(rows, 2)) * time.Millisecond
	return lane.Swept{Ready: int(number(rows, 0)), Expired: int(number(rows, 1)), Next: next, Waiting: int(number(rows, 3))}, nil
}

// Wait blocks until a queue of the shard becomes ready, or for at most timeout.
// It returns early without a queue when the wake-up was meant for another worker:
// it is a hint, and losing one is harmless, because a sweep finds what waits.
func (s *Store) Wait(ctx context.Context, shard int, timeout time.Duration) error {
	_, err := s.pop(ctx, s.keys[shard].wake(), timeout)
	return err
}

// pop is a blocking pop with sub-second timeouts, which the typed command rounds
// up. nil without an error means that the time ran out.
func (s *Store) pop(ctx context.Context, key string, timeout time.Duration) ([]any, error) {
	// Zero would block for ever, and less than a millisecond would be sent as zero.
	timeout = max(timeout, time.Millisecond)
	seconds := strconv.FormatFloat(timeout.Seconds(), 'f', 3, 64)
	reply, err := s.blocking.Do(ctx, "BLPOP", key, seconds).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	rows, _ := reply.([]any)
	return rows, nil
}
