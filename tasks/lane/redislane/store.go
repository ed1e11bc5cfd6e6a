package redislane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Config configures a Store.
type Config struct {
	// Client runs the scripts. Required. Its context timeouts must be enabled
	// (ContextTimeoutEnabled), or a caller's deadline is not kept.
	Client redis.UniversalClient
	// Blocking runs the blocking pops, which would starve a shared pool. Required
	// for Wait and Hear.
	Blocking redis.UniversalClient
	// Namespace starts every key. Default "gantry".
	Namespace string
	// Shards is the number of shards of a new namespace. Default 1. An existing
	// namespace keeps its own count, and another one here is an error.
	Shards int
	// Lease is how long a queue stays with a worker that no longer renews. Default 4s.
	Lease time.Duration
	// Window is how long an idempotency key is remembered, at least. Default 24h.
	Window time.Duration
	// IdleTTL is how long an operation without events is remembered. Default 48h.
	IdleTTL time.Duration
	// Embedded says that Redis is miniredis, which lacks script flags.
	Embedded bool
}

// Defaults of Config.
const (
	DefaultNamespace = "gantry"
	DefaultLease     = 4 * time.Second
	DefaultWindow    = 24 * time.Hour
	DefaultIdleTTL   = 48 * time.Hour
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
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.IdleTTL == 0 {
		c.IdleTTL = DefaultIdleTTL
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("redislane: Client is required"))
	}
	if c.Shards < 1 || c.Shards > 1024 {
		errs = append(errs, fmt.Errorf("redislane: Shards is %d, want 1 to 1024", c.Shards))
	}
	if c.Lease < time.Second {
		errs = append(errs, fmt.Errorf("redislane: Lease is %v, want at least 1s", c.Lease))
	}
	if c.Window < 2*time.Millisecond || c.IdleTTL < c.Window {
		errs = append(errs, fmt.Errorf("redislane: IdleTTL (%v) must be at least Window (%v), and Window at least 2ms", c.IdleTTL, c.Window))
	}
	return errors.Join(errs...)
}

// Store keeps lanes in Redis. It is safe for concurrent use. The zero value is
// not usable; New makes one. It owns no goroutine and needs no Close.
type Store struct {
	client, blocking redis.UniversalClient
	namespace        string
	shards           int
	lease            time.Duration
	window, idle     int64
	keys             []keys
	scripts          scripts
	// progress and appends gather concurrent calls, one batch per shard.
	progress []*batch[*progressCall]
	appends  []*batch[*appendCall]
}

// New makes a Store without talking to Redis. Open does the same and agrees on
// the shard count first.
func New(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		client: cfg.Client, blocking: cfg.Blocking, namespace: cfg.Namespace, shards: cfg.Shards,
		lease: cfg.Lease, window: cfg.Window.Milliseconds(), idle: cfg.IdleTTL.Milliseconds(),
		scripts: loadScripts(cfg.Embedded),
	}
	for i := range cfg.Shards {
		s.keys = append(s.keys, shardKeys(cfg.Namespace, i))
		s.progress = append(s.progress, newBatch(batchSteps, func(c []*progressCall) { s.sendSteps(i, c) }))
		s.appends = append(s.appends, newBatch(batchAppends, func(c []*appendCall) { s.sendAppends(i, c) }))
	}
	return s, nil
}

// ErrShardCount says that the namespace was created with another shard count.
var ErrShardCount = errors.New("shard count differs from the namespace's")

// Open makes a Store and agrees with the namespace on its shard count: the first
// process stores it, later ones must ask for the same.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	key := shardCountKey(s.namespace)
	if err := s.client.SetNX(ctx, key, s.shards, 0).Err(); err != nil {
		return nil, unavailable(err)
	}
	have, err := s.client.Get(ctx, key).Int()
	if err != nil {
		return nil, unavailable(err)
	}
	if have != s.shards {
		return nil, fmt.Errorf("%w: namespace %s has %d, configured are %d; set the shard count to %d or choose another namespace",
			ErrShardCount, s.namespace, have, s.shards, have)
	}
	return s, nil
}

// Shards returns the number of shards.
func (s *Store) Shards() int { return s.shards }

// Namespace returns the start of every key.
func (s *Store) Namespace() string { return s.namespace }

// Lease returns how long a queue stays with a worker that no longer renews.
func (s *Store) Lease() time.Duration { return s.lease }

// Ping reports whether Redis answers.
func (s *Store) Ping(ctx context.Context) error { return unavailable(s.client.Ping(ctx).Err()) }

// Born returns when the namespace's data began, in milliseconds of Redis time,
// and begins it on an empty Redis: a later answer means that the data were lost.
func (s *Store) Born(ctx context.Context) (int64, error) {
	key := s.keys[0].born()
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return 0, unavailable(err)
	}
	if err := s.client.SetNX(ctx, key, now.UnixMilli(), 0).Err(); err != nil {
		return 0, unavailable(err)
	}
	born, err := s.client.Get(ctx, key).Int64()
	return born, unavailable(err)
}
