package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// apiError is a refusal of a call: its status and the text of its error field.
type apiError struct {
	status int
	text   string
}

// Error is the text.
func (e *apiError) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &apiError{status, fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) error {
	return refuse(http.StatusBadRequest, format, args...)
}

func notFound(format string, args ...any) error {
	return refuse(http.StatusNotFound, format, args...)
}

// errorBody is the body of every refusal.
type errorBody struct {
	Error string `json:"error"`
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// replyError answers with an error; one that is no refusal is the server's own.
func replyError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	if refused := (*apiError)(nil); errors.As(err, &refused) {
		status = refused.status
	}
	reply(w, status, errorBody{err.Error()})
}

// done is the body of endpoints that have nothing to say. It is not empty,
// because clients parse it.
type done struct{}
