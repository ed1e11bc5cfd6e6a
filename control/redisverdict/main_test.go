package redisverdict_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// prefix starts every key of the stores under test.
const prefix = "gantry:{0}:ctl:"

// store is a redisverdict.Store with the controls that tests need.
type store struct {
	*redisverdict.Store
	client *redis.Client
	// pass lets time pass for Redis.
	pass func(t *testing.T, d time.Duration)
}

func open(t testing.TB, client *redis.Client, cfg redisverdict.Config) *store {
	t.Helper()
	cfg.Client, cfg.Blocking = client, client
	s, err := redisverdict.Open(t.Context(), cfg)
	check(t, "open store", err)
	return &store{Store: s, client: client, pass: wait}
}

func connect(t testing.TB, addr string, db int) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, DB: db, ContextTimeoutEnabled: true, DisableIdentity: true, ReadTimeout: 10 * time.Second,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// eachStore runs a test on a real Redis and on the embedded one.
func eachStore(t *testing.T, cfg redisverdict.Config, run func(t *testing.T, s *store)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		own := servertest.FlushedClient(t)
		run(t, open(t, connect(t, own.Options().Addr, own.Options().DB), cfg))
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		server := miniredis.NewMiniRedis()
		check(t, "start miniredis", server.Start())
		t.Cleanup(server.Close)
		embedded := cfg
		embedded.Embedded = true
		s := open(t, connect(t, server.Addr(), 0), embedded)
		s.pass = func(t *testing.T, d time.Duration) {
			wait(t, d)
			server.FastForward(d)
		}
		run(t, s)
	})
}

// wait waits, because nothing else ages a key of a real Redis.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

func check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// verdict returns a verdict that a test can tell from others by its reason.
func verdict(id string, status tasks.VerdictStatus, reason string) *tasks.Verdict {
	outcome := map[tasks.VerdictStatus]tasks.VerdictOutcome{
		tasks.VerdictAllow: tasks.OutcomeAllowed, tasks.VerdictBlocked: tasks.OutcomeDenied, tasks.VerdictCancelled: tasks.OutcomeCancelled,
	}[status]
	return &tasks.Verdict{
		Version: tasks.WireVersion, ID: id, Type: tasks.BeforeToolCall, Status: status, Reason: reason, Outcome: outcome,
		Controls: []tasks.ControlResult{}, By: tasks.ByWorker,
	}
}

const operation = "op{1}"

// question posts nothing yet; tests change what they need.
func (s *store) question(id string, timeout time.Duration) *control.Posting {
	return &control.Posting{
		Name: s.Name(operation, id),
		Question: &tasks.Question{
			ID: id, OperationID: operation, Type: tasks.BeforeToolCall, Event: json.RawMessage(`{"apiName": "x <&> \u2028"}`),
			Rounds: []tasks.Round{
				{OperationID: operation, Hooks: json.RawMessage(` [ {"id":"a"} ] `)}, {OperationID: "other:-:"}, {OperationID: "third", Hooks: json.RawMessage(`[]`)},
			},
			Timeout: timeout, Trace: "00-1-2-01",
		},
		Digest: "digest", Inbox: "inbox",
		Fallback: verdict(id, tasks.VerdictBlocked, "fallback"),
	}
}

func (s *store) post(t testing.TB, p *control.Posting) control.Standing {
	t.Helper()
	standing, err := s.Post(t.Context(), p)
	check(t, "post", err)
	return standing
}

func (s *store) claim(t testing.TB, limit int) []control.Claim {
	t.Helper()
	claims, err := s.Claim(t.Context(), 0, limit, 0)
	check(t, "claim", err)
	return claims
}

func (s *store) claimOne(t testing.TB) control.Claim {
	t.Helper()
	claims := s.claim(t, 1)
	if len(claims) != 1 {
		t.Fatalf("claimed %d questions, want 1", len(claims))
	}
	return claims[0]
}

// settle returns what stands, by its reason, and the fate.
func (s *store) settle(t testing.TB, st *control.Settlement) (string, control.Fate) {
	t.Helper()
	settled, err := s.Settle(t.Context(), st)
	check(t, "settle", err)
	return settled.Verdict.Reason, settled.Fate
}

func (s *store) answer(c control.Claim, reason string) *control.Settlement {
	return &control.Settlement{
		Name: c.Name, Verdict: verdict(c.Name.ID, tasks.VerdictBlocked, reason), Writer: c.Token, Source: tasks.ByWorker,
	}
}

// own is what an asker settles.
func (s *store) own(p *control.Posting, v *tasks.Verdict) *control.Settlement {
	return &control.Settlement{Name: p.Name, Verdict: v, Writer: p.Inbox, Source: tasks.ByAsker, Digest: p.Digest}
}

func (s *store) heard(t testing.TB) []string {
	t.Helper()
	raw, err := s.client.LRange(t.Context(), prefix+"inbox:inbox", 0, -1).Result()
	check(t, "read inbox", err)
	return raw
}

// keys lists the keys without their questions.
func (s *store) keys(t testing.TB) []string {
	t.Helper()
	all, err := s.client.Keys(t.Context(), "*").Result()
	check(t, "list keys", err)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], tasks.OperationHash(operation), "<op>")
	}
	slices.Sort(all)
	return all
}

func is(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error is %v, want %v", err, target)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
