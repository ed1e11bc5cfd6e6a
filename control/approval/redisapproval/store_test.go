package redisapproval_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control/approval"
	"github.com/gantry-hooks/gantry/control/approval/redisapproval"
	privateservers "github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func open(t testing.TB, client *redis.Client, cfg redisapproval.Config) *redisapproval.Store {
	t.Helper()
	cfg.Client = client
	s, err := redisapproval.Open(t.Context(), cfg)
	check(t, "open store", err)
	return s
}

func embedded(t testing.TB) *redis.Client {
	t.Helper()
	server := miniredis.NewMiniRedis()
	check(t, "start miniredis", server.Start())
	t.Cleanup(server.Close)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func onBoth(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Helper()
	for name, server := range map[string]func(t testing.TB) *redis.Client{
		"real":     func(t testing.TB) *redis.Client { return servertest.FlushedClient(t) },
		"embedded": embedded,
	} {
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func row(id string) approval.Row {
	return approval.Row{
		OperationID: "op", ID: id, BatchID: "b", Status: approval.StatusPending, Details: json.RawMessage(`{"by":"<u>"}`),
		State: json.RawMessage(`{"n":1.0}`),
	}
}

func answer(content string) approval.Answer { return approval.Answer{Content: &content} }

// Every transition that is repeated because its reply was lost says what it said.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisapproval.Config{})
		for range 2 {
			got, err := s.Open(t.Context(), row("m"))
			check(t, "open", err)
			same(t, "row", got, row("m"))
		}
		twice := func(what string, call func() (any, error), want any) {
			t.Helper()
			for range 2 {
				got, err := call()
				check(t, what, err)
				same(t, what, got, want)
			}
		}
		claim := func(token string) func() (any, error) {
			return func() (any, error) {
				return s.Claim(t.Context(), token, approval.Claim{
					OperationID: "op", RequestID: "r", Decision: "approved", Members: []approval.Member{{ID: "m", Answer: answer("private")}},
				})
			}
		}
		twice("claim", claim("t1"), approval.Applied)
		twice("another claim", claim("t2"), approval.Idempotent)
		publish := func(token string) func() (any, error) {
			return func() (any, error) {
				return s.Publish(t.Context(), token, approval.Publication{
					OperationID: "op", ID: "m", RequestID: "r", Decision: "approved", Answer: answer("public"),
				})
			}
		}
		restore := func(token string) func() (any, error) {
			return func() (any, error) {
				return s.Restore(t.Context(), token, approval.Restoration{OperationID: "op", RequestID: "r", IDs: []string{"m"}})
			}
		}
		twice("restore", restore("t3"), []string{"m"})
		twice("another restore", restore("t4"), []string(nil))
		twice("claim again", claim("t5"), approval.Applied)
		twice("publish", publish("t6"), approval.Applied)
		twice("another publication", publish("t7"), approval.Idempotent)
		receipt := func(token string) func() (any, error) {
			return func() (any, error) {
				return s.Claim(t.Context(), token, approval.Claim{
					OperationID: "op", RequestID: "r", Decision: "rejected", Receipt: true, Members: []approval.Member{{ID: "n", Answer: answer("no")}},
				})
			}
		}
		_, err := s.Open(t.Context(), row("n"))
		check(t, "open", err)
		twice("receipt", receipt("t8"), approval.Applied)
		twice("another receipt", receipt("t9"), approval.Idempotent)
	})
}

// An answer that can never be published is not kept: the row had its content.
func TestAnswerOfAFullRowIsForgotten(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisapproval.Config{})
		full := row("m")
		full.Content = "there before"
		_, err := s.Open(t.Context(), full)
		check(t, "open", err)
		_, err = s.Claim(t.Context(), "t1", approval.Claim{
			OperationID: "op", RequestID: "r", Decision: "approved", Members: []approval.Member{{ID: "m", Answer: answer("private")}},
		})
		check(t, "claim", err)
		got, err := s.Publish(t.Context(), "t2", approval.Publication{
			OperationID: "op", ID: "m", RequestID: "r", Decision: "approved", Answer: answer("public"),
		})
		check(t, "publish", err)
		same(t, "outcome", got, approval.Idempotent)
		for _, key := range client.Keys(t.Context(), "*answer:*").Val() {
			t.Errorf("%s is still there", key)
		}
	})
}

func TestReusedRows(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisapproval.Config{})
		_, err := s.Open(t.Context(), row("m"))
		check(t, "open", err)
		other := row("m")
		other.BatchID, other.Content = "", "b"
		if _, err := s.Open(t.Context(), other); !errors.Is(err, approval.ErrReused) {
			t.Fatalf("error is %v, want ErrReused", err)
		}
		// The same id in another operation is another row.
		other.OperationID = "op2"
		got, err := s.Open(t.Context(), other)
		check(t, "open", err)
		same(t, "row", got, other)
	})
}

// everyKey leaves each kind of key behind and returns them.
func everyKey(t *testing.T, client *redis.Client, s *redisapproval.Store, operation string) []string {
	t.Helper()
	r := row("m}{")
	r.OperationID = operation
	_, err := s.Open(t.Context(), r)
	check(t, "open", err)
	_, err = s.Claim(t.Context(), "t", approval.Claim{
		OperationID: operation, RequestID: "r", Decision: "approved", Members: []approval.Member{{ID: r.ID, Answer: answer("private")}},
	})
	check(t, "claim", err)
	keys := client.Keys(t.Context(), "*").Val()
	slices.Sort(keys)
	return keys
}

func TestKeysAreKnownAndShareOneSlot(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, privateservers.RedisOptions{Databases: 1, Args: []string{"--cluster-enabled", "yes"}})
	cluster := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = cluster.Close() })
	client := servertest.FlushedClient(t)
	s := open(t, client, redisapproval.Config{})
	for _, operation := range []string{"}{", "{1}", "a{b}c", "Операция ⚓", " "} {
		check(t, "reset", client.FlushDB(t.Context()).Err())
		name := tasks.OperationHash(operation) + ":" + tasks.OperationHash("approval\x00m}{")
		keys := everyKey(t, client, s, operation)
		same(t, "keys", keys, []string{"gantry:{0}:approval:answer:" + name, "gantry:{0}:approval:row:" + name})
		for _, key := range keys {
			if slot := cluster.ClusterKeySlot(t.Context(), key).Val(); slot != cluster.ClusterKeySlot(t.Context(), "{0}").Val() {
				t.Errorf("slot of %q is %d", key, slot)
			}
		}
	}
}

func TestEverythingExpires(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client *redis.Client) {
		s := open(t, client, redisapproval.Config{OpenTTL: time.Hour, FinalTTL: time.Minute})
		expect := func(what string, want map[time.Duration]int) {
			t.Helper()
			kept := map[time.Duration]int{}
			for _, key := range client.Keys(t.Context(), "gantry:{0}:*").Val() {
				kept[client.PTTL(t.Context(), key).Val().Round(time.Minute)]++
			}
			same(t, what, kept, want)
		}
		keys := everyKey(t, client, s, "op")
		same(t, "keys", len(keys), 3)
		expect("claimed", map[time.Duration]int{time.Hour: 2})
		_, err := s.Publish(t.Context(), "p", approval.Publication{OperationID: "op", ID: "m}{", RequestID: "r", Decision: "approved", Answer: answer("x")})
		check(t, "publish", err)
		expect("published", map[time.Duration]int{time.Minute: 1})
		_, err = s.Open(t.Context(), row("n"))
		check(t, "open", err)
		_, err = s.Claim(t.Context(), "t2", approval.Claim{
			OperationID: "op", RequestID: "r", Decision: "rejected", Receipt: true, Members: []approval.Member{{ID: "n", Answer: answer("no")}},
		})
		check(t, "claim", err)
		expect("receipt", map[time.Duration]int{time.Minute: 2})
		_, err = s.Restore(t.Context(), "t3", approval.Restoration{OperationID: "op", RequestID: "r", IDs: []string{"n"}})
		check(t, "restore", err)
		expect("restored", map[time.Duration]int{time.Minute: 1, time.Hour: 1})
	})
}

func TestBatchesShareAShard(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	s := open(t, client, redisapproval.Config{Shards: 8})
	for i := range 100 {
		r := row("m")
		r.OperationID = fmt.Sprint("op ", i)
		_, err := s.Open(t.Context(), r)
		check(t, "open", err)
		r.ID = "n"
		_, err = s.Open(t.Context(), r)
		check(t, "open", err)
	}
	for shard := range 8 {
		n := len(client.Keys(t.Context(), fmt.Sprintf("gantry:{%d}:approval:row:*", shard)).Val())
		if n < 4 || n%2 != 0 {
			t.Errorf("shard %d has %d rows", shard, n)
		}
	}
	if _, err := redisapproval.Open(t.Context(), redisapproval.Config{Client: client}); !errors.Is(err, redisapproval.ErrShardCount) {
		t.Errorf("open with another count: error is %v, want ErrShardCount", err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	for _, cfg := range []redisapproval.Config{
		{}, {Client: client, Shards: 2000}, {Client: client, Shards: -1}, {Client: client, OpenTTL: -1}, {Client: client, FinalTTL: time.Nanosecond},
	} {
		if _, err := redisapproval.Open(t.Context(), cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestUnreachableRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t).Addr(), MaxRetries: -1})
	s := open(t, client, redisapproval.Config{Namespace: "unreachable"})
	check(t, "close client", client.Close())
	ctx := t.Context()
	calls := map[string]func() error{
		"open":   func() error { _, err := s.Open(ctx, row("m")); return err },
		"get":    func() error { _, err := s.Get(ctx, "op", "m"); return err },
		"answer": func() error { _, err := s.Answer(ctx, "op", "m", "r"); return err },
		"claim": func() error {
			_, err := s.Claim(ctx, "t", approval.Claim{OperationID: "op", Members: []approval.Member{{ID: "m"}}})
			return err
		},
		"publish": func() error { _, err := s.Publish(ctx, "t", approval.Publication{OperationID: "op"}); return err },
		"restore": func() error {
			_, err := s.Restore(ctx, "t", approval.Restoration{OperationID: "op", IDs: []string{"m"}})
			return err
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, approval.ErrUnavailable) {
			t.Errorf("%s: error is %v, want ErrUnavailable", name, err)
		}
	}
}

var argument = regexp.MustCompile(`(?:ARGV|KEYS)\[\d+`)

// The header is the contract of a transition.
func TestEveryScriptSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("scripts/*.lua")
	check(t, "list scripts", err)
	if len(files) < 5 {
		t.Fatalf("found %d scripts", len(files))
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		check(t, "read script", err)
		at := strings.Index(string(raw), "\nlocal ")
		header, code := string(raw[:at]), string(raw[at:])
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		if name == "lib" {
			continue
		}
		for _, part := range []string{"-- " + name + " ", "\n-- KEYS[1] ", "\n-- Returns ", "\n-- Atomic"} {
			if !strings.Contains(header, part) {
				t.Errorf("the header of %s has no part %q", file, part)
			}
		}
		for _, used := range argument.FindAllString(code, -1) {
			if !strings.Contains(header, used) {
				t.Errorf("%s reads %s], which its header does not name", file, used)
			}
		}
		if strings.Contains(code, "KEYS[") {
			t.Errorf("%s reads KEYS itself", file)
		}
	}
}
