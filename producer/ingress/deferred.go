package ingress

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// deferredInput names a deferred result.
type deferredInput struct {
	ID string `path:"id" doc:"Id of the placeholder: 1 to 512 bytes of UTF-8 without control characters, percent-encoded as one path segment."`
}

func (in *deferredInput) check() error { return atPath(tasks.CheckTaskID(in.ID), "path.id") }

// deferredOutput answers with how a deferred result stands.
type deferredOutput struct {
	Status int
	Body   DeferredView
}

// rowOutput is 200 for a final result and 202 for an open one.
func rowOutput(row DeferredRow) *deferredOutput {
	out := &deferredOutput{Status: http.StatusAccepted, Body: newDeferredView(row)}
	if row.Final {
		out.Status = http.StatusOK
	}
	return out
}

// openDeferred stores a placeholder.
func (a *API) openDeferred(ctx context.Context, in *deferredInput) (*deferredOutput, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	raw, err := a.readBody(ctx)
	if err != nil {
		return nil, err
	}
	placeholder, err := decodePlaceholder(in.ID, raw)
	if err != nil {
		return nil, err
	}
	if err := a.environment(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := a.detached(ctx)
	defer cancel()
	row, err := a.config.Deferred.Open(ctx, placeholder)
	if err != nil {
		return nil, refusedDeferred(err)
	}
	return rowOutput(row), nil
}

// completeInput is a callback with a result.
type completeInput struct {
	ID    string `path:"id" doc:"Id of the placeholder, percent-encoded as one path segment."`
	Trace string `header:"traceparent" doc:"W3C trace context for the receivers; ignored when malformed."`
}

// completeOutput answers a callback.
type completeOutput struct {
	Body CompletedView
}

// completeDeferred publishes a result once. A callback that goes away before the
// controls have answered leaves the placeholder open.
func (a *API) completeDeferred(ctx context.Context, in *completeInput) (*completeOutput, error) {
	if err := (&deferredInput{in.ID}).check(); err != nil {
		return nil, err
	}
	raw, err := a.readBody(ctx)
	if err != nil {
		return nil, err
	}
	completion, err := decodeCompletion(in.ID, raw)
	if err != nil {
		return nil, err
	}
	if completion.Trace == "" && validTrace(in.Trace) {
		completion.Trace = in.Trace
	}
	if err := a.environment(ctx); err != nil {
		return nil, err
	}
	_ = http.NewResponseController(exchangeOf(ctx).writer).SetWriteDeadline(time.Now().Add(a.config.QuestionTimeout + writeGrace))
	done, err := a.config.Deferred.Complete(ctx, completion)
	switch {
	case err != nil:
		return nil, refusedDeferred(err)
	case done.Outcome == OutcomeCancelled:
		// Nobody reads this unless it is the server that goes away.
		return nil, newProblem(CodeShuttingDown, "nothing was published, because the server is shutting down; repeat the request").
			with("Retry-After", "1")
	}
	out := &completeOutput{Body: CompletedView{Outcome: done.Outcome, DeferredView: newDeferredView(done.Row)}}
	if done.Verdict != nil {
		view := newVerdictView(done.Row.OperationID, *done.Verdict)
		out.Body.Verdict = &view
	}
	return out, nil
}

// getDeferredInput asks how a deferred result stands.
type getDeferredInput struct {
	ID   string `path:"id" doc:"Id of the placeholder, percent-encoded as one path segment."`
	Wait string `query:"wait" doc:"Wait that long for the result, such as 30s; absent does not wait." example:"30s"`
}

// getDeferred reads a deferred result, after a wait if asked.
func (a *API) getDeferred(ctx context.Context, in *getDeferredInput) (*deferredOutput, error) {
	if err := (&deferredInput{in.ID}).check(); err != nil {
		return nil, err
	}
	limit, _, err := a.parseWait("wait", in.Wait)
	if err != nil {
		return nil, err
	}
	waitCtx, cancel := a.waiting(ctx, limit)
	defer cancel()
	row, err := a.config.Deferred.Await(waitCtx, in.ID)
	if err != nil && !errors.Is(err, ErrPending) {
		return nil, refusedDeferred(err)
	}
	return rowOutput(row), nil
}

// refusedDeferred says what a caller can do about it.
func refusedDeferred(err error) error {
	var reused *lane.ReusedError
	switch {
	case errors.Is(err, lane.ErrNotFound):
		return newProblem(CodeNotFound, "the placeholder is not known: it was never opened, or has expired")
	case errors.As(err, &reused):
		return newFault(Fault{
			Path: "path.id", Code: CodeIDReused, Message: "the id stands for another placeholder", Fix: "use a new id for a new call",
		})
	case errors.Is(err, ErrNoCall):
		return newProblem(CodeNoCall,
			"controls must see the result, and the placeholder lacks what they are told of the call; nothing was published")
	case errors.Is(err, ErrBridged):
		return newProblem(CodeBridged, "the message belongs to a completion bridge, which alone may complete it; nothing was published")
	}
	return err
}
