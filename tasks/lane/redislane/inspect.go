package redislane

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// states maps what the scripts store to the words that operators read.
var states = map[string]string{"": "idle", "r": "ready", "c": "claimed", "p": "parked"}

// Lane returns one operation's lane, or lane.ErrNotFound.
func (s *Store) Lane(ctx context.Context, operationID string) (lane.Info, error) {
	q := s.QueueOf(operationID)
	info, ok, err := s.inspect(ctx, q.Shard, q.Operation)
	if err == nil && !ok {
		err = fmt.Errorf("operation %s: %w", operationID, lane.ErrNotFound)
	}
	return info, err
}

func (s *Store) inspect(ctx context.Context, shard int, op string) (lane.Info, bool, error) {
	rows, err := s.run(ctx, s.scripts.inspect, shard, op)
	if err != nil || len(rows) == 0 {
		return lane.Info{}, false, err
	}
	info := lane.Info{
		OperationID: text(rows, 0), State: states[text(rows, 1)],
		Waiting: number(rows, 2), Delayed: number(rows, 3), Next: number(rows, 4),
	}
	for i := 5; i < len(rows); i++ {
		row := list(rows, i)
		p := lane.ParkedInfo{
			HookKey: text(row, 0), State: states[text(row, 1)], Waiting: number(row, 2),
			Attempt: int(number(row, 3)), DueAt: number(row, 4),
		}
		if err := json.Unmarshal([]byte(text(row, 5)), &p.Outcome); err != nil {
			return info, false, fmt.Errorf("read parked hook: %w", err)
		}
		info.Parked = append(info.Parked, p)
	}
	return info, true, nil
}

// Lanes lists up to limit lanes that have something to do: ready, claimed,
// parked or delayed. Lanes at rest are not listed; Lane shows them one by one.
func (s *Store) Lanes(ctx context.Context, limit int) ([]lane.Info, error) {
	var infos []lane.Info
	for shard := range s.shards {
		seen := map[string]bool{}
		ready, err := s.client.LRange(ctx, s.keys[shard].ready(), 0, int64(limit)-1).Result()
		if err != nil {
			return nil, unavailable(err)
		}
		due, err := s.client.ZRange(ctx, s.keys[shard].due(), 0, int64(limit)-1).Result()
		if err != nil {
			return nil, unavailable(err)
		}
		for _, member := range append(due, ready...) {
			if len(member) < operationHashLength || seen[member[:operationHashLength]] {
				continue
			}
			op := member[:operationHashLength]
			seen[op] = true
			info, ok, err := s.inspect(ctx, shard, op)
			if err != nil {
				return nil, err
			}
			if ok {
				infos = append(infos, info)
			}
			if len(infos) == limit {
				return infos, nil
			}
		}
	}
	return infos, nil
}

// Counts returns the sizes of a shard.
func (s *Store) Counts(ctx context.Context, shard int) (lane.Counts, error) {
	k := s.keys[shard]
	pipe := s.client.Pipeline()
	ready, due, dead, blocked := pipe.LLen(ctx, k.ready()), pipe.ZCard(ctx, k.due()), pipe.ZCard(ctx, k.dead()), pipe.SCard(ctx, k.blocked())
	if _, err := pipe.Exec(ctx); err != nil {
		return lane.Counts{}, unavailable(err)
	}
	return lane.Counts{Ready: ready.Val(), Due: due.Val(), Dead: dead.Val(), Blocked: blocked.Val()}, nil
}
