package ingress

import (
	"encoding/json"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// statusPending is the status of a question without a verdict. It is no status
// of package tasks, because nothing but an API answers with it.
const statusPending tasks.VerdictStatus = "pending"

// VerdictView is the answer to a question.
type VerdictView struct {
	OperationID string               `json:"operationId"`
	ID          string               `json:"id" doc:"Id of the question."`
	Type        tasks.HookType       `json:"type,omitempty" enum:"beforeToolCall,afterToolCall" doc:"The phase; absent while pending."`
	Status      tasks.VerdictStatus  `json:"status" enum:"allow,blocked,cancelled,pending" doc:"Only allow is permission. pending: ask again for the verdict."`
	Reason      string               `json:"reason,omitempty" doc:"What may be shown of a blocked call: the control's own reason, or hook_control_error."`
	Outcome     tasks.VerdictOutcome `json:"outcome,omitempty" enum:"no_control,allowed,denied,error_open,error_closed,unanswered_open,unanswered_closed,cancelled" doc:"How it came about. error_open and unanswered_open allowed the call although a control failed."`
	Controls    []ControlAnswer      `json:"controls" doc:"The controls that were asked, in order."`
	By          tasks.VerdictSource  `json:"by,omitempty" enum:"asker,worker" doc:"Who settled it."`
	Unsettled   bool                 `json:"unsettled,omitempty" doc:"Redis could not be asked: the policy was applied by the API alone."`
	SettledAt   int64                `json:"settledAt,omitempty" doc:"When it was settled, in Unix milliseconds of the clock of Redis."`
}

// ControlAnswer is what one control came to.
type ControlAnswer struct {
	HookID      string              `json:"hookId"`
	OperationID string              `json:"operationId,omitempty" doc:"Whose hook it is; absent for an environment hook."`
	Class       tasks.ControlClass  `json:"class" enum:"allow,deny,notification,error,cancelled" doc:"What its reply counts as."`
	Code        tasks.TransportCode `json:"code,omitempty" doc:"Code of an error."`
	Failure     tasks.FailureClass  `json:"failure,omitempty" doc:"Finer class of an error."`
	OnError     tasks.ErrorPolicy   `json:"onError" enum:"continue,block" doc:"Its failure policy."`
	Status      int                 `json:"status,omitempty" doc:"HTTP status of its reply."`
	ElapsedMS   int64               `json:"elapsedMs" doc:"How long it took, in milliseconds."`
}

// newVerdictView reads a verdict.
func newVerdictView(operationID string, v tasks.Verdict) VerdictView {
	view := VerdictView{
		OperationID: operationID, ID: v.ID, Type: v.Type, Status: v.Status, Reason: v.Reason, Outcome: v.Outcome,
		Controls: make([]ControlAnswer, 0, len(v.Controls)), By: v.By, Unsettled: v.Unsettled, SettledAt: v.SettledAt,
	}
	for _, c := range v.Controls {
		view.Controls = append(view.Controls, ControlAnswer(c))
	}
	return view
}

// pendingVerdict is the answer before there is one.
func pendingVerdict(operationID, id string) VerdictView {
	return VerdictView{OperationID: operationID, ID: id, Status: statusPending, Controls: []ControlAnswer{}}
}

// ControlList lists the controls that a tool call would meet.
type ControlList struct {
	OperationID string         `json:"operationId"`
	Type        tasks.HookType `json:"type"`
	Controls    []ControlView  `json:"controls" doc:"In the order in which they would be asked."`
}

// ControlView is a control that would be asked.
type ControlView struct {
	HookID         string            `json:"hookId,omitempty" doc:"Absent for an environment hook, of which only its workers know the rest."`
	OperationID    string            `json:"operationId,omitempty" doc:"Whose hook it is; absent for an environment hook."`
	Environment    bool              `json:"environment" doc:"It belongs to the deployment."`
	Matcher        *string           `json:"matcher,omitempty"`
	OnError        tasks.ErrorPolicy `json:"onError" enum:"continue,block" doc:"What an error means. continue lets the call through."`
	OnErrorSet     bool              `json:"onErrorSet" doc:"The hook names onError itself; otherwise it is the default."`
	TimeoutSeconds float64           `json:"timeoutSeconds,omitempty" doc:"What it has at most to answer."`
}

// newControlList reads controls.
func newControlList(operationID string, hookType tasks.HookType, controls []ControlInfo) ControlList {
	list := ControlList{OperationID: operationID, Type: hookType, Controls: make([]ControlView, 0, len(controls))}
	for _, c := range controls {
		list.Controls = append(list.Controls, ControlView{
			HookID: c.HookID, OperationID: c.OperationID, Environment: c.Environment, Matcher: c.Matcher,
			OnError: c.OnError, OnErrorSet: c.OnErrorSet, TimeoutSeconds: float64(c.Timeout) / float64(time.Second),
		})
	}
	return list
}

// DeferredView is how a deferred result stands.
type DeferredView struct {
	ID          string          `json:"id"`
	OperationID string          `json:"operationId,omitempty"`
	Final       bool            `json:"final" doc:"The result will never change again."`
	Denied      bool            `json:"denied" doc:"The result stands in for one that a control denied."`
	Result      json.RawMessage `json:"result" doc:"What a reader of the message sees: the result, or the placeholder's content and state."`
	OpenedAt    int64           `json:"openedAt,omitempty" doc:"Unix milliseconds of the clock of Redis."`
	SettledAt   int64           `json:"settledAt,omitempty" doc:"The same; absent while open."`
}

// newDeferredView reads a row.
func newDeferredView(r DeferredRow) DeferredView {
	return DeferredView{
		ID: r.ID, OperationID: r.OperationID, Final: r.Final, Denied: r.Denied, Result: r.Document, OpenedAt: r.OpenedAt, SettledAt: r.SettledAt,
	}
}

// CompletedView is what a completion came to.
type CompletedView struct {
	Outcome string `json:"outcome" enum:"published,duplicate" doc:"duplicate: the result was final before, and this one was dropped."`
	DeferredView
	Verdict *VerdictView `json:"verdict,omitempty" doc:"What the result controls said; absent when nobody was asked."`
}
