package tasks

// The asynq task types of Gantry's background work. One mux in the worker
// serves them; any asynq client, in any language, may enqueue the first.
const (
	// TypeHookDispatch carries an encoded task, which the handler appends to the
	// lane of its operation.
	TypeHookDispatch = "hook:dispatch"
	// TypeDeadReplay replays many dead letters and records how far it has come.
	TypeDeadReplay = "dead:replay"
	// TypeOperationForget ends an operation and clears what is left of it.
	TypeOperationForget = "operation:forget"
)
