package ingress

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

var (
	errorModelType = reflect.TypeFor[huma.ErrorModel]()
	problemDocType = reflect.TypeFor[Problem]()
)

// The bodies of requests as the OpenAPI document shows them. They are never
// decoded into: package tasks reads the raw bytes.
type (
	hookSchema struct {
		ID      string         `json:"id" doc:"Name of the hook; need not be unique."`
		Type    string         `json:"type" doc:"One of the hook types of docs/events.md."`
		Matcher string         `json:"matcher,omitempty" doc:"ECMAScript regular expression over identifier/apiName; tool events only."`
		Webhook webhookSchema  `json:"webhook" doc:"The action. A hook without one is refused: handlers run in Go processes only."`
		Gantry  *optionsSchema `json:"gantry,omitempty" doc:"Settings that only Gantry knows."`
	}
	webhookSchema struct {
		URL              string            `json:"url" doc:"http or https, or a path of the application."`
		Timeout          float64           `json:"timeout,omitempty" doc:"Seconds; 30 when absent."`
		Delivery         string            `json:"delivery,omitempty" enum:"fetch,qstash"`
		Fallback         string            `json:"fallback,omitempty" enum:"fetch,none" doc:"none makes the hook critical."`
		OnError          string            `json:"onError,omitempty" enum:"continue,block"`
		ResponseHandling string            `json:"responseHandling,omitempty" enum:"ignore,toolCall"`
		AllowedEnvVars   []string          `json:"allowedEnvVars,omitempty" doc:"Variables that header templates may name."`
		Headers          map[string]string `json:"headers,omitempty" doc:"Templates; ${NAME} is replaced when the request is sent."`
		Body             map[string]any    `json:"body,omitempty" doc:"Merged over the payload."`
		EventFields      []string          `json:"eventFields,omitempty" doc:"Fields of the event that are sent; all when absent."`
	}
	optionsSchema struct {
		Retry         *retrySchema `json:"retry,omitempty"`
		SigningKeyEnv string       `json:"signingKeyEnv,omitempty" doc:"Name of the variable that holds the signing keys."`
	}
	retrySchema struct {
		Attempts            int     `json:"attempts,omitempty" doc:"Attempts in all."`
		ClientErrorAttempts int     `json:"clientErrorAttempts,omitempty" doc:"Attempts in all while the endpoint answers 4xx."`
		MaxAgeSeconds       float64 `json:"maxAgeSeconds,omitempty"`
		InitialDelaySeconds float64 `json:"initialDelaySeconds,omitempty"`
		Factor              float64 `json:"factor,omitempty"`
		MaxDelaySeconds     float64 `json:"maxDelaySeconds,omitempty"`
	}
	eventSchema struct {
		ID    string         `json:"id,omitempty" maxLength:"512" doc:"Idempotency key within the operation; drawn when absent."`
		Type  string         `json:"type" doc:"One of the hook types of docs/events.md."`
		Event map[string]any `json:"event" doc:"The event object, kept byte for byte; operationId is filled in when absent."`
		Delay string         `json:"delay,omitempty" doc:"Keeps the event out of the lane that long." example:"5s"`
		Trace string         `json:"trace,omitempty" doc:"W3C traceparent for the receivers."`
	}
	eventBatchSchema struct {
		Events []eventSchema `json:"events"`
	}
	hookBatchSchema struct {
		Hooks []hookSchema `json:"hooks"`
	}
	replaySchema struct {
		IDs    []string      `json:"ids,omitempty" maxItems:"1000" doc:"These letters."`
		Filter *filterSchema `json:"filter,omitempty" doc:"The letters that match; not empty."`
		All    bool          `json:"all,omitempty" doc:"All letters."`
	}
	filterSchema struct {
		Operation string `json:"operation,omitempty"`
		Hook      string `json:"hook,omitempty"`
		Type      string `json:"type,omitempty"`
		Class     string `json:"class,omitempty"`
	}
)

// routes registers each operation of the API.
func (a *API) routes() {
	a.hookRoutes()
	a.eventRoutes()
	if a.config.Questions != nil {
		a.questionRoutes()
	}
	if a.config.Deferred != nil {
		a.deferredRoutes()
	}
	a.operatorRoutes()
	register(a, huma.Operation{
		OperationID: "getHealth", Method: http.MethodGet, Path: "/healthz", Tags: []string{"health"}, Summary: "Is the process alive?",
	}, a.getHealth)
	register(a, huma.Operation{
		OperationID: "getReadiness", Method: http.MethodGet, Path: "/readyz", Tags: []string{"health"}, Summary: "Can the server do its work?",
	}, a.getReady)
	a.describeBodies()
	a.describeControlBodies()
	a.describeDeferredBodies()
	a.tidySchemas()
}

func (a *API) hookRoutes() {
	const path = "/v1/operations/{op}/hooks"
	tags, security := []string{"hooks"}, needs(RoleRuntime)
	register(a, huma.Operation{
		OperationID: "putHooks", Method: http.MethodPut, Path: path, Tags: tags, Security: security,
		Summary: "Replace the hooks of an operation",
	}, a.putHooks)
	register(a, huma.Operation{
		OperationID: "addHooks", Method: http.MethodPost, Path: path, Tags: tags, Security: security,
		Summary: "Append to the hooks of an operation", DefaultStatus: http.StatusOK,
	}, a.addHooks)
	register(a, huma.Operation{
		OperationID: "getHooks", Method: http.MethodGet, Path: path, Tags: tags, Security: security,
		Summary: "Read the hooks of an operation",
	}, a.getHooks)
	register(a, huma.Operation{
		OperationID: "deleteHooks", Method: http.MethodDelete, Path: path, Tags: tags, Security: security,
		Summary: "End an operation; pending work still delivers", DefaultStatus: http.StatusNoContent,
	}, a.deleteHooks)
}

func (a *API) eventRoutes() {
	tags, security := []string{"events"}, needs(RoleRuntime)
	register(a, huma.Operation{
		OperationID: "postEvents", Method: http.MethodPost, Path: "/v1/operations/{op}/events", Tags: tags, Security: security,
		Summary: "Send one event or many", DefaultStatus: http.StatusAccepted,
		Description: "All events are stored or none. 202 once they are durable; with await, 200 once they have come to what was awaited, else 202 with what is known.",
	}, a.postEvents)
	register(a, huma.Operation{
		OperationID: "getEvent", Method: http.MethodGet, Path: "/v1/operations/{op}/events/{id}", Tags: tags, Security: security,
		Summary: "How an event stands",
	}, a.getEvent)
}

func (a *API) operatorRoutes() {
	lanes, dead, security := []string{"lanes"}, []string{"dead letters"}, needs(RoleOperator)
	register(a, huma.Operation{
		OperationID: "getLanes", Method: http.MethodGet, Path: "/v1/lanes", Tags: lanes, Security: security,
		Summary: "Lanes that have something to do",
	}, a.getLanes)
	register(a, huma.Operation{
		OperationID: "getLane", Method: http.MethodGet, Path: "/v1/lanes/{op}", Tags: lanes, Security: security,
		Summary: "The lane of an operation",
	}, a.getLane)
	register(a, huma.Operation{
		OperationID: "getDeadLetters", Method: http.MethodGet, Path: "/v1/dead-letters", Tags: dead, Security: security,
		Summary: "Deliveries that were given up",
	}, a.getDeadLetters)
	register(a, huma.Operation{
		OperationID: "getDeadLetter", Method: http.MethodGet, Path: "/v1/dead-letters/{id}", Tags: dead, Security: security,
		Summary: "One dead letter with its content",
	}, a.getDeadLetter)
	register(a, huma.Operation{
		OperationID: "replayDeadLetters", Method: http.MethodPost, Path: "/v1/dead-letters:replay", Tags: dead, Security: security,
		Summary: "Put dead letters back to the tail of their hooks' queues", DefaultStatus: http.StatusOK,
	}, a.replay)
}

// describeBodies adds the bodies to the document after the framework has set up
// the operations: it would decode and judge a body that it knows.
func (a *API) describeBodies() {
	schema := func(t reflect.Type, name string) *huma.Schema {
		return a.huma.OpenAPI().Components.Schemas.Schema(t, true, name)
	}
	list := func(item *huma.Schema) *huma.Schema { return &huma.Schema{Type: huma.TypeArray, Items: item} }
	paths := a.huma.OpenAPI().Paths

	hook := schema(reflect.TypeFor[hookSchema](), "Hook")
	hooks := jsonBody(&huma.Schema{OneOf: []*huma.Schema{list(hook), schema(reflect.TypeFor[hookBatchSchema](), "HookBatch")}})
	paths["/v1/operations/{op}/hooks"].Put.RequestBody = hooks
	paths["/v1/operations/{op}/hooks"].Post.RequestBody = hooks

	event := schema(reflect.TypeFor[eventSchema](), "Event")
	events := jsonBody(&huma.Schema{OneOf: []*huma.Schema{event, list(event), schema(reflect.TypeFor[eventBatchSchema](), "EventBatch")}})
	events.Content["application/x-ndjson"] = &huma.MediaType{
		Schema: &huma.Schema{Type: huma.TypeString, Description: "One event a line; blank lines are skipped."},
	}
	post := paths["/v1/operations/{op}/events"].Post
	post.RequestBody = events
	settled := *post.Responses["202"]
	settled.Description = "With await: each event has come to what was awaited. Check criticalFailures."
	post.Responses["200"] = &settled

	paths["/v1/dead-letters:replay"].Post.RequestBody = jsonBody(schema(reflect.TypeFor[replaySchema](), "Replay"))

	stored := schema(reflect.TypeFor[HookList](), "HookList")
	a.huma.OpenAPI().Components.Schemas.SchemaFromRef(stored.Ref).Properties["hooks"] = list(hook)
}

// schemaName names a type in the document by what it stands for.
func schemaName(t reflect.Type, hint string) string {
	return strings.TrimSuffix(strings.TrimSuffix(huma.DefaultSchemaNamer(t, hint), "Schema"), "View")
}

// strict are the schemas of bodies whose unknown keys are refused. Answers may
// grow, and of a hook unknown keys are dropped.
var strict = map[string]bool{
	"Webhook": true, "Options": true, "Retry": true, "Event": true, "EventBatch": true, "HookBatch": true, "Replay": true, "Filter": true,
	"Question": true, "ChainLink": true, "DeferredOpen": true, "DeferredCall": true, "DeferredComplete": true,
}

// tidySchemas takes back what the framework takes for granted: that a list may
// be null, and that an answer never grows.
func (a *API) tidySchemas() {
	for name, schema := range a.huma.OpenAPI().Components.Schemas.Map() {
		if !strict[name] && schema.Type == huma.TypeObject {
			schema.AdditionalProperties = nil
		}
		for _, property := range schema.Properties {
			property.Nullable = property.Nullable && property.Type != huma.TypeArray
		}
	}
}

// jsonBody is a required body of one media type.
func jsonBody(schema *huma.Schema) *huma.RequestBody {
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}
