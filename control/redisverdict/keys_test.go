package redisverdict_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

func servertestClient(t testing.TB) *redis.Client {
	own := servertest.FlushedClient(t)
	return connect(t, own.Options().Addr, own.Options().DB)
}

func member(score float64, p *control.Posting) redis.Z {
	return redis.Z{Score: score, Member: p.Name.Operation + ":" + p.Name.ID}
}

var keyKinds = []string{
	prefix + "asks", prefix + "held", prefix + "inbox:inbox", prefix + "q:<op>:b", prefix + "q:<op>:c", prefix + "v:<op>:a", prefix + "wake",
}

func TestKeysAreKnownAndTagged(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		s.post(t, s.question("a", time.Minute))
		s.post(t, s.question("b", time.Minute))
		c := s.claimOne(t)
		s.post(t, s.question("c", time.Minute))
		s.settle(t, s.answer(c, ""))
		s.claimOne(t)
		same(t, "keys", s.keys(t), keyKinds)
	})
}

// Nothing of a question is left when nobody ever answers, nor of a verdict that
// nobody reads.
func TestEverythingExpires(t *testing.T) {
	t.Parallel()
	const life = time.Second
	eachStore(t, redisverdict.Config{Keep: life}, func(t *testing.T, s *store) {
		for i := range 5 {
			p := s.question(fmt.Sprint("q", i), 200*time.Millisecond)
			s.post(t, p)
		}
		c := s.claimOne(t)
		s.settle(t, s.answer(c, ""))
		s.claimOne(t)
		for _, key := range s.client.Keys(t.Context(), "*").Val() {
			ttl := s.client.PTTL(t.Context(), key).Val()
			limit := life + 200*time.Millisecond
			if strings.Contains(key, "inbox") {
				limit = time.Minute
			}
			if ttl <= 0 || ttl > limit {
				t.Errorf("key %s lives for %v, want at most %v", key, ttl, limit)
			}
		}
		check(t, "forget the inbox", s.client.Del(t.Context(), prefix+"inbox:inbox").Err())
		s.pass(t, life+250*time.Millisecond)
		same(t, "keys", s.keys(t), []string{})
	})
}

func TestAnsweredQuestionLeavesItsVerdictOnly(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		s.post(t, s.question("a", time.Minute))
		s.settle(t, s.answer(s.claimOne(t), ""))
		same(t, "held", s.client.ZCard(t.Context(), prefix+"held").Val(), int64(0))
		s.claim(t, 1)
		check(t, "forget the inbox", s.client.Del(t.Context(), prefix+"inbox:inbox").Err())
		same(t, "keys", s.keys(t), []string{prefix + "v:<op>:a"})
	})
}

func TestKeysShareOneSlot(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{Databases: 1, Args: []string{"--cluster-enabled", "yes"}})
	cluster := connect(t, server.Addr(), 0)
	s := open(t, servertestClient(t), redisverdict.Config{})
	for _, id := range []string{"}{", "{1}", "{}", "a{b}c", "Операция ⚓", " "} {
		s.post(t, s.question(id, time.Minute))
		s.claimOne(t)
	}
	want := cluster.ClusterKeySlot(t.Context(), prefix).Val()
	for _, key := range s.client.Keys(t.Context(), "*").Val() {
		if slot, err := cluster.ClusterKeySlot(t.Context(), key).Result(); err != nil || slot != want {
			t.Errorf("slot of %q is %d, want %d (%v)", key, slot, want, err)
		}
	}
}

func TestOperationsSpreadOverShards(t *testing.T) {
	t.Parallel()
	s := open(t, servertestClient(t), redisverdict.Config{Shards: 8})
	used := map[int]int{}
	for i := range 400 {
		used[s.Name(fmt.Sprint("operation ", i), "q").Shard]++
	}
	for shard := range 8 {
		if used[shard] < 20 {
			t.Errorf("shard %d has %d of 400 operations", shard, used[shard])
		}
	}
	p := s.question("q", time.Minute)
	s.post(t, p)
	for shard := range 8 {
		claims, err := s.Claim(t.Context(), shard, 1, 0)
		check(t, "claim", err)
		if found := len(claims) == 1; found != (shard == p.Name.Shard) {
			t.Errorf("shard %d has %d questions", shard, len(claims))
		}
	}
}
