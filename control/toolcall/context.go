package toolcall

import (
	"encoding/json"

	"github.com/gantry-hooks/gantry/tasks"
)

// Facts are what a runtime knows when a model calls a tool. A nil pointer means
// that it is not known, which is not the same as an empty string.
type Facts struct {
	// Call is what the model asked for.
	Call ModelCall
	// Runtime is what holds for the whole run in this process.
	Runtime Runtime
	// Run is what holds for this call of the run.
	Run RunContext
	// Origin is what was recorded when the run was started. It comes first wherever
	// two sources know the same.
	Origin Origin
	// Plan says where the run executes; nil means that there is no plan.
	Plan *Plan
	// BoundDevice is the device that is bound to the run.
	BoundDevice *string
	// DeviceForbidden is the device policy's no, which no plan overrides.
	DeviceForbidden bool
}

// ModelCall is a tool call as the model made it.
type ModelCall struct {
	// ID is the native id of the call, never made up.
	ID         string
	Identifier string
	APIName    string
	// Arguments is the argument text of the call.
	Arguments string
	// Executor is ExecutorClient when the call asks to be executed by the client.
	Executor tasks.Executor
	// Source says where the tool comes from.
	Source *string
}

// Runtime is what the process that runs an operation knows of it.
type Runtime struct {
	OperationID string
	StepIndex   int
	UserID      *string
	TopicID     *string
	WorkspaceID *string
	// CanForwardToClient says that this runtime can have a client execute a call.
	CanForwardToClient bool
}

// RunContext is what a run knows of one of its calls.
type RunContext struct {
	// CallIndex counts the calls of this tool in the operation, this one included.
	CallIndex int
	// ParentMessageID is the assistant message that made the call.
	ParentMessageID string
	// ParsedArgs are the effective arguments, a JSON object; nil or null means that
	// the argument text of the call counts.
	ParsedArgs json.RawMessage
	// MessageID is the message that started the run.
	MessageID   *string
	AgentID     *string
	ThreadID    *string
	GroupID     *string
	TopicID     *string
	WorkspaceID *string
	// ToolMessageID is the row of the call that is there already; resumed calls only.
	ToolMessageID *string
	// ToolSource says where the tool comes from.
	ToolSource *string
}

// Origin is what was recorded of a run when it was started.
type Origin struct {
	UserID          *string
	AgentID         *string
	ThreadID        *string
	GroupID         *string
	TopicID         *string
	WorkspaceID     *string
	SourceMessageID *string
	SessionID       *string
	TaskID          *string
	DocumentID      *string
	// ParentOperationID is the operation that started this one, from its lineage.
	ParentOperationID *string
}

// PlanKind says what an execution plan executes on.
type PlanKind string

// The plans that may use a device. Any other kind, such as a sandbox or none,
// may not.
const (
	// PlanDevice runs on one device.
	PlanDevice PlanKind = "device"
	// PlanDeviceUnrouted may use a device that is not reachable yet.
	PlanDeviceUnrouted PlanKind = "device-unrouted"
)

// Plan says where a run executes.
type Plan struct {
	Kind PlanKind
	// Target is what the user chose; nil means unknown.
	Target *string
}

// allowsDevice reports whether a run may use a device. Without a plan nothing
// speaks against it.
func (p *Plan) allowsDevice() bool {
	return p == nil || p.Kind == PlanDevice || p.Kind == PlanDeviceUnrouted
}

// BuildContext gathers what the three tool events of a call say about it, each
// field from the first source that knows it (docs/behaviour.md §16). Strings are
// not copied.
func BuildContext(f Facts) tasks.ToolContext {
	c := tasks.ToolContext{
		ToolCallID:         f.Call.ID,
		AssistantMessageID: f.Run.ParentMessageID,
		Identifier:         f.Call.Identifier,
		APIName:            f.Call.APIName,
		Args:               effectiveArgs(f),
		CallIndex:          f.Run.CallIndex,
		StepIndex:          f.Runtime.StepIndex,
		OperationID:        f.Runtime.OperationID,
		Executor:           tasks.ExecutorServer,

		UserID:            first(f.Runtime.UserID, f.Origin.UserID),
		AgentID:           first(f.Origin.AgentID, f.Run.AgentID),
		ThreadID:          first(f.Origin.ThreadID, f.Run.ThreadID),
		GroupID:           first(f.Origin.GroupID, f.Run.GroupID),
		TopicID:           first(f.Origin.TopicID, f.Run.TopicID, f.Runtime.TopicID),
		WorkspaceID:       first(f.Origin.WorkspaceID, f.Run.WorkspaceID, f.Runtime.WorkspaceID),
		SourceMessageID:   first(f.Origin.SourceMessageID, f.Run.MessageID),
		SessionID:         f.Origin.SessionID,
		TaskID:            f.Origin.TaskID,
		DocumentID:        f.Origin.DocumentID,
		ParentOperationID: f.Origin.ParentOperationID,
		ToolMessageID:     f.Run.ToolMessageID,
		ToolSource:        first(f.Run.ToolSource, f.Call.Source),
	}
	if f.Call.Executor == tasks.ExecutorClient && f.Runtime.CanForwardToClient {
		c.Executor = tasks.ExecutorClient
	}
	if f.Plan != nil {
		c.ExecutionTarget = f.Plan.Target
	}
	if f.Plan.allowsDevice() && !f.DeviceForbidden {
		c.ActiveDeviceID = f.BoundDevice
	}
	return c
}

func first(sources ...*string) *string {
	for _, source := range sources {
		if source != nil {
			return source
		}
	}
	return nil
}

var noArgs = json.RawMessage(`{}`)

// effectiveArgs are the parsed arguments if there are any, else the call's text.
func effectiveArgs(f Facts) json.RawMessage {
	if len(f.Run.ParsedArgs) > 0 && string(f.Run.ParsedArgs) != "null" {
		return ParseArgs(string(f.Run.ParsedArgs))
	}
	return ParseArgs(f.Call.Arguments)
}

// ParseArgs reads the argument text of a call as events hold it: the object
// itself, byte for byte, and an empty one for a text that is no JSON object
// (docs/behaviour.md §16).
func ParseArgs(text string) json.RawMessage {
	raw := json.RawMessage(text)
	if tasks.CheckJSON(raw) != nil {
		return noArgs
	}
	if _, err := tasks.SplitObject(raw); err != nil {
		return noArgs
	}
	return raw
}
