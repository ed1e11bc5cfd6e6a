package tasks

// The keys of structured log lines, the same in every part of Gantry. Ids come
// first and in this order; durations end in _ms.
const (
	LogOperationID = "operation_id"
	LogTaskID      = "task_id"
	LogHookID      = "hook_id"
	LogAttempt     = "attempt"
	LogHookType    = "hook_type"
	LogHookKey     = "hook_key"
	LogDeliveryID  = "delivery_id"
	LogSequence    = "sequence"
	LogShard       = "shard"
	LogToken       = "token"
	LogWorkerID    = "worker_id"
	LogNamespace   = "namespace"
	LogClass       = "class"
	LogCode        = "code"
	LogReason      = "reason"
	LogStatus      = "status"
	LogStanding    = "standing"
	LogMessage     = "detail"
	LogPath        = "path"
	LogCount       = "count"
	LogBytes       = "bytes"
	LogAddress     = "address"
	LogMode        = "mode"
	LogVersion     = "version"
	LogVariable    = "variable"
	LogDelayMS     = "delay_ms"
	LogElapsedMS   = "elapsed_ms"
	LogDueAt       = "due_at_ms"
	LogErr         = "err"
	LogErrCode     = "err_code"
)

// LogFields returns what a log line says about t: its names, never the event
// or the hooks, which may hold what must not be printed.
func (t *Task) LogFields() map[string]any {
	return map[string]any{LogOperationID: t.OperationID, LogTaskID: t.ID, LogHookType: string(t.Type)}
}
