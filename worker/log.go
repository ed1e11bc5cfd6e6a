package worker

import (
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
)

// The events of an attempt's log line.
const (
	eventDelivered = "delivery.delivered"
	eventParked    = "delivery.parked"
	eventDead      = "delivery.dead"
	eventFellBack  = "delivery.fell_back"
)

// logAttempt writes the one line of an attempt: debug when it went well, so that
// a busy worker's log stays readable.
func (d *drainer) logAttempt(del webhook.Delivery, res webhook.Result, r ruling) {
	if res.FellBack {
		d.log.WithFields(attemptFields(del, res)).WithField(tasks.LogMessage, res.Publish).Warn(eventFellBack)
	}
	if res.Delivered {
		if d.cfg.Logger.IsLevelEnabled(logrus.DebugLevel) {
			d.log.WithFields(attemptFields(del, res)).Debug(eventDelivered)
		}
		return
	}
	line := d.log.WithFields(attemptFields(del, res)).WithField(tasks.LogMessage, res.Message)
	if r.outcome.Standing == lane.StandingDead {
		line.WithField(tasks.LogReason, r.outcome.Reason).Error(eventDead)
		return
	}
	line.WithField(tasks.LogDelayMS, r.delay.Milliseconds()).Warn(eventParked)
}

func attemptFields(del webhook.Delivery, res webhook.Result) logrus.Fields {
	f := logrus.Fields{
		tasks.LogOperationID: del.OperationID, tasks.LogTaskID: del.TaskID, tasks.LogHookID: del.Hook.ID,
		tasks.LogAttempt: del.Attempt, tasks.LogHookType: string(del.Type), tasks.LogSequence: del.Sequence,
		tasks.LogDeliveryID: del.ID, tasks.LogElapsedMS: res.Elapsed.Milliseconds(),
	}
	if res.Class != "" {
		f[tasks.LogClass] = string(res.Class)
		f[tasks.LogCode] = string(res.Class.CodeOf(res.Status))
	}
	if res.Status != 0 {
		f[tasks.LogStatus] = res.Status
	}
	return f
}
