package producer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// scripted is a store for the waiting logic alone: it has one task, whose status
// a test sets, and an ear that hears what a test says. The arbiter of queue mode
// is the real Redis of queue_test.go.
type scripted struct {
	notices chan []lane.Notice
	deaf    chan error

	mu      sync.Mutex
	status  lane.Status
	err     error
	looks   int
	workers int
	hooks   []lane.PublishedHook
}

func newScripted() *scripted {
	return &scripted{notices: make(chan []lane.Notice), deaf: make(chan error), status: lane.Status{Known: true}}
}

func (s *scripted) Append(_ context.Context, _ string, items []lane.Item) ([]lane.Appended, error) {
	appended := make([]lane.Appended, len(items))
	for i, item := range items {
		appended[i] = lane.Appended{ID: item.ID, Sequence: int64(i + 1), Status: lane.Status{Known: true}}
	}
	return appended, nil
}

func (s *scripted) Status(_ context.Context, _, _ string, waiter lane.Waiter) (lane.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiter.Inbox == "" {
		return lane.Status{}, errors.New("status was asked without an inbox")
	}
	s.looks++
	return s.status, s.err
}

func (*scripted) Forget(context.Context, string) error { return nil }

func (s *scripted) Hear(ctx context.Context, _ int, _ string) ([]lane.Notice, error) {
	select {
	case notices := <-s.notices:
		return notices, nil
	case err := <-s.deaf:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(2 * time.Second):
		return nil, nil
	}
}

func (*scripted) Shards() int { return 2 }

func (s *scripted) Workers(context.Context) ([]lane.WorkerInfo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers++
	return []lane.WorkerInfo{{ID: "w", Hooks: s.hooks}}, nil
}

func (s *scripted) set(status lane.Status, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.err = status, err
}

// seen is the number of looks at the status.
func (s *scripted) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

var attempted = lane.Status{Known: true, Attempted: true, Sequence: 1}

// waiting starts a Dispatch on a scripted store inside a bubble, and returns
// once it waits.
func waiting(ctx context.Context, t *testing.T, store *scripted, config producer.Config) (*producer.Dispatcher, <-chan error) {
	t.Helper()
	config.Mode, config.Store = producer.ModeQueue, store
	d, err := producer.New(config)
	if err != nil {
		t.Fatalf("new dispatcher: %v", err)
	}
	register(t, d, webhookHook("a", tasks.FallbackNone))
	ev := event(t)
	done := make(chan error, 1)
	go func() { done <- d.Dispatch(ctx, operation, ev, producer.WithID("ev")) }()
	synctest.Wait()
	return d, done
}

func notice(taskID string) lane.Notice {
	return lane.Notice{OperationHash: tasks.OperationHash(operation), TaskID: taskID}
}

func TestANoticeEndsTheWaitAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, start := newScripted(), time.Now()
		d, done := waiting(t.Context(), t, store, producer.Config{})
		defer d.Close()
		store.notices <- []lane.Notice{notice("another"), {OperationHash: "another", TaskID: "ev"}}
		synctest.Wait()
		if store.seen() != 0 {
			t.Fatal("a notice for others made the waiter look")
		}
		store.set(attempted, nil)
		store.notices <- []lane.Notice{notice("ev")}
		if err := <-done; err != nil {
			t.Fatalf("dispatch: %v", err)
		}
		if took := time.Since(start); took != 0 {
			t.Fatalf("the wait took %s after the notice", took)
		}
	})
}

func TestALostNoticeCostsSecondsOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, start := newScripted(), time.Now()
		d, done := waiting(t.Context(), t, store, producer.Config{})
		defer d.Close()
		store.set(attempted, nil)
		if err := <-done; err != nil {
			t.Fatalf("dispatch: %v", err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Fatalf("the wait took %s without a notice", took)
		}
	})
}

func TestAWaitEndsWithItsCause(t *testing.T) {
	t.Parallel()
	errLeft := errors.New("caller left")
	for name, row := range map[string]struct {
		end  func(d *producer.Dispatcher, cancel context.CancelCauseFunc, store *scripted)
		want error
	}{
		"await timeout": {want: context.DeadlineExceeded},
		"caller": {
			end:  func(_ *producer.Dispatcher, cancel context.CancelCauseFunc, _ *scripted) { cancel(errLeft) },
			want: errLeft,
		},
		"close": {
			end:  func(d *producer.Dispatcher, _ context.CancelCauseFunc, _ *scripted) { d.Close() },
			want: producer.ErrClosed,
		},
		"forgotten task": {
			end: func(_ *producer.Dispatcher, _ context.CancelCauseFunc, store *scripted) {
				store.set(lane.Status{}, nil)
			},
			want: lane.ErrNotFound,
		},
		"outage until the timeout": {
			end: func(_ *producer.Dispatcher, _ context.CancelCauseFunc, store *scripted) {
				store.set(lane.Status{}, lane.ErrUnavailable)
			},
			want: lane.ErrUnavailable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				store := newScripted()
				d, done := waiting(ctx, t, store, producer.Config{AwaitTimeout: time.Minute})
				defer d.Close()
				if row.end != nil {
					row.end(d, cancel, store)
				}
				err := <-done
				var unsettled *producer.UnsettledError
				if !errors.As(err, &unsettled) || !errors.Is(err, row.want) || unsettled.TaskID != "ev" {
					t.Fatalf("dispatch returned %v, want unsettled by %v", err, row.want)
				}
			})
		})
	}
}

func TestADeafEarRecoversAndLooksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logger, lines := newLogger()
		store, start := newScripted(), time.Now()
		d, done := waiting(t.Context(), t, store, producer.Config{Logger: logger})
		defer d.Close()
		store.deaf <- lane.ErrUnavailable
		store.deaf <- lane.ErrUnavailable
		store.set(attempted, nil)
		store.notices <- nil // the ear hears again, but the notice for ev is gone
		if err := <-done; err != nil {
			t.Fatalf("dispatch: %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Fatalf("the wait took %s after the ear recovered", took)
		}
		if got := lines.count("inbox.lost"); got == 0 || got > 2 {
			t.Fatalf("the outage was logged %d times", got)
		}
	})
}

func TestACallAfterCloseIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newScripted()
		store.status = attempted
		d, err := producer.New(producer.Config{Mode: producer.ModeQueue, Store: store})
		if err != nil {
			t.Fatalf("new dispatcher: %v", err)
		}
		register(t, d, webhookHook("a", ""))
		d.Close()
		d.Close()
		if err := d.Dispatch(t.Context(), operation, event(t)); !errors.Is(err, producer.ErrClosed) {
			t.Fatalf("dispatch returned %v", err)
		}
		if _, err := d.Enqueue(t.Context(), operation, event(t)); !errors.Is(err, producer.ErrClosed) {
			t.Fatalf("enqueue returned %v", err)
		}
		if _, err := d.Await(t.Context(), operation, "ev"); !errors.Is(err, producer.ErrClosed) {
			t.Fatalf("await returned %v", err)
		}
	})
}

func TestPublishedHooksAreReadOnceInTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newScripted()
		d, err := producer.New(producer.Config{Mode: producer.ModeQueue, Store: store})
		if err != nil {
			t.Fatalf("new dispatcher: %v", err)
		}
		defer d.Close()
		ev := event(t)
		enqueue := func(skipped bool) {
			t.Helper()
			receipt, err := d.Enqueue(t.Context(), operation, ev)
			if err != nil || receipt.Skipped != skipped {
				t.Fatalf("enqueue: %+v, %v; want skipped %v", receipt, err, skipped)
			}
		}
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() { enqueue(true) })
		}
		group.Wait()
		store.mu.Lock()
		store.hooks = []lane.PublishedHook{{Type: tasks.OnComplete}}
		store.mu.Unlock()
		enqueue(true)
		<-time.After(2 * time.Second) // by the clock of the bubble
		enqueue(false)
		if diff := cmp.Diff(2, store.workers); diff != "" {
			t.Fatalf("looks at the directory (-want +got):\n%s", diff)
		}
	})
}
