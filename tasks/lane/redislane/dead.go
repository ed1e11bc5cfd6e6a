package redislane

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
		letters, err := s.letters(ctx, at.shard, members)
		if err != nil {
			return page, err
		}
		for i, m := range members {
			at = cursor{shard: at.shard, score: formatScore(m.Score), member: memberOf(m)}
			if letters[i] == nil || !matches(f, *letters[i]) {
				continue
			}
			if page.Letters = append(page.Letters, *letters[i]); len(page.Letters) == limit {
				page.Next = at.String()
				return page, nil
			}
		}
	}
	return page, nil
}

func formatScore(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }

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

// deadAfter reads on from a letter, also when that letter is gone meanwhile: then
// it starts among those of the same millisecond, and passes over the ones that
// stood before it.
func (s *Store) deadAfter(ctx context.Context, at cursor, limit int) ([]redis.Z, error) {
	key := s.keys[at.shard].dead()
	start, err := s.deadStart(ctx, key, at)
	if err != nil {
		return nil, err
	}
	for {
		zs, err := s.client.ZRangeWithScores(ctx, key, start, start+int64(limit)-1).Result()
		if err != nil {
			return nil, unavailable(err)
		}
		n := 0
		for n < len(zs) && at.member != "" && formatScore(zs[n].Score) == at.score && memberOf(zs[n]) <= at.member {
			n++
		}
		if n < len(zs) || len(zs) == 0 {
			return zs[n:], nil
		}
		start += int64(n)
	}
}

func (s *Store) deadStart(ctx context.Context, key string, at cursor) (int64, error) {
	if at.member == "" {
		return 0, nil
	}
	rank, err := s.client.ZRank(ctx, key, at.member).Result()
	if err == nil {
		return rank + 1, nil
	}
	if !errors.Is(err, redis.Nil) {
		return 0, unavailable(err)
	}
	before, err := s.client.ZCount(ctx, key, "-inf", "("+at.score).Result()
	return before, unavailable(err)
}

// memberOf returns the id in a row of a sorted set, which go-redis reads as a string.
func memberOf(z redis.Z) string {
	id, _ := z.Member.(string)
	return id
}

func matches(f lane.DeadFilter, l lane.DeadLetter) bool {
	return (f.OperationID == "" || f.OperationID == l.OperationID) &&
		(f.HookID == "" || f.HookID == l.Outcome.HookID) &&
		(f.Type == "" || f.Type == l.Outcome.HookType) &&
		(f.Class == "" || f.Class == l.Outcome.Class)
}

// letters reads a page in one round trip; nil stands for a letter that is gone.
func (s *Store) letters(ctx context.Context, shard int, members []redis.Z) ([]*lane.DeadLetter, error) {
	pipe := s.client.Pipeline()
	replies := make([]*redis.MapStringStringCmd, len(members))
	for i, m := range members {
		replies[i] = pipe.HGetAll(ctx, s.keys[shard].letter(memberOf(m)))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, unavailable(err)
	}
	out := make([]*lane.DeadLetter, len(members))
	for i, m := range members {
		if fields := replies[i].Val(); len(fields) > 0 {
			l := readLetter(shard, memberOf(m), fields)
			out[i] = &l
		}
	}
	return out, nil
}

func readLetter(shard int, member string, m map[string]string) lane.DeadLetter {
	l := lane.DeadLetter{ID: strconv.Itoa(shard) + "." + member, OperationID: m["op"], TaskID: m["task"]}
	l.Sequence, _ = strconv.ParseInt(m["seq"], 10, 64)
	l.At, _ = strconv.ParseInt(m["at"], 10, 64)
	if json.Unmarshal([]byte(m["o"]), &l.Outcome) != nil {
		// One letter that somebody wrote by hand must not hide all others.
		l.Outcome = lane.Outcome{Reason: tasks.ReasonPoison}
	}
	l.Outcome.Standing = lane.StandingDead
	if len(m["q"]) > operationHashLength && json.Valid([]byte(m["doc"])) {
		l.Task = json.RawMessage(m["doc"])
	} else {
		l.Poison = []byte(m["doc"])
	}
	return l
}

// splitLetterID takes "<shard>.<delivery id>" apart.
func (s *Store) splitLetterID(id string) (shard int, member string, ok bool) {
	prefix, member, ok := strings.Cut(id, ".")
	shard, err := strconv.Atoi(prefix)
	return shard, member, ok && err == nil && shard >= 0 && shard < s.shards
}

// locate finds a letter by the id of a listing, "<shard>.<delivery id>", or by the
// delivery id alone, which is what receivers and logs know.
func (s *Store) locate(ctx context.Context, id string) (shard int, member string, err error) {
	missing := fmt.Errorf("dead letter %s: %w", id, lane.ErrNotFound)
	if strings.Contains(id, ".") {
		shard, member, ok := s.splitLetterID(id)
		if !ok {
			return 0, "", missing
		}
		return shard, member, nil
	}
	for shard := range s.shards {
		n, err := s.client.Exists(ctx, s.keys[shard].letter(id)).Result()
		if err != nil {
			return 0, "", unavailable(err)
		}
		if n > 0 {
			return shard, id, nil
		}
	}
	return 0, "", missing
}

// DeadLetter returns one dead letter, by its id or the delivery's, or lane.ErrNotFound.
func (s *Store) DeadLetter(ctx context.Context, id string) (lane.DeadLetter, error) {
	shard, member, err := s.locate(ctx, id)
	if err != nil {
		return lane.DeadLetter{}, err
	}
	m, err := s.client.HGetAll(ctx, s.keys[shard].letter(member)).Result()
	if err != nil {
		return lane.DeadLetter{}, unavailable(err)
	}
	if len(m) == 0 {
		return lane.DeadLetter{}, fmt.Errorf("dead letter %s: %w", id, lane.ErrNotFound)
	}
	return readLetter(shard, member, m), nil
}

// Replay puts one dead letter back to the tail of its hook's queue. Errors:
// lane.ErrNotFound when it is gone (perhaps replayed by somebody else),
// lane.ErrNotReplayable when it is poison.
func (s *Store) Replay(ctx context.Context, id string) error {
	shard, member, err := s.locate(ctx, id)
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

// ReplayMany replays the letters that a filter selects, so that letters of one
// hook keep the order of their events. progress hears of each; it may be nil. It
// returns how many were replayed; poison is left where it is.
func (s *Store) ReplayMany(ctx context.Context, f lane.DeadFilter, progress func(lane.DeadLetter)) (int, error) {
	letters, err := s.collect(ctx, f)
	if err != nil {
		return 0, err
	}
	done := 0
	for rest := byEvent(letters); len(rest) > 0; {
		n, shard, ids := s.replayChunk(rest)
		rows, err := s.run(ctx, s.scripts.replay, shard, append(ids, s.window)...)
		if err != nil {
			return done, err
		}
		for i, l := range rest[:n] {
			if text(rows, i) != "ok" {
				continue
			}
			done++
			if progress != nil {
				progress(l)
			}
		}
		rest = rest[n:]
	}
	return done, nil
}

// replayLetters bounds one script call, so that other clients get a turn.
const replayLetters = 100

// replayChunk takes the first letters of rest that share a shard.
func (s *Store) replayChunk(rest []lane.DeadLetter) (n, shard int, ids []any) {
	for n < len(rest) && n < replayLetters {
		at, member, ok := s.splitLetterID(rest[n].ID)
		if !ok || (n > 0 && at != shard) {
			break
		}
		shard, ids, n = at, append(ids, member), n+1
	}
	return n, shard, ids
}

// byEvent puts the letters of each hook into the order of their events, in the
// places that the hook's letters have. They may have died in another order, or
// within one millisecond.
func byEvent(letters []lane.DeadLetter) []lane.DeadLetter {
	type hook struct{ operation, id string }
	places := map[hook][]int{}
	for i, l := range letters {
		h := hook{l.OperationID, l.Outcome.HookID}
		places[h] = append(places[h], i)
	}
	sorted := make([]lane.DeadLetter, len(letters))
	for _, at := range places {
		own := slices.Clone(at)
		slices.SortStableFunc(own, func(a, b int) int { return cmp.Compare(letters[a].Sequence, letters[b].Sequence) })
		for i, place := range at {
			sorted[place] = letters[own[i]]
		}
	}
	return sorted
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
