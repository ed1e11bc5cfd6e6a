package redisverdict

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
)

//go:embed scripts/*.lua
var sources embed.FS

// scripts are the transitions, each with lib.lua in front.
type scripts struct {
	ask, look, settle, claim, renew, release, sweep *redis.Script
}

func (s scripts) all() []*redis.Script {
	return []*redis.Script{s.ask, s.look, s.settle, s.claim, s.renew, s.release, s.sweep}
}

// allowOOM lets a script run when Redis is full: what only answers must go on.
// An embedded Redis does not know the line.
const allowOOM = "#!lua flags=allow-oom\n"

func loadScripts(embedded bool) scripts {
	answer := allowOOM
	if embedded {
		answer = ""
	}
	return scripts{
		ask:     load("ask", ""),
		look:    load("look", answer),
		settle:  load("settle", answer),
		claim:   load("claim", answer),
		renew:   load("renew", answer),
		release: load("release", answer),
		sweep:   load("sweep", answer),
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

// run executes a script on one shard and returns its array reply.
func (s *Store) run(ctx context.Context, script *redis.Script, shard int, args ...any) ([]any, error) {
	reply, err := script.Run(ctx, s.client, s.keys[shard].script(), args...).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	return rowsOf(reply)
}

func rowsOf(reply any) ([]any, error) {
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
	return fmt.Errorf("%w: %w", control.ErrUnavailable, err)
}

func text(rows []any, i int) string {
	if i >= len(rows) {
		return ""
	}
	s, _ := rows[i].(string)
	return s
}

func number(rows []any, i int) int64 {
	if i >= len(rows) {
		return 0
	}
	switch v := rows[i].(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}
