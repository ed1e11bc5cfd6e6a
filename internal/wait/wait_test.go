package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gantry-hooks/gantry/internal/wait"
)

func TestJitterStaysNearby(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := wait.Jitter(time.Second)
		if d < 750*time.Millisecond || d > 1250*time.Millisecond {
			t.Fatalf("jitter of 1s is %s", d)
		}
		seen[d] = true
	}
	if len(seen) < 2 {
		t.Fatal("jitter is always the same")
	}
	if d := wait.Jitter(0); d != 0 {
		t.Fatalf("jitter of nothing is %s", d)
	}
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !wait.Pause(nil, time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("an undisturbed pause of 1m took %s", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if wait.Pause(ctx.Done(), time.Minute) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("a pause cut off after 1s took %s", time.Since(began)-time.Minute)
		}
	})
}

func TestForAndReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		done := wait.Returned(func() { <-release })
		cause := errors.New("patience is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		if err := wait.For(ctx, done); !errors.Is(err, cause) {
			t.Errorf("waiting in vain gave %v, want %v", err, cause)
		}
		if wait.Closed(done) {
			t.Error("the function has not returned, but its channel is closed")
		}
		close(release)
		if err := wait.For(t.Context(), done); err != nil || !wait.Closed(done) {
			t.Errorf("waiting gave %v", err)
		}
	})
}
