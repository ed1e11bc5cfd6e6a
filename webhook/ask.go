package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// ControlRequest asks one control hook for its decision.
type ControlRequest struct {
	// Hook is the control as configured.
	Hook *tasks.Hook
	// Type is the phase: tasks.BeforeToolCall or tasks.AfterToolCall.
	Type tasks.HookType
	// Event is the raw event object. It is sent whole.
	Event json.RawMessage
	// ID is the id of this question to this control, the same however often it is
	// asked.
	ID string
	// QuestionID and OperationID name the question.
	QuestionID  string
	OperationID string
	// Trace is a W3C traceparent; "" means none.
	Trace string
}

// ControlReply is what a control answered. Either Cancelled is true (the caller
// went away, whatever arrived before or after), or Class says why no reply
// counts, or the reply arrived whole with a status from 200 to 299. The zero
// value is no reply.
type ControlReply struct {
	Cancelled bool
	// Class is the failure class; "" when a reply arrived, or when cancelled.
	Class tasks.FailureClass
	// Status is the HTTP status of the reply; 0 when none arrived.
	Status int
	// Body is the decoded body, MaxReplyBytes at most; nil for a status that has
	// none (see HasBody).
	Body []byte
	// Message is a text about the failure that is safe to log: no secret, no query,
	// no remote text.
	Message string
	// Elapsed is the time from the start to the outcome.
	Elapsed time.Duration
}

// Ask asks a control and reads its reply (docs/behaviour.md §8, §12). The request
// is that of a notification, but for its payload. Connecting, the reply's head
// and its body share one bound: the hook's timeout, or what ctx has left of its
// deadline if that is less. A deadline of ctx is a timeout; any other end of it
// is a cancellation. Nothing is asked twice.
func (d *Deliverer) Ask(ctx context.Context, req ControlRequest) ControlReply {
	start := d.now()
	reply := d.ask(ctx, &req)
	// What arrived for somebody who went away meanwhile is nothing.
	if Cancelled(ctx) {
		reply = ControlReply{Cancelled: true}
	}
	reply.Elapsed = d.now().Sub(start)
	d.metrics.observe(&Result{
		Delivered: reply.Class == "" && !reply.Cancelled, Cancelled: reply.Cancelled, Class: reply.Class, Elapsed: reply.Elapsed,
	})
	return reply
}

// Cancelled reports whether ctx ended for another reason than its deadline: the
// asker went away, which is never a failure of a control.
func Cancelled(ctx context.Context) bool {
	err := ctx.Err()
	return err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

func (d *Deliverer) ask(ctx context.Context, req *ControlRequest) ControlReply {
	switch {
	case ctx.Err() != nil:
		return unanswered(failed(tasks.ClassTimeout, ""))
	case req.Hook == nil || req.Hook.Webhook == nil:
		return unanswered(failed(tasks.ClassConfiguration, "hook has no webhook"))
	case !req.Hook.Control():
		return unanswered(failed(tasks.ClassConfiguration, "hook is a notification"))
	case req.Hook.Webhook.Delivery == tasks.DeliverQStash:
		return unanswered(failed(tasks.ClassConfiguration, "a control cannot be queued"))
	}
	body, err := d.payloads.BuildControl(ctx, req.Hook.ID, req.Type, req.Event)
	switch {
	case ctx.Err() != nil:
		return unanswered(failed(tasks.ClassTimeout, ""))
	case err != nil:
		return unanswered(failed(tasks.ClassConfiguration, "payload cannot be built"))
	}
	out, err := d.prepare(&Delivery{
		Hook: req.Hook, Type: req.Type, ID: req.ID, TaskID: req.QuestionID, OperationID: req.OperationID, Attempt: 1, Trace: req.Trace,
	}, body)
	if err != nil {
		return unanswered(failedBefore(err))
	}
	askForEncoding(out.req.Header)
	return d.exchange(ctx, out)
}

// unanswered is the reply of a control that was not asked, or gave none.
func unanswered(r Result) ControlReply {
	return ControlReply{Class: r.Class, Status: r.Status, Message: r.Message}
}

// exchange sends the request and reads the reply.
func (d *Deliverer) exchange(ctx context.Context, out *outgoing) ControlReply {
	attempt, cancel := context.WithTimeout(ctx, out.timeout)
	defer cancel()
	resp, err := out.do(attempt)
	if err != nil {
		return unanswered(out.broken(attempt, err))
	}
	status := resp.StatusCode
	if class := StatusClass(status); class != "" {
		discard(resp, cancel)
		r := failed(class, "HTTP "+strconv.Itoa(status))
		r.Status = status
		return unanswered(r)
	}
	if !HasBody(status) {
		discard(resp, cancel)
		return ControlReply{Status: status}
	}
	body, err := readReply(resp)
	_ = resp.Body.Close()
	if err != nil {
		r := out.unread(attempt, err)
		r.Status = status
		return unanswered(r)
	}
	return ControlReply{Status: status, Body: body}
}

// broken builds the result of a request that came to no reply within attempt.
// The end of attempt decides before the error does, which may name anything.
func (out *outgoing) broken(attempt context.Context, err error) Result {
	if attempt.Err() != nil {
		err = context.DeadlineExceeded
	}
	return failedRequest(err, out.conn.made.Load())
}

// unread builds the result of a reply whose body could not be read whole.
func (out *outgoing) unread(attempt context.Context, err error) Result {
	var refused *replyError
	if errors.As(err, &refused) {
		return failed(refused.class, refused.detail)
	}
	return out.broken(attempt, err)
}

// HasBody reports whether a successful reply of the status has a body that
// counts: 204 and 205 have none, whatever is sent with them.
func HasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusResetContent
}
