package tasks

import "encoding/json"

// Executor says who executes a tool call.
type Executor string

// The executors.
const (
	ExecutorServer Executor = "server"
	ExecutorClient Executor = "client"
)

// ToolContext is what the three tool events share (docs/behaviour.md §16).
type ToolContext struct {
	// ToolCallID is the call's native id, never made up.
	ToolCallID         string `json:"toolCallId"`
	AssistantMessageID string `json:"assistantMessageId"`
	// Identifier and APIName name the tool; a matcher sees "Identifier/APIName".
	Identifier string `json:"identifier"`
	APIName    string `json:"apiName"`
	// Args is the JSON object of the effective arguments.
	Args json.RawMessage `json:"args"`
	// CallIndex counts the calls of this tool in the operation, this one included.
	CallIndex   int      `json:"callIndex"`
	StepIndex   int      `json:"stepIndex"`
	OperationID string   `json:"operationId"`
	Executor    Executor `json:"executor"`

	// The others are absent when they are not known.
	UserID            *string `json:"userId,omitempty"`
	AgentID           *string `json:"agentId,omitempty"`
	ThreadID          *string `json:"threadId,omitempty"`
	GroupID           *string `json:"groupId,omitempty"`
	TopicID           *string `json:"topicId,omitempty"`
	WorkspaceID       *string `json:"workspaceId,omitempty"`
	SourceMessageID   *string `json:"sourceMessageId,omitempty"`
	SessionID         *string `json:"sessionId,omitempty"`
	TaskID            *string `json:"taskId,omitempty"`
	DocumentID        *string `json:"documentId,omitempty"`
	ParentOperationID *string `json:"parentOperationId,omitempty"`
	ToolMessageID     *string `json:"toolMessageId,omitempty"`
	ToolSource        *string `json:"toolSource,omitempty"`
	ExecutionTarget   *string `json:"executionTarget,omitempty"`
	ActiveDeviceID    *string `json:"activeDeviceId,omitempty"`
}

// BeforeToolCallEvent is dispatched before a tool is executed.
type BeforeToolCallEvent struct {
	ToolContext
}

// HookType returns BeforeToolCall.
func (BeforeToolCallEvent) HookType() HookType { return BeforeToolCall }

// AfterToolCallEvent is dispatched with the final result of a call.
type AfterToolCallEvent struct {
	ToolContext
	// Mocked says that a handler's result stood in for the tool's.
	Mocked bool       `json:"mocked"`
	Result ToolResult `json:"result"`
}

// HookType returns AfterToolCall.
func (AfterToolCallEvent) HookType() HookType { return AfterToolCall }

// ToolCallErrorEvent is dispatched when a tool threw instead of answering.
type ToolCallErrorEvent struct {
	ToolContext
	Error string `json:"error"`
}

// HookType returns OnToolCallError.
func (ToolCallErrorEvent) HookType() HookType { return OnToolCallError }

// ToolResult is what a tool call came to (docs/behaviour.md §1.2). Times are in
// milliseconds.
type ToolResult struct {
	// Content is what the model reads; Success says whether the call succeeded.
	Content string `json:"content"`
	Success bool   `json:"success"`

	ExecutionTime       *float64 `json:"executionTime,omitempty"`
	DeviceExecutionTime *float64 `json:"deviceExecutionTime,omitempty"`
	// Error is whatever is known of the failure; nil means absent.
	Error any `json:"error,omitempty"`
	// State is the tool's own JSON object; nil means absent.
	State json.RawMessage `json:"state,omitempty"`
	// Stop asks the run to stop; Deferred says that the real result comes later.
	Stop     *bool `json:"stop,omitempty"`
	Deferred *bool `json:"deferred,omitempty"`
	// WorkRegistration is a JSON object; nil means absent.
	WorkRegistration json.RawMessage `json:"workRegistration,omitempty"`
}
