package compat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"time"
)

// accepted is what a publisher hears about one message.
type accepted struct {
	MessageID    string `json:"messageId"`
	URL          string `json:"url,omitempty"`
	Deduplicated bool   `json:"deduplicated,omitempty"`
}

// sighting is a message that was accepted under a deduplication id.
type sighting struct {
	messageID string
	until     time.Time
}

// names are those of queues and URL groups.
var names = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// order is one thing to publish, from a call of its own or from a batch.
type order struct {
	destination string
	queue       string
	queued      bool // whether it was enqueued, under whatever name
	body        []byte
	header      http.Header
	callerIP    string
}

func (s *Server) servePublish(w http.ResponseWriter, r *http.Request, rt route) error {
	body, err := s.readBody(w, r, s.maxBody)
	if err != nil {
		return err
	}
	o := order{
		destination: rt.destination, queue: rt.queue, queued: rt.kind == "enqueue", body: body,
		header: optionHeaders(r.Header, rt.options), callerIP: callerIP(r),
	}
	var (
		refusal FaultKind
		results []accepted
		group   bool
		dropped bool
	)
	s.locked(func() {
		if refusal = s.takeRefusal(o.destination); refusal != "" {
			return
		}
		results, group, err = s.publish(o)
		dropped = err == nil && s.takeFault(FaultDropped, o.destination)
	})
	switch {
	case refusal != "":
		replyFault(w, refusal, s.now())
		return nil
	case err != nil:
		return err
	case dropped:
		panic(http.ErrAbortHandler) // closes the connection without a reply
	}
	status := http.StatusOK
	if !slices.ContainsFunc(results, func(a accepted) bool { return !a.Deduplicated }) {
		status = http.StatusAccepted
	}
	if group {
		reply(w, status, results)
		return nil
	}
	reply(w, status, results[0])
	return nil
}

// publish accepts an order: one message, or one for each endpoint of a URL
// group. Nothing is accepted when it is refused. s.mu is held.
func (s *Server) publish(o order) (results []accepted, group bool, err error) {
	parsed, err := parseOptions(o.header)
	if err != nil {
		return nil, false, err
	}
	if o.queued && !names.MatchString(o.queue) {
		return nil, false, badRequest("invalid queue name %q", o.queue)
	}
	if int64(len(o.body)) > s.maxBody {
		return nil, false, errTooLarge(s.maxBody)
	}
	endpoints, group, err := s.endpointsOf(o.destination)
	if err != nil {
		return nil, false, err
	}
	if err := s.room(o, len(endpoints)); err != nil {
		return nil, false, err
	}
	for _, e := range endpoints {
		m := &message{id: newID(messagePrefix), url: e.URL, body: o.body, options: parsed, callerIP: o.callerIP}
		result := accepted{MessageID: m.id}
		if group {
			m.topic, m.endpoint, result.URL = o.destination, e.Name, e.URL
		}
		if old, known := s.sight(m, group); known {
			result.MessageID, result.Deduplicated = old, true
			results = append(results, result)
			continue
		}
		if o.queued {
			m.queue = s.queueOf(o.queue)
		}
		s.accept(m)
		results = append(results, result)
	}
	return results, group, nil
}

// room refuses what would go beyond the bounds of the server. s.mu is held.
func (s *Server) room(o order, count int) error {
	switch {
	case s.closed:
		return errClosed
	case len(s.messages)+count > maxPending || s.pendingBytes+count*len(o.body) > maxPendingBytes:
		return refuse(http.StatusServiceUnavailable, "too many messages are pending")
	case o.queued && s.queues[o.queue] == nil && len(s.queues) >= maxQueues:
		return errQueues
	}
	return nil
}

// endpointsOf returns where a destination leads: a URL to itself, any other word
// to the endpoints of the URL group of that name. s.mu is held.
func (s *Server) endpointsOf(destination string) (endpoints []endpoint, group bool, err error) {
	if g, ok := s.topics[destination]; ok {
		if len(g.Endpoints) == 0 {
			return nil, true, badRequest("the URL group %q has no endpoints", destination)
		}
		return g.Endpoints, true, nil
	}
	if names.MatchString(destination) {
		return nil, false, notFound("no URL group %q; a destination url starts with http:// or https://", destination)
	}
	if err := checkURL(destination); err != nil {
		return nil, false, err
	}
	return []endpoint{{URL: destination}}, false, nil
}

// sight remembers the deduplication id of m, or returns the id of the message
// that it is a duplicate of. s.mu is held.
func (s *Server) sight(m *message, group bool) (old string, known bool) {
	key := m.options.dedupID
	switch {
	case key != "":
		key = "id:" + key
		if group {
			key += "\x00" + m.url
		}
	case m.options.byContent:
		key = "content:" + m.fingerprint()
	default:
		return "", false
	}
	now := s.now()
	if before, ok := s.seen[key]; ok && now.Before(before.until) {
		return before.messageID, true
	}
	if len(s.seen) >= maxDedupIDs {
		maps.DeleteFunc(s.seen, func(_ string, v sighting) bool { return !now.Before(v.until) })
	}
	if len(s.seen) < maxDedupIDs {
		s.seen[key] = sighting{m.id, now.Add(dedupWindow)}
	}
	return "", false
}

// fingerprint is a hash of what content-based deduplication compares: the
// destination, the body, its type and the forwarded headers.
func (m *message) fingerprint() string {
	h := sha256.New()
	part := func(text string) { fmt.Fprintf(h, "%d:%s", len(text), text) }
	part(m.url)
	part(string(m.body))
	part(m.options.contentType)
	for _, name := range slices.Sorted(maps.Keys(m.options.forward)) {
		part(name)
		for _, value := range m.options.forward[name] {
			part(value)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// batchItem is one item of a batch.
type batchItem struct {
	Destination string                 `json:"destination"`
	Headers     map[string]headerValue `json:"headers"`
	Body        string                 `json:"body"`
	Queue       string                 `json:"queue"`
}

// headerValue is a header of a batch item: a text, or a list of them.
type headerValue []string

// UnmarshalJSON reads either form.
func (v *headerValue) UnmarshalJSON(raw []byte) error {
	var one string
	if err := json.Unmarshal(raw, &one); err == nil {
		*v = headerValue{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(v))
}

// serveBatch publishes a list of items. Each has its own result, at its place:
// what was accepted, a list of that for a URL group, or an error.
func (s *Server) serveBatch(w http.ResponseWriter, r *http.Request) error {
	raw, err := s.readBody(w, r, batchBodies*s.maxBody)
	if err != nil {
		return err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return badRequest("invalid batch: %v", err)
	}
	orders := make([]order, len(items))
	invalid := make([]error, len(items))
	destinations := []string{}
	for i, item := range items {
		orders[i], invalid[i] = readItem(item, callerIP(r))
		destinations = append(destinations, orders[i].destination)
	}
	var (
		refusal FaultKind
		dropped bool
	)
	results := make([]any, len(items))
	s.locked(func() {
		if refusal = s.takeRefusal(destinations...); refusal != "" {
			return
		}
		if len(items) > 0 && s.takeFault(FaultPartialBatch, destinations...) {
			invalid[len(items)-1] = badRequest("this item fails by a fault")
		}
		for i, o := range orders {
			results[i] = s.publishItem(o, invalid[i])
		}
		dropped = s.takeFault(FaultDropped, destinations...)
	})
	switch {
	case refusal != "":
		replyFault(w, refusal, s.now())
	case dropped:
		panic(http.ErrAbortHandler) // closes the connection without a reply
	default:
		reply(w, http.StatusOK, results)
	}
	return nil
}

// publishItem returns the result of one item of a batch. s.mu is held.
func (s *Server) publishItem(o order, invalid error) any {
	if invalid != nil {
		return errorBody{invalid.Error()}
	}
	results, group, err := s.publish(o)
	switch {
	case err != nil:
		return errorBody{err.Error()}
	case group:
		return results
	}
	return results[0]
}

// readItem reads one item of a batch. Header names are compared without case, and
// an empty queue is none.
func readItem(raw json.RawMessage, ip string) (order, error) {
	var item batchItem
	if err := json.Unmarshal(raw, &item); err != nil {
		return order{}, badRequest("invalid item: %v", err)
	}
	header := http.Header{}
	for name, values := range item.Headers {
		for _, value := range values {
			header.Add(name, value)
		}
	}
	return order{
		destination: item.Destination, queue: item.Queue, queued: item.Queue != "", body: []byte(item.Body), header: header,
		callerIP: ip,
	}, nil
}
