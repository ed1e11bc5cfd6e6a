package verify

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// EventKind says what happened to a request. The kinds are the constant messages
// of log lines, too.
type EventKind string

// The kinds.
const (
	// EventRefused: the signature does not count; Reason says why.
	EventRefused EventKind = "receiver.refused"
	// EventTooLarge: the body is longer than Config.MaxBody.
	EventTooLarge EventKind = "receiver.too_large"
	// EventUnreadable: the body did not arrive whole.
	EventUnreadable EventKind = "receiver.unreadable"
	// EventRotationDue: a key signed that is not the first or current one, so that the
	// receiver's keys should be replaced before they are rotated again. The log says
	// it once an hour, Notify hears of each.
	EventRotationDue EventKind = "receiver.rotation_due"
	// EventDuplicate: the message was finished before; answered with 200.
	EventDuplicate EventKind = "receiver.duplicate"
	// EventInProgress: another delivery of the message is running; answered with 409.
	EventInProgress EventKind = "receiver.in_progress"
	// EventReleased: the handler did not finish the message; its next delivery runs.
	EventReleased EventKind = "receiver.released"
	// EventStoreFailed: the Store did not answer. Before the handler this means 503;
	// after it, the message may run again once its lease ends.
	EventStoreFailed EventKind = "receiver.store_failed"
)

// Event is what happened to a request. It holds nothing of its body, its
// signature or a key.
type Event struct {
	Kind EventKind
	// Facts is what is known of a request that passed; its Scheme is set for others,
	// too, as soon as it is known.
	Facts Facts
	// Reason says why a request was refused; "" for other kinds.
	Reason Reason
	// Err is the error of the Store, or of reading the body; nil for other kinds.
	Err error
}

// The keys of log lines that tasks does not know.
const (
	logScheme    = "scheme"
	logMessageID = "message_id"
)

// rotationWarning is how often a due rotation is logged.
const rotationWarning = time.Hour

func (v *Verifier) report(ctx context.Context, e Event) {
	v.config.Notify(ctx, e)
	level := e.Kind.level()
	if e.Kind == EventRotationDue && !v.warnNow() {
		level = logrus.DebugLevel
	}
	fields := logrus.Fields{}
	for key, value := range map[string]string{
		logScheme: string(e.Facts.Scheme), tasks.LogReason: string(e.Reason), logMessageID: e.Facts.ID,
	} {
		if value != "" {
			fields[key] = value
		}
	}
	if e.Facts.Attempt > 0 {
		fields[tasks.LogAttempt] = e.Facts.Attempt
	}
	if e.Err != nil {
		fields[tasks.LogErr] = e.Err
	}
	v.config.Logger.WithFields(fields).Log(level, string(e.Kind))
}

func (k EventKind) level() logrus.Level {
	switch k {
	case EventDuplicate, EventInProgress, EventReleased:
		return logrus.InfoLevel
	case EventStoreFailed:
		return logrus.ErrorLevel
	}
	return logrus.WarnLevel
}

// warnNow reports whether a due rotation has not been logged lately.
func (v *Verifier) warnNow() bool {
	now, next := v.config.Now().UnixNano(), v.nextWarning.Load()
	return now >= next && v.nextWarning.CompareAndSwap(next, now+int64(rotationWarning))
}
