package taskdoor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/worker/taskdoor"
)

func TestMain(m *testing.M) {
	// The matcher's clock ends by itself some time after its last use.
	servertest.Main(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock"))
}

// stores are the claims under test. Those in memory have their clock turned; that
// of Redis is looked at until it has got there.
type stores struct {
	claims taskdoor.Claims
	// past lets d go by.
	past func(d time.Duration)
}

func eachStore(t *testing.T, config taskdoor.ClaimsConfig, test func(t *testing.T, s stores)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		now := time.Unix(1_700_000_000, 0)
		config := config
		config.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
		test(t, stores{
			claims: taskdoor.NewMemoryClaims(config),
			past:   func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock() },
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		client := servertest.FlushedClient(t)
		claims, err := taskdoor.NewRedisClaims(client, "t", config)
		if err != nil {
			t.Fatal(err)
		}
		clock := func() time.Time {
			now, err := client.Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			return now
		}
		test(t, stores{claims: claims, past: func(d time.Duration) {
			for end := clock().Add(d + 2*time.Millisecond); clock().Before(end); {
			}
		}})
	})
}

func ticket(key string, sequence int64) taskdoor.Ticket {
	return taskdoor.Ticket{Operation: "op", Key: key, Stream: "s", Sequence: sequence, Lease: time.Minute}
}

// steps drives claims and fails the test where they differ from what is wanted.
type steps struct {
	*testing.T
	stores
}

func (s steps) claim(t taskdoor.Ticket, want taskdoor.State) taskdoor.Grant {
	s.Helper()
	got, err := s.claims.Claim(s.Context(), t)
	if err != nil || got.State != want {
		s.Fatalf("claim of %q, %d: %+v, %v; want %s", t.Key, t.Sequence, got, err, want)
	}
	if (got.Token != "") != (want == taskdoor.Granted) {
		s.Fatalf("claim of %q: token %q", t.Key, got.Token)
	}
	if waits := want == taskdoor.Busy || want == taskdoor.Early; waits != (got.Wait >= time.Second) {
		s.Fatalf("claim of %q: wait %s", t.Key, got.Wait)
	}
	return got
}

func (s steps) finish(t taskdoor.Ticket, g taskdoor.Grant) {
	s.Helper()
	if err := s.claims.Finish(s.Context(), t, g.Token); err != nil {
		s.Fatal(err)
	}
}

func (s steps) fail(t taskdoor.Ticket, g taskdoor.Grant, f taskdoor.Failure) {
	s.Helper()
	if err := s.claims.Fail(s.Context(), t, g.Token, f); err != nil {
		s.Fatal(err)
	}
}

func TestClaimsOfOnePiece(t *testing.T) {
	t.Parallel()
	eachStore(t, taskdoor.ClaimsConfig{}, func(t *testing.T, st stores) {
		s := steps{t, st}
		w := ticket("w", 0)
		first := s.claim(w, taskdoor.Granted)
		if busy := s.claim(w, taskdoor.Busy); busy.Wait > time.Minute {
			t.Errorf("wait %s", busy.Wait)
		}
		s.claim(ticket("other", 0), taskdoor.Granted)
		s.fail(w, first, taskdoor.Failure{Next: time.Second})
		second := s.claim(w, taskdoor.Granted)
		if second.Token == first.Token {
			t.Error("a token comes again")
		}
		s.fail(w, first, taskdoor.Failure{}) // of a claim that is over
		s.claim(w, taskdoor.Busy)
		s.finish(w, second)
		s.claim(w, taskdoor.Done)
		elsewhere := w
		elsewhere.Operation = "op2"
		s.claim(elsewhere, taskdoor.Granted)
	})
}

// The work of a process that died is another's after the lease; if the dead one
// comes back with it done, it is done.
func TestClaimsOfTheDead(t *testing.T) {
	t.Parallel()
	eachStore(t, taskdoor.ClaimsConfig{}, func(t *testing.T, st stores) {
		s := steps{t, st}
		w := ticket("w", 1)
		w.Lease = 20 * time.Millisecond
		dead := s.claim(w, taskdoor.Granted)
		s.past(w.Lease)
		w.Lease = time.Minute
		heir := s.claim(w, taskdoor.Granted)
		s.finish(w, dead)
		s.claim(w, taskdoor.Done)
		s.finish(w, heir)
		s.claim(ticket("next", 2), taskdoor.Granted)
	})
}

func TestClaimsForget(t *testing.T) {
	t.Parallel()
	eachStore(t, taskdoor.ClaimsConfig{Window: 30 * time.Millisecond}, func(t *testing.T, st stores) {
		s := steps{t, st}
		w := ticket("w", 0)
		s.finish(w, s.claim(w, taskdoor.Granted))
		s.past(30 * time.Millisecond)
		s.claim(w, taskdoor.Granted)
	})
}

func TestClaimsOrder(t *testing.T) {
	t.Parallel()
	eachStore(t, taskdoor.ClaimsConfig{}, func(t *testing.T, st stores) {
		s := steps{t, st}
		one, two, three := ticket("1", 1), ticket("2", 2), ticket("3", 3)
		s.claim(two, taskdoor.Early)
		g := s.claim(one, taskdoor.Granted)
		s.claim(two, taskdoor.Early) // it runs
		s.fail(one, g, taskdoor.Failure{Next: time.Hour})
		if early := s.claim(two, taskdoor.Early); early.Wait < 59*time.Minute {
			t.Errorf("waits %s for one that comes in an hour", early.Wait)
		}
		free := ticket("free", 0)
		s.finish(free, s.claim(free, taskdoor.Granted))
		elsewhere := ticket("x", 1)
		elsewhere.Stream = "other"
		s.claim(elsewhere, taskdoor.Granted)
		s.finish(one, s.claim(one, taskdoor.Granted))
		g = s.claim(two, taskdoor.Granted)
		if g.Late || g.Gap {
			t.Errorf("in its turn: %+v", g)
		}
		s.finish(two, g)
		g = s.claim(three, taskdoor.Granted)
		s.fail(three, g, taskdoor.Failure{GivenUp: true})
		s.finish(ticket("4", 4), s.claim(ticket("4", 4), taskdoor.Granted))
		// Given up is not done: a replay is let in, late.
		if g = s.claim(three, taskdoor.Granted); !g.Late || g.Gap {
			t.Errorf("behind its turn: %+v", g)
		}
		s.finish(three, g)
		if g = s.claim(ticket("5", 5), taskdoor.Granted); g.Late || g.Gap {
			t.Errorf("a late one moved the stream: %+v", g)
		}
	})
}

// Nobody waits for ever for what nobody saw, and who must not wait passes at
// once.
func TestClaimsPatience(t *testing.T) {
	t.Parallel()
	eachStore(t, taskdoor.ClaimsConfig{Patience: 40 * time.Millisecond}, func(t *testing.T, st stores) {
		s := steps{t, st}
		s.claim(ticket("2", 2), taskdoor.Early)
		s.claim(ticket("3", 3), taskdoor.Early)
		s.past(40 * time.Millisecond)
		g := s.claim(ticket("2", 2), taskdoor.Granted)
		if g.Late || !g.Gap {
			t.Errorf("after the patience: %+v", g)
		}
		s.claim(ticket("3", 3), taskdoor.Early)
		s.finish(ticket("2", 2), g)
		s.finish(ticket("3", 3), s.claim(ticket("3", 3), taskdoor.Granted))
		if g = s.claim(ticket("1", 1), taskdoor.Granted); !g.Late {
			t.Errorf("the missing one: %+v", g)
		}
		forced := ticket("9", 9)
		forced.Force = true
		if g = s.claim(forced, taskdoor.Granted); !g.Gap {
			t.Errorf("forced: %+v", g)
		}
		s.fail(forced, g, taskdoor.Failure{Next: 20 * time.Millisecond})
		s.claim(ticket("10", 10), taskdoor.Early)
		s.past(60 * time.Millisecond)
		s.claim(ticket("10", 10), taskdoor.Granted) // what was due did not come
	})
}

func TestClaimsRememberUnsettled(t *testing.T) {
	t.Parallel()
	eachStore(t, taskdoor.ClaimsConfig{}, func(t *testing.T, st stores) {
		s := steps{t, st}
		w := ticket("w", 0)
		g := s.claim(w, taskdoor.Granted)
		if g.Unsettled {
			t.Error("unsettled at the start")
		}
		s.fail(w, g, taskdoor.Failure{Unsettled: true})
		g = s.claim(w, taskdoor.Granted)
		if !g.Unsettled {
			t.Error("forgotten")
		}
		s.fail(w, g, taskdoor.Failure{})
		if !s.claim(w, taskdoor.Granted).Unsettled {
			t.Error("forgotten by the next attempt")
		}
	})
}

// Of many that claim at once, one gets it.
func TestClaimsRace(t *testing.T) {
	t.Parallel()
	eachStore(t, taskdoor.ClaimsConfig{}, func(t *testing.T, st stores) {
		var group sync.WaitGroup
		granted := make(chan string, 64)
		for range 64 {
			group.Go(func() {
				g, err := st.claims.Claim(t.Context(), ticket("w", 1))
				if err != nil {
					t.Error(err)
				}
				if g.State == taskdoor.Granted {
					granted <- g.Token
				}
			})
		}
		group.Wait()
		if len(granted) != 1 {
			t.Errorf("%d were granted", len(granted))
		}
	})
}

func TestMemoryClaimsAreBounded(t *testing.T) {
	t.Parallel()
	claims := taskdoor.NewMemoryClaims(taskdoor.ClaimsConfig{MaxEntries: 100})
	s := steps{t, stores{claims: claims}}
	running := ticket("running", 0)
	s.claim(running, taskdoor.Granted)
	for i := range 1000 {
		w := ticket(fmt.Sprint(i), 1)
		w.Stream = w.Key
		s.finish(w, s.claim(w, taskdoor.Granted))
	}
	s.claim(running, taskdoor.Busy)
	newest := ticket("999", 1)
	s.claim(newest, taskdoor.Done)
	s.claim(ticket("0", 0), taskdoor.Granted) // forgotten
}

func TestRedisClaimsKeys(t *testing.T) {
	t.Parallel()
	if _, err := taskdoor.NewRedisClaims(nil, "t", taskdoor.ClaimsConfig{}); err == nil {
		t.Error("no error without a client")
	}
	client := servertest.FlushedClient(t)
	if _, err := taskdoor.NewRedisClaims(client, "", taskdoor.ClaimsConfig{}); err == nil {
		t.Error("no error without a namespace")
	}
	claims, err := taskdoor.NewRedisClaims(client, "t", taskdoor.ClaimsConfig{Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := ticket("secret-task", 1)
	g, err := claims.Claim(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	if err := claims.Finish(t.Context(), w, g.Token); err != nil {
		t.Fatal(err)
	}
	// Each key ends by itself, and none shows an id.
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatalf("keys %v, %v", keys, err)
	}
	for _, key := range keys {
		ttl, err := client.PTTL(t.Context(), key).Result()
		if err != nil || ttl <= 0 || ttl > time.Hour {
			t.Errorf("%s ends in %s, %v", key, ttl, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := claims.Claim(ctx, w); err == nil {
		t.Error("no error without Redis")
	}
	if err := claims.Finish(ctx, w, ""); err == nil {
		t.Error("no error without Redis")
	}
	if err := claims.Fail(ctx, w, "", taskdoor.Failure{}); err == nil {
		t.Error("no error without Redis")
	}
	if g, err = claims.Claim(t.Context(), w); err != nil || !cmp.Equal(taskdoor.Grant{State: taskdoor.Done}, g) {
		t.Errorf("claim: %+v, %v", g, err)
	}
}
