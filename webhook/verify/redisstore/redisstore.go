// Package redisstore keeps in Redis which messages a receiver has finished, for
// receivers of several processes behind one address.
//
// The invariant it protects: of all who claim one message at a time, one gets
// it, and what is done stays done until its time is over. A claim is a key with
// an expiry, so that it ends by Redis's clock when its process died. Each message
// is one key, so that a cluster serves as well.
package redisstore

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/webhook/verify"
)

// DefaultPrefix is the default of Config.Prefix.
const DefaultPrefix = "gantry:receiver:"

var (
	//go:embed scripts/claim.lua
	claimSource string
	//go:embed scripts/release.lua
	releaseSource string
)

// Config says where the messages stand.
type Config struct {
	// Client is the caller's; the Store never closes it. Required. Redis 4 or later.
	Client redis.UniversalClient
	// Prefix is put in front of every key; "" means DefaultPrefix.
	Prefix string
}

// Store is a verify.Store in Redis. It is safe for concurrent use.
type Store struct {
	client         redis.UniversalClient
	prefix         string
	claim, release *redis.Script
}

var _ verify.Store = (*Store)(nil)

// New returns a Store, or an error when there is no client. It does not talk to
// Redis yet.
func New(config Config) (*Store, error) {
	if config.Client == nil {
		return nil, errors.New("configure receiver's store: Client is required")
	}
	if config.Prefix == "" {
		config.Prefix = DefaultPrefix
	}
	return &Store{
		client: config.Client, prefix: config.Prefix,
		claim: redis.NewScript(claimSource), release: redis.NewScript(releaseSource),
	}, nil
}

// milliseconds rounds a lease up: Redis refuses an expiry of 0.
func milliseconds(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// Claim implements verify.Store.
func (s *Store) Claim(ctx context.Context, id, owner string, lease time.Duration) (verify.State, error) {
	found, err := s.claim.Run(ctx, s.client, []string{s.prefix + id}, owner, milliseconds(lease)).Text()
	if err != nil {
		return "", fmt.Errorf("claim message: %w", err)
	}
	switch state := verify.State(found); state {
	case verify.StateNew, verify.StateInProgress, verify.StateDone:
		return state, nil
	}
	return "", fmt.Errorf("claim message: script says %q", found)
}

// Done implements verify.Store.
func (s *Store) Done(ctx context.Context, id, _ string, keep time.Duration) error {
	if err := s.client.Set(ctx, s.prefix+id, "done", max(keep, time.Millisecond)).Err(); err != nil {
		return fmt.Errorf("mark message as done: %w", err)
	}
	return nil
}

// Release implements verify.Store.
func (s *Store) Release(ctx context.Context, id, owner string) error {
	if err := s.release.Run(ctx, s.client, []string{s.prefix + id}, owner).Err(); err != nil {
		return fmt.Errorf("release message: %w", err)
	}
	return nil
}
