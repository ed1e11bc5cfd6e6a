package redislane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// deadPage is the default size of a page of dead letters.
const deadPage = 100

// cursor is a place in the listing of dead letters: after one letter of a shard.
type cursor struct {
	shard  int
	score  string
	member string
}

func (c cursor) String() string { return strconv.Itoa(c.shard) + "|" + c.score + "|" + c.member }

// ErrCursor says that a cursor did not come from a listing.
var ErrCursor = errors.New("unknown cursor; start again without one")

func parseCursor(s string, shards int) (cursor, error) {
	if s == "" {
		return cursor{}, nil
	}
	parts := strings.SplitN(s, "|", 3)
	if len(parts) != 3 {
		return cursor{}, ErrCursor
	}
	n, err := strconv.Atoi(parts[0])
	if err != nil || n < 0 || n >= shards {
		return cursor{}, ErrCursor
	}
	if _, err := strconv.ParseFloat(parts[1], 64); parts[2] != "" && err != nil {
		return cursor{}, ErrCursor
	}
	return cursor{shard: n, score: parts[1], member: parts[2]}, nil
}

// Dead lists dead letters, oldest first within a shard. A page may hold fewer
// than the limit while Next is not "".
func (s *Store) Dead(ctx context.Context, f lane.DeadFilter) (lane.DeadPage, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = deadPage
	}
	at, err := parseCursor(f.Cursor, s.shards)
	if err != nil {
		return lane.DeadPage{}, err
	}
	var page lane.DeadPage
	if page.Total, err = s.deadTotal(ctx); err != nil {
		return page, err
	}
	for at.shard < s.shards {
		members, err := s.deadAfter(ctx, at, limit)
		if err != nil {
			return page, err
		}
		if len(members) == 0 {
			at = cursor{shard: at.shard + 1}
			continue
		}
		for _, m := range members {
			at = cursor{shard: at.shard, score: strconv.FormatFloat(m.Score, 'f', -1, 64), member: m.Member.(string)}
			letter, err := s.letter(ctx, at.shard, at.member)
			if errors.Is(err, lane.ErrNotFound) {
				continue
			}
			if err != nil {
				return page, err
			}
			if matches(f, letter) {
				page.Letters = append(page.Letters, letter)
			}
			if len(page.Letters) == limit {
				page.Next = at.String()
				return page, nil
			}
		}
	}
	return page, nil
}

func (s *Store) deadTotal(ctx context.Context) (int64, error) {
	var total int64
	for shard := range s.shards {
		n, err := s.client.ZCard(ctx, s.keys[shard].dead()).Result()
		if err != nil {
			return 0, unavailable(err)
		}
		total += n
	}
	return total, nil
}

// deadAfter reads on from a letter, also when that letter is gone meanwhile.
func (s *Store) deadAfter(ctx context.Context, at cursor, limit int) ([]redis.Z, error) {
	key := s.keys[at.shard].dead()
	var start int64
	if at.member != "" {
		rank, err := s.client.ZRank(ctx, key, at.member).Result()
		switch {
		case err == nil:
			start = rank + 1
		case errors.Is(err, redis.Nil):
			if start, err = s.client.ZCount(ctx, key, "-inf", "("+at.score).Result(); err != nil {
				return nil, unavailable(err)
			}
		default:
			return nil, unavailable(err)
		}
	}
	zs, err := s.client.ZRangeWithScores(ctx, key, start, start+int64(limit)-1).Result()
	return zs, unavailable(err)
}

func matches(f lane.DeadFilter, l lane.DeadLetter) bool {
	return (f.OperationID == "" || f.OperationID == l.OperationID) &&
		(f.HookID == "" || f.HookID == l.Outcome.HookID) &&
		(f.Type == "" || f.Type == l.Outcome.HookType) &&
		(f.Class == "" || f.Class == l.Outcome.Class)
}

func (s *Store) letter(ctx context.Context, shard int, member string) (lane.DeadLetter, error) {
	m, err := s.client.HGetAll(ctx, s.keys[shard].letter(member)).Result()
	if err != nil {
		return lane.DeadLetter{}, unavailable(err)
	}
	if len(m) == 0 {
		return lane.DeadLetter{}, fmt.Errorf("dead letter %s: %w", member, lane.ErrNotFound)
	}
	l := lane.DeadLetter{ID: strconv.Itoa(shard) + "." + member, OperationID: m["op"], TaskID: m["task"]}
	l.Sequence, _ = strconv.ParseInt(m["seq"], 10, 64)
	l.At, _ = strconv.ParseInt(m["at"], 10, 64)
	if err := json.Unmarshal([]byte(m["o"]), &l.Outcome); err != nil {
		return l, fmt.Errorf("read dead letter %s: %w", member, err)
	}
	l.Outcome.Standing = lane.StandingDead
	if len(m["q"]) > operationHashLength {
		l.Task = json.RawMessage(m["doc"])
	} else {
		l.Poison = []byte(m["doc"])
	}
	return l, nil
}

// splitLetterID takes "<shard>.<member>" apart.
func (s *Store) splitLetterID(id string) (int, string, error) {
	shard, member, ok := strings.Cut(id, ".")
	n, err := strconv.Atoi(shard)
	if !ok || err != nil || n < 0 || n >= s.shards {
		return 0, "", fmt.Errorf("dead letter %s: %w", id, lane.ErrNotFound)
	}
	return n, member, nil
}

// DeadLetter returns one dead letter, or lane.ErrNotFound.
func (s *Store) DeadLetter(ctx context.Context, id string) (lane.DeadLetter, error) {
	shard, member, err := s.splitLetterID(id)
	if err != nil {
		return lane.DeadLetter{}, err
	}
	return s.letter(ctx, shard, member)
}

// Replay puts one dead letter back to the tail of its hook's queue. Errors:
// lane.ErrNotFound when it is gone (perhaps replayed by somebody else),
// lane.ErrNotReplayable when it is poison.
func (s *Store) Replay(ctx context.Context, id string) error {
	shard, member, err := s.splitLetterID(id)
	if err != nil {
		return err
	}
	rows, err := s.run(ctx, s.scripts.replay, shard, member, s.window)
	if err != nil {
		return err
	}
	switch text(rows, 0) {
	case "ok":
		return nil
	case "poison":
		return fmt.Errorf("dead letter %s: %w", id, lane.ErrNotReplayable)
	}
	return fmt.Errorf("dead letter %s: %w", id, lane.ErrNotFound)
}

// ReplayMany replays the letters that a filter selects, oldest first, so that
// letters of one hook keep their order. progress hears of each; it may be nil.
// It returns how many were replayed; poison is left where it is.
func (s *Store) ReplayMany(ctx context.Context, f lane.DeadFilter, progress func(lane.DeadLetter)) (int, error) {
	letters, err := s.collect(ctx, f)
	if err != nil {
		return 0, err
	}
	// Two hooks of one operation keep their own order; within one, the order in
	// which the events were appended is the one that the receiver should see.
	sort.SliceStable(letters, func(i, j int) bool {
		a, b := letters[i], letters[j]
		return a.OperationID == b.OperationID && a.Outcome.HookID == b.Outcome.HookID && a.Sequence < b.Sequence
	})
	done := 0
	for _, l := range letters {
		err := s.Replay(ctx, l.ID)
		if errors.Is(err, lane.ErrNotFound) || errors.Is(err, lane.ErrNotReplayable) {
			continue
		}
		if err != nil {
			return done, err
		}
		done++
		if progress != nil {
			progress(l)
		}
	}
	return done, nil
}

func (s *Store) collect(ctx context.Context, f lane.DeadFilter) ([]lane.DeadLetter, error) {
	f.Limit, f.Cursor = 500, ""
	var all []lane.DeadLetter
	for {
		page, err := s.Dead(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, l := range page.Letters {
			l.Task = nil
			all = append(all, l)
		}
		if page.Next == "" {
			return all, nil
		}
		f.Cursor = page.Next
	}
}

// Quarantine stores bytes that are no task as a dead letter of an operation
// ("" when unknown). The same id is stored once.
func (s *Store) Quarantine(ctx context.Context, operationID, id string, raw []byte) error {
	q := s.QueueOf(operationID)
	k := s.keys[q.Shard]
	outcome, err := json.Marshal(lane.Outcome{Standing: lane.StandingDead, Reason: tasks.ReasonPoison})
	if err != nil {
		return fmt.Errorf("encode outcome: %w", err)
	}
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return unavailable(err)
	}
	_, err = s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, k.letter(id), "op", operationID, "q", q.Operation, "doc", raw, "o", outcome, "at", now.UnixMilli(), "seq", 0)
		p.ZAddNX(ctx, k.dead(), redis.Z{Score: float64(now.UnixMilli()), Member: id})
		return nil
	})
	return unavailable(err)
}
