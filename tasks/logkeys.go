package tasks

// The keys of structured log lines, the same in every part of Gantry. Ids come
// first and in this order; durations end in _ms.
const (
	LogOperationID = "operation_id"
	LogTaskID      = "task_id"
	LogQuestionID  = "question_id"
	LogHookID      = "hook_id"
	LogAttempt     = "attempt"
	LogHookType    = "hook_type"
	LogHookKey     = "hook_key"
	LogDeliveryID  = "delivery_id"
	LogSequence    = "sequence"
	LogShard       = "shard"
	LogWorkerID    = "worker_id"
	LogClass       = "class"
	LogCode        = "code"
	LogReason      = "reason"
	LogDecision    = "decision"
	LogOnError     = "on_error"
	LogOutcome     = "outcome"
	LogStatus      = "status"
	LogLate        = "late"
	LogGap         = "gap"
	LogMessage     = "detail"
	LogCount       = "count"
	LogGraceful    = "graceful"
	LogBytes       = "bytes"
	LogAddress     = "address"
	LogDelayMS     = "delay_ms"
	LogElapsedMS   = "elapsed_ms"
	LogErr         = "err"
)

// LogFields returns what a log line says about t: its names, never the event
// or the hooks, which may hold what must not be printed.
func (t *Task) LogFields() map[string]any {
	return map[string]any{LogOperationID: t.OperationID, LogTaskID: t.ID, LogHookType: string(t.Type)}
}
