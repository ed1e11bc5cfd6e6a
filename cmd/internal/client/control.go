package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// Verdict is the answer to a question. Raw is the whole document as the API
// wrote it.
type Verdict struct {
	OperationID string                `json:"operationId"`
	ID          string                `json:"id"`
	Type        tasks.HookType        `json:"type"`
	Status      tasks.VerdictStatus   `json:"status"`
	Reason      string                `json:"reason"`
	Outcome     tasks.VerdictOutcome  `json:"outcome"`
	Controls    []tasks.ControlResult `json:"controls"`
	By          tasks.VerdictSource   `json:"by"`
	Unsettled   bool                  `json:"unsettled"`
	Raw         json.RawMessage       `json:"-"`
}

// Question is a question about a tool call, as the API reads it.
type Question struct {
	OperationID string
	// Document is the body of the request.
	Document json.RawMessage
	// Timeout is what the question has; 0 means the deployment's default.
	Timeout time.Duration
}

// longestQuestion is what a question may have at most.
const longestQuestion = time.Hour

// Evaluate asks and waits for the verdict. The end of ctx takes the question back.
func (c *Client) Evaluate(ctx context.Context, q Question) (Verdict, error) {
	wait := q.Timeout
	if wait == 0 {
		wait = longestQuestion // only the deployment knows
	}
	var raw json.RawMessage
	err := c.call(ctx, request{
		method: http.MethodPost, path: operation(q.OperationID) + "/tool-calls:evaluate", body: q.Document, wait: wait,
	}, &raw)
	if err != nil {
		return Verdict{}, err
	}
	verdict := Verdict{Raw: raw}
	err = json.Unmarshal(raw, &verdict)
	return verdict, err
}

// Control is a control that a tool call would meet.
type Control struct {
	HookID         string            `json:"hookId,omitempty"`
	OperationID    string            `json:"operationId,omitempty"`
	Environment    bool              `json:"environment"`
	Matcher        *string           `json:"matcher,omitempty"`
	OnError        tasks.ErrorPolicy `json:"onError"`
	OnErrorSet     bool              `json:"onErrorSet"`
	TimeoutSeconds float64           `json:"timeoutSeconds,omitempty"`
}

// Explain lists the controls that a question would be put to, in order.
func (c *Client) Explain(ctx context.Context, q Question) ([]Control, error) {
	var answer struct {
		Controls []Control `json:"controls"`
	}
	err := c.call(ctx, request{
		method: http.MethodPost, path: operation(q.OperationID) + "/tool-calls:explain", body: q.Document,
	}, &answer)
	return answer.Controls, err
}
