package control

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// response is what came of one control.
type response struct {
	reply Reply
	// id is the delivery's; "" when nothing was asked.
	id      string
	status  int
	elapsed time.Duration
	// detail is safe to log; "" means none.
	detail string
}

// ask asks one control, unless it is clear before that it cannot answer.
func (c *chain) ask(ctx context.Context, control *tasks.ControlInForce) response {
	switch {
	case control.Err != nil:
		return response{reply: replyError(tasks.ClassConfiguration), detail: "matcher gave no answer"}
	case ctx.Err() != nil && !webhook.Cancelled(ctx):
		return response{reply: replyError(tasks.ClassTimeout), detail: "no time was left to ask"}
	}
	id := c.deliveryID(control)
	reply := c.asker.Ask(ctx, webhook.ControlRequest{
		Hook: control.Hook, Type: c.q.Type, Event: c.q.Event, ID: id,
		QuestionID: c.q.ID, OperationID: c.q.OperationID, Trace: c.q.Trace,
	})
	return response{reply: c.read(&reply), id: id, status: reply.Status, elapsed: reply.Elapsed, detail: reply.Message}
}

func (c *chain) read(reply *webhook.ControlReply) Reply {
	switch {
	case reply.Cancelled:
		return Reply{Class: tasks.ControlCancelled}
	case reply.Class != "":
		return replyError(reply.Class)
	}
	return ReadReply(c.q.Type, reply.Status, reply.Body)
}

// deliveryID names this question to this control: the same in every process that
// asks it. A question may have the id of an event and a control that of a
// notification, so the id of the question is marked with a character that no id
// can hold.
func (c *chain) deliveryID(control *tasks.ControlInForce) string {
	return tasks.DeliveryID(c.namespace, c.q.OperationID, "question\n"+c.q.ID, control.Key)
}

// eventAsked is the one log line of a control.
const eventAsked = "control.asked"

func (c *chain) logAsked(control *tasks.ControlInForce, a *response) {
	level := logrus.DebugLevel
	switch a.reply.Class {
	case tasks.ControlDeny:
		level = logrus.InfoLevel
	case tasks.ControlError:
		level = logrus.WarnLevel
	case tasks.ControlAllow, tasks.ControlNotification, tasks.ControlCancelled:
	}
	if !c.logs(level) {
		return
	}
	line := c.log.WithFields(c.fields(control, a))
	switch level {
	case logrus.WarnLevel:
		line.Warn(eventAsked)
	case logrus.InfoLevel:
		line.Info(eventAsked)
	default:
		line.Debug(eventAsked)
	}
}

// logs reports whether a line of the level would be written, so that lines that
// nobody reads cost nothing.
func (e *Evaluator) logs(level logrus.Level) bool {
	switch log := e.log.(type) {
	case *logrus.Logger:
		return log.IsLevelEnabled(level)
	case *logrus.Entry:
		return log.Logger.IsLevelEnabled(level)
	}
	return true
}

// fields never hold what the control wrote, a reason included.
func (c *chain) fields(control *tasks.ControlInForce, a *response) logrus.Fields {
	f := logrus.Fields{
		tasks.LogOperationID: c.q.OperationID, tasks.LogQuestionID: c.q.ID, tasks.LogHookID: control.Hook.ID,
		tasks.LogHookType: string(c.q.Type), tasks.LogDecision: string(a.reply.Class),
		tasks.LogOnError: string(control.Hook.ErrorPolicy()), tasks.LogElapsedMS: a.elapsed.Milliseconds(),
	}
	for key, text := range map[string]string{
		tasks.LogDeliveryID: a.id, tasks.LogClass: string(a.reply.Failure), tasks.LogCode: string(a.reply.Code()), tasks.LogMessage: a.detail,
	} {
		if text != "" {
			f[key] = text
		}
	}
	if a.status != 0 {
		f[tasks.LogStatus] = a.status
	}
	return f
}
