package ingress

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// evaluateInput is a question about a tool call.
type evaluateInput struct {
	Op     string `path:"op" doc:"Id of the operation: 1 to 512 bytes of UTF-8 without control characters, percent-encoded as one path segment."`
	Wait   string `query:"wait" doc:"Wait that long for the verdict at most, such as 30s, and answer 202 then; 0s does not wait. Absent waits until there is one." example:"30s"`
	Prefer string `header:"Prefer" doc:"respond-async is the same as wait=0s (RFC 7240)."`
	Trace  string `header:"traceparent" doc:"W3C trace context of a question without a trace of its own; ignored when malformed."`
}

// evaluateOutput answers a question, or tells where its answer will be.
type evaluateOutput struct {
	Status   int
	Location string `header:"Location" doc:"With 202: where the verdict will be."`
	Applied  string `header:"Preference-Applied" doc:"respond-async when that was asked for."`
	Body     VerdictView
}

// evaluate asks whether a tool call may go ahead or its result be used. A caller
// that goes away while it waits takes its question with it.
func (a *API) evaluate(ctx context.Context, in *evaluateInput) (*evaluateOutput, error) {
	if err := operation(in.Op); err != nil {
		return nil, err
	}
	wait, bounded, err := a.parseWait("wait", in.Wait)
	if err != nil {
		return nil, err
	}
	q, err := a.questionOf(ctx, in.Op, in.Trace)
	if err != nil {
		return nil, err
	}
	if err := a.environment(ctx); err != nil {
		return nil, err
	}
	async := respondAsync(in.Prefer)
	if async || bounded && wait == 0 {
		return a.submit(ctx, q, async)
	}
	return a.evaluateWithin(ctx, q, within{limit: wait, bounded: bounded})
}

// submit stores a question and leaves the rest to a later request.
func (a *API) submit(ctx context.Context, q Question, preferred bool) (*evaluateOutput, error) {
	ctx, cancel := a.detached(ctx)
	defer cancel()
	verdict, err := a.config.Questions.Submit(ctx, q)
	if err != nil {
		return nil, refusedQuestion(err)
	}
	out := verdictOutput(q, verdict)
	if preferred {
		out.Applied = "respond-async"
	}
	return out, nil
}

// within is how long a request waits for a verdict; without a bound, as long as
// the question has.
type within struct {
	limit   time.Duration
	bounded bool
}

// evaluateWithin waits for the verdict. The question ends with its request, but
// it outlives a wait that was bounded and a server that stops: its caller is told
// where to go on.
func (a *API) evaluateWithin(ctx context.Context, q Question, w within) (*evaluateOutput, error) {
	if !w.bounded {
		w.limit = a.questionTime(q)
	}
	// The server's own deadline for writing would be over by then. A writer without
	// deadlines is no error.
	_ = http.NewResponseController(exchangeOf(ctx).writer).SetWriteDeadline(time.Now().Add(w.limit + writeGrace))
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	detach := func() { cancel(tasks.ErrDetached) }
	defer context.AfterFunc(a.draining, detach)()
	if w.bounded {
		defer time.AfterFunc(w.limit, detach).Stop()
	}
	verdict, err := a.config.Questions.Evaluate(asking, q)
	switch {
	case ctx.Err() != nil:
		a.callerGone(ctx, q)
		return nil, ctx.Err()
	case errors.Is(err, ErrPending):
		return verdictOutput(q, nil), nil
	case err != nil:
		return nil, refusedQuestion(err)
	}
	return verdictOutput(q, &verdict), nil
}

// callerGone logs that a question was taken back.
func (a *API) callerGone(ctx context.Context, q Question) {
	a.config.Logger.WithFields(logrus.Fields{
		logKeyRequestID: exchangeOf(ctx).id, tasks.LogOperationID: q.Event.OperationID, logKeyQuestionID: q.ID,
	}).Info(logQuestionCancelled)
}

// questionTime is what a question has in all.
func (a *API) questionTime(q Question) time.Duration {
	if q.Timeout > 0 {
		return q.Timeout
	}
	return a.config.QuestionTimeout
}

// respondAsync reads a Prefer header, which may hold several preferences.
func respondAsync(prefer string) bool {
	for preference := range strings.SplitSeq(prefer, ",") {
		name, _, _ := strings.Cut(preference, ";")
		if strings.EqualFold(strings.TrimSpace(name), "respond-async") {
			return true
		}
	}
	return false
}

// verdictOutput answers with a verdict, or with 202 when there is none yet.
func verdictOutput(q Question, verdict *tasks.Verdict) *evaluateOutput {
	if verdict != nil {
		return &evaluateOutput{Status: http.StatusOK, Body: newVerdictView(q.Event.OperationID, *verdict)}
	}
	return &evaluateOutput{
		Status:   http.StatusAccepted,
		Location: "/v1/operations/" + segment(q.Event.OperationID) + "/verdicts/" + segment(q.ID),
		Body:     pendingVerdict(q.Event.OperationID, q.ID),
	}
}

// segment escapes an id as one segment of a path.
func segment(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

// refusedQuestion says whose fault it is that a question could not be asked.
func refusedQuestion(err error) error {
	var reused *lane.ReusedError
	if errors.As(err, &reused) {
		return newFault(Fault{
			Path: "id", Code: CodeIDReused, Message: "the id stands for another question", Fix: "use a new id for a new question",
		})
	}
	return err
}

// verdictInput is a request about one verdict.
type verdictInput struct {
	Op   string `path:"op" doc:"Id of the operation, percent-encoded as one path segment."`
	ID   string `path:"id" doc:"Id of the question, percent-encoded as one path segment."`
	Wait string `query:"wait" doc:"Wait that long for the verdict, such as 30s; absent does not wait." example:"30s"`
}

func (in *verdictInput) check() error {
	if err := operation(in.Op); err != nil {
		return err
	}
	return atPath(tasks.CheckTaskID(in.ID), "path.id")
}

// getVerdict reads a verdict, after a wait if asked. Ending the request takes
// nothing back.
func (a *API) getVerdict(ctx context.Context, in *verdictInput) (*evaluateOutput, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	limit, _, err := a.parseWait("wait", in.Wait)
	if err != nil {
		return nil, err
	}
	waitCtx, cancel := a.waiting(ctx, limit)
	defer cancel()
	verdict, err := a.config.Questions.Await(waitCtx, in.Op, in.ID)
	switch {
	case errors.Is(err, ErrPending):
		return &evaluateOutput{Status: http.StatusAccepted, Body: pendingVerdict(in.Op, in.ID)}, nil
	case err != nil:
		return nil, unknownVerdict(err)
	}
	return &evaluateOutput{Status: http.StatusOK, Body: newVerdictView(in.Op, verdict)}, nil
}

// cancelInput names a question to take back.
type cancelInput struct {
	Op string `path:"op" doc:"Id of the operation, percent-encoded as one path segment."`
	ID string `path:"id" doc:"Id of the question, percent-encoded as one path segment."`
}

// cancelVerdict takes a question back and answers with what it came to.
func (a *API) cancelVerdict(ctx context.Context, in *cancelInput) (*evaluateOutput, error) {
	if err := (&verdictInput{Op: in.Op, ID: in.ID}).check(); err != nil {
		return nil, err
	}
	ctx, cancel := a.detached(ctx)
	defer cancel()
	verdict, err := a.config.Questions.Cancel(ctx, in.Op, in.ID)
	if err != nil {
		return nil, unknownVerdict(err)
	}
	return &evaluateOutput{Status: http.StatusOK, Body: newVerdictView(in.Op, verdict)}, nil
}

// unknownVerdict says why a question may be unknown.
func unknownVerdict(err error) error {
	if errors.Is(err, lane.ErrNotFound) {
		return newProblem(CodeNotFound, "the question is not known: it was never asked, was answered without being stored, or is forgotten")
	}
	return err
}

// explainInput asks which controls a tool call would meet.
type explainInput struct {
	Op string `path:"op" doc:"Id of the operation, percent-encoded as one path segment."`
}

// explainOutput lists controls.
type explainOutput struct {
	Body ControlList
}

// explain lists the controls that would be asked, and asks none.
func (a *API) explain(ctx context.Context, in *explainInput) (*explainOutput, error) {
	if err := operation(in.Op); err != nil {
		return nil, err
	}
	q, err := a.questionOf(ctx, in.Op, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.step(ctx)
	defer cancel()
	controls, err := a.config.Questions.Controls(ctx, q)
	if err != nil {
		return nil, refusedQuestion(err)
	}
	return &explainOutput{Body: newControlList(in.Op, q.Event.Type, controls)}, nil
}
