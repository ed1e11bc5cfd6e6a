package tasks

// Verdict is the one answer to a Question (docs/behaviour.md §13). It is settled
// once; whoever reads it later reads the same.
type Verdict struct {
	// Version is WireVersion.
	Version int `json:"v"`
	// ID is the id of the question.
	ID string `json:"id"`
	// Type is the phase: BeforeToolCall or AfterToolCall.
	Type HookType `json:"type"`
	// Status says what the runtime has to do.
	Status VerdictStatus `json:"status"`
	// Reason is what the runtime may show: the control's own for a deny,
	// ReasonControlError for an error that blocks, "" otherwise.
	Reason string `json:"reason,omitempty"`
	// Outcome tells an error apart from a decision, which Status does not.
	Outcome VerdictOutcome `json:"outcome"`
	// Controls are those that were asked, in order.
	Controls []ControlResult `json:"controls"`
	// By says who settled it.
	By VerdictSource `json:"by"`
	// Unsettled says that Redis could not be asked to settle it: the policy was
	// applied by the asker alone.
	Unsettled bool `json:"unsettled,omitempty"`
	// SettledAt is Redis time in Unix milliseconds; 0 when Redis was not asked.
	SettledAt int64 `json:"settledAt,omitempty"`
}

// Allowed reports whether the call may go ahead or its result be used. Nothing
// but an explicit allow is permission: not the zero value, not a cancellation.
func (v *Verdict) Allowed() bool { return v.Status == VerdictAllow }

// VerdictStatus says what a verdict means for the tool call. The zero value is
// no verdict and permits nothing.
type VerdictStatus string

// The statuses.
const (
	VerdictAllow     VerdictStatus = "allow"
	VerdictBlocked   VerdictStatus = "blocked"
	VerdictCancelled VerdictStatus = "cancelled"
)

// VerdictOutcome says how a verdict came about. Errors are outcomes of their
// own, so that a policy that failed open is never taken for one that agreed.
type VerdictOutcome string

// The outcomes.
const (
	// OutcomeNone: no control matched, so nobody was asked.
	OutcomeNone VerdictOutcome = "no_control"
	// OutcomeAllowed: every control that was asked allowed the call or answered
	// with a notification.
	OutcomeAllowed VerdictOutcome = "allowed"
	// OutcomeDenied: a control denied it.
	OutcomeDenied VerdictOutcome = "denied"
	// OutcomeErrorOpen: at least one control failed under onError continue, and
	// none denied.
	OutcomeErrorOpen VerdictOutcome = "error_open"
	// OutcomeErrorClosed: a control failed under onError block.
	OutcomeErrorClosed VerdictOutcome = "error_closed"
	// OutcomeUnansweredOpen and OutcomeUnansweredClosed: nobody answered by the
	// deadline, and the strictest onError of the matching controls was applied.
	OutcomeUnansweredOpen   VerdictOutcome = "unanswered_open"
	OutcomeUnansweredClosed VerdictOutcome = "unanswered_closed"
	// OutcomeCancelled: the asker went away.
	OutcomeCancelled VerdictOutcome = "cancelled"
)

// VerdictOutcomes returns every outcome, for metrics that pre-create their labels.
func VerdictOutcomes() []VerdictOutcome {
	return []VerdictOutcome{
		OutcomeNone, OutcomeAllowed, OutcomeDenied, OutcomeErrorOpen, OutcomeErrorClosed,
		OutcomeUnansweredOpen, OutcomeUnansweredClosed, OutcomeCancelled,
	}
}

// VerdictSource says who settled a verdict.
type VerdictSource string

// The sources.
const (
	// ByAsker: the asking process, by its policy or because no control matched.
	ByAsker VerdictSource = "asker"
	// ByWorker: a worker, after it asked the controls.
	ByWorker VerdictSource = "worker"
)

// ReasonControlError is the reason of every verdict that blocks because of an
// error; what failed is never shown there (docs/behaviour.md §12).
const ReasonControlError = "hook_control_error"

// ControlClass is what a control's reply counts as (docs/behaviour.md §12).
type ControlClass string

// The classes.
const (
	ControlAllow        ControlClass = "allow"
	ControlDeny         ControlClass = "deny"
	ControlNotification ControlClass = "notification"
	ControlError        ControlClass = "error"
	ControlCancelled    ControlClass = "cancelled"
)

// ControlResult is what one control came to.
type ControlResult struct {
	// HookID and OperationID name the control and whose it is; OperationID is ""
	// for an environment hook.
	HookID      string `json:"hookId"`
	OperationID string `json:"operationId,omitempty"`
	// Class is what its reply counts as.
	Class ControlClass `json:"class"`
	// Code is the contract's code of an error, Failure the finer class; "" otherwise.
	Code    TransportCode `json:"code,omitempty"`
	Failure FailureClass  `json:"failure,omitempty"`
	// OnError is the control's failure policy, never "".
	OnError ErrorPolicy `json:"onError"`
	// Status is the HTTP status of the reply; 0 when none arrived.
	Status int `json:"status,omitempty"`
	// ElapsedMS is how long the control took, in milliseconds.
	ElapsedMS int64 `json:"elapsedMs"`
}
