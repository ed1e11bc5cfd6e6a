package compat

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"time"
)

func (s *Server) serveMessages(w http.ResponseWriter, r *http.Request, rest []string) error {
	if r.Method != http.MethodGet && r.Method != http.MethodDelete {
		return errMethod
	}
	switch {
	case len(rest) == 0 && r.Method == http.MethodDelete:
		return s.cancelMany(w, r)
	case len(rest) == 0:
		return errMethod
	case len(rest) > 1:
		return errRoute
	case rest[0] == "":
		return badRequest("the message id is empty")
	}
	var shown *view
	cancelled := 0
	s.locked(func() {
		m := s.messages[rest[0]]
		if m == nil {
			return
		}
		v := m.view()
		shown = &v
		if r.Method == http.MethodDelete {
			cancelled = s.cancel(m)
		}
	})
	switch {
	case shown == nil:
		return notFound("no pending message %q", rest[0])
	case r.Method == http.MethodDelete:
		reply(w, http.StatusOK, map[string]int{"cancelled": cancelled})
	default:
		reply(w, http.StatusOK, shown)
	}
	return nil
}

// cancelMany cancels what a filter finds: all, without one.
func (s *Server) cancelMany(w http.ResponseWriter, r *http.Request) error {
	query, err := s.bulkQuery(w, r, "messageIds")
	if err != nil {
		return err
	}
	f, err := parseFilter(query)
	if err != nil {
		return err
	}
	cancelled := 0
	s.locked(func() {
		var found []*message
		for _, m := range s.messages {
			if f.matches(m.record(), m.created) {
				found = append(found, m)
			}
		}
		cancelled = s.cancel(found...)
	})
	reply(w, http.StatusOK, map[string]int{"cancelled": cancelled})
	return nil
}

// queueView is a queue as the API shows it.
type queueView struct {
	Name        string `json:"name"`
	Parallelism int    `json:"parallelism"`
	Paused      bool   `json:"paused"`
	Lag         int    `json:"lag"`
	CreatedAt   int64  `json:"createdAt"`
	UpdatedAt   int64  `json:"updatedAt"`
}

func (q *queue) view() queueView {
	return queueView{q.name, q.parallelism, q.paused, len(q.messages), q.created.UnixMilli(), q.updated.UnixMilli()}
}

// queueOf returns the queue of a name, which is made if there is none. s.mu is
// held.
func (s *Server) queueOf(name string) *queue {
	q := s.queues[name]
	if q == nil {
		q = &queue{name: name, parallelism: 1, created: s.now(), updated: s.now()}
		s.queues[name] = q
	}
	return q
}

func (s *Server) serveQueues(w http.ResponseWriter, r *http.Request, rest []string) error {
	if len(rest) == 0 {
		return s.serveQueueList(w, r)
	}
	if !names.MatchString(rest[0]) {
		return badRequest("invalid queue name %q", rest[0])
	}
	act, err := queueAction(r.Method, rest[1:])
	if err != nil {
		return err
	}
	var body any
	s.locked(func() {
		if q := s.queues[rest[0]]; q != nil {
			body = act(s, q)
		}
	})
	if body == nil {
		return notFound("no queue %q", rest[0])
	}
	reply(w, http.StatusOK, body)
	return nil
}

func (s *Server) serveQueueList(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodPost:
		return s.upsertQueue(w, r)
	case http.MethodGet:
	default:
		return errMethod
	}
	list := []queueView{}
	s.locked(func() {
		for _, name := range slices.Sorted(maps.Keys(s.queues)) {
			list = append(list, s.queues[name].view())
		}
	})
	reply(w, http.StatusOK, list)
	return nil
}

func (s *Server) upsertQueue(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Name        string `json:"queueName"`
		Parallelism int    `json:"parallelism"`
		Paused      *bool  `json:"paused"`
	}
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	if !names.MatchString(body.Name) || body.Parallelism < 0 {
		return badRequest("invalid queue name or parallelism")
	}
	full := false
	s.locked(func() {
		if full = s.queues[body.Name] == nil && len(s.queues) >= maxQueues; full {
			return
		}
		q := s.queueOf(body.Name)
		q.parallelism = cmp.Or(body.Parallelism, q.parallelism)
		if body.Paused != nil {
			q.paused = *body.Paused
		}
		q.updated = s.now()
		s.pumpQueue(q)
	})
	if full {
		return errQueues
	}
	reply(w, http.StatusOK, done{})
	return nil
}

// queueAction returns what a call does with a queue, under the lock, and what it
// answers.
func queueAction(method string, rest []string) (func(*Server, *queue) any, error) {
	switch {
	case len(rest) == 0 && method == http.MethodGet:
		return func(_ *Server, q *queue) any { return q.view() }, nil
	case len(rest) == 0 && method == http.MethodDelete:
		return (*Server).deleteQueue, nil
	case len(rest) == 0:
		return nil, errMethod
	case len(rest) > 1 || rest[0] != "pause" && rest[0] != "resume":
		return nil, errRoute
	case method != http.MethodPost:
		return nil, errMethod
	}
	return func(s *Server, q *queue) any {
		q.paused, q.updated = rest[0] == "pause", s.now()
		s.pumpQueue(q)
		return done{}
	}, nil
}

// deleteQueue removes a queue with what waits in it. s.mu is held.
func (s *Server) deleteQueue(q *queue) any {
	delete(s.queues, q.name)
	s.cancel(slices.Clone(q.messages)...)
	return done{}
}

// endpoint is one member of a URL group.
type endpoint struct {
	URL  string `json:"url"`
	Name string `json:"name,omitempty"`
}

// topic is a URL group; the API's word for it is topic.
type topic struct {
	Name      string     `json:"name"`
	CreatedAt int64      `json:"createdAt"`
	UpdatedAt int64      `json:"updatedAt"`
	Endpoints []endpoint `json:"endpoints"`
}

func (s *Server) serveTopics(w http.ResponseWriter, r *http.Request, rest []string) error {
	switch {
	case len(rest) == 0 && r.Method == http.MethodGet:
		list := []topic{}
		s.locked(func() {
			for _, name := range slices.Sorted(maps.Keys(s.topics)) {
				list = append(list, *s.topics[name])
			}
		})
		reply(w, http.StatusOK, list)
		return nil
	case len(rest) == 0:
		return errMethod
	case !names.MatchString(rest[0]):
		return badRequest("invalid URL group %q", rest[0])
	case len(rest) == 2 && rest[1] == "endpoints":
		return s.serveMembers(w, r, rest[0])
	case len(rest) > 1:
		return errRoute
	case r.Method != http.MethodGet && r.Method != http.MethodDelete:
		return errMethod
	}
	var found *topic
	s.locked(func() {
		if g := s.topics[rest[0]]; g != nil {
			shown := *g
			found = &shown
		}
		if r.Method == http.MethodDelete {
			delete(s.topics, rest[0])
		}
	})
	switch {
	case found == nil:
		return notFound("no URL group %q", rest[0])
	case r.Method == http.MethodDelete:
		reply(w, http.StatusOK, done{})
	default:
		reply(w, http.StatusOK, found)
	}
	return nil
}

// serveMembers adds endpoints to a URL group, which is made if there is none, or
// removes them.
func (s *Server) serveMembers(w http.ResponseWriter, r *http.Request, name string) error {
	if r.Method != http.MethodPost && r.Method != http.MethodDelete {
		return errMethod
	}
	var body struct {
		Endpoints []endpoint `json:"endpoints"`
	}
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	for _, e := range body.Endpoints {
		if err := checkURL(e.URL); err != nil && (r.Method == http.MethodPost || e.Name == "") {
			return err
		}
	}
	found := true
	s.locked(func() {
		g := s.topics[name]
		switch {
		case r.Method == http.MethodPost:
			if g == nil {
				g = &topic{Name: name, CreatedAt: s.now().UnixMilli()}
				s.topics[name] = g
			}
			g.add(body.Endpoints, s.now())
		case g == nil:
			found = false
		default:
			g.remove(body.Endpoints, s.now())
		}
	})
	if !found {
		return notFound("no URL group %q", name)
	}
	reply(w, http.StatusOK, done{})
	return nil
}

// same reports whether two endpoints are the same one: by name if both have one,
// else by URL.
func (e endpoint) same(other endpoint) bool {
	if e.Name != "" && other.Name != "" {
		return e.Name == other.Name
	}
	return e.URL == other.URL
}

func (g *topic) add(endpoints []endpoint, now time.Time) {
	g.remove(endpoints, now)
	g.Endpoints = slices.Concat(g.Endpoints, endpoints)
}

// remove leaves the list that others may be reading alone.
func (g *topic) remove(endpoints []endpoint, now time.Time) {
	kept := []endpoint{}
	for _, e := range g.Endpoints {
		if !slices.ContainsFunc(endpoints, e.same) {
			kept = append(kept, e)
		}
	}
	g.Endpoints, g.UpdatedAt = kept, now.UnixMilli()
}

// flowView is a flow-control key as the API shows it.
type flowView struct {
	Key              string `json:"flowControlKey"`
	WaitListSize     int    `json:"waitListSize"`
	ParallelismMax   int    `json:"parallelismMax"`
	ParallelismCount int    `json:"parallelismCount"`
	RateMax          int    `json:"rateMax"`
	RateCount        int    `json:"rateCount"`
	RatePeriod       int64  `json:"ratePeriod"`
}

func (s *Server) serveFlow(w http.ResponseWriter, r *http.Request, rest []string) error {
	switch {
	case r.Method != http.MethodGet:
		return refuse(http.StatusNotImplemented, "flow control can be read, not changed, by calls")
	case len(rest) > 1:
		return errRoute
	}
	list := []flowView{}
	s.locked(func() {
		for _, key := range slices.Sorted(maps.Keys(s.flows)) {
			f := s.flows[key]
			f.rateWait(s.now(), s.scaled(f.limit.period)) // forgets starts of earlier periods
			list = append(list, flowView{
				key, len(f.waiting), f.limit.parallelism, f.active, f.limit.rate, len(f.started), int64(f.limit.period / time.Second),
			})
		}
	})
	if len(rest) == 0 {
		reply(w, http.StatusOK, list)
		return nil
	}
	i := slices.IndexFunc(list, func(f flowView) bool { return f.Key == rest[0] })
	if i < 0 {
		return notFound("no flow-control key %q", rest[0])
	}
	reply(w, http.StatusOK, list[i])
	return nil
}
