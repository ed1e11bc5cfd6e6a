package redislane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/lanetest"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// prefix starts every key of the stores under test.
const prefix = "gantry:{0}:"

// store is a redislane.Store with the controls that lanetest asks for.
type store struct {
	*redislane.Store
	client  *redis.Client
	forward func(d time.Duration)
}

func open(t testing.TB, client *redis.Client, cfg redislane.Config) *store {
	t.Helper()
	cfg.Client, cfg.Blocking = client, client
	s, err := redislane.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	return &store{Store: s, client: client, forward: func(time.Duration) {}}
}

func realStore(t testing.TB, opts lanetest.Options) lanetest.Store {
	return open(t, servertest.FlushedClient(t), redislane.Config{Window: opts.Window, IdleTTL: opts.IdleTTL, Lease: opts.Lease})
}

func embeddedStore(t testing.TB, opts lanetest.Options) lanetest.Store {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		t.Fatalf("start miniredis: %v", err)
	}
	t.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s := open(t, client, redislane.Config{Window: opts.Window, IdleTTL: opts.IdleTTL, Lease: opts.Lease, Embedded: true})
	s.forward = server.FastForward
	return s
}

func TestRealRedis(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, realStore)
}

func TestEmbeddedRedis(t *testing.T) {
	t.Parallel()
	lanetest.RunQuick(t, embeddedStore)
}

func TestModelRealRedis(t *testing.T) {
	t.Parallel()
	lanetest.RunModel(t, realStore, 300)
}

func TestModelEmbeddedRedis(t *testing.T) {
	t.Parallel()
	lanetest.RunModel(t, embeddedStore, 30)
}

func (s *store) must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("control redis: %v", err)
	}
}

// queueID and stateKey are written down here a second time on purpose: they are
// the documented key names.
func queueID(q lane.Queue) string {
	if q.Lane() {
		return q.Operation
	}
	return q.Operation + ":" + q.Hook
}

func stateKey(q lane.Queue) string {
	if q.Lane() {
		return prefix + "state:" + q.Operation
	}
	return prefix + "park:" + queueID(q)
}

// ExpireLease moves the end of the lease into the past.
func (s *store) ExpireLease(t testing.TB, q lane.Queue) {
	t.Helper()
	s.must(t, s.client.HSet(t.Context(), stateKey(q), "exp", 1).Err())
	s.MakeDue(t, q)
}

// MakeDue moves the due time of a queue into the past.
func (s *store) MakeDue(t testing.TB, q lane.Queue) {
	t.Helper()
	s.makeDue(t, queueID(q))
}

// MakeDelayedDue moves the due time of a delayed event into the past, as far as
// the order among those that are due together allows.
func (s *store) MakeDelayedDue(t testing.TB, operationID, taskID string) {
	t.Helper()
	s.makeDue(t, tasks.OperationHash(operationID)+"|"+taskID)
}

func (s *store) makeDue(t testing.TB, member string) {
	t.Helper()
	due, err := s.client.ZScore(t.Context(), prefix+"due", member).Result()
	s.must(t, err)
	s.must(t, s.client.ZAddXX(t.Context(), prefix+"due", redis.Z{Score: due / 1e6, Member: member}).Err())
}

// Elapse waits, because nothing else ages a key of a real Redis.
func (s *store) Elapse(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
	s.forward(d)
}

// Remains lists the keys, without those that a shard keeps for ever.
func (s *store) Remains(t testing.TB) []string {
	t.Helper()
	all, err := s.client.Keys(t.Context(), "*").Result()
	s.must(t, err)
	slices.Sort(all)
	return slices.DeleteFunc(all, func(k string) bool {
		// A wake-up that nobody took names nothing.
		return k == prefix+"tokens" || k == prefix+"wake" || k == "gantry:shards"
	})
}

// Reset empties the database and keeps the counter of tokens.
func (s *store) Reset(t testing.TB) {
	t.Helper()
	tokens, err := s.client.Get(t.Context(), prefix+"tokens").Result()
	s.must(t, s.client.FlushDB(t.Context()).Err())
	if err == nil {
		s.must(t, s.client.Set(t.Context(), prefix+"tokens", tokens, 0).Err())
	}
}
