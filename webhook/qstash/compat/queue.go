package compat

import (
	"maps"
	"slices"
	"time"
)

// queue delivers its messages in order: the first parallelism of them are under
// way, and each holds its place until it is settled, with its retries and its
// callbacks. One bad message blocks what stands behind it for so long.
type queue struct {
	name             string
	parallelism      int
	paused           bool
	created, updated time.Time
	messages         []*message
}

// admitted returns the messages that are not behind others.
func (q *queue) admitted() []*message {
	return q.messages[:min(len(q.messages), q.parallelism)]
}

// pumpQueue schedules what may go now. s.mu is held.
func (s *Server) pumpQueue(q *queue) {
	if q.paused {
		return
	}
	for _, m := range slices.Clone(q.admitted()) {
		if m.stage == stageWaiting && !m.cancelled {
			s.schedule(m)
		}
	}
}

// leaveQueue gives up the place of a settled message. s.mu is held.
func (s *Server) leaveQueue(m *message) {
	if m.queue == nil || m.callbacks > 0 {
		return
	}
	if i := slices.Index(m.queue.messages, m); i >= 0 {
		m.queue.messages = slices.Delete(m.queue.messages, i, i+1)
		s.pumpQueue(m.queue)
	}
}

// maxFlows is the number of flow-control keys from which idle ones are forgotten.
const maxFlows = 1000

// flow holds back what is over the limits of a flow-control key. The limits are
// those of the message that came last.
type flow struct {
	limit   flowLimit
	active  int
	started []time.Time // within the period
	waiting []*message
	wake    func() bool // stops the timer of the rate limit
}

// pumpFlow starts what the limits of f allow. s.mu is held.
func (s *Server) pumpFlow(f *flow) {
	if f.wake != nil {
		f.wake()
		f.wake = nil
	}
	for len(f.waiting) > 0 {
		if f.limit.parallelism > 0 && f.active >= f.limit.parallelism {
			return // the end of an attempt pumps again
		}
		if wait := f.rateWait(s.now(), s.scaled(f.limit.period)); wait > 0 {
			f.wake = s.clock.AfterFunc(wait, func() { s.locked(func() { s.pumpFlow(f) }) })
			return
		}
		m := f.waiting[0]
		f.waiting = f.waiting[1:]
		if m.cancelled {
			continue
		}
		f.active++
		f.started = append(f.started, s.now())
		s.begin(m)
	}
}

// rateWait returns how long the rate limit holds the next start back.
func (f *flow) rateWait(now time.Time, period time.Duration) time.Duration {
	f.started = slices.DeleteFunc(f.started, func(at time.Time) bool { return now.Sub(at) >= period })
	if f.limit.rate == 0 || len(f.started) < f.limit.rate {
		return 0
	}
	return f.started[len(f.started)-f.limit.rate].Add(period).Sub(now)
}

// joinFlow makes the limits of m those of its flow-control key. s.mu is held.
func (s *Server) joinFlow(m *message) {
	limit := m.options.flow
	if limit == nil {
		return
	}
	f := s.flows[limit.key]
	if f == nil {
		s.forgetFlows()
		f = &flow{}
		s.flows[limit.key] = f
	}
	f.limit = *limit
}

// forgetFlows drops the keys that hold nothing back once there are many. s.mu is
// held.
func (s *Server) forgetFlows() {
	if len(s.flows) < maxFlows {
		return
	}
	needed := map[string]bool{}
	for _, m := range s.messages {
		if m.options.flow != nil {
			needed[m.options.flow.key] = true
		}
	}
	maps.DeleteFunc(s.flows, func(key string, f *flow) bool {
		f.rateWait(s.now(), s.scaled(f.limit.period)) // forgets starts of earlier periods
		return !needed[key] && len(f.started) == 0
	})
}

// flowOf returns the flow of m, nil for none. s.mu is held.
func (s *Server) flowOf(m *message) *flow {
	if m.options.flow == nil {
		return nil
	}
	return s.flows[m.options.flow.key]
}
