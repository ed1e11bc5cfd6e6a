package redisdeferred

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/tasks"
)

//go:embed scripts/*.lua
var sources embed.FS

// scripts are the transitions, each with lib.lua in front.
type scripts struct {
	open, read, publish *redis.Script
}

func loadScripts() scripts {
	return scripts{open: load("open"), read: load("read"), publish: load("publish")}
}

func load(name string) *redis.Script { return redis.NewScript(mustRead("lib") + mustRead(name)) }

func mustRead(name string) string {
	src, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(src)
}

// run executes a script on the shard of a row and returns its texts.
func (s *Store) run(ctx context.Context, script *redis.Script, id string, args ...any) ([]string, error) {
	reply, err := script.Run(ctx, s.client, s.keys[tasks.ShardOf(id, len(s.keys))].script(), args...).StringSlice()
	if err != nil {
		return nil, unavailable(err)
	}
	if len(reply) == 0 {
		return nil, errors.New("read script reply: it is empty")
	}
	return reply, nil
}

// unavailable marks an error of Redis or of the way to it. The caller's own
// context error stays visible beside it.
func unavailable(err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	return fmt.Errorf("%w: %w", deferred.ErrUnavailable, err)
}
