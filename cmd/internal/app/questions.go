package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// questions lets the HTTP API ask: producer and control do not know each other.
type questions struct{ client *control.Client }

var _ ingress.Questions = questions{}

func requestOf(q ingress.Question) control.Request {
	req := control.Request{ID: q.ID, Event: q.Event, Timeout: q.Timeout, Trace: q.Trace}
	if q.Chain != nil {
		req.Chain = make([]control.OperationHooks, len(q.Chain))
		for i, link := range q.Chain {
			req.Chain[i] = control.OperationHooks(link)
		}
	}
	return req
}

// Evaluate asks and waits.
func (q questions) Evaluate(ctx context.Context, asked ingress.Question) (tasks.Verdict, error) {
	verdict, err := q.client.Evaluate(ctx, requestOf(asked))
	return verdict, questionError(err)
}

// Submit asks and returns at once.
func (q questions) Submit(ctx context.Context, asked ingress.Question) (*tasks.Verdict, error) {
	_, verdict, err := q.client.Submit(ctx, requestOf(asked))
	return verdict, questionError(err)
}

// Await waits for a verdict.
func (q questions) Await(ctx context.Context, operationID, id string) (tasks.Verdict, error) {
	verdict, err := q.client.Await(ctx, operationID, id)
	return verdict, questionError(err)
}

// Cancel takes a question back.
func (q questions) Cancel(ctx context.Context, operationID, id string) (tasks.Verdict, error) {
	verdict, err := q.client.Cancel(ctx, operationID, id)
	return verdict, questionError(err)
}

// Controls lists what would be asked. The environment hooks of workers and of
// this process are the same ones as a rule, and are shown once then.
func (q questions) Controls(ctx context.Context, asked ingress.Question) ([]ingress.ControlInfo, error) {
	controls, err := q.client.Controls(ctx, requestOf(asked))
	if err != nil {
		return nil, questionError(err)
	}
	var list []ingress.ControlInfo
	for _, c := range controls {
		info := ingress.ControlInfo{
			HookID: c.HookID, OperationID: c.OperationID, Environment: c.Environment, Matcher: c.Matcher,
			OnError: c.OnError, OnErrorSet: c.OnErrorSet, Timeout: c.Timeout,
		}
		same := func(o ingress.ControlInfo) bool { return c.Environment && sameEnvironment(o, info) }
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i].Timeout = max(list[i].Timeout, info.Timeout)
			continue
		}
		list = append(list, info)
	}
	return list, nil
}

// sameEnvironment reports whether two environment hooks look the same.
func sameEnvironment(a, b ingress.ControlInfo) bool {
	same := a.Environment && a.HookID == b.HookID && a.OnError == b.OnError && (a.Matcher == nil) == (b.Matcher == nil)
	return same && (a.Matcher == nil || *a.Matcher == *b.Matcher)
}

// questionError says what the API knows an error as.
func questionError(err error) error {
	var invalid *tasks.InvalidError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, control.ErrPending):
		return fmt.Errorf("%w: %w", ingress.ErrPending, err)
	case errors.Is(err, control.ErrNotFound):
		return fmt.Errorf("%w: %w", lane.ErrNotFound, err)
	case errors.Is(err, control.ErrUnavailable):
		return fmt.Errorf("%w: %w", lane.ErrUnavailable, err)
	case errors.Is(err, control.ErrClosed):
		return fmt.Errorf("%w: %w", producer.ErrClosed, err)
	case errors.As(err, &invalid) && strings.HasPrefix(invalid.Path, roundsPath):
		// The hooks of a request were checked before; these were stored.
		return ingress.StoredHooksError(err)
	}
	if reused := (*control.ReusedError)(nil); errors.As(err, &reused) {
		return &lane.ReusedError{}
	}
	return err
}

// roundsPath starts the path of an invalid hook in a chain.
const roundsPath = "rounds["

// deferredResults lets the HTTP API keep results that come later.
type deferredResults struct{ service *deferred.Service }

var _ ingress.Deferred = deferredResults{}

// Open stores a placeholder.
func (d deferredResults) Open(ctx context.Context, p ingress.Placeholder) (ingress.DeferredRow, error) {
	placeholder := deferred.Placeholder{
		ID: p.ID, OperationID: p.OperationID, ApprovedFrom: p.ApprovedFrom, Content: p.Content, State: p.State, Bridge: p.Bridge,
	}
	if p.Call != nil {
		call := deferred.Call(*p.Call)
		placeholder.Call = &call
	}
	row, err := d.service.Open(ctx, placeholder)
	return rowOf(row), deferredError(err)
}

// Complete publishes a result once.
func (d deferredResults) Complete(ctx context.Context, c ingress.Completion) (ingress.Completed, error) {
	done, err := d.service.Complete(ctx, deferred.Completion{
		ID: c.ID, OperationID: c.OperationID, Raw: c.Result, PreserveUsage: c.PreserveUsage, Bridge: c.Bridge,
		RecordedCalls: c.RecordedCalls, Steps: c.Steps, Trace: c.Trace,
	})
	return ingress.Completed{Outcome: string(done.Outcome), Row: rowOf(done.Row), Verdict: done.Verdict}, deferredError(err)
}

// deferredRead bounds the reading of a row after a wait has ended.
const deferredRead = 5 * time.Second

// Await waits for a result, and tells how it stands when there is none.
func (d deferredResults) Await(ctx context.Context, id string) (ingress.DeferredRow, error) {
	if ctx.Err() == nil {
		row, err := d.service.Await(ctx, id)
		if !errors.Is(err, deferred.ErrPending) && !errors.Is(err, deferred.ErrClosed) {
			return rowOf(row), deferredError(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deferredRead)
	defer cancel()
	row, err := d.service.Get(ctx, id)
	if err == nil && !row.Final {
		err = deferred.ErrPending
	}
	return rowOf(row), deferredError(err)
}

func rowOf(r deferred.Row) ingress.DeferredRow {
	row := ingress.DeferredRow{
		ID: r.ID, OperationID: r.OperationID, Final: r.Final, Denied: r.Denied, Document: r.Document(),
	}
	if !r.OpenedAt.IsZero() {
		row.OpenedAt = r.OpenedAt.UnixMilli()
	}
	if !r.SettledAt.IsZero() {
		row.SettledAt = r.SettledAt.UnixMilli()
	}
	return row
}

// deferredErrors are the errors of deferred results and what the API knows them
// as, the more telling ones first.
var deferredErrors = [...]struct{ own, known error }{
	{deferred.ErrPending, ingress.ErrPending},
	{deferred.ErrNoCall, ingress.ErrNoCall},
	{deferred.ErrBridged, ingress.ErrBridged},
	{deferred.ErrNotFound, lane.ErrNotFound},
	{deferred.ErrUnavailable, lane.ErrUnavailable},
	{deferred.ErrEnvironmentUnknown, lane.ErrUnavailable},
}

// deferredError says what the API knows an error as.
func deferredError(err error) error {
	for _, e := range deferredErrors {
		if errors.Is(err, e.own) {
			return fmt.Errorf("%w: %w", e.known, err)
		}
	}
	var invalid *tasks.InvalidError
	switch {
	case errors.Is(err, deferred.ErrReused):
		return &lane.ReusedError{}
	case errors.As(err, &invalid) && strings.HasPrefix(invalid.Path, "hooks"):
		return ingress.StoredHooksError(err)
	}
	return questionError(err)
}
