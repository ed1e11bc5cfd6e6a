package taskdoor

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/tasks"
)

var (
	//go:embed scripts/lib.lua
	libScript string
	//go:embed scripts/claim.lua
	claimScript string
	//go:embed scripts/finish.lua
	finishScript string
	//go:embed scripts/fail.lua
	failScript string
)

// RedisClaims keeps claims in Redis, where every process of a deployment sees
// them and a restart forgets nothing.
type RedisClaims struct {
	client    redis.UniversalClient
	namespace string
	config    ClaimsConfig

	claim, finish, fail *redis.Script
}

// NewRedisClaims returns claims in Redis; namespace starts the name of every key.
// client must bound its own calls in time.
func NewRedisClaims(client redis.UniversalClient, namespace string, config ClaimsConfig) (*RedisClaims, error) {
	if client == nil || namespace == "" {
		return nil, errors.New("configure claims: a client and a namespace are required")
	}
	return &RedisClaims{
		client: client, namespace: namespace, config: config.withDefaults(),
		claim: redis.NewScript(libScript + claimScript), finish: redis.NewScript(libScript + finishScript),
		fail: redis.NewScript(libScript + failScript),
	}, nil
}

// prefix starts the keys of an operation; the braces keep them in one slot.
func (c *RedisClaims) prefix(operation string) []string {
	return []string{c.namespace + ":qstash:{" + tasks.OperationHash(operation) + "}:"}
}

// short names a piece of work or a stream in a key, whatever it is called.
func short(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// Claim implements Claims.
func (c *RedisClaims) Claim(ctx context.Context, t Ticket) (Grant, error) {
	force := 0
	if t.Force {
		force = 1
	}
	token := tasks.NewID()
	times := fmt.Sprintf("%d,%d,%d,%d", c.config.Window.Milliseconds(), c.config.Patience.Milliseconds(),
		shortestWait.Milliseconds(), runningWait.Milliseconds())
	reply, err := c.claim.Run(ctx, c.client, c.prefix(t.Operation),
		short(t.Key), short(t.Stream), t.Sequence, force, token, t.Lease.Milliseconds(), times).Slice()
	if err != nil {
		return Grant{}, fmt.Errorf("claim work: %w", err)
	}
	if len(reply) != 5 {
		return Grant{}, fmt.Errorf("claim work: reply of %d parts", len(reply))
	}
	state, _ := reply[0].(string)
	grant := Grant{
		State: State(state), Wait: time.Duration(integer(reply[1])) * time.Millisecond,
		Late: integer(reply[2]) == 1, Gap: integer(reply[3]) == 1, Unsettled: integer(reply[4]) == 1,
	}
	if grant.State == Granted {
		grant.Token = token
	}
	return grant, nil
}

func integer(v any) int64 {
	n, _ := v.(int64)
	return n
}

// Finish implements Claims.
func (c *RedisClaims) Finish(ctx context.Context, t Ticket, token string) error {
	err := c.finish.Run(ctx, c.client, c.prefix(t.Operation),
		short(t.Key), short(t.Stream), t.Sequence, token, c.config.Window.Milliseconds()).Err()
	if err != nil {
		return fmt.Errorf("finish work: %w", err)
	}
	return nil
}

// Fail implements Claims.
func (c *RedisClaims) Fail(ctx context.Context, t Ticket, token string, f Failure) error {
	after, unsettled := f.Next.Milliseconds(), 0
	if f.GivenUp {
		after = -1
	}
	if f.Unsettled {
		unsettled = 1
	}
	err := c.fail.Run(ctx, c.client, c.prefix(t.Operation),
		short(t.Key), short(t.Stream), t.Sequence, token, c.config.Window.Milliseconds(), after, unsettled).Err()
	if err != nil {
		return fmt.Errorf("give work back: %w", err)
	}
	return nil
}
