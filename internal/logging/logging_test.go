package logging_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
)

func TestThrottleLogsLastingTroubleNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)
		hook := logrustest.NewLocal(log)
		throttle := logging.NewThrottle(log)
		throttle.Recovered("store.restored") // nothing was wrong
		for range 25 {                       // 0 s to 12 s
			throttle.Warn("store.lost", errors.New("refused"))
			<-time.After(500 * time.Millisecond)
		}
		if !throttle.Failing() {
			t.Error("the trouble is not known")
		}
		throttle.Recovered("store.restored")
		throttle.Recovered("store.restored")
		throttle.Warn("store.lost", errors.New("refused again"))
		var got []string
		for _, line := range hook.AllEntries() {
			got = append(got, fmt.Sprintf("%s %s %v", line.Level, line.Message, line.Data[tasks.LogCount]))
		}
		want := []string{"warning store.lost 1", "warning store.lost 20", "info store.restored <nil>", "warning store.lost 1"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
	})
}

func TestSilentFormatsNothing(t *testing.T) {
	formatted := false
	logging.Silent().WithField("text", stringer(func() string { formatted = true; return "" })).Error("event")
	if formatted {
		t.Fatal("a field of a discarded line was formatted")
	}
}

type stringer func() string

func (s stringer) String() string { return s() }
