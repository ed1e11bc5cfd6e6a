package inbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"

	"github.com/gantry-hooks/gantry/internal/inbox"
)

// scripted is a store whose Hear answers what the test sends.
type scripted struct {
	heard chan []string // test → ear
	fault chan error    // test → ear
}

func (s scripted) Shards() int { return 1 }

func (s scripted) Hear(ctx context.Context, _ int, _ string) ([]string, error) {
	select {
	case keys := <-s.heard:
		return keys, nil
	case err := <-s.fault:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func setup() (*inbox.Inbox[string], scripted, *logrustest.Hook) {
	source := scripted{heard: make(chan []string), fault: make(chan error)}
	log, hook := logrustest.NewNullLogger()
	return inbox.New(inbox.Config[string]{Source: source, Logger: logrus.FieldLogger(log), Lost: "lost", Restored: "restored"}), source, hook
}

// woken counts the hints that lie before a waiter, once all ears are at rest.
func woken(w *inbox.Waiter[string]) int {
	synctest.Wait()
	for n := 0; ; n++ {
		select {
		case <-w.Woken():
		default:
			return n
		}
	}
}

func TestHintsReachThoseWhoWaitForTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, source, _ := setup()
		defer b.Close()
		a, second, other := b.Join("a"), b.Join("a"), b.Join("b")
		source.heard <- []string{"a", "nobody's"}
		source.heard <- []string{"a"}
		if diff := cmp.Diff([]int{1, 1, 0}, []int{woken(a), woken(second), woken(other)}); diff != "" {
			t.Errorf("hints (-want +got):\n%s", diff)
		}
		b.Leave(second)
		source.heard <- []string{"a", "b"}
		if diff := cmp.Diff([]int{1, 0, 1}, []int{woken(a), woken(second), woken(other)}); diff != "" {
			t.Errorf("hints after one left (-want +got):\n%s", diff)
		}
	})
}

func TestAnOutageIsToldOnceAndMakesEverybodyLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, source, hook := setup()
		defer b.Close()
		w := b.Join("a")
		source.fault <- errors.New("gone")
		source.fault <- errors.New("still gone")
		source.heard <- nil
		if got := woken(w); got != 1 {
			t.Errorf("the waiter has %d hints, want 1", got)
		}
		var got []string
		for _, line := range hook.AllEntries() {
			got = append(got, line.Message)
		}
		if diff := cmp.Diff([]string{"lost", "restored"}, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	})
}

func TestCloseEndsTheEarsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := setup()
		b.Join("a")
		b.Close()
		b.Close()
		b.Join("late") // an ear that it opened would outlive the test, which synctest refuses
		select {
		case <-b.Done():
		default:
			t.Error("the inbox is closed, but not done")
		}
	})
}
