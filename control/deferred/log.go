package deferred

import (
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// The events that a Service logs.
const (
	// logPublished is a result that became final; logDenied one that a denial stands in for.
	logPublished = "deferred.published"
	logDenied    = "deferred.denied"
	// logNotifyFailed is a published result whose notification was not taken.
	logNotifyFailed = "deferred.notification_failed"
	// logInboxLost and logInboxHeard mark the begin and the end of an outage for
	// those who wait.
	logInboxLost  = "deferred.inbox_lost"
	logInboxHeard = "deferred.inbox_restored"
)

// logger names the row; results and reasons may hold what must not be printed.
func (s *Service) logger(w *completing) logrus.FieldLogger {
	return s.config.Logger.WithFields(logrus.Fields{tasks.LogOperationID: w.operation(), tasks.LogTaskID: w.ID})
}

func (s *Service) logPublished(w *completing, done Completed) {
	if !done.Row.Denied {
		s.logger(w).Debug(logPublished)
		return
	}
	s.logger(w).WithField(tasks.LogReason, string(done.Verdict.Outcome)).Info(logDenied)
}
