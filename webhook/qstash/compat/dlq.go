package compat

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// What is dead is bounded in number and in size; the oldest go first.
	maxDead      = 10_000
	maxDeadBytes = 256 << 20
	// deadRetention is that of the free plan.
	deadRetention = 3 * day
	// maxBulk is the most that one bulk call handles; a cursor leads on.
	maxBulk = 100
)

// deadLetter is an entry of the DLQ.
type deadLetter struct {
	id      string
	at      time.Time
	message *message
	answer  answer
}

// deadView is an entry as the API shows it.
type deadView struct {
	view
	DLQID              string      `json:"dlqId"`
	ResponseStatus     int         `json:"responseStatus,omitempty"`
	ResponseHeader     http.Header `json:"responseHeader,omitempty"`
	ResponseBody       string      `json:"responseBody,omitempty"`
	ResponseBodyBase64 string      `json:"responseBodyBase64,omitempty"`
}

func (d *deadLetter) view() deadView {
	v := deadView{
		view: d.message.view(), DLQID: d.id, ResponseStatus: d.answer.status, ResponseHeader: d.answer.header,
	}
	if d.answer.err != nil {
		v.ResponseBody = d.answer.err.Error()
		return v
	}
	v.ResponseBody, v.ResponseBodyBase64 = textOrBase64(d.answer.body)
	return v
}

func (d *deadLetter) matches(f filter) bool {
	record := d.message.record()
	record["dlqIds"] = []string{d.id}
	record["responseStatus"] = []string{strconv.Itoa(d.answer.status)}
	return f.matches(record, d.at)
}

// bury puts m into the DLQ and returns the id of its entry. s.mu is held.
func (s *Server) bury(m *message, got answer) string {
	s.expireDead()
	now := s.now()
	d := &deadLetter{at: now, message: m, answer: got}
	for n := 0; ; n++ {
		d.id = strconv.FormatInt(now.UnixMilli(), 10) + "-" + strconv.Itoa(n)
		if s.findDead(d.id) < 0 {
			break
		}
	}
	s.dead = append(s.dead, d)
	size := 0
	for i, kept := range slices.Backward(s.dead) {
		size += len(kept.message.body) + len(kept.answer.body)
		if i < len(s.dead)-1 && (size > maxDeadBytes || len(s.dead)-i > maxDead) {
			s.dead = slices.Delete(s.dead, 0, i+1)
			break
		}
	}
	return d.id
}

// expireDead forgets what is older than the retention. s.mu is held.
func (s *Server) expireDead() {
	end := s.now().Add(-deadRetention)
	s.dead = slices.DeleteFunc(s.dead, func(d *deadLetter) bool { return d.at.Before(end) })
}

// findDead returns the place of an entry, or -1. s.mu is held.
func (s *Server) findDead(id string) int {
	return slices.IndexFunc(s.dead, func(d *deadLetter) bool { return d.id == id })
}

// pageDead returns up to count entries that f wants, from the one after cursor
// on, and the cursor of the next page. s.mu is held.
func (s *Server) pageDead(f filter, cursor string, count int) (page []*deadLetter, next string) {
	s.expireDead()
	from := 0
	if cursor != "" {
		from = s.findDead(cursor) + 1
	}
	for _, d := range s.dead[from:] {
		if !d.matches(f) {
			continue
		}
		if len(page) == count {
			return page, page[count-1].id
		}
		page = append(page, d)
	}
	return page, ""
}

// takeDead is pageDead for calls that remove what they find: what is gone cannot
// be a cursor, so the next page starts where this one did. s.mu is held.
func (s *Server) takeDead(f filter, cursor string, count int) (page []*deadLetter, next string) {
	page, next = s.pageDead(f, cursor, count)
	if next != "" {
		// An id that is not there leads to the first entry.
		next = firstPage
		if cursor != "" {
			next = cursor
		}
	}
	s.dead = slices.DeleteFunc(s.dead, func(d *deadLetter) bool { return slices.Contains(page, d) })
	return page, next
}

// firstPage is a cursor that names no entry.
const firstPage = "0-0"

func (s *Server) serveDLQ(w http.ResponseWriter, r *http.Request, rest []string) error {
	switch {
	case len(rest) == 0 && r.Method == http.MethodGet:
		return s.listDead(w, r)
	case len(rest) == 0 && r.Method == http.MethodDelete:
		return s.deleteDead(w, r)
	case len(rest) > 0 && rest[0] == "retry":
		if r.Method != http.MethodPost {
			return errMethod
		}
		return s.retryDead(w, r, rest[1:])
	case len(rest) == 0:
		return errMethod
	case len(rest) > 1:
		return errRoute
	case rest[0] == "":
		return badRequest("the DLQ id is empty")
	}
	return s.serveDeadLetter(w, r, rest[0])
}

func (s *Server) listDead(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	f, err := parseFilter(query)
	if err != nil {
		return err
	}
	count, err := parseCount(query, maxBulk)
	if err != nil {
		return err
	}
	body := struct {
		Messages []deadView `json:"messages"`
		Cursor   string     `json:"cursor,omitempty"`
	}{Messages: []deadView{}}
	s.locked(func() {
		var page []*deadLetter
		page, body.Cursor = s.pageDead(f, query.Get("cursor"), count)
		for _, d := range page {
			body.Messages = append(body.Messages, d.view())
		}
	})
	reply(w, http.StatusOK, body)
	return nil
}

func (s *Server) deleteDead(w http.ResponseWriter, r *http.Request) error {
	page, next, err := s.bulkDead(w, r)
	if err != nil {
		return err
	}
	body := struct {
		Deleted int    `json:"deleted"`
		Cursor  string `json:"cursor,omitempty"`
	}{len(page), next}
	reply(w, http.StatusOK, body)
	return nil
}

// bulkDead takes what a bulk call is about out of the DLQ.
func (s *Server) bulkDead(w http.ResponseWriter, r *http.Request) (page []*deadLetter, next string, err error) {
	query, err := s.bulkQuery(w, r, "dlqIds")
	if err != nil {
		return nil, "", err
	}
	f, err := parseFilter(query)
	if err != nil {
		return nil, "", err
	}
	count, err := parseCount(query, maxBulk)
	if err != nil {
		return nil, "", err
	}
	s.locked(func() { page, next = s.takeDead(f, query.Get("cursor"), count) })
	return page, next, nil
}

func (s *Server) serveDeadLetter(w http.ResponseWriter, r *http.Request, id string) error {
	if r.Method != http.MethodGet && r.Method != http.MethodDelete {
		return errMethod
	}
	var found *deadView
	s.locked(func() {
		s.expireDead()
		i := s.findDead(id)
		if i < 0 {
			return
		}
		v := s.dead[i].view()
		found = &v
		if r.Method == http.MethodDelete {
			s.dead = slices.Delete(s.dead, i, i+1)
		}
	})
	switch {
	case found == nil:
		return notFound("no message %q in the DLQ", id)
	case r.Method == http.MethodDelete:
		reply(w, http.StatusOK, done{})
	default:
		reply(w, http.StatusOK, found)
	}
	return nil
}

// retryDead sends entries of the DLQ again, as new messages. Options in the
// request override those of the entry.
func (s *Server) retryDead(w http.ResponseWriter, r *http.Request, rest []string) error {
	if len(rest) > 1 {
		return errRoute
	}
	if len(rest) == 1 {
		return s.retryOne(w, r, rest[0])
	}
	page, next, err := s.bulkDead(w, r)
	if err != nil {
		return err
	}
	ids, err := s.republish(r, page)
	if err != nil {
		return err
	}
	responses := []accepted{}
	for _, id := range ids {
		responses = append(responses, accepted{MessageID: id})
	}
	reply(w, http.StatusCreated, map[string]any{"cursor": next, "responses": responses})
	return nil
}

func (s *Server) retryOne(w http.ResponseWriter, r *http.Request, id string) error {
	if id == "" {
		return badRequest("the DLQ id is empty")
	}
	var page []*deadLetter
	s.locked(func() { page, _ = s.takeDead(filter{want: map[string][]string{"dlqIds": {id}}}, "", 1) })
	if len(page) == 0 {
		return notFound("no message %q in the DLQ", id)
	}
	ids, err := s.republish(r, page)
	if err != nil {
		return err
	}
	reply(w, http.StatusCreated, accepted{MessageID: ids[0]})
	return nil
}

// republish accepts the messages of entries anew and returns their new ids. When
// the new options of one are refused, all go back into the DLQ.
func (s *Server) republish(r *http.Request, page []*deadLetter) (ids []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	renewed := make([]*message, 0, len(page))
	for _, d := range page {
		m, err := s.renew(r, d.message)
		if err != nil {
			s.dead = append(page, s.dead...)
			return nil, err
		}
		renewed = append(renewed, m)
	}
	for _, m := range renewed {
		s.accept(m)
		ids = append(ids, m.id)
	}
	return ids, nil
}

// renew makes a new message of an old one, with the options of the request in
// place of its own. s.mu is held.
func (s *Server) renew(r *http.Request, old *message) (*message, error) {
	header := old.options.source.Clone()
	// What waited once does not wait again, and is no duplicate of itself.
	for _, name := range []string{headerDelay, headerNotBefore, headerDedupID, headerContentDedup} {
		header.Del(name)
	}
	for name, values := range r.Header {
		if strings.HasPrefix(name, headerUpstash) {
			header[name] = values
		}
	}
	parsed, err := parseOptions(header)
	if err != nil {
		return nil, err
	}
	m := &message{
		id: newID(messagePrefix), url: old.url, body: old.body, options: parsed, topic: old.topic, endpoint: old.endpoint,
		callerIP: old.callerIP,
	}
	if old.queue != nil {
		m.queue = s.queueOf(old.queue.name)
	}
	return m, nil
}
