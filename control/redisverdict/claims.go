package redisverdict

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

// Claim takes up to limit questions of a shard. With a wait the claim lies behind
// a blocking pop in one pipeline, so that a wake-up and the claim it leads to are
// one round trip; a lost wake-up is harmless, because the claim is made all the
// same when the time is over.
func (s *Store) Claim(ctx context.Context, shard, limit int, wait time.Duration) ([]control.Claim, error) {
	token := tasks.NewID()
	args := []any{limit, s.lease, s.keep, token}
	if wait <= 0 {
		return s.claim(ctx, shard, token, args)
	}
	pipe := s.blocking.Pipeline()
	woken := pipe.Do(ctx, "BLPOP", s.keys[shard].wake(), seconds(wait))
	claimed := s.scripts.claim.EvalSha(ctx, pipe, s.keys[shard].script(), args...)
	// Each reply has its own error.
	_, _ = pipe.Exec(ctx)
	if err := woken.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return nil, unavailable(err)
	}
	reply, err := claimed.Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.claim(ctx, shard, token, args)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	rows, err := rowsOf(reply)
	return readClaims(shard, token, rows), err
}

func (s *Store) claim(ctx context.Context, shard int, token string, args []any) ([]control.Claim, error) {
	rows, err := s.run(ctx, s.scripts.claim, shard, args...)
	return readClaims(shard, token, rows), err
}

func readClaims(shard int, token string, rows []any) []control.Claim {
	claims := make([]control.Claim, 0, len(rows))
	for i := range rows {
		row, _ := rows[i].([]any)
		n, ok := parseQuestionID(shard, text(row, 0))
		if !ok {
			// A name that nobody can write back to belongs to no asker.
			continue
		}
		c := control.Claim{Held: control.Held{Name: n, Token: token}}
		c.Question, c.Fault = decodeQuestion(n, text(row, 1))
		c.Left = time.Duration(number(row, 2)) * time.Millisecond
		c.Attempt, c.Digest = int(number(row, 3)), text(row, 4)
		claims = append(claims, c)
	}
	return claims
}

// Renew renews leases and returns the questions that ended meanwhile.
func (s *Store) Renew(ctx context.Context, shard int, held []control.Held) ([]control.Held, error) {
	if len(held) == 0 {
		return nil, nil
	}
	rows, err := s.run(ctx, s.scripts.renew, shard, heldArgs(s.lease, held)...)
	if err != nil {
		return nil, err
	}
	if len(rows) != len(held) {
		return nil, fmt.Errorf("read renew reply: %d rows for %d questions", len(rows), len(held))
	}
	var ended []control.Held
	for i, h := range held {
		if number(rows, i) == 0 {
			ended = append(ended, h)
		}
	}
	return ended, nil
}

// Release offers held questions to other workers.
func (s *Store) Release(ctx context.Context, shard int, held []control.Held) error {
	if len(held) == 0 {
		return nil
	}
	return unavailable(s.scripts.release.Run(ctx, s.client, s.keys[shard].script(), heldArgs(s.keep, held)...).Err())
}

func heldArgs(first int64, held []control.Held) []any {
	args := make([]any, 0, 1+2*len(held))
	args = append(args, first)
	for _, h := range held {
		args = append(args, questionID(h.Name), h.Token)
	}
	return args
}

// Sweep offers questions again whose lease has ended.
func (s *Store) Sweep(ctx context.Context, shard int) (control.Swept, error) {
	rows, err := s.run(ctx, s.scripts.sweep, shard, sweepLimit, s.keep, maxClaims)
	if err != nil {
		return control.Swept{}, err
	}
	return control.Swept{
		Again: int(number(rows, 0)), GivenUp: int(number(rows, 1)), Waiting: int(number(rows, 2)),
	}, nil
}

// seconds writes a timeout of a blocking command, which the typed commands round
// up. Zero would block for ever, and less than a millisecond would be sent as zero.
func seconds(timeout time.Duration) string {
	return strconv.FormatFloat(max(timeout, time.Millisecond).Seconds(), 'f', 3, 64)
}
