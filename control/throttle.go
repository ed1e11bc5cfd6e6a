package control

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// throttlePeriod is the time between two lines about the same trouble.
const throttlePeriod = 10 * time.Second

// throttle keeps a lasting fault from filling the log. It belongs to one goroutine.
type throttle struct {
	log     logrus.FieldLogger
	last    time.Time
	skipped int
	failing bool
}

func newThrottle(log logrus.FieldLogger) *throttle { return &throttle{log: log} }

func (t *throttle) warn(event string, err error) {
	t.failing = true
	if !t.last.IsZero() && time.Since(t.last) < throttlePeriod {
		t.skipped++
		return
	}
	t.log.WithField(tasks.LogErr, err).WithField(tasks.LogCount, t.skipped+1).Warn(event)
	t.last, t.skipped = time.Now(), 0
}

func (t *throttle) recovered(event string) {
	if !t.failing {
		return
	}
	t.log.Info(event)
	t.failing, t.last, t.skipped = false, time.Time{}, 0
}
