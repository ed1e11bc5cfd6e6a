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

// The bodies of deferred results.
type (
	deferredOpenSchema struct {
		OperationID  string              `json:"operationId,omitempty" doc:"Operation of the call."`
		ApprovedFrom string              `json:"approvedFrom,omitempty" doc:"Operation that the human approval recorded; its controls are asked first."`
		Call         *deferredCallSchema `json:"call,omitempty" doc:"What controls are told of the call. Without it only a result that no control is configured for can be published."`
		Content      string              `json:"content,omitempty" doc:"What the message holds already; anything but an empty text is final."`
		State        map[string]any      `json:"state,omitempty"`
		Bridge       string              `json:"bridge,omitempty" doc:"Completion bridge that alone may complete it."`
	}
	deferredCallSchema struct {
		ToolCallID         string            `json:"toolCallId" doc:"Native id, never made up."`
		AssistantMessageID string            `json:"assistantMessageId"`
		Identifier         string            `json:"identifier"`
		APIName            string            `json:"apiName"`
		Arguments          string            `json:"arguments,omitempty" doc:"Stored text of the arguments; what is no JSON object counts as {}."`
		RecordedCalls      int               `json:"recordedCalls,omitempty" minimum:"0"`
		Steps              int               `json:"steps,omitempty" minimum:"0"`
		Context            map[string]string `json:"context,omitempty" doc:"Further optional texts of an afterToolCall event."`
	}
	deferredCompleteSchema struct {
		Result        map[string]any `json:"result" doc:"The tool's result, kept byte for byte: content, success, and what else it has."`
		OperationID   string         `json:"operationId,omitempty" doc:"Parent operation of the callback; absent: the placeholder's."`
		Bridge        string         `json:"bridge,omitempty" doc:"The completion bridge that calls."`
		PreserveUsage bool           `json:"preserveUsage,omitempty" doc:"The server built the result's state from the usage of child runs: a denial keeps its counters."`
		RecordedCalls int            `json:"recordedCalls,omitempty" minimum:"0"`
		Steps         int            `json:"steps,omitempty" minimum:"0"`
		Trace         string         `json:"trace,omitempty" doc:"W3C traceparent for the receivers."`
	}
)

const (
	deferredPath         = "/v1/deferred/{id}"
	deferredOpenPath     = deferredPath + ":open"
	deferredCompletePath = deferredPath + ":complete"
)

func (a *API) deferredRoutes() {
	tags, security := []string{"deferred results"}, needs(RoleRuntime)
	register(a, huma.Operation{
		OperationID: "openDeferred", Method: http.MethodPost, Path: deferredOpenPath, Tags: tags, Security: security,
		Summary: "Open a placeholder for a result that comes later", DefaultStatus: http.StatusAccepted,
		Description: "The same placeholder again reads it as it is by now; another one under the same id is refused.",
	}, a.openDeferred)
	register(a, huma.Operation{
		OperationID: "completeDeferred", Method: http.MethodPost, Path: deferredCompletePath, Tags: tags, Security: security,
		Summary: "Publish a result, once", DefaultStatus: http.StatusOK,
		Description: "Asks the result controls first. The first final result stands, a denial included; later ones are dropped. Repeating a callback is always right.",
	}, a.completeDeferred)
	register(a, huma.Operation{
		OperationID: "getDeferred", Method: http.MethodGet, Path: deferredPath, Tags: tags, Security: security,
		Summary: "How a deferred result stands", DefaultStatus: http.StatusOK,
	}, a.getDeferred)
}

func (a *API) describeDeferredBodies() {
	if a.config.Deferred == nil {
		return
	}
	paths, registry := a.huma.OpenAPI().Paths, a.huma.OpenAPI().Components.Schemas
	paths[deferredOpenPath].Post.RequestBody = jsonBody(registry.Schema(reflect.TypeFor[deferredOpenSchema](), true, "DeferredOpen"))
	paths[deferredCompletePath].Post.RequestBody = jsonBody(registry.Schema(reflect.TypeFor[deferredCompleteSchema](), true, "DeferredComplete"))
	final := *paths[deferredOpenPath].Post.Responses["202"]
	final.Description = "The result is final."
	paths[deferredOpenPath].Post.Responses["200"] = &final
	open := *paths[deferredPath].Get.Responses["200"]
	open.Description = "There is no final result yet."
	paths[deferredPath].Get.Responses["202"] = &open
}
