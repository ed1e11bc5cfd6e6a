package taskdoor

import (
	"context"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// The event names of deliveries that the door makes.
const (
	logDelivered = "delivery.delivered"
	logFailed    = "delivery.failed"
	logFellBack  = "delivery.fell_back"
)

// deliverAll delivers to each hook, one after the other, whatever became of the
// ones before. It goes on when the sender hangs up, because the sender comes
// again and finds the work done then; the lease is its bound.
func (j *job) deliverAll(ctx context.Context) answer {
	if !j.slot(ctx) {
		j.fail(ctx, Failure{Next: unavailableWait, GivenUp: j.message.last()})
		return unavailable()
	}
	defer func() { <-j.door.slots }()
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.ticket.Lease)
	defer cancel()
	if j.message.relay.Hook != "" {
		return j.conclude(ctx, j.deliver(work, j.hooks[0], j.grant.Unsettled))
	}
	var worst webhook.Result
	worst.Delivered = true
	for _, h := range j.hooks {
		if result := j.once(work, h); !result.Delivered && (worst.Delivered || worst.Final) {
			worst = result
		}
	}
	return j.conclude(ctx, worst)
}

// slot waits for a free delivery.
func (j *job) slot(ctx context.Context) bool {
	timer := time.NewTimer(slotWait)
	defer timer.Stop()
	select {
	case j.door.slots <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	case <-j.door.closing:
	}
	return false
}

// once delivers to one hook of a whole task unless that was done before, so that
// a repeated message repeats only what failed.
func (j *job) once(ctx context.Context, h tasks.HookInForce) webhook.Result {
	claims := j.door.config.Claims
	ticket := Ticket{Operation: j.ticket.Operation, Key: j.message.task.ID + "\x00" + h.Key, Lease: j.ticket.Lease}
	grant, err := claims.Claim(ctx, ticket)
	switch {
	case err != nil:
		j.log.WithField(tasks.LogErr, err).Error(logClaim)
		return webhook.Result{Cancelled: true}
	case grant.State == Done:
		return webhook.Result{Delivered: true}
	case grant.State != Granted:
		return webhook.Result{Cancelled: true, RetryAfter: grant.Wait}
	}
	result := j.deliver(ctx, h, grant.Unsettled)
	if result.Delivered || result.Final {
		err = claims.Finish(ctx, ticket, grant.Token)
	} else {
		err = claims.Fail(ctx, ticket, grant.Token, Failure{Unsettled: unsettled(h, result)})
	}
	if err != nil {
		j.log.WithField(tasks.LogErr, err).Error(logClaim)
	}
	return result
}

// deliver makes one attempt at one hook.
func (j *job) deliver(ctx context.Context, h tasks.HookInForce, unsettledBefore bool) webhook.Result {
	task := j.message.task
	d := webhook.Delivery{
		Hook: h.Hook, Type: task.Type, Event: task.Event, ID: tasks.DeliveryID(j.door.config.Namespace, task.OperationID, task.ID, h.Key),
		TaskID: task.ID, OperationID: task.OperationID, Sequence: j.message.relay.Sequence, Attempt: j.message.retried + 1,
		Queued: true, Unsettled: unsettledBefore, Trace: task.Trace,
	}
	result := j.door.config.Deliverer.Deliver(ctx, d)
	j.report(d, result)
	return result
}

// report says in one line what an attempt came to.
func (j *job) report(d webhook.Delivery, result webhook.Result) {
	log := j.log.WithFields(logrus.Fields{
		tasks.LogHookID: d.Hook.ID, tasks.LogAttempt: d.Attempt, tasks.LogDeliveryID: d.ID, tasks.LogStatus: result.Status,
		tasks.LogElapsedMS: result.Elapsed.Milliseconds(),
	})
	if result.FellBack {
		log.WithField(tasks.LogMessage, result.Publish).Warn(logFellBack)
	}
	if result.Delivered {
		log.Debug(logDelivered)
		return
	}
	log.WithFields(logrus.Fields{
		tasks.LogClass: string(result.Class), tasks.LogCode: string(result.Class.CodeOf(result.Status)), tasks.LogMessage: result.Message,
	}).Warn(logFailed)
}

// unsettled reports whether an attempt left a publish without an answer.
func unsettled(h tasks.HookInForce, result webhook.Result) bool {
	return h.Hook.Webhook.Delivery == tasks.DeliverQStash && result.Class == tasks.ClassQStash
}

// conclude turns a result into the state of the work and the answer to QStash.
func (j *job) conclude(ctx context.Context, result webhook.Result) answer {
	failure := Failure{Unsettled: len(j.hooks) == 1 && unsettled(j.hooks[0], result)}
	next := j.door.config.Backoff.after(j.message.retried)
	switch {
	case result.Delivered && j.unmatched:
		// What could be delivered is; the rest is for an operator to see.
		j.finish(ctx)
		return finally(resultGivenUp, reasonMatcher)
	case result.Delivered:
		j.finish(ctx)
		return answer{status: http.StatusOK, result: resultDelivered}
	case result.Final:
		failure.GivenUp = true
		j.fail(ctx, failure)
		return finally(resultGivenUp, string(result.Reason))
	case result.Cancelled, result.RetryAfter > 0:
		failure.Next, failure.GivenUp = max(result.RetryAfter, unavailableWait), j.message.last()
		j.fail(ctx, failure)
		return answer{status: http.StatusServiceUnavailable, result: resultFailed, wait: failure.Next}
	}
	failure.Next, failure.GivenUp = next, j.message.last()
	j.fail(ctx, failure)
	return answer{status: http.StatusInternalServerError, result: resultFailed}
}
