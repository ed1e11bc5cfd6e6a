package redisverdict

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
)

// Config configures a Store.
type Config struct {
	// Client runs the scripts. Required. Its context timeouts must be enabled
	// (ContextTimeoutEnabled), or a deadline is not kept while Redis hangs. It should
	// not be the one that carries events: a pool that waits for them would hold up
	// verdicts.
	Client redis.UniversalClient
	// Blocking runs the blocking pops, one connection per shard and side (asking,
	// answering), which would starve a shared pool. Required.
	Blocking redis.UniversalClient
	// Namespace starts every key. Default "gantry".
	Namespace string
	// Shards is the number of shards, which must be that of the namespace's lanes in
	// every process, or questions are not found. Default 1.
	Shards int
	// Lease is how long a question stays with a worker that no longer renews.
	// Default 1.2 s; a shorter one takes questions from workers that only paused.
	Lease time.Duration
	// Keep is how long a verdict can be read. Default 10 min. An id that is asked
	// again later is a new question.
	Keep time.Duration
	// Embedded says that Redis is miniredis, which lacks script flags.
	Embedded bool
}

// Defaults of Config.
const (
	DefaultNamespace = "gantry"
	DefaultLease     = 1200 * time.Millisecond
	DefaultKeep      = 10 * time.Minute
)

const (
	// maxClaims is the number of claims after which a question whose workers all
	// died gets its fallback.
	maxClaims = 5
	// sweepLimit bounds one sweep.
	sweepLimit = 500
)

func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.Shards == 0 {
		c.Shards = 1
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Keep == 0 {
		c.Keep = DefaultKeep
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Client == nil || c.Blocking == nil {
		errs = append(errs, errors.New("redisverdict: Client and Blocking are required"))
	}
	if c.Shards < 1 || c.Shards > 1024 {
		errs = append(errs, fmt.Errorf("redisverdict: Shards is %d, want 1 to 1024", c.Shards))
	}
	if c.Lease < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("redisverdict: Lease is %v, want at least 100ms", c.Lease))
	}
	if c.Keep < time.Second {
		errs = append(errs, fmt.Errorf("redisverdict: Keep is %v, want at least 1s", c.Keep))
	}
	return errors.Join(errs...)
}

// Store is a control.Exchange in Redis. It is safe for concurrent use. The zero
// value is not usable; Open makes one. It owns no goroutine and needs no Close.
type Store struct {
	client, blocking redis.UniversalClient
	lease, keep      int64
	keys             []keys
	scripts          scripts
}

var _ control.Exchange = (*Store)(nil)

// New makes a Store without talking to Redis.
func New(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		client: cfg.Client, blocking: cfg.Blocking,
		lease: cfg.Lease.Milliseconds(), keep: cfg.Keep.Milliseconds(),
		scripts: loadScripts(cfg.Embedded),
	}
	for i := range cfg.Shards {
		s.keys = append(s.keys, shardKeys(cfg.Namespace, i))
	}
	return s, nil
}

// Open makes a Store and brings the scripts to Redis, so that the first question
// need not. It fails with control.ErrUnavailable when Redis does not answer.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	for _, script := range s.scripts.all() {
		if err := script.Load(ctx, s.client).Err(); err != nil {
			return nil, unavailable(err)
		}
	}
	return s, nil
}

// Shards returns the number of shards.
func (s *Store) Shards() int { return len(s.keys) }

// Name places a question.
func (s *Store) Name(operationID, id string) control.Name {
	return nameOf(operationID, id, len(s.keys))
}
