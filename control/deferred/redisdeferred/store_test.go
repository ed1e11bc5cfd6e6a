package redisdeferred_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/control/deferred/redisdeferred"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func open(t testing.TB, client *redis.Client, cfg redisdeferred.Config) *redisdeferred.Store {
	t.Helper()
	cfg.Client, cfg.Blocking = client, client
	s, err := redisdeferred.Open(t.Context(), cfg)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	return s
}

func embedded(t testing.TB) *redis.Client {
	t.Helper()
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		t.Fatalf("start miniredis: %v", err)
	}
	t.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// servers are those that every rule holds on: a real Redis, and the embedded one.
var servers = map[string]func(t testing.TB) *redis.Client{
	"real":     func(t testing.TB) *redis.Client { return servertest.FlushedClient(t) },
	"embedded": embedded,
}

func onBoth(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Helper()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, server(t))
		})
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
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// timeless is a row without its times, which are looked at apart.
func timeless(t testing.TB, row deferred.Row) deferred.Row {
	t.Helper()
	if age := time.Since(row.OpenedAt); age < -time.Minute || age > time.Hour {
		t.Fatalf("row was opened at %v", row.OpenedAt)
	}
	if row.Final == row.SettledAt.IsZero() {
		t.Fatalf("row with Final %v was settled at %v", row.Final, row.SettledAt)
	}
	row.OpenedAt, row.SettledAt = time.Time{}, time.Time{}
	return row
}

func placeholder() deferred.Placeholder {
	return deferred.Placeholder{
		ID: "row }{ <1>", OperationID: "op", ApprovedFrom: "before", State: json.RawMessage(`{"a":"<b>"}`), Bridge: "b",
		Call: &deferred.Call{
			ToolCallID: "c", AssistantMessageID: "m", Identifier: "i", APIName: "a", Arguments: `{"x":1e999}`,
			RecordedCalls: 2, Steps: 3, Context: map[string]string{"userId": "u"},
		},
	}
}

var recorded = map[string]json.RawMessage{"op": json.RawMessage(`[{"<":1}]`)}

func TestOpenIsIdempotent(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisdeferred.Config{})
		p := placeholder()
		for range 2 {
			row, err := s.Open(t.Context(), deferred.Opening{Placeholder: p, Recorded: recorded})
			check(t, "open", err)
			same(t, "row", timeless(t, row), deferred.Row{Placeholder: p, Recorded: recorded})
		}
		other := placeholder()
		other.Call.Arguments = `{}`
		if _, err := s.Open(t.Context(), deferred.Opening{Placeholder: other}); !errors.Is(err, deferred.ErrReused) {
			t.Fatalf("open another one: error is %v, want ErrReused", err)
		}
		row, published, err := s.Publish(t.Context(), deferred.Publication{ID: p.ID, Token: "t", Result: json.RawMessage(`{}`), Denied: true})
		check(t, "publish", err)
		final := deferred.Row{Placeholder: p, Recorded: recorded, Final: true, Denied: true, Result: json.RawMessage(`{}`)}
		same(t, "published", published, true)
		same(t, "row", timeless(t, row), final)
		row, err = s.Open(t.Context(), deferred.Opening{Placeholder: p, Recorded: recorded})
		check(t, "open", err)
		same(t, "row", timeless(t, row), final)
	})
}

func TestFirstPublicationStands(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisdeferred.Config{})
		_, err := s.Open(t.Context(), deferred.Opening{Placeholder: deferred.Placeholder{ID: "r"}})
		check(t, "open", err)
		for i, step := range []struct {
			token, result string
			published     bool
		}{{"a", `{"content":""}`, true}, {"b", `{"content":"x"}`, false}, {"a", `{"content":"y"}`, true}} {
			row, published, err := s.Publish(t.Context(), deferred.Publication{ID: "r", Token: step.token, Result: json.RawMessage(step.result)})
			check(t, "publish", err)
			if published != step.published || string(row.Result) != `{"content":""}` || !row.Final {
				t.Fatalf("step %d: published %v, row %+v", i, published, row)
			}
		}
		row, err := s.Read(t.Context(), "r", "")
		check(t, "read", err)
		same(t, "result", string(row.Document()), `{"content":""}`)
	})
}

func TestContentIsFinal(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisdeferred.Config{})
		_, err := s.Open(t.Context(), deferred.Opening{Placeholder: deferred.Placeholder{ID: "r", Content: "text", State: json.RawMessage(`{"a":1}`)}})
		check(t, "open", err)
		row, published, err := s.Publish(t.Context(), deferred.Publication{ID: "r", Token: "t", Result: json.RawMessage(`{}`)})
		check(t, "publish", err)
		same(t, "published", published, false)
		same(t, "document", string(row.Document()), `{"content":"text","state":{"a":1}}`)
	})
}

func TestMissingRows(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisdeferred.Config{})
		if _, err := s.Read(t.Context(), "r", "inbox"); !errors.Is(err, deferred.ErrNotFound) {
			t.Fatalf("read: error is %v, want ErrNotFound", err)
		}
		if _, _, err := s.Publish(t.Context(), deferred.Publication{ID: "r", Token: "t"}); !errors.Is(err, deferred.ErrNotFound) {
			t.Fatalf("publish: error is %v, want ErrNotFound", err)
		}
		same(t, "keys", client.Keys(t.Context(), "*").Val(), []string{"gantry:deferred:shards"})
	})
}

func TestListenersHearOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisdeferred.Config{})
		for _, id := range []string{"r1", "r2"} {
			_, err := s.Open(t.Context(), deferred.Opening{Placeholder: deferred.Placeholder{ID: id}})
			check(t, "open", err)
			for range 2 {
				_, err = s.Read(t.Context(), id, "ear")
				check(t, "read", err)
			}
			_, _, err = s.Publish(t.Context(), deferred.Publication{ID: id, Token: "t", Result: json.RawMessage(`{}`)})
			check(t, "publish", err)
		}
		ids, err := s.Hear(t.Context(), 0, "ear")
		check(t, "hear", err)
		same(t, "heard", ids, []string{"r1", "r2"})
		// A row that is final tells the reader itself.
		_, err = s.Read(t.Context(), "r1", "late")
		check(t, "read", err)
		same(t, "keys of listeners", client.Keys(t.Context(), "gantry:{0}:deferred:[li]*").Val(), []string{})
	})
}

func TestSilenceIsNoError(t *testing.T) {
	t.Parallel()
	s := open(t, servertest.FlushedClient(t), redisdeferred.Config{})
	ids, err := s.Hear(t.Context(), 0, "ear")
	check(t, "hear", err)
	same(t, "heard", ids, []string(nil))
}

func TestEverythingExpires(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisdeferred.Config{OpenTTL: time.Hour, FinalTTL: time.Minute})
		for _, p := range []deferred.Placeholder{{ID: "open"}, {ID: "final"}, {ID: "born", Content: "x"}} {
			_, err := s.Open(t.Context(), deferred.Opening{Placeholder: p, Recorded: recorded})
			check(t, "open", err)
			_, err = s.Read(t.Context(), p.ID, "ear")
			check(t, "read", err)
		}
		_, _, err := s.Publish(t.Context(), deferred.Publication{ID: "final", Token: "t", Result: json.RawMessage(`{}`)})
		check(t, "publish", err)
		kept := map[time.Duration]int{}
		for _, key := range client.Keys(t.Context(), "gantry:{0}:*").Val() {
			ttl := client.PTTL(t.Context(), key).Val()
			if ttl <= 0 {
				t.Errorf("%s never expires", key)
			}
			kept[ttl.Round(time.Minute)]++
		}
		// The open row; the two final ones and the inbox; the listener.
		same(t, "times", kept, map[time.Duration]int{time.Hour: 1, time.Minute: 3, 2 * time.Minute: 1})
	})
}

func TestShardCountIsAgreed(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	open(t, client, redisdeferred.Config{Shards: 4})
	_, err := redisdeferred.Open(t.Context(), redisdeferred.Config{Client: client})
	if !errors.Is(err, redisdeferred.ErrShardCount) {
		t.Fatalf("open with another count: error is %v, want ErrShardCount", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	for _, cfg := range []redisdeferred.Config{
		{}, {Client: client, Shards: 2000}, {Client: client, Shards: -1}, {Client: client, OpenTTL: -1}, {Client: client, FinalTTL: time.Nanosecond},
	} {
		if _, err := redisdeferred.Open(t.Context(), cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestUnreachableRedis(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	s := open(t, client, redisdeferred.Config{})
	gone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = gone.Close() })
	if _, err := redisdeferred.Open(t.Context(), redisdeferred.Config{Client: gone}); !errors.Is(err, deferred.ErrUnavailable) {
		t.Fatalf("open store: error is %v, want ErrUnavailable", err)
	}
	// A key of the wrong type is Redis not doing its part either.
	check(t, "spoil", client.Set(t.Context(), "gantry:{0}:deferred:inbox:ear", "x", 0).Err())
	if _, err := s.Hear(t.Context(), 0, "ear"); !errors.Is(err, deferred.ErrUnavailable) {
		t.Fatalf("hear: error is %v, want ErrUnavailable", err)
	}
}
