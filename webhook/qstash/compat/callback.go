package compat

import (
	"encoding/json"
	"net/http"
)

// outcome is the body of a callback. Bodies are base64, times are milliseconds.
type outcome struct {
	Status          int         `json:"status"`
	Header          http.Header `json:"header"`
	Body            []byte      `json:"body"`
	Retried         int         `json:"retried"`
	MaxRetries      int         `json:"maxRetries"`
	SourceMessageID string      `json:"sourceMessageId"`
	TopicName       string      `json:"topicName,omitempty"`
	EndpointName    string      `json:"endpointName,omitempty"`
	URL             string      `json:"url"`
	Method          string      `json:"method"`
	SourceHeader    http.Header `json:"sourceHeader"`
	SourceBody      []byte      `json:"sourceBody"`
	NotBefore       int64       `json:"notBefore"`
	CreatedAt       int64       `json:"createdAt"`
	ScheduleID      string      `json:"scheduleId"`
	CallerIP        string      `json:"callerIP"`
	DLQID           string      `json:"dlqId,omitempty"`
}

// report sends the callbacks for an attempt: the one for every attempt, and the
// one for a failure when dlqID names what the message became. Each is a message
// of its own, signed for its own URL. s.mu is held.
func (s *Server) report(m *message, got answer, dlqID string) {
	o := outcome{
		Status: got.status, Header: got.header, Body: got.body, Retried: m.retried, MaxRetries: m.options.retries,
		SourceMessageID: m.id, TopicName: m.topic, EndpointName: m.endpoint, URL: m.url, Method: m.options.method,
		SourceHeader: m.passedOn(), SourceBody: m.body, NotBefore: m.due.UnixMilli(), CreatedAt: m.created.UnixMilli(),
		CallerIP: m.callerIP,
	}
	if got.err != nil {
		o.Body = []byte(got.err.Error())
	}
	if m.options.callback != nil {
		s.acceptCallback(m, m.options.callback, o)
	}
	if m.options.failureCallback != nil && dlqID != "" {
		o.DLQID = dlqID
		s.acceptCallback(m, m.options.failureCallback, o)
	}
}

func (s *Server) acceptCallback(m *message, to *callbackOptions, o outcome) {
	body, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings, numbers and bytes always encode
	}
	m.callbacks++
	s.accept(&message{
		id: newID(messagePrefix), url: to.url, body: body, options: to.options, callerIP: m.callerIP, parent: m,
	})
}
