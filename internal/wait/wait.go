// Package wait holds the ways in which our goroutines wait for each other and for
// better times: always for something that can also end sooner.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Jitter spreads d over three quarters to five quarters of itself, so that those
// who wait for the same do not come back in step. d must not be negative.
func Jitter(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2+1) }

// Pause waits for d, or until done is closed. It reports whether d passed.
func Pause(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

// Returned returns a channel that is closed when f has returned.
func Returned(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

// For waits until done is closed or sends. When ctx ends first, its cause is the
// error.
func For(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Closed reports whether done is closed, without waiting.
func Closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
