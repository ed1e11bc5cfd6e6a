package enrich_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"pgregory.net/rapid"

	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/tasks"
)

// clock stands still until it is moved.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// email builds a payload for a user and returns its email; nil means none.
func email(ctx context.Context, b *enrich.Builder, userID string) (*string, error) {
	event := tasks.AppendObject(nil, []tasks.Member{{Key: "userId", Value: tasks.AppendString(nil, userID)}})
	payload, err := b.BuildControl(ctx, "h", tasks.BeforeToolCall, event)
	if err != nil {
		return nil, err
	}
	var fields struct {
		UserEmail *string `json:"userEmail"`
	}
	if err := json.Unmarshal(payload, &fields); err != nil {
		return nil, err
	}
	return fields.UserEmail, nil
}

func mustEmail(t *testing.T, b *enrich.Builder, userID string) string {
	t.Helper()
	got, err := email(t.Context(), b, userID)
	if err != nil {
		t.Fatal(err)
	}
	if got == nil {
		return "none"
	}
	return *got
}

func echo(_ context.Context, userID string) (string, bool, error) {
	return userID + "@x.test", true, nil
}

func TestCacheExpiresFiveMinutesFromTheStartOfTheLookup(t *testing.T) {
	t.Parallel()
	c := &clock{now: time.Unix(0, 0)}
	d := &directory{answer: func(ctx context.Context, userID string) (string, bool, error) {
		// The lookup itself takes a minute, which counts.
		c.advance(time.Minute)
		return echo(ctx, userID)
	}}
	b := newBuilder(t, enrich.Config{Directory: d, Now: c.Now})
	mustEmail(t, b, "u1")
	c.advance(4*time.Minute - time.Nanosecond)
	mustEmail(t, b, "u1")
	if got := d.taken(); len(got) != 1 {
		t.Fatalf("lookups just before expiry: %v, want one", got)
	}
	c.advance(time.Nanosecond)
	mustEmail(t, b, "u1")
	if got := d.taken(); len(got) != 1 {
		t.Fatalf("lookups at exactly five minutes: %v, want one more", got)
	}
}

func TestCacheKeepsMissingAndFailedLookups(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(context.Context, string) (string, bool, error){
		"missing": func(context.Context, string) (string, bool, error) { return "", false, nil },
		"failed":  func(context.Context, string) (string, bool, error) { return "half@x.test", true, errDirectory },
		"panic":   func(context.Context, string) (string, bool, error) { panic("directory is broken") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clock{now: time.Unix(0, 0)}
			d := &directory{answer: answer}
			b := newBuilder(t, enrich.Config{Directory: d, Now: c.Now})
			for range 3 {
				if got := mustEmail(t, b, "u1"); got != "none" {
					t.Fatalf("email %q, want none", got)
				}
			}
			if asked := d.taken(); len(asked) != 1 {
				t.Fatalf("lookups %v, want one", asked)
			}
			c.advance(enrich.DefaultCacheTTL)
			d.answer = echo
			if got := mustEmail(t, b, "u1"); got != "u1@x.test" {
				t.Fatalf("email after expiry %q", got)
			}
		})
	}
}

func TestCacheHoldsAThousandUsersByDefault(t *testing.T) {
	t.Parallel()
	d := &directory{answer: echo}
	b := newBuilder(t, enrich.Config{Directory: d})
	for i := range 1000 {
		mustEmail(t, b, fmt.Sprintf("u%d", i))
	}
	mustEmail(t, b, "u0")
	d.taken()
	mustEmail(t, b, "extra")
	mustEmail(t, b, "u1")
	if diff := cmp.Diff([]string{"extra"}, d.taken()); diff != "" {
		t.Fatalf("lookups (-want +got):\n%s", diff)
	}
	mustEmail(t, b, "u0")
	if diff := cmp.Diff([]string{"u0"}, d.taken()); diff != "" {
		t.Fatalf("a hit kept the oldest entry; lookups (-want +got):\n%s", diff)
	}
}

// TestCacheAgreesWithAModel plays random questions over a small cache.
func TestCacheAgreesWithAModel(t *testing.T) {
	t.Parallel()
	type entry struct {
		user  string
		start time.Time
	}
	const capacity, ttl = 3, 5 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{now: time.Unix(0, 0)}
		d := &directory{answer: echo}
		b, err := enrich.New(enrich.Config{Directory: d, Now: c.Now, CacheSize: capacity, CacheTTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		var kept []entry
		for range rapid.IntRange(1, 60).Draw(t, "questions") {
			c.advance(time.Duration(rapid.IntRange(0, 3).Draw(t, "seconds")) * time.Second)
			user := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "user")
			hit := false
			for i, e := range kept {
				if e.user != user {
					continue
				}
				if hit = c.Now().Sub(e.start) < ttl; !hit {
					kept = append(kept[:i:i], kept[i+1:]...)
				}
				break
			}
			if !hit {
				if len(kept) == capacity {
					kept = kept[1:]
				}
				kept = append(kept, entry{user, c.Now()})
			}
			got, err := email(t.Context(), b, user)
			if err != nil || got == nil || *got != user+"@x.test" {
				t.Fatalf("email of %s is %v, %v", user, got, err)
			}
			if asked := d.taken(); (len(asked) == 0) != hit {
				t.Fatalf("asked about %v, want a hit: %v", asked, hit)
			}
		}
	})
}

func TestCancellingOneWaiterLeavesTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := &directory{answer: func(ctx context.Context, userID string) (string, bool, error) {
			select {
			case <-release:
				return echo(ctx, userID)
			case <-ctx.Done():
				return "", false, ctx.Err()
			}
		}}
		b := newBuilder(t, enrich.Config{Directory: d})
		type answer struct {
			email *string
			err   error
		}
		ask := func(ctx context.Context) <-chan answer {
			answers := make(chan answer, 1)
			go func() {
				got, err := email(ctx, b, "u1")
				answers <- answer{got, err}
			}()
			synctest.Wait()
			return answers
		}
		first, cancelFirst := context.WithCancel(t.Context())
		second, cancelSecond := context.WithCancel(t.Context())
		defer cancelSecond()
		// The first waiter's context started the lookup; it must not own it.
		firstAnswer, secondAnswer := ask(first), ask(second)
		cancelFirst()
		synctest.Wait()
		if got := <-firstAnswer; !errors.Is(got.err, context.Canceled) {
			t.Fatalf("cancelled waiter got %v", got)
		}
		select {
		case got := <-secondAnswer:
			t.Fatalf("second waiter was let go with %v", got)
		default:
		}
		close(release)
		if got := <-secondAnswer; got.err != nil || *got.email != "u1@x.test" {
			t.Fatalf("second waiter got %v", got)
		}
		if asked := d.taken(); len(asked) != 1 {
			t.Fatalf("lookups %v, want one", asked)
		}
	})
}

func TestAbandonedLookupServesTheNextRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := &directory{answer: func(ctx context.Context, userID string) (string, bool, error) {
			<-release
			return echo(ctx, userID)
		}}
		b := newBuilder(t, enrich.Config{Directory: d})
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := email(ctx, b, "u1")
			gone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled waiter got %v", err)
		}
		close(release)
		synctest.Wait()
		if got := mustEmail(t, b, "u1"); got != "u1@x.test" {
			t.Fatalf("email %q", got)
		}
		if asked := d.taken(); len(asked) != 1 {
			t.Fatalf("lookups %v, want one", asked)
		}
	})
}

func TestCrowdNeverGetsAnotherUsersEmail(t *testing.T) {
	t.Parallel()
	c := &clock{now: time.Unix(0, 0)}
	d := &directory{answer: echo}
	b := newBuilder(t, enrich.Config{Directory: d, Now: c.Now, CacheSize: 4})
	var crowd sync.WaitGroup
	for i := range 16 {
		crowd.Go(func() {
			for n := range 200 {
				user := fmt.Sprintf("u%d", (i+n)%8)
				ctx, cancel := context.WithCancel(t.Context())
				if n%5 == 0 {
					go cancel()
				}
				got, err := email(ctx, b, user)
				if err == nil && *got != user+"@x.test" {
					t.Errorf("%s got %s", user, *got)
				}
				if err != nil && (n%5 != 0 || !errors.Is(err, context.Canceled)) {
					t.Errorf("%s got %v", user, err)
				}
				cancel()
				c.advance(time.Second)
			}
		})
	}
	crowd.Wait()
}

func TestLookupsAreCountedAndFailuresLogged(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&log)
	logger.SetFormatter(&logrus.JSONFormatter{})
	registry := prometheus.NewRegistry()
	d := &directory{answer: func(ctx context.Context, userID string) (string, bool, error) {
		if userID == "u-broken" {
			return "", false, errDirectory
		}
		return corp(ctx, userID)
	}}
	config := enrich.Config{Directory: d, Logger: logger, Registerer: registry}
	b := newBuilder(t, config)
	for _, user := range []string{"u-ada", "u-ada", "u-ghost", "u-broken", "u-broken"} {
		mustEmail(t, b, user)
	}
	// A second dispatcher of the same process counts on the same counters.
	mustEmail(t, newBuilder(t, config), "u-ada")

	want := map[string]float64{
		"gantry_email_lookups_total found": 2, "gantry_email_lookups_total missing": 1,
		"gantry_email_lookups_total failed": 1, "gantry_email_cache_hits_total": 2,
	}
	if diff := cmp.Diff(want, counters(t, registry)); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Fatalf("%d log lines, want one for the one failed lookup:\n%s", n, &log)
	}
	var line map[string]string
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["msg"] != "email.lookup_failed" || line["err"] != errDirectory.Error() || line["level"] != "warning" {
		t.Errorf("log line %v", line)
	}
}

func counters(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			values[name] = m.GetCounter().GetValue()
		}
	}
	return values
}

func TestNewRefusesBadConfigs(t *testing.T) {
	t.Parallel()
	for _, config := range []enrich.Config{{CacheSize: -1}, {CacheTTL: -time.Second}} {
		if _, err := enrich.New(config); err == nil {
			t.Errorf("config %+v was accepted", config)
		}
	}
	taken := prometheus.NewRegistry()
	taken.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "gantry_email_lookups_total", Help: "Not ours."}))
	if _, err := enrich.New(enrich.Config{Directory: &directory{answer: corp}, Registerer: taken}); err == nil {
		t.Error("a registry with another collector of that name was accepted")
	}
}
