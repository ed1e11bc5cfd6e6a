package tasks

// HookType names the moment of an operation at which a hook runs. The set is
// closed and its names are case-sensitive (docs/behaviour.md §1).
type HookType string

// The 16 hook types, in the order of their families.
const (
	BeforeStep HookType = "beforeStep"
	AfterStep  HookType = "afterStep"
	OnComplete HookType = "onComplete"
	OnError    HookType = "onError"

	BeforeToolCall  HookType = "beforeToolCall"
	AfterToolCall   HookType = "afterToolCall"
	OnToolCallError HookType = "onToolCallError"

	BeforeHumanIntervention   HookType = "beforeHumanIntervention"
	AfterHumanIntervention    HookType = "afterHumanIntervention"
	OnStopByHumanIntervention HookType = "onStopByHumanIntervention"

	BeforeCompact  HookType = "beforeCompact"
	AfterCompact   HookType = "afterCompact"
	OnCompactError HookType = "onCompactError"

	BeforeCallAgent  HookType = "beforeCallAgent"
	AfterCallAgent   HookType = "afterCallAgent"
	OnCallAgentError HookType = "onCallAgentError"
)

// Family groups the hook types that speak of the same part of a run.
type Family string

// The five families.
const (
	FamilyStep              Family = "step"
	FamilyTool              Family = "tool"
	FamilyHumanIntervention Family = "humanIntervention"
	FamilyCompact           Family = "compact"
	FamilyCallAgent         Family = "callAgent"
)

var hookTypes = []HookType{
	BeforeStep, AfterStep, OnComplete, OnError,
	BeforeToolCall, AfterToolCall, OnToolCallError,
	BeforeHumanIntervention, AfterHumanIntervention, OnStopByHumanIntervention,
	BeforeCompact, AfterCompact, OnCompactError,
	BeforeCallAgent, AfterCallAgent, OnCallAgentError,
}

var families = map[HookType]Family{
	BeforeStep: FamilyStep, AfterStep: FamilyStep, OnComplete: FamilyStep, OnError: FamilyStep,
	BeforeToolCall: FamilyTool, AfterToolCall: FamilyTool, OnToolCallError: FamilyTool,
	BeforeHumanIntervention: FamilyHumanIntervention, AfterHumanIntervention: FamilyHumanIntervention,
	OnStopByHumanIntervention: FamilyHumanIntervention,
	BeforeCompact:             FamilyCompact, AfterCompact: FamilyCompact, OnCompactError: FamilyCompact,
	BeforeCallAgent: FamilyCallAgent, AfterCallAgent: FamilyCallAgent, OnCallAgentError: FamilyCallAgent,
}

// HookTypes returns the 16 types in the order of their families. The slice is
// the caller's own.
func HookTypes() []HookType { return append([]HookType(nil), hookTypes...) }

// Valid reports whether t is one of the 16 types.
func (t HookType) Valid() bool { _, ok := families[t]; return ok }

// Family returns the family of t, or "" when t is not valid.
func (t HookType) Family() Family { return families[t] }

// Tool reports whether t is an event of a tool call, the only events that a
// matcher may select.
func (t HookType) Tool() bool { return families[t] == FamilyTool }

// Controllable reports whether a hook of type t may decide about a tool call
// (responseHandling: toolCall).
func (t HookType) Controllable() bool { return t == BeforeToolCall || t == AfterToolCall }
