package tasks

// PendingTool is a tool call that waits for a human.
type PendingTool struct {
	Identifier string `json:"identifier"`
	APIName    string `json:"apiName"`
}

// BeforeHumanInterventionEvent is dispatched before the run pauses for a human.
type BeforeHumanInterventionEvent struct {
	OperationID  string        `json:"operationId"`
	StepIndex    int           `json:"stepIndex"`
	PendingTools []PendingTool `json:"pendingTools"`
	UserID       *string       `json:"userId,omitempty"`
}

// HookType returns BeforeHumanIntervention.
func (BeforeHumanInterventionEvent) HookType() HookType { return BeforeHumanIntervention }

// InterventionAction is what a human decided.
type InterventionAction string

// The actions of a human.
const (
	ActionApprove           InterventionAction = "approve"
	ActionReject            InterventionAction = "reject"
	ActionRejectAndContinue InterventionAction = "rejectAndContinue"
)

// AfterHumanInterventionEvent is dispatched when a human has decided.
type AfterHumanInterventionEvent struct {
	OperationID     string             `json:"operationId"`
	Action          InterventionAction `json:"action"`
	ToolCallID      *string            `json:"toolCallId,omitempty"`
	RejectionReason *string            `json:"rejectionReason,omitempty"`
	UserID          *string            `json:"userId,omitempty"`
}

// HookType returns AfterHumanIntervention.
func (AfterHumanInterventionEvent) HookType() HookType { return AfterHumanIntervention }

// StopByHumanInterventionEvent is dispatched when a human ended the run.
type StopByHumanInterventionEvent struct {
	OperationID     string  `json:"operationId"`
	ToolCallID      *string `json:"toolCallId,omitempty"`
	RejectionReason *string `json:"rejectionReason,omitempty"`
	UserID          *string `json:"userId,omitempty"`
}

// HookType returns OnStopByHumanIntervention.
func (StopByHumanInterventionEvent) HookType() HookType { return OnStopByHumanIntervention }

// BeforeCompactEvent is dispatched before the context is compacted.
type BeforeCompactEvent struct {
	OperationID  string  `json:"operationId"`
	StepIndex    int     `json:"stepIndex"`
	MessageCount int64   `json:"messageCount"`
	TokenCount   int64   `json:"tokenCount"`
	UserID       *string `json:"userId,omitempty"`
}

// HookType returns BeforeCompact.
func (BeforeCompactEvent) HookType() HookType { return BeforeCompact }

// AfterCompactEvent is dispatched when the context was compacted.
type AfterCompactEvent struct {
	OperationID    string `json:"operationId"`
	StepIndex      int    `json:"stepIndex"`
	GroupID        string `json:"groupId"`
	MessagesBefore int64  `json:"messagesBefore"`
	MessagesAfter  int64  `json:"messagesAfter"`
	// Summary replaces the compacted messages.
	Summary string  `json:"summary"`
	UserID  *string `json:"userId,omitempty"`
}

// HookType returns AfterCompact.
func (AfterCompactEvent) HookType() HookType { return AfterCompact }

// CompactErrorEvent is dispatched when compaction failed.
type CompactErrorEvent struct {
	OperationID string  `json:"operationId"`
	StepIndex   int     `json:"stepIndex"`
	TokenCount  int64   `json:"tokenCount"`
	Error       string  `json:"error"`
	UserID      *string `json:"userId,omitempty"`
}

// HookType returns OnCompactError.
func (CompactErrorEvent) HookType() HookType { return OnCompactError }

// BeforeCallAgentEvent is dispatched before another agent is started.
// OperationID is the parent's, as in all three events of the family.
type BeforeCallAgentEvent struct {
	OperationID string  `json:"operationId"`
	AgentID     string  `json:"agentId"`
	Instruction string  `json:"instruction"`
	UserID      *string `json:"userId,omitempty"`
}

// HookType returns BeforeCallAgent.
func (BeforeCallAgentEvent) HookType() HookType { return BeforeCallAgent }

// AfterCallAgentEvent is dispatched when another agent was started. Its end is
// told by its own onComplete.
type AfterCallAgentEvent struct {
	OperationID    string `json:"operationId"`
	AgentID        string `json:"agentId"`
	SubOperationID string `json:"subOperationId"`
	// Success says whether the agent was started.
	Success bool `json:"success"`
	// ThreadID is absent for members of a shared group.
	ThreadID *string `json:"threadId,omitempty"`
	UserID   *string `json:"userId,omitempty"`
}

// HookType returns AfterCallAgent.
func (AfterCallAgentEvent) HookType() HookType { return AfterCallAgent }

// CallAgentErrorEvent is dispatched when another agent could not be started.
type CallAgentErrorEvent struct {
	OperationID string  `json:"operationId"`
	AgentID     string  `json:"agentId"`
	Error       string  `json:"error"`
	UserID      *string `json:"userId,omitempty"`
}

// HookType returns OnCallAgentError.
func (CallAgentErrorEvent) HookType() HookType { return OnCallAgentError }
