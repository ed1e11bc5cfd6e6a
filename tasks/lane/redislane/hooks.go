package redislane

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/tasks"
)

// PutHooks replaces an operation's registered hooks with a JSON array of
// serialized hooks (tasks.EncodeHooks).
func (s *Store) PutHooks(ctx context.Context, operationID string, hooks json.RawMessage) error {
	_, err := s.storeHooks(ctx, operationID, hooks, "replace")
	return err
}

// AddHooks appends to an operation's registered hooks and returns all of them.
func (s *Store) AddHooks(ctx context.Context, operationID string, hooks json.RawMessage) (json.RawMessage, error) {
	return s.storeHooks(ctx, operationID, hooks, "append")
}

func (s *Store) storeHooks(ctx context.Context, operationID string, hooks json.RawMessage, how string) (json.RawMessage, error) {
	q := s.QueueOf(operationID)
	args := []any{q.Operation, []byte(hooks), how, s.idle, tasks.NewID()}
	all, err := s.scripts.hooks.Run(ctx, s.client, s.keys[q.Shard].script(), args...).Text()
	return json.RawMessage(all), unavailable(err)
}

// Hooks returns an operation's registered hooks; ok is false when none were ever
// registered or the operation has ended, which is not the same as an empty list.
func (s *Store) Hooks(ctx context.Context, operationID string) (hooks json.RawMessage, ok bool, err error) {
	q := s.QueueOf(operationID)
	raw, err := s.client.Get(ctx, s.keys[q.Shard].hooks(q.Operation)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	return raw, err == nil, unavailable(err)
}
