package redislane

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

//go:embed scripts/*.lua
var sources embed.FS

// scripts are the transitions, each with lib.lua in front.
type scripts struct {
	append, claim, progress, extend, sweep, status, replay, forget, hooks, publish, inspect *redis.Script
}

// allowOOM lets a script run when Redis is full: what only settles must go on,
// so that a full Redis empties again. An embedded Redis does not know the line.
const allowOOM = "#!lua flags=allow-oom\n"

func loadScripts(embedded bool) scripts {
	settle := allowOOM
	if embedded {
		settle = ""
	}
	return scripts{
		append:   load("append", ""),
		hooks:    load("hooks", ""),
		publish:  load("publish", ""),
		replay:   load("replay", ""),
		claim:    load("claim", settle),
		progress: load("progress", settle),
		extend:   load("extend", settle),
		sweep:    load("sweep", settle),
		status:   load("status", settle),
		forget:   load("forget", settle),
		inspect:  load("inspect", settle),
	}
}

func load(name, first string) *redis.Script {
	return redis.NewScript(first + mustRead("lib") + mustRead(name))
}

func mustRead(name string) string {
	src, err := sources.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(src)
}

// AppendScript returns the text of the append transition, for clients in other
// languages that enqueue with one EVAL (docs/wire.md).
func AppendScript() string { return mustRead("lib") + mustRead("append") }

// run executes a script on one shard and returns its array reply.
func (s *Store) run(ctx context.Context, script *redis.Script, shard int, args ...any) ([]any, error) {
	reply, err := script.Run(ctx, s.client, s.keys[shard].script(), args...).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	rows, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("read script reply: unexpected %T", reply)
	}
	return rows, nil
}

// unavailable marks an error of Redis or of the way to it. The caller's own
// context error stays visible beside it.
func unavailable(err error) error {
	if err == nil || errors.Is(err, redis.Nil) {
		return err
	}
	return fmt.Errorf("%w: %w", lane.ErrUnavailable, err)
}
