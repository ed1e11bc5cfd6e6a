package redislane_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/lanetest"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

// everyKey runs a scenario that touches each kind of key, and returns all keys
// that were ever there.
func everyKey(t *testing.T, s *store, operation string) []string {
	keys := map[string]bool{}
	look := func() {
		t.Helper()
		for _, k := range s.client.Keys(t.Context(), "*").Val() {
			keys[k] = true
		}
	}
	ctx := t.Context()
	check(t, "publish", s.Publish(ctx, lane.WorkerInfo{ID: "w"}))
	_, err := s.AddHooks(ctx, operation, []byte(`[1]`))
	check(t, "add hooks", err)
	s.add(t, operation, waitingItem("a"), item("b"), delayedItem("c"))
	look()
	c := s.claimOne(t, operation)
	s.do(t, step(c, 1, action(lane.Park, 1, "a", "h1"), action(lane.Bury, 1, "a", "h2"), action(lane.Pop, 1, "a", "")))
	look()
	s.do(t, step(c, 1, action(lane.Behind, 2, "b", "h1"), action(lane.Pop, 2, "b", "")))
	q := c.Queue
	q.Hook = "h1"
	s.MakeDue(t, q)
	s.swept(t)
	s.do(t, step(s.claimOne(t, operation+"/h1"), 0, action(lane.Delivered, 1, "a", "h1")))
	look()
	return slices.Sorted(maps.Keys(keys))
}

// kind takes operation, task and time out of a key.
func kind(key, operation string) string {
	k := strings.ReplaceAll(strings.TrimPrefix(key, prefix), tasks.OperationHash(operation), "<op>")
	if rest, ok := strings.CutPrefix(k, "seen:<op>:"); ok && strings.Trim(rest, "0123456789") == "" {
		k = "seen:<op>:<n>"
	}
	if strings.HasPrefix(k, "added:<op>:") {
		k = "added:<op>:<id>"
	}
	return k
}

var keyKinds = []string{
	"added:<op>:<id>", "blocked", "dead", "dead:a.h2", "delayed:<op>", "due", "hooks:<op>", "inbox:" + inbox, "lane:<op>",
	"outcome:<op>:a", "outcome:<op>:b", "park:<op>:h1", "parked:<op>:h1", "ready", "seen:<op>:<n>", "state:<op>",
	"tokens", "waiters:<op>", "wake", "workers",
}

func TestKeysAreKnownAndTagged(t *testing.T) {
	t.Parallel()
	s := realStore(t, lanetest.Options{}).(*store)
	const operation = "an}operation{with braces"
	var kinds []string
	for _, key := range everyKey(t, s, operation) {
		if key == "gantry:shards" {
			continue
		}
		if !strings.HasPrefix(key, prefix) {
			t.Errorf("key %q does not start with %s", key, prefix)
		}
		kinds = append(kinds, kind(key, operation))
	}
	slices.Sort(kinds)
	want := slices.Clone(keyKinds)
	// The scenario leaves before the pending delivery of a is settled for good, so
	// the inbox hears nothing of b.
	same(t, "kinds of keys", slices.Compact(kinds), want)
}

func TestKeysShareOneSlot(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{Databases: 1, Args: []string{"--cluster-enabled", "yes"}})
	cluster := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = cluster.Close() })
	s := realStore(t, lanetest.Options{}).(*store)
	for _, operation := range []string{"}{", "{1}", "{}", "a{b}c", "Операция ⚓", " "} {
		s.Reset(t)
		want := cluster.ClusterKeySlot(t.Context(), prefix).Val()
		for _, key := range everyKey(t, s, operation) {
			if slot, err := cluster.ClusterKeySlot(t.Context(), key).Result(); err != nil || slot != want && key != "gantry:shards" {
				t.Errorf("slot of %q is %d, want %d (%v)", key, slot, want, err)
			}
		}
	}
}

func TestOperationsSpreadOverShards(t *testing.T) {
	t.Parallel()
	s := open(t, servertest.FlushedClient(t), redislane.Config{Shards: 8})
	used := map[int]int{}
	for i := range 400 {
		used[s.QueueOf(fmt.Sprint("operation ", i)).Shard]++
	}
	for shard := range 8 {
		if used[shard] < 20 {
			t.Errorf("shard %d has %d of 400 operations", shard, used[shard])
		}
	}
	s.add(t, "operation 7", item("a"))
	shard := s.QueueOf("operation 7").Shard
	claims, err := s.Claim(t.Context(), shard, 1, 1)
	check(t, "claim", err)
	same(t, "claims", len(claims), 1)
	same(t, "shard", claims[0].Queue, s.QueueOf("operation 7"))
	for _, key := range s.client.Keys(t.Context(), "*").Val() {
		if want := fmt.Sprintf("gantry:{%d}:", shard); key != "gantry:shards" && !strings.HasPrefix(key, want) {
			t.Errorf("key %q does not start with %s", key, want)
		}
	}
}
