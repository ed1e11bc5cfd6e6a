package compat

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// The states of a message in the log.
const (
	stateCreated         = "CREATED"
	stateActive          = "ACTIVE"
	stateRetry           = "RETRY"
	stateError           = "ERROR"
	stateDelivered       = "DELIVERED"
	stateFailed          = "FAILED"
	stateCancelRequested = "CANCEL_REQUESTED"
	stateCancelled       = "CANCELED"
	// stateInProgress is for filters only: what belongs to a pending message.
	stateInProgress = "IN_PROGRESS"
)

const (
	maxEvents    = 10_000
	defaultCount = 100
	maxCount     = 1000
)

// event is one line of the log. Its number is its cursor.
type event struct {
	Time             int64       `json:"time"`
	State            string      `json:"state"`
	MessageID        string      `json:"messageId"`
	NextDeliveryTime int64       `json:"nextDeliveryTime,omitempty"`
	Error            string      `json:"error,omitempty"`
	URL              string      `json:"url"`
	TopicName        string      `json:"topicName,omitempty"`
	EndpointName     string      `json:"endpointName,omitempty"`
	QueueName        string      `json:"queueName,omitempty"`
	Header           http.Header `json:"header,omitempty"`
	Label            string      `json:"label,omitempty"`
	Labels           []string    `json:"labels,omitempty"`

	number int64
	record map[string][]string
}

// log adds a line about m, and forgets the oldest ones when there are too many.
// s.mu is held.
func (s *Server) log(m *message, state string, e event) {
	s.logged++
	// The line must not keep the body of the message in memory.
	e.number, e.record = s.logged, m.record()
	e.Time, e.State, e.MessageID, e.URL = s.now().UnixMilli(), state, m.id, m.url
	e.TopicName, e.EndpointName, e.QueueName = m.topic, m.endpoint, m.queueName()
	e.Header, e.Labels = m.passedOn(), m.options.labels
	if len(e.Labels) > 0 {
		e.Label = e.Labels[0]
	}
	if len(s.events) >= maxEvents {
		s.events = slices.Delete(s.events, 0, maxEvents/10) // in steps: each one moves the rest
	}
	s.events = append(s.events, e)
}

// wants reports whether f finds e. s.mu is held.
func (s *Server) wants(f filter, e event) bool {
	states := []string{e.State}
	if e.State == stateCancelled {
		states = append(states, "CANCELLED") // the documents' spelling
	}
	if s.messages[e.MessageID] != nil {
		states = append(states, stateInProgress)
	}
	e.record["state"] = states
	return f.matches(e.record, time.UnixMilli(e.Time))
}

// serveEvents lists the log, the newest line first. The clients ask for events,
// the documents name the same logs.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, name string) error {
	query := r.URL.Query()
	f, err := parseFilter(query)
	if err != nil {
		return err
	}
	count, err := parseCount(query, maxCount)
	if err != nil {
		return err
	}
	before, err := strconv.ParseInt(query.Get("cursor"), 10, 64)
	if query.Get("cursor") != "" && err != nil {
		return badRequest("invalid cursor")
	}
	found, cursor := []event{}, ""
	s.locked(func() {
		for _, e := range slices.Backward(s.events) {
			if before != 0 && e.number >= before || !s.wants(f, e) {
				continue
			}
			if len(found) == count {
				cursor = strconv.FormatInt(found[count-1].number, 10)
				break
			}
			found = append(found, e)
		}
	})
	body := map[string]any{name: found}
	if cursor != "" {
		body["cursor"] = cursor
	}
	reply(w, http.StatusOK, body)
	return nil
}

// parseCount reads how many records a call is about.
func parseCount(query url.Values, most int) (int, error) {
	value := query.Get("count")
	if value == "" {
		return min(defaultCount, most), nil
	}
	count, err := strconv.Atoi(value)
	if err != nil || count < 1 {
		return 0, badRequest("invalid count")
	}
	return min(count, most), nil
}
