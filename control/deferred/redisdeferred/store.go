package redisdeferred

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control/deferred"
)

// Config configures a Store.
type Config struct {
	// Client runs the scripts. Required. Its context timeouts must be enabled
	// (ContextTimeoutEnabled), or a caller's deadline is not kept.
	Client redis.UniversalClient
	// Blocking runs the blocking pops, which would starve a shared pool: one
	// connection per shard while somebody waits. Required for Hear.
	Blocking redis.UniversalClient
	// Namespace starts every key. Default "gantry".
	Namespace string
	// Shards is the number of shards of a new namespace. Default 1. An existing
	// namespace keeps its own count, and another one here is an error.
	Shards int
	// OpenTTL is how long a placeholder waits for its result. Default 30 days; a
	// callback that comes later finds nothing.
	OpenTTL time.Duration
	// FinalTTL is how long a final result is kept. Default 24h. A placeholder opened
	// again after that is a new one.
	FinalTTL time.Duration
}

// Defaults of Config.
const (
	DefaultNamespace = "gantry"
	DefaultOpenTTL   = 30 * 24 * time.Hour
	DefaultFinalTTL  = 24 * time.Hour
)

// listenerTTL is how long a listener that no longer looks is kept.
const listenerTTL = 2 * time.Minute

// hearTimeout bounds one blocking pop of an inbox.
const hearTimeout = 2 * time.Second

func (c Config) withDefaults() Config {
	if c.Namespace == "" {
		c.Namespace = DefaultNamespace
	}
	if c.Shards == 0 {
		c.Shards = 1
	}
	if c.OpenTTL == 0 {
		c.OpenTTL = DefaultOpenTTL
	}
	if c.FinalTTL == 0 {
		c.FinalTTL = DefaultFinalTTL
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Client == nil {
		errs = append(errs, errors.New("redisdeferred: Client is required"))
	}
	if c.Shards < 1 || c.Shards > 1024 {
		errs = append(errs, fmt.Errorf("redisdeferred: Shards is %d, want 1 to 1024", c.Shards))
	}
	if c.OpenTTL < time.Millisecond || c.FinalTTL < time.Millisecond {
		errs = append(errs, fmt.Errorf("redisdeferred: OpenTTL (%v) and FinalTTL (%v) must be at least 1ms", c.OpenTTL, c.FinalTTL))
	}
	return errors.Join(errs...)
}

// Store keeps deferred results in Redis. It is safe for concurrent use, owns no
// goroutine and needs no Close. The zero value is not usable; Open makes one.
type Store struct {
	client, blocking redis.UniversalClient
	keys             []keys
	open, final      int64
	scripts          scripts
}

var _ deferred.Store = (*Store)(nil)

// ErrShardCount says that the namespace was created with another shard count.
var ErrShardCount = errors.New("shard count differs from the namespace's")

// Open makes a Store and agrees with the namespace on its shard count: the first
// process stores it, later ones must ask for the same.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		client: cfg.Client, blocking: cfg.Blocking, scripts: loadScripts(),
		open: cfg.OpenTTL.Milliseconds(), final: cfg.FinalTTL.Milliseconds(),
	}
	for i := range cfg.Shards {
		s.keys = append(s.keys, shardKeys(cfg.Namespace, i))
	}
	key := shardCountKey(cfg.Namespace)
	if err := s.client.SetNX(ctx, key, cfg.Shards, 0).Err(); err != nil {
		return nil, unavailable(err)
	}
	have, err := s.client.Get(ctx, key).Int()
	if err != nil {
		return nil, unavailable(err)
	}
	if have != cfg.Shards {
		return nil, fmt.Errorf("%w: namespace %s has %d, configured are %d", ErrShardCount, cfg.Namespace, have, cfg.Shards)
	}
	return s, nil
}

// Shards returns the number of shards.
func (s *Store) Shards() int { return len(s.keys) }

// Open stores a row unless the same one is there, and returns the row that stands.
func (s *Store) Open(ctx context.Context, o deferred.Opening) (deferred.Row, error) {
	p := o.Placeholder
	doc, err := encode(p)
	if err != nil {
		return deferred.Row{}, err
	}
	recorded, err := encode(o.Recorded)
	if err != nil {
		return deferred.Row{}, err
	}
	sum := sha256.Sum256(doc)
	digest := base64.RawURLEncoding.EncodeToString(sum[:12])
	result, ttl := json.RawMessage{}, s.open
	if p.Content != "" {
		result, ttl = p.Document(), s.final
	}
	reply, err := s.run(ctx, s.scripts.open, p.ID, rowHash(p.ID), p.ID, doc, digest, []byte(result), ttl, recorded)
	if err != nil {
		return deferred.Row{}, err
	}
	return readRow(reply)
}

// encode writes what makes up a row without escapes that would change its bytes.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode row: %w", err)
	}
	return buf.Bytes(), nil
}

// Read returns a row and lets inbox hear when it is final.
func (s *Store) Read(ctx context.Context, id, inbox string) (deferred.Row, error) {
	reply, err := s.run(ctx, s.scripts.read, id, rowHash(id), inbox, listenerTTL.Milliseconds())
	if err != nil {
		return deferred.Row{}, err
	}
	return readRow(reply)
}

// Publish makes a row final, unless it is.
func (s *Store) Publish(ctx context.Context, p deferred.Publication) (row deferred.Row, published bool, err error) {
	denied := "0"
	if p.Denied {
		denied = "1"
	}
	reply, err := s.run(ctx, s.scripts.publish, p.ID, rowHash(p.ID), p.Token, []byte(p.Result), denied, s.final)
	if err != nil {
		return deferred.Row{}, false, err
	}
	row, err = readRow(reply)
	return row, reply[0] == "published", err
}

// Hear blocks until inbox has heard of rows of a shard, for two seconds at most.
func (s *Store) Hear(ctx context.Context, shard int, inbox string) ([]string, error) {
	key := s.keys[shard].inbox(inbox)
	// The typed command would take another timeout for whole seconds.
	popped, err := s.blocking.Do(ctx, "BLPOP", key, hearTimeout.Seconds()).StringSlice()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil
	case err != nil:
		return nil, unavailable(err)
	case len(popped) != 2:
		return nil, fmt.Errorf("read inbox: %d texts", len(popped))
	}
	// What came meanwhile is fetched in one go; an error here loses only hints.
	return append(popped[1:], s.client.LPopCount(ctx, key, 256).Val()...), nil
}

// readRow reads {word, state, placeholder, result, denied, opened, settled, recorded}.
func readRow(reply []string) (deferred.Row, error) {
	switch reply[0] {
	case "missing":
		return deferred.Row{}, deferred.ErrNotFound
	case "reused":
		return deferred.Row{}, deferred.ErrReused
	}
	if len(reply) != 8 {
		return deferred.Row{}, fmt.Errorf("read row: %d texts", len(reply))
	}
	var row deferred.Row
	if err := json.Unmarshal([]byte(reply[2]), &row.Placeholder); err != nil {
		return deferred.Row{}, fmt.Errorf("read row: %w", err)
	}
	if err := json.Unmarshal([]byte(reply[7]), &row.Recorded); err != nil {
		return deferred.Row{}, fmt.Errorf("read row: %w", err)
	}
	row.Final, row.Denied, row.OpenedAt = reply[1] == "f", reply[4] == "1", at(reply[5])
	if row.Final {
		row.Result, row.SettledAt = json.RawMessage(reply[3]), at(reply[6])
	}
	return row, nil
}

func at(ms string) time.Time {
	n, _ := strconv.ParseInt(ms, 10, 64)
	return time.UnixMilli(n)
}
