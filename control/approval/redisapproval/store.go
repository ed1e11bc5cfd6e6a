package redisapproval

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

	"github.com/gantry-hooks/gantry/control/approval"
)

// Config configures a Store.
type Config struct {
	// Client runs the scripts. Required. Its context timeouts must be enabled
	// (ContextTimeoutEnabled), or a caller's deadline is not kept.
	Client redis.UniversalClient
	// Namespace starts every key. Default "gantry".
	Namespace string
	// Shards is the number of shards of a new namespace. Default 1. An existing
	// namespace keeps its own count, and another one here is an error.
	Shards int
	// OpenTTL is how long a row waits: for a human, and again for its publication
	// once it is claimed. Default 30 days.
	OpenTTL time.Duration
	// FinalTTL is how long a published row is kept. Default 24h.
	FinalTTL time.Duration
}

// Defaults of Config.
const (
	DefaultNamespace = "gantry"
	DefaultOpenTTL   = 30 * 24 * time.Hour
	DefaultFinalTTL  = 24 * time.Hour
)

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
		errs = append(errs, errors.New("redisapproval: Client is required"))
	}
	if c.Shards < 1 || c.Shards > 1024 {
		errs = append(errs, fmt.Errorf("redisapproval: Shards is %d, want 1 to 1024", c.Shards))
	}
	if c.OpenTTL < time.Millisecond || c.FinalTTL < time.Millisecond {
		errs = append(errs, fmt.Errorf("redisapproval: OpenTTL (%v) and FinalTTL (%v) must be at least 1ms", c.OpenTTL, c.FinalTTL))
	}
	return errors.Join(errs...)
}

// Store keeps approvals in Redis. It is safe for concurrent use, owns no goroutine
// and needs no Close. The zero value is not usable; Open makes one.
type Store struct {
	client      redis.UniversalClient
	keys        []keys
	open, final int64
	scripts     scripts
}

var _ approval.Store = (*Store)(nil)

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
		client: cfg.Client, scripts: loadScripts(),
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

// Open stores a row unless the same one is there, and returns the row that stands.
func (s *Store) Open(ctx context.Context, row approval.Row) (approval.Row, error) {
	fields := []any{
		"op", row.OperationID, "id", row.ID, "batch", row.BatchID, "det", []byte(row.Details),
		"st", string(row.Status), "req", row.RequestID,
		"c", row.Content, "e", []byte(row.Error), "s", []byte(row.State), "pub", "0",
	}
	args := append([]any{rowName(row.OperationID, row.ID), digest(fields), s.open}, fields...)
	reply, err := s.run(ctx, s.scripts.open, row.OperationID, args...)
	if err != nil {
		return approval.Row{}, err
	}
	if reply[0] == "reused" {
		return approval.Row{}, approval.ErrReused
	}
	return s.Get(ctx, row.OperationID, row.ID)
}

// digest fingerprints fields with their lengths, so that they cannot run together.
func digest(fields []any) string {
	var buf bytes.Buffer
	for _, f := range fields {
		fmt.Fprintf(&buf, "%d:%s", len(fmt.Sprintf("%s", f)), f)
	}
	sum := sha256.Sum256(buf.Bytes())
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Get returns a row as its readers see it.
func (s *Store) Get(ctx context.Context, operationID, id string) (approval.Row, error) {
	fields, err := s.client.HGetAll(ctx, s.shard(operationID).row(rowName(operationID, id))).Result()
	if err != nil {
		return approval.Row{}, unavailable(err)
	}
	if fields["st"] == "" {
		return approval.Row{}, approval.ErrNotFound
	}
	return approval.Row{
		OperationID: fields["op"], ID: fields["id"], BatchID: fields["batch"], Details: raw(fields["det"]),
		Status: approval.Status(fields["st"]), RequestID: fields["req"],
		Content: fields["c"], Error: raw(fields["e"]), State: raw(fields["s"]), Published: fields["pub"] == "1",
	}, nil
}

func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// private is the stored form of an answer that is kept apart. It names its claim,
// so that no other can read it.
type private struct {
	RequestID string          `json:"requestId"`
	Answer    approval.Answer `json:"answer"`
}

// Answer returns what a claim keeps apart.
func (s *Store) Answer(ctx context.Context, operationID, id, requestID string) (approval.Answer, error) {
	text, err := s.client.Get(ctx, s.shard(operationID).answer(rowName(operationID, id))).Bytes()
	if errors.Is(err, redis.Nil) {
		return approval.Answer{}, approval.ErrNotFound
	}
	if err != nil {
		return approval.Answer{}, unavailable(err)
	}
	var kept private
	if err := json.Unmarshal(text, &kept); err != nil {
		return approval.Answer{}, fmt.Errorf("read answer: %w", err)
	}
	if kept.RequestID != requestID {
		return approval.Answer{}, approval.ErrNotFound
	}
	return kept.Answer, nil
}

// Claim records one decision on all rows of a batch, or on none.
func (s *Store) Claim(ctx context.Context, token string, c approval.Claim) (approval.Outcome, error) {
	mode := "hold"
	if c.Receipt {
		mode = "receipt"
	}
	args := append(make([]any, 0, 6+5*len(c.Members)), c.RequestID, string(c.Decision), token, mode, s.open, s.final)
	for _, m := range c.Members {
		kept, err := encode(private{RequestID: c.RequestID, Answer: m.Answer})
		if err != nil {
			return "", err
		}
		args = append(args, rowName(c.OperationID, m.ID), kept)
		args = append(args, values(m.Answer)...)
	}
	reply, err := s.run(ctx, s.scripts.claim, c.OperationID, args...)
	if err != nil {
		return "", err
	}
	return outcome(reply, func(i int) string { return c.Members[i].ID })
}

// Publish writes an answer into a row that the request holds.
func (s *Store) Publish(ctx context.Context, token string, p approval.Publication) (approval.Outcome, error) {
	args := []any{rowName(p.OperationID, p.ID), p.RequestID, string(p.Decision), token}
	args = append(append(args, values(p.Answer)...), s.final)
	reply, err := s.run(ctx, s.scripts.publish, p.OperationID, args...)
	if err != nil {
		return "", err
	}
	return outcome(reply, func(int) string { return p.ID })
}

// Restore puts rows back as they were before the claim, and returns their ids.
func (s *Store) Restore(ctx context.Context, token string, r approval.Restoration) ([]string, error) {
	args := []any{r.RequestID, token, s.open}
	for _, id := range r.IDs {
		args = append(args, rowName(r.OperationID, id))
	}
	reply, err := s.run(ctx, s.scripts.restore, r.OperationID, args...)
	if err != nil {
		return nil, err
	}
	if len(reply) != len(r.IDs) {
		return nil, fmt.Errorf("read restore reply: %d texts for %d rows", len(reply), len(r.IDs))
	}
	var restored []string
	for i, id := range r.IDs {
		if reply[i] == "1" {
			restored = append(restored, id)
		}
	}
	return restored, nil
}

// values are content, error and state as a script takes what may be absent.
func values(a approval.Answer) []any {
	content := ""
	if a.Content != nil {
		content = "=" + *a.Content
	}
	return []any{content, given(a.Error), given(a.State)}
}

func given(value json.RawMessage) string {
	if value == nil {
		return ""
	}
	return "=" + string(value)
}

func encode(kept private) ([]byte, error) {
	if kept.Answer.Empty() {
		return nil, nil
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(kept); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return buf.Bytes(), nil
}

// outcome reads {outcome} or {code, number of the row}.
func outcome(reply []string, id func(i int) string) (approval.Outcome, error) {
	switch got := approval.Outcome(reply[0]); got {
	case approval.Applied, approval.Idempotent:
		return got, nil
	}
	if len(reply) != 2 {
		return "", fmt.Errorf("read script reply: %q", reply)
	}
	n, err := strconv.Atoi(reply[1])
	if err != nil || n < 1 {
		return "", fmt.Errorf("read script reply: %q", reply)
	}
	return "", &approval.RefusedError{Code: approval.Code(reply[0]), RowID: id(n - 1)}
}
