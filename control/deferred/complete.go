package deferred

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

// Completion is a callback with the result of a deferred call. A member that
// could not be started is completed in the same way, with an unsuccessful result.
type Completion struct {
	// ID is the placeholder's. Required.
	ID string
	// OperationID is the parent operation of the callback; "" means the placeholder's.
	OperationID string
	// Result is what the call came to, unless Raw is there.
	Result tasks.ToolResult
	// Raw is the result as a JSON object, which controls see and readers get with
	// every field that it has; nil means that Result is encoded.
	Raw json.RawMessage
	// PreserveUsage says that the server built the result's state from the usage of
	// child runs: a denial keeps its counters then. Never set it for a tool's own state.
	PreserveUsage bool
	// Bridge is the completion bridge that calls; "" means that none does.
	Bridge string
	// RecordedCalls and Steps replace the placeholder's numbers; nil keeps them.
	RecordedCalls, Steps *int
	// Trace is a W3C traceparent; "" means none.
	Trace string
}

// Outcome is what a callback came to.
type Outcome string

// The outcomes. Beside them there are errors, after which the callback should be
// repeated.
const (
	// Published: the row is final, and by this callback.
	Published Outcome = "published"
	// Duplicate: the row was final before.
	Duplicate Outcome = "duplicate"
	// Cancelled: the caller went away. Nothing was published, and a later callback can
	// publish.
	Cancelled Outcome = "cancelled"
)

// Completed is what Complete did.
type Completed struct {
	Outcome Outcome
	// Row is the row that stands; for Cancelled as it was last seen, or zero.
	Row Row
	// Verdict is what the controls said; nil when nobody was asked.
	Verdict *tasks.Verdict
}

// Complete asks the result controls of the call and then publishes the result, or
// what stands in for a denied one, once (docs/behaviour.md §18). The first final
// result stands, whatever later callbacks bring. With an error nothing was
// published, except that ErrUnavailable may follow a publication: repeating the
// callback is always right. Errors that repeating does not mend are
// *tasks.InvalidError, ErrNotFound, ErrBridged and ErrNoCall.
func (s *Service) Complete(ctx context.Context, c Completion) (Completed, error) {
	done, err := s.complete(ctx, c)
	if err != nil && gone(ctx) && !errors.Is(err, errPublishing) {
		done, err = Completed{Outcome: Cancelled, Row: done.Row}, nil
	}
	s.metrics.completed(done, err)
	return done, err
}

// gone reports whether nobody waits any more.
func gone(ctx context.Context) bool { return ctx.Err() != nil }

// completing is one callback on its way.
type completing struct {
	Completion
	row    Row
	raw    json.RawMessage
	result tasks.ToolResult
	rounds []round
	event  *tasks.Event
}

func (s *Service) complete(ctx context.Context, c Completion) (Completed, error) {
	raw, result, err := c.check()
	if err != nil {
		return Completed{}, err
	}
	row, err := s.config.Store.Read(ctx, c.ID, "")
	if err != nil {
		return Completed{}, err
	}
	done := Completed{Outcome: Duplicate, Row: row}
	switch {
	case row.Bridge != "" && c.Bridge != row.Bridge:
		return done, ErrBridged
	case row.Final:
		return done, nil
	}
	w := &completing{Completion: c, row: row, raw: raw, result: result}
	if c.OperationID == "" {
		w.OperationID = row.OperationID
	}
	verdict, err := s.decide(ctx, w)
	if err != nil {
		return done, err
	}
	done.Verdict = verdict
	if verdict != nil && verdict.Status == tasks.VerdictCancelled || gone(ctx) {
		done.Outcome = Cancelled
		return done, nil
	}
	return s.publish(ctx, w, done)
}

// check reads the result: what controls see is, byte for byte, what is published.
func (c *Completion) check() (json.RawMessage, tasks.ToolResult, error) {
	if err := tasks.CheckTaskID(c.ID); err != nil {
		return nil, tasks.ToolResult{}, err
	}
	if err := checkOperation(c.OperationID, "operationId"); err != nil {
		return nil, tasks.ToolResult{}, err
	}
	raw := json.RawMessage(bytes.TrimSpace(c.Raw))
	if c.Raw == nil {
		encoded, err := tasks.EncodeToolResult(c.Result)
		if err != nil {
			return nil, tasks.ToolResult{}, fmt.Errorf("read result: %w", err)
		}
		raw = encoded
	}
	result, err := tasks.ParseToolResult(raw)
	if err != nil {
		return nil, tasks.ToolResult{}, fmt.Errorf("read result: %w", err)
	}
	return raw, result, nil
}

// decide asks the controls. A nil verdict without an error means that none is
// configured.
func (s *Service) decide(ctx context.Context, w *completing) (*tasks.Verdict, error) {
	rounds, err := s.rounds(ctx, &w.row, w.OperationID)
	if err != nil {
		return nil, err
	}
	w.rounds = rounds
	if !w.row.Call.rebuildable() {
		configured, err := s.configured(ctx, rounds)
		if err == nil && configured {
			err = ErrNoCall
		}
		return nil, err
	}
	if w.event, err = w.build(w.raw); err != nil {
		return nil, err
	}
	chain := make([]control.OperationHooks, len(rounds))
	for i, r := range rounds {
		chain[i] = control.OperationHooks{OperationID: r.operationID, Hooks: r.hooks}
	}
	verdict, err := s.config.Controls.Evaluate(ctx, control.Request{Event: w.event, Chain: chain, Trace: w.Trace})
	if err != nil {
		return nil, fmt.Errorf("ask result controls: %w", err)
	}
	switch verdict.Status {
	case tasks.VerdictAllow, tasks.VerdictBlocked, tasks.VerdictCancelled:
		return &verdict, nil
	}
	return nil, fmt.Errorf("ask result controls: verdict %q is none", verdict.Status)
}

// errPublishing marks an error after which the result may be published.
var errPublishing = errors.New("publish result")

func (s *Service) publish(ctx context.Context, w *completing, done Completed) (Completed, error) {
	publication := Publication{ID: w.ID, Token: tasks.NewID(), Result: w.raw}
	if done.Verdict != nil && !done.Verdict.Allowed() {
		replaced, err := tasks.EncodeToolResult(w.denial(done.Verdict.Reason).Replace(w.result))
		if err != nil {
			return done, fmt.Errorf("replace result: %w", err)
		}
		publication.Result, publication.Denied = replaced, true
	}
	// What is decided is written even if the caller goes away now.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.SettleTimeout)
	defer cancel()
	row, published, err := s.config.Store.Publish(settling, publication)
	if err != nil {
		return done, fmt.Errorf("%w: %w", errPublishing, err)
	}
	done.Row = row
	if !published {
		done.Outcome = Duplicate
		return done, nil
	}
	done.Outcome = Published
	s.logPublished(w, done)
	s.notify(settling, w, publication.Result)
	return done, nil
}

// denial says what of a denied result survives. Only what the server itself wrote
// may ask a group to finish.
func (w *completing) denial(reason string) tasks.Denial {
	finish := asksToFinish(w.row.State) || w.PreserveUsage && asksToFinish(w.result.State)
	return tasks.Denial{Reason: reason, Usage: w.PreserveUsage, Finish: finish}
}

func asksToFinish(state json.RawMessage) bool {
	members, _ := tasks.SplitObject(state)
	finish := false
	for _, m := range members {
		if m.Key == "onComplete" {
			var value any
			finish = json.Unmarshal(m.Value, &value) == nil && value == "finish"
		}
	}
	return finish
}

// notify tells what was published. A call that cannot be told about, and a notifier
// that fails, are no failure of the completion.
func (s *Service) notify(ctx context.Context, w *completing, published json.RawMessage) {
	if s.config.Notifier == nil || w.event == nil || w.operation() == "" {
		return
	}
	event, err := w.build(published)
	if err == nil {
		n := tasks.Notification{Event: event, ID: "deferred:" + tasks.OperationHash(w.ID), Trace: w.Trace}
		if last := w.rounds[len(w.rounds)-1]; last.known {
			n.Persisted = last.hooks
		}
		_, err = s.config.Notifier.Notify(ctx, n)
	}
	if err != nil {
		s.logger(w).WithField(tasks.LogErr, err).Warn(logNotifyFailed)
	}
}
