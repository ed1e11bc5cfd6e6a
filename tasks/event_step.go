package tasks

// StepEvent is the one shape of beforeStep, afterStep, onComplete and onError
// (docs/behaviour.md §1.1). Times are in milliseconds.
type StepEvent struct {
	// Type is one of the four types that share the shape.
	Type HookType `json:"-"`

	// AgentID is "" when the agent is not known.
	AgentID     string `json:"agentId"`
	OperationID string `json:"operationId"`
	// UserID is the user on whose behalf the operation runs.
	UserID  string  `json:"userId"`
	TopicID *string `json:"topicId,omitempty"`

	// StepIndex and the three after it belong to step events; StepType is
	// call_llm or call_tool.
	StepIndex      *int    `json:"stepIndex,omitempty"`
	StepType       *string `json:"stepType,omitempty"`
	StepLabel      *string `json:"stepLabel,omitempty"`
	ShouldContinue *bool   `json:"shouldContinue,omitempty"`

	// Content to ElapsedMs tell what a step did, in afterStep.
	Content          *string  `json:"content,omitempty"`
	Reasoning        *string  `json:"reasoning,omitempty"`
	ToolsCalling     any      `json:"toolsCalling,omitempty"`
	ToolsResult      any      `json:"toolsResult,omitempty"`
	LastLLMContent   *string  `json:"lastLLMContent,omitempty"`
	LastToolsCalling any      `json:"lastToolsCalling,omitempty"`
	Thinking         *bool    `json:"thinking,omitempty"`
	StepCost         *float64 `json:"stepCost,omitempty"`
	ExecutionTimeMs  *float64 `json:"executionTimeMs,omitempty"`
	ElapsedMs        *float64 `json:"elapsedMs,omitempty"`

	// TotalCost to TotalTokens are running totals in afterStep; TotalTokens is
	// sent at the end as well.
	TotalCost         *float64 `json:"totalCost,omitempty"`
	TotalInputTokens  *int64   `json:"totalInputTokens,omitempty"`
	TotalOutputTokens *int64   `json:"totalOutputTokens,omitempty"`
	TotalSteps        *int64   `json:"totalSteps,omitempty"`
	TotalToolCalls    *int64   `json:"totalToolCalls,omitempty"`
	TotalTokens       *int64   `json:"totalTokens,omitempty"`

	// Reason is why the operation ended (done, error, interrupted, max_steps,
	// cost_limit, waiting_for_human), Status its state then.
	Reason *string `json:"reason,omitempty"`
	Status *string `json:"status,omitempty"`
	// Cost to Steps are totals at the end; Steps is 0 when it is not known.
	Cost      *float64 `json:"cost,omitempty"`
	Duration  *float64 `json:"duration,omitempty"`
	LLMCalls  *int64   `json:"llmCalls,omitempty"`
	ToolCalls *int64   `json:"toolCalls,omitempty"`
	Steps     *int64   `json:"steps,omitempty"`

	// LastAssistantContent and Attachments belong to onComplete.
	LastAssistantContent *string      `json:"lastAssistantContent,omitempty"`
	Attachments          []Attachment `json:"attachments,omitempty"`

	// ErrorMessage is "" on success. ErrorAttribution is user, provider, harness
	// or system; ErrorBudget and ErrorHeterogeneous are objects.
	ErrorMessage       *string        `json:"errorMessage,omitempty"`
	ErrorDetail        any            `json:"errorDetail,omitempty"`
	ErrorType          *string        `json:"errorType,omitempty"`
	ErrorAttribution   *string        `json:"errorAttribution,omitempty"`
	ErrorBudget        map[string]any `json:"errorBudget,omitempty"`
	ErrorHeterogeneous map[string]any `json:"errorHeterogeneous,omitempty"`

	// Metadata is the runtime's own.
	Metadata map[string]any `json:"metadata,omitempty"`

	// FinalState reaches local handlers only and is never written as JSON.
	FinalState any `json:"-"`
}

// HookType returns e.Type.
func (e StepEvent) HookType() HookType { return e.Type }

func (e StepEvent) finalState() any { return e.FinalState }

// Attachment is a file of the last reply of an operation.
type Attachment struct {
	// Type is image, file, video or audio.
	Type string `json:"type"`
	// Data is the content in base64, FetchURL where it can be fetched.
	Data     *string `json:"data,omitempty"`
	FetchURL *string `json:"fetchUrl,omitempty"`
	MimeType *string `json:"mimeType,omitempty"`
	Name     *string `json:"name,omitempty"`
}
