package redislane_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = client.Close() })
	for _, c := range []struct {
		name string
		cfg  redislane.Config
		want string
	}{
		{"no client", redislane.Config{}, "Client"},
		{"shards below", redislane.Config{Client: client, Shards: -1}, "Shards"},
		{"shards above", redislane.Config{Client: client, Shards: 1025}, "Shards"},
		{"most shards", redislane.Config{Client: client, Shards: 1024}, ""},
		{"short lease", redislane.Config{Client: client, Lease: time.Second - 1}, "Lease"},
		{"shortest lease", redislane.Config{Client: client, Lease: time.Second}, ""},
		{"window above idle", redislane.Config{Client: client, Window: 72 * time.Hour}, "IdleTTL"},
		{"tiny window", redislane.Config{Client: client, Window: time.Millisecond}, "Window"},
		{"defaults", redislane.Config{Client: client}, ""},
	} {
		_, err := redislane.New(c.cfg)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error is %v, want one about %q", c.name, err, c.want)
		}
	}
}

func TestShardCountIsAgreed(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	open(t, client, redislane.Config{Shards: 4})
	s := open(t, client, redislane.Config{Shards: 4})
	same(t, "shards", s.Shards(), 4)
	_, err := redislane.Open(t.Context(), redislane.Config{Client: client, Shards: 8})
	if !errors.Is(err, redislane.ErrShardCount) {
		t.Fatalf("open with another count: error is %v, want ErrShardCount", err)
	}
	open(t, client, redislane.Config{Shards: 8, Namespace: "other"})
}

func TestUnreachableRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	s, err := redislane.New(redislane.Config{Client: client, Blocking: client})
	check(t, "new", err)
	_, err = s.Append(t.Context(), "op", []lane.Item{item("a")})
	if !errors.Is(err, lane.ErrUnavailable) {
		t.Fatalf("append: error is %v, want ErrUnavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Append(ctx, "op", []lane.Item{item("a")})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("append: error is %v, want the caller's cancellation to be visible", err)
	}
	_, err = s.Progress(ctx, lane.Step{Queue: s.QueueOf("op")})
	if !errors.Is(err, context.Canceled) && !errors.Is(err, lane.ErrUnavailable) {
		t.Fatalf("progress: error is %v, want ErrUnavailable", err)
	}
}

// Receivers and logs know a delivery's id without the shard: it finds the letter,
// too, whichever shard holds it.
func TestLetterIsFoundByTheDeliverysID(t *testing.T) {
	t.Parallel()
	s := open(t, servertest.FlushedClient(t), redislane.Config{Shards: 4})
	for _, operation := range []string{"op-1", "op-2", "op-3", "op-4", "op-5"} {
		s.must(t, s.Quarantine(t.Context(), operation, "poison_"+operation, []byte("x")))
	}
	page, err := s.Dead(t.Context(), lane.DeadFilter{})
	s.must(t, err)
	if len(page.Letters) != 5 {
		t.Fatalf("%d letters, want 5", len(page.Letters))
	}
	for _, want := range page.Letters {
		_, bare, _ := strings.Cut(want.ID, ".")
		got, err := s.DeadLetter(t.Context(), bare)
		s.must(t, err)
		same(t, "letter", got.ID, want.ID)
		same(t, "its bytes", string(got.Poison), "x")
		if err := s.Replay(t.Context(), bare); !errors.Is(err, lane.ErrNotReplayable) {
			t.Errorf("replay of %s = %v, want ErrNotReplayable", bare, err)
		}
	}
}
