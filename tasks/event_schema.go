package tasks

import "slices"

// FieldKind is the JSON type of an event field.
type FieldKind string

// The kinds of event fields.
const (
	KindString  FieldKind = "string"
	KindNumber  FieldKind = "number"
	KindBoolean FieldKind = "boolean"
	KindObject  FieldKind = "object"
	KindArray   FieldKind = "array"
	KindAny     FieldKind = "any"
)

// EventField describes one field of an event.
type EventField struct {
	Name     string
	Kind     FieldKind
	Required bool
	// Values is the closed set of a string's values; nil means any.
	Values []string
	// Fields are the fields of the object, or of each object of the array; nil
	// means that its members are not looked at.
	Fields []EventField
	// Doc is one sentence on the field's meaning and unit.
	Doc string
}

func need(name string, kind FieldKind, doc string) EventField {
	return EventField{Name: name, Kind: kind, Required: true, Doc: doc}
}

func may(name string, kind FieldKind, doc string) EventField {
	return EventField{Name: name, Kind: kind, Doc: doc}
}

func (f EventField) oneOf(values ...string) EventField {
	f.Values = values
	return f
}

func (f EventField) with(fields ...EventField) EventField {
	f.Fields = fields
	return f
}

var (
	operationField = need("operationId", KindString, "Operation that the event belongs to.")
	parentField    = need("operationId", KindString, "Parent operation, on which the event is dispatched.")
	stepField      = need("stepIndex", KindNumber, "Index of the step within the operation.")
	userField      = may("userId", KindString, "User on whose behalf the operation runs.")
)

// stepFields are shared by the four step and terminal events
// (docs/behaviour.md §1.1).
var stepFields = []EventField{
	need("agentId", KindString, "Agent that runs; empty when it is not known."),
	operationField,
	need("userId", KindString, "User on whose behalf the operation runs."),
	may("topicId", KindString, "Topic of the conversation."),
	may("stepIndex", KindNumber, "Index of the step within the operation."),
	may("stepType", KindString, "What the step does: call_llm or call_tool."),
	may("stepLabel", KindString, "Name of the step for people."),
	may("shouldContinue", KindBoolean, "Whether another step follows."),
	may("content", KindString, "Text that the step produced."),
	may("reasoning", KindString, "Reasoning that the step produced."),
	may("toolsCalling", KindAny, "Tool calls that the step asked for."),
	may("toolsResult", KindAny, "Results of the step's tool calls."),
	may("lastLLMContent", KindString, "Text of the last model reply."),
	may("lastToolsCalling", KindAny, "Tool calls of the last model reply."),
	may("thinking", KindBoolean, "Whether the model was thinking."),
	may("stepCost", KindNumber, "Cost of the step."),
	may("executionTimeMs", KindNumber, "Duration of the step in milliseconds."),
	may("elapsedMs", KindNumber, "Time since the start of the operation in milliseconds."),
	may("totalCost", KindNumber, "Running total of the cost."),
	may("totalInputTokens", KindNumber, "Running total of input tokens."),
	may("totalOutputTokens", KindNumber, "Running total of output tokens."),
	may("totalSteps", KindNumber, "Running total of steps."),
	may("totalToolCalls", KindNumber, "Running total of tool calls."),
	may("totalTokens", KindNumber, "Running total of tokens; final at the end."),
	may("reason", KindString, "Why the operation ended: done, error, interrupted, max_steps, cost_limit or waiting_for_human."),
	may("status", KindString, "State of the operation at its end."),
	may("cost", KindNumber, "Cost of the operation."),
	may("duration", KindNumber, "Duration of the operation in milliseconds."),
	may("llmCalls", KindNumber, "Number of model calls."),
	may("toolCalls", KindNumber, "Number of tool calls."),
	may("steps", KindNumber, "Number of steps; 0 when it is not known."),
	may("lastAssistantContent", KindString, "Last text of the assistant."),
	may("attachments", KindArray, "Files of the last reply.").with(attachmentFields...),
	may("errorMessage", KindString, "What went wrong; empty on success."),
	may("errorDetail", KindAny, "Whatever else is known of the error."),
	may("errorType", KindString, "Kind of the error."),
	may("errorAttribution", KindString, "Who caused the error: user, provider, harness or system."),
	may("errorBudget", KindObject, "Budget that the error used up."),
	may("errorHeterogeneous", KindObject, "Error of a foreign runtime."),
	may("metadata", KindObject, "The runtime's own additions."),
}

var attachmentFields = []EventField{
	need("type", KindString, "Kind of the file: image, file, video or audio."),
	may("data", KindString, "Content in base64."),
	may("fetchUrl", KindString, "Address of the content."),
	may("mimeType", KindString, "Media type."),
	may("name", KindString, "File name."),
}

// toolFields are the context shared by the three tool events
// (docs/behaviour.md §16).
var toolFields = []EventField{
	need("toolCallId", KindString, "Native id of the call, never made up."),
	need("assistantMessageId", KindString, "Message that asked for the call."),
	need("identifier", KindString, "Tool; the first half of what a matcher sees."),
	need("apiName", KindString, "Function of the tool; the second half of what a matcher sees."),
	need("args", KindObject, "Effective arguments."),
	need("callIndex", KindNumber, "How many times this tool was called in the operation, this call included."),
	stepField,
	operationField,
	need("executor", KindString, "Who executes the call.").oneOf("server", "client"),
	userField,
	may("agentId", KindString, "Agent that called."),
	may("threadId", KindString, "Thread of the conversation."),
	may("groupId", KindString, "Group of the conversation."),
	may("topicId", KindString, "Topic of the conversation."),
	may("workspaceId", KindString, "Workspace."),
	may("sourceMessageId", KindString, "Message that started the run."),
	may("sessionId", KindString, "Session."),
	may("taskId", KindString, "Task of the runtime."),
	may("documentId", KindString, "Document."),
	may("parentOperationId", KindString, "Operation that started this one."),
	may("toolMessageId", KindString, "Existing message of the call on resume."),
	may("toolSource", KindString, "Where the tool comes from."),
	may("executionTarget", KindString, "Where the call is executed."),
	may("activeDeviceId", KindString, "Device that is bound to the run."),
}

// resultFields are the result of a tool call (docs/behaviour.md §1.2).
var resultFields = []EventField{
	need("content", KindString, "What the model reads."),
	need("success", KindBoolean, "Whether the call succeeded."),
	may("executionTime", KindNumber, "Duration in milliseconds."),
	may("deviceExecutionTime", KindNumber, "Duration on the device in milliseconds."),
	may("error", KindAny, "What went wrong."),
	may("state", KindObject, "State of the tool."),
	may("stop", KindBoolean, "Whether the run should stop."),
	may("deferred", KindBoolean, "Whether the real result comes later."),
	may("workRegistration", KindObject, "Registration of work by the call."),
}

var eventSchemas = map[HookType][]EventField{
	BeforeStep: stepFields, AfterStep: stepFields, OnComplete: stepFields, OnError: stepFields,
	BeforeToolCall: toolFields,
	AfterToolCall: slices.Concat(toolFields, []EventField{
		need("mocked", KindBoolean, "Whether the result was mocked."),
		need("result", KindObject, "Final result of the call.").with(resultFields...),
	}),
	OnToolCallError: slices.Concat(toolFields, []EventField{need("error", KindString, "What went wrong.")}),
	BeforeHumanIntervention: {
		operationField, stepField,
		need("pendingTools", KindArray, "Calls that wait for a human.").with(
			need("identifier", KindString, "Tool."), need("apiName", KindString, "Function of the tool.")),
		userField,
	},
	AfterHumanIntervention: {
		operationField,
		need("action", KindString, "What the human decided.").oneOf("approve", "reject", "rejectAndContinue"),
		may("toolCallId", KindString, "Call that was decided."),
		may("rejectionReason", KindString, "Why it was rejected."),
		userField,
	},
	OnStopByHumanIntervention: {
		operationField,
		may("toolCallId", KindString, "Call that was rejected."),
		may("rejectionReason", KindString, "Why it was rejected."),
		userField,
	},
	BeforeCompact: {
		operationField, stepField,
		need("messageCount", KindNumber, "Messages before compaction."),
		need("tokenCount", KindNumber, "Tokens before compaction."),
		userField,
	},
	AfterCompact: {
		operationField, stepField,
		need("groupId", KindString, "Group of the compacted messages."),
		need("messagesBefore", KindNumber, "Messages before compaction."),
		need("messagesAfter", KindNumber, "Messages after compaction."),
		need("summary", KindString, "Summary that replaces them."),
		userField,
	},
	OnCompactError: {
		operationField, stepField,
		need("tokenCount", KindNumber, "Tokens before compaction."),
		need("error", KindString, "What went wrong."),
		userField,
	},
	BeforeCallAgent: {
		parentField,
		need("agentId", KindString, "Agent that is called."),
		need("instruction", KindString, "What it is asked to do."),
		userField,
	},
	AfterCallAgent: {
		parentField,
		need("agentId", KindString, "Agent that was called."),
		need("subOperationId", KindString, "Operation that was started."),
		need("success", KindBoolean, "Whether it was started; not whether it is complete."),
		may("threadId", KindString, "Thread of the started operation; absent for members of a shared group."),
		userField,
	},
	OnCallAgentError: {
		parentField,
		need("agentId", KindString, "Agent that was called."),
		need("error", KindString, "What went wrong."),
		userField,
	},
}

// schema is a list of fields with an index by name.
type schema struct {
	fields []EventField
	index  map[string]int
	// operation, identifier and apiName are the places of these fields; -1 when
	// there is none.
	operation, identifier, apiName int
}

func newSchema(fields []EventField) *schema {
	s := &schema{fields: fields, index: make(map[string]int, len(fields))}
	for i, f := range fields {
		s.index[f.Name] = i
	}
	s.operation, s.identifier, s.apiName = s.place("operationId"), s.place("identifier"), s.place("apiName")
	return s
}

func (s *schema) place(name string) int {
	if i, ok := s.index[name]; ok {
		return i
	}
	return -1
}

var indexedSchemas = indexSchemas()

func indexSchemas() map[HookType]*schema {
	all := make(map[HookType]*schema, len(eventSchemas))
	for t, fields := range eventSchemas {
		all[t] = newSchema(fields)
	}
	return all
}

// EventSchema returns the fields of the events of type t, in the order in which
// they are documented; nil when t is not valid. Events may have other fields
// beside them. The slice is shared: read it only.
func EventSchema(t HookType) []EventField { return eventSchemas[t] }

// knownKeys holds every name of the contract, keys and hook types, for decodeKey.
var knownKeys = collectKeys()

func collectKeys() map[string]string {
	keys := map[string]string{}
	var collect func([]EventField)
	collect = func(fields []EventField) {
		for _, f := range fields {
			keys[f.Name] = f.Name
			collect(f.Fields)
		}
	}
	for t, fields := range eventSchemas {
		keys[string(t)] = string(t)
		collect(fields)
	}
	for _, key := range []string{
		"v", "id", "type", "event", "hooks", "enqueuedAt", "trace", "matcher", "webhook", "handler", "gantry",
		"url", "timeout", "delivery", "fallback", "onError", "responseHandling", "headers", "allowedEnvVars",
		"eventFields", "body", "finalState", "mock", "hookId", "hookType", "userEmail",
	} {
		keys[key] = key
	}
	return keys
}
