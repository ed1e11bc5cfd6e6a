package redisdeferred_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/control/deferred/redisdeferred"
	privateservers "github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

// everyKey leaves each kind of key behind and returns them all.
func everyKey(t *testing.T, client *redis.Client, s *redisdeferred.Store, id string) []string {
	t.Helper()
	_, err := s.Open(t.Context(), deferred.Opening{Placeholder: deferred.Placeholder{ID: id}})
	check(t, "open", err)
	_, err = s.Read(t.Context(), id, "ear")
	check(t, "read", err)
	keys := client.Keys(t.Context(), "*").Val()
	_, _, err = s.Publish(t.Context(), deferred.Publication{ID: id, Token: "t", Result: json.RawMessage(`{}`)})
	check(t, "publish", err)
	keys = append(keys, client.Keys(t.Context(), "*").Val()...)
	slices.Sort(keys)
	return slices.Compact(keys)
}

func TestKeysAreKnownAndShareOneSlot(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, privateservers.RedisOptions{Databases: 1, Args: []string{"--cluster-enabled", "yes"}})
	cluster := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = cluster.Close() })
	client := servertest.FlushedClient(t)
	s := open(t, client, redisdeferred.Config{})
	for _, id := range []string{"}{", "{1}", "a{b}c", "Операция ⚓", " "} {
		check(t, "reset", client.FlushDB(t.Context()).Err())
		hash := tasks.OperationHash("deferred\x00" + id)
		keys := everyKey(t, client, s, id)
		same(t, "keys", keys, []string{
			"gantry:{0}:deferred:inbox:ear", "gantry:{0}:deferred:listeners:" + hash, "gantry:{0}:deferred:row:" + hash,
		})
		for _, key := range keys {
			if slot := cluster.ClusterKeySlot(t.Context(), key).Val(); slot != cluster.ClusterKeySlot(t.Context(), "{0}").Val() {
				t.Errorf("slot of %q is %d", key, slot)
			}
		}
	}
}

func TestRowsSpreadOverShards(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	s := open(t, client, redisdeferred.Config{Shards: 8})
	same(t, "shards", s.Shards(), 8)
	for i := range 400 {
		_, err := s.Open(t.Context(), deferred.Opening{Placeholder: deferred.Placeholder{ID: fmt.Sprint("row ", i)}})
		check(t, "open", err)
	}
	for shard := range 8 {
		if n := len(client.Keys(t.Context(), fmt.Sprintf("gantry:{%d}:deferred:row:*", shard)).Val()); n < 20 {
			t.Errorf("shard %d has %d of 400 rows", shard, n)
		}
	}
}

var argument = regexp.MustCompile(`(?:ARGV|KEYS)\[\d+\]`)

// The header is the contract of a transition.
func TestEveryScriptSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("scripts/*.lua")
	check(t, "list scripts", err)
	if len(files) < 4 {
		t.Fatalf("found %d scripts", len(files))
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		check(t, "read script", err)
		at := strings.Index(string(raw), "\nlocal ")
		header, code := string(raw[:at]), string(raw[at:])
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		if name == "lib" {
			continue
		}
		for _, part := range []string{"-- " + name + " ", "\n-- KEYS[1] ", "\n-- Returns ", "\n-- Atomic"} {
			if !strings.Contains(header, part) {
				t.Errorf("the header of %s has no part %q", file, part)
			}
		}
		for _, used := range argument.FindAllString(code, -1) {
			if !strings.Contains(header, used) {
				t.Errorf("%s reads %s, which its header does not name", file, used)
			}
		}
		for _, named := range argument.FindAllString(header, -1) {
			if !strings.Contains(code, named) && named != "KEYS[1]" {
				t.Errorf("the header of %s names %s, which the script does not read", file, named)
			}
		}
		if strings.Contains(code, "KEYS[") {
			t.Errorf("%s reads KEYS itself", file)
		}
	}
}
