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
	rows, err := s.run(ctx, s.scripts.claim, shard, s.claimArgs(limit, batch)...)
	if err != nil {
		return nil, err
	}
	return readClaims(shard, rows), nil
}

func (s *Store) claimArgs(limit, batch int) []any {
	return []any{limit, batch, s.lease.Milliseconds(), s.window, s.idle}
}

func readClaims(shard int, rows []any) []lane.Claim {
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
	return claims
}

// Await blocks until a queue of the shard becomes ready, or for at most timeout,
// and claims as Claim does. The claim lies behind the blocking pop in one
// pipeline, so that it is made the moment the wake-up comes. waited is how long
// before it the call was made, at least, by Redis's clock: what the caller's lease
// is counted from. A lost wake-up is harmless, because the claim is made all the
// same when the time is over.
func (s *Store) Await(ctx context.Context, shard, limit, batch int, timeout time.Duration) (claims []lane.Claim, waited time.Duration, err error) {
	pipe := s.blocking.Pipeline()
	began := pipe.Time(ctx)
	woken := pipe.Do(ctx, "BLPOP", s.keys[shard].wake(), seconds(timeout))
	claimed := s.scripts.claim.EvalSha(ctx, pipe, s.keys[shard].script(), s.claimArgs(limit, batch)...)
	// Each reply has its own error.
	_, _ = pipe.Exec(ctx)
	if err := woken.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return nil, 0, unavailable(err)
	}
	reply, err := claimed.Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		claims, err = s.Claim(ctx, shard, limit, batch)
		return claims, 0, err
	}
	if err != nil {
		return nil, 0, unavailable(err)
	}
	rows, _ := reply.([]any)
	waited = time.UnixMilli(number(rows, 0)).Sub(began.Val())
	return readClaims(shard, rows), max(0, waited), nil
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

// pop is a blocking pop with sub-second timeouts, which the typed command rounds
// up. nil without an error means that the time ran out.
func (s *Store) pop(ctx context.Context, key string, timeout time.Duration) ([]any, error) {
	reply, err := s.blocking.Do(ctx, "BLPOP", key, seconds(timeout)).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	rows, _ := reply.([]any)
	return rows, nil
}

// seconds writes a timeout of a blocking command. Zero would block for ever, and
// less than a millisecond would be sent as zero.
func seconds(timeout time.Duration) string {
	return strconv.FormatFloat(max(timeout, time.Millisecond).Seconds(), 'f', 3, 64)
}
