package ingress

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// The bodies of the control path, as the OpenAPI document shows them.
type (
	questionSchema struct {
		Type    string            `json:"type" enum:"beforeToolCall,afterToolCall" doc:"The phase: may the call go ahead, or may its result be used?"`
		Event   map[string]any    `json:"event" doc:"The event object, kept byte for byte; operationId is filled in when absent."`
		ID      string            `json:"id,omitempty" maxLength:"512" doc:"Idempotency key within the operation; the same id and content reads the same verdict. Drawn when absent."`
		Chain   []chainLinkSchema `json:"chain,omitempty" maxItems:"32" doc:"The operations whose hooks are asked, in order; absent: the operation of the path. Empty: environment hooks only."`
		Timeout string            `json:"timeout,omitempty" doc:"What all controls have together, from 1ms to 1h; absent: the deployment's control.timeout." example:"30s"`
		Trace   string            `json:"trace,omitempty" doc:"W3C traceparent for the receivers."`
	}
	chainLinkSchema struct {
		OperationID string       `json:"operationId"`
		Hooks       []hookSchema `json:"hooks,omitempty" doc:"The operation's hooks; absent: those that are registered for it."`
	}
)

const (
	evaluatePath = "/v1/operations/{op}/tool-calls:evaluate"
	explainPath  = "/v1/operations/{op}/tool-calls:explain"
	verdictPath  = "/v1/operations/{op}/verdicts/{id}"
)

func (a *API) questionRoutes() {
	tags, security := []string{"tool calls"}, needs(RoleRuntime)
	register(a, huma.Operation{
		OperationID: "evaluateToolCall", Method: http.MethodPost, Path: evaluatePath, Tags: tags, Security: security,
		Summary: "May this tool call go ahead, or its result be used?", DefaultStatus: http.StatusOK,
		Description: "Asks the controls in order and answers with one verdict by the deadline. Only the status allow is permission. Ending the request while it waits cancels the question.",
	}, a.evaluate)
	register(a, huma.Operation{
		OperationID: "explainToolCall", Method: http.MethodPost, Path: explainPath, Tags: tags, Security: security,
		Summary: "Which controls would be asked?", DefaultStatus: http.StatusOK,
	}, a.explain)
	register(a, huma.Operation{
		OperationID: "getVerdict", Method: http.MethodGet, Path: verdictPath, Tags: tags, Security: security,
		Summary: "The verdict of a question", DefaultStatus: http.StatusOK,
	}, a.getVerdict)
	register(a, huma.Operation{
		OperationID: "cancelVerdict", Method: http.MethodDelete, Path: verdictPath, Tags: tags, Security: security,
		Summary: "Take a question back", DefaultStatus: http.StatusOK,
		Description: "Answers with what the question came to: cancelled, or the verdict that was there before.",
	}, a.cancelVerdict)
}

// describeControlBodies adds the bodies of the control path to the document.
func (a *API) describeControlBodies() {
	paths, registry := a.huma.OpenAPI().Paths, a.huma.OpenAPI().Components.Schemas
	if a.config.Questions == nil {
		return
	}
	question := jsonBody(registry.Schema(reflect.TypeFor[questionSchema](), true, "Question"))
	paths[evaluatePath].Post.RequestBody = question
	paths[explainPath].Post.RequestBody = question
	for _, operation := range []*huma.Operation{paths[evaluatePath].Post, paths[verdictPath].Get} {
		pending := *operation.Responses["200"]
		pending.Description = "There is no verdict yet: status is pending."
		operation.Responses["202"] = &pending
	}
}
