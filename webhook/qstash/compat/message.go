package compat

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// stage is where a message stands.
type stage int

const (
	// stageWaiting: in a queue, behind others or behind a pause.
	stageWaiting stage = iota
	// stageScheduled: a timer runs to its next attempt.
	stageScheduled
	// stageReady: due, and held by flow control or by the bound of attempts.
	stageReady
	// stageActive: an attempt runs.
	stageActive
	// stageDone: delivered, failed or cancelled.
	stageDone
)

// message is one delivery to one URL. Fields below the line change, under the
// server's lock.
type message struct {
	id       string
	url      string
	body     []byte
	options  options
	queue    *queue
	topic    string
	endpoint string
	callerIP string
	created  time.Time
	// parent is the message that this one reports about; nil for others.
	parent *message

	stage     stage
	due       time.Time
	retried   int
	cancelled bool
	stop      func() bool // of the timer, in stageScheduled
	// callbacks counts those of this message that are not settled; its place in the
	// queue is held until then.
	callbacks int
}

// view is a message as the API shows it.
type view struct {
	MessageID       string      `json:"messageId"`
	TopicName       string      `json:"topicName,omitempty"`
	EndpointName    string      `json:"endpointName,omitempty"`
	URL             string      `json:"url"`
	Method          string      `json:"method"`
	Header          http.Header `json:"header"`
	Body            string      `json:"body,omitempty"`
	BodyBase64      string      `json:"bodyBase64,omitempty"`
	MaxRetries      int         `json:"maxRetries"`
	RetryDelay      string      `json:"retryDelayExpression,omitempty"`
	NotBefore       int64       `json:"notBefore"`
	CreatedAt       int64       `json:"createdAt"`
	Callback        string      `json:"callback,omitempty"`
	FailureCallback string      `json:"failureCallback,omitempty"`
	QueueName       string      `json:"queueName,omitempty"`
	CallerIP        string      `json:"callerIP,omitempty"`
	FlowControlKey  string      `json:"flowControlKey,omitempty"`
	Parallelism     int         `json:"parallelism,omitempty"`
	Rate            int         `json:"rate,omitempty"`
	Period          int64       `json:"period,omitempty"`
	Label           string      `json:"label,omitempty"`
	Labels          []string    `json:"labels,omitempty"`
}

// view shows m as it stands. s.mu is held.
func (m *message) view() view {
	v := view{
		MessageID: m.id, TopicName: m.topic, EndpointName: m.endpoint, URL: m.url, Method: m.options.method,
		Header: m.passedOn(), MaxRetries: m.options.retries, RetryDelay: m.options.retryDelay.source,
		NotBefore: m.due.UnixMilli(), CreatedAt: m.created.UnixMilli(), QueueName: m.queueName(), CallerIP: m.callerIP,
		Labels: m.options.labels,
	}
	v.Body, v.BodyBase64 = textOrBase64(m.body)
	if m.options.callback != nil {
		v.Callback = m.options.callback.url
	}
	if m.options.failureCallback != nil {
		v.FailureCallback = m.options.failureCallback.url
	}
	if flow := m.options.flow; flow != nil {
		v.FlowControlKey, v.Parallelism, v.Rate, v.Period = flow.key, flow.parallelism, flow.rate, int64(flow.period/time.Second)
	}
	if len(m.options.labels) > 0 {
		v.Label = m.options.labels[0]
	}
	return v
}

// textOrBase64 puts a body into the field of the API that can hold it.
func textOrBase64(body []byte) (text, encoded string) {
	if utf8.Valid(body) {
		return string(body), ""
	}
	return "", base64.StdEncoding.EncodeToString(body)
}

func (m *message) queueName() string {
	if m.queue == nil {
		return ""
	}
	return m.queue.name
}

// passedOn returns the headers of the caller that the destination receives.
func (m *message) passedOn() http.Header {
	header := m.options.forward.Clone()
	if m.options.contentType != "" {
		header.Set("Content-Type", m.options.contentType)
	}
	return header
}

// filter is what a list or a bulk call asks for; a record must match each name
// with one of its values. The zero value matches everything.
type filter struct {
	want     map[string][]string
	from, to time.Time
}

// filterNames are the parameters that filter. pagingNames do not.
var (
	filterNames = []string{
		"messageId", "messageIds", "dlqIds", "url", "host", "path", "topicName", "queueName", "label", "flowControlKey", "callerIp",
		"scheduleId", "responseStatus", "state", "api",
	}
	pagingNames = []string{"count", "cursor", "order", tokenParam}
)

// parseFilter reads a filter. An unknown name, or an empty value, is refused: a
// bulk call that ignored it would hit everything.
func parseFilter(query url.Values) (filter, error) {
	f := filter{want: map[string][]string{}}
	for name, values := range query {
		switch {
		case slices.Contains(values, ""):
			return filter{}, badRequest("%s is empty", name)
		case name == "fromDate" || name == "toDate":
			ms, err := strconv.ParseInt(values[0], 10, 64)
			if err != nil {
				return filter{}, badRequest("invalid %s: want milliseconds since 1970", name)
			}
			if at := time.UnixMilli(ms); name == "fromDate" {
				f.from = at
			} else {
				f.to = at
			}
		case slices.Contains(filterNames, name):
			f.want[name] = values
		case !slices.Contains(pagingNames, name):
			return filter{}, badRequest("unknown filter %q", name)
		}
	}
	return f, nil
}

// matches reports whether a record of at has one of the wanted values for each
// name.
func (f filter) matches(record map[string][]string, at time.Time) bool {
	if !f.from.IsZero() && at.Before(f.from) || !f.to.IsZero() && at.After(f.to) {
		return false
	}
	for name, values := range f.want {
		if !slices.ContainsFunc(values, func(v string) bool { return slices.Contains(record[name], v) }) {
			return false
		}
	}
	return true
}

// record is what the filters see of m.
func (m *message) record() map[string][]string {
	record := map[string][]string{
		"messageId": {m.id}, "messageIds": {m.id}, "url": {m.url}, "topicName": {m.topic}, "queueName": {m.queueName()},
		"label": m.options.labels, "callerIp": {m.callerIP},
	}
	if m.options.flow != nil {
		record["flowControlKey"] = []string{m.options.flow.key}
	}
	if parsed, err := url.Parse(m.url); err == nil {
		record["host"], record["path"] = []string{parsed.Host}, []string{parsed.Path}
	}
	return record
}
