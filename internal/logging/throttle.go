package logging

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// throttlePeriod is the time between two lines about the same trouble.
const throttlePeriod = 10 * time.Second

// Throttle keeps a lasting fault from filling the log. It belongs to one
// goroutine. NewThrottle makes one; the zero value is not usable.
type Throttle struct {
	log     logrus.FieldLogger
	last    time.Time
	skipped int
	failing bool
}

// NewThrottle makes a Throttle in front of a logger.
func NewThrottle(log logrus.FieldLogger) *Throttle { return &Throttle{log: log} }

// Warn logs trouble, at most once in ten seconds. The line says for how many
// calls it stands.
func (t *Throttle) Warn(event string, err error) {
	t.failing = true
	if !t.last.IsZero() && time.Since(t.last) < throttlePeriod {
		t.skipped++
		return
	}
	t.log.WithField(tasks.LogErr, err).WithField(tasks.LogCount, t.skipped+1).Warn(event)
	t.last, t.skipped = time.Now(), 0
}

// Recovered logs the end of trouble, if there was some.
func (t *Throttle) Recovered(event string) {
	if !t.failing {
		return
	}
	t.log.Info(event)
	t.failing, t.last, t.skipped = false, time.Time{}, 0
}

// Failing reports whether the last word was of trouble.
func (t *Throttle) Failing() bool { return t.failing }
