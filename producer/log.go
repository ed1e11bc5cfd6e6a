package producer

import (
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// The events that a Dispatcher logs.
const (
	// logHookFailed is a hook of local mode that failed: a webhook that is not
	// delivered, or a handler that returned an error or panicked.
	logHookFailed = "hook.failed"
	// logPublishFailed is a failed publish that a fetch followed.
	logPublishFailed = "hook.publish_failed"
	// logInboxLost and logInboxHeard mark the begin and the end of an outage for
	// those who wait.
	logInboxLost  = "inbox.lost"
	logInboxHeard = "inbox.restored"
)

// logger names the hook of a local dispatch.
func (r *localRun) logger(s step) logrus.FieldLogger {
	return r.dispatcher.config.Logger.WithFields(logrus.Fields{
		tasks.LogOperationID: r.operationID,
		tasks.LogTaskID:      r.request.ID,
		tasks.LogHookID:      s.Hook.ID,
		tasks.LogHookType:    string(r.request.Event.Type),
	})
}

// logHandler reports a handler that failed; the error is the runtime's own.
func (r *localRun) logHandler(s step, err error) {
	r.logger(s).WithField(tasks.LogErr, err).Warn(logHookFailed)
}
