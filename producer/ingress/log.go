package ingress

// The events that the API logs.
const (
	// logRequest is the one line of each request.
	logRequest = "http.request"
	// logInternal carries the text of an error that the caller is not shown.
	logInternal = "http.internal_error"
	// logPanic carries a panic of a handler and its stack.
	logPanic = "http.panic"
	// logNotReady names a failed check of /readyz.
	logNotReady = "http.not_ready"
	// logStatusUnread says that a wait ended without its event's status.
	logStatusUnread = "http.status_unread"
	// logQuestionCancelled says that a question ended with its request.
	logQuestionCancelled = "http.question_cancelled"
	// logEnvironment carries why the environment hooks are invalid.
	logEnvironment = "http.environment_invalid"
)

// The keys of log lines that only requests have.
const (
	logKeyRequestID  = "request_id"
	logKeyMethod     = "method"
	logKeyRoute      = "route"
	logKeyCheck      = "check"
	logKeyStack      = "stack"
	logKeyQuestionID = "question_id"
)
