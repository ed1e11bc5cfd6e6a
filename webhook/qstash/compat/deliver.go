package compat

import (
	"cmp"
	"context"
	"time"
)

// accept takes a message over: it will be delivered, or end in the DLQ. s.mu is
// held.
func (s *Server) accept(m *message) {
	m.created = s.now()
	m.due = m.created.Add(m.options.delay)
	if !m.options.notBefore.IsZero() {
		m.due = m.options.notBefore
	}
	if len(s.messages) == 0 {
		s.quiet = make(chan struct{})
	}
	s.messages[m.id] = m
	s.pendingBytes += len(m.body)
	s.log(m, stateCreated, event{})
	s.joinFlow(m)
	if m.queue != nil {
		m.queue.messages = append(m.queue.messages, m)
		s.pumpQueue(m.queue)
		return
	}
	s.schedule(m)
}

// schedule waits until m is due. s.mu is held.
func (s *Server) schedule(m *message) {
	if s.closed {
		return
	}
	m.stage = stageScheduled
	wait := s.scaled(m.due.Sub(s.now()))
	if wait <= 0 {
		s.release(m)
		return
	}
	m.stop = s.clock.AfterFunc(wait, func() { s.locked(func() { s.release(m) }) })
}

// release lets a due message go on, unless its queue is paused or its flow is
// full. s.mu is held.
func (s *Server) release(m *message) {
	if m.stage != stageScheduled || s.closed {
		return
	}
	m.stop = nil
	if m.queue != nil && m.queue.paused {
		m.stage = stageWaiting
		return
	}
	m.stage = stageReady
	if f := s.flowOf(m); f != nil {
		f.waiting = append(f.waiting, m)
		s.pumpFlow(f)
		return
	}
	s.begin(m)
}

// begin starts an attempt, or has it wait while too many run. s.mu is held.
func (s *Server) begin(m *message) {
	if s.closed {
		return
	}
	if s.active >= s.parallelism {
		s.backlog = append(s.backlog, m)
		return
	}
	s.active++
	m.stage = stageActive
	s.log(m, stateActive, event{})
	t := try{message: m, retried: m.retried, keys: s.keys, faults: s.takeDeliveryFaults(m.url)}
	s.running.Go(func() { s.run(t) })
}

// run makes one attempt and settles it. It is a goroutine of its own.
func (s *Server) run(t try) {
	m := t.message
	got := s.attempt(t)
	a := s.judge(m, got)
	a.Faults = t.faults.kinds()
	if s.onAttempt != nil && s.ctx.Err() == nil {
		s.onAttempt(a)
	}
	s.locked(func() {
		s.active--
		if s.closed {
			return
		}
		if f := s.flowOf(m); f != nil {
			f.active--
			defer s.pumpFlow(f)
		}
		s.settle(m, got, a)
		if len(s.backlog) > 0 && s.active < s.parallelism {
			next := s.backlog[0]
			s.backlog = s.backlog[1:]
			s.begin(next)
		}
	})
}

// Outcome says what an attempt came to.
type Outcome string

// The outcomes.
const (
	// OutcomeDelivered is a status of 200 to 299.
	OutcomeDelivered Outcome = "delivered"
	// OutcomeRetry is a failure with retries left.
	OutcomeRetry Outcome = "retry"
	// OutcomeFailed is the last failure: the message is in the DLQ.
	OutcomeFailed Outcome = "failed"
	// OutcomeCancelled is a failure of a message that was cancelled meanwhile.
	OutcomeCancelled Outcome = "cancelled"
)

// Attempt is one delivery as it went.
type Attempt struct {
	// MessageID names the message, URL is its destination, Method how it was sent.
	MessageID, URL, Method string
	// Queue is the queue that the message is in; "" for none.
	Queue string
	// CallbackOf is the message that this one reports about; "" for all but
	// callbacks.
	CallbackOf string
	// Retried counts the attempts before this one.
	Retried int
	// Status is that of the reply; 0 means that there was none.
	Status int
	// Err says why there was no reply; nil if there was one.
	Err error
	// Elapsed is how long the attempt took.
	Elapsed time.Duration
	// Outcome is what the message came to with it.
	Outcome Outcome
	// RetryIn is the wait before the next attempt, before it is scaled; 0 unless
	// Outcome is OutcomeRetry.
	RetryIn time.Duration
	// Faults are those that went into the attempt.
	Faults []FaultKind
}

// judge decides what an attempt means for its message.
func (s *Server) judge(m *message, got answer) Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Attempt{
		MessageID: m.id, URL: m.url, Method: m.options.method, Queue: m.queueName(), Retried: m.retried,
		Status: got.status, Err: got.err, Elapsed: got.elapsed,
	}
	if m.parent != nil {
		a.CallbackOf = m.parent.id
	}
	switch {
	case got.success():
		a.Outcome = OutcomeDelivered
	case m.cancelled:
		a.Outcome = OutcomeCancelled
	case got.final() || m.retried >= m.options.retries:
		a.Outcome = OutcomeFailed
	default:
		a.Outcome, a.RetryIn = OutcomeRetry, m.retryIn(got, s.now())
	}
	return a
}

// retryIn returns the wait before the next attempt: what the receiver asked for,
// else what the message says, else the backoff of QStash.
func (m *message) retryIn(got answer, now time.Time) time.Duration {
	if wait, ok := pacing(got.header, now); ok {
		return wait
	}
	if ms, ok := m.options.retryDelay.milliseconds(m.retried); ok {
		return seconds(ms / 1000)
	}
	return backoff(m.retried + 1)
}

// settle moves m on after an attempt. s.mu is held.
func (s *Server) settle(m *message, got answer, a Attempt) {
	switch {
	case a.Outcome == OutcomeDelivered:
		s.log(m, stateDelivered, event{})
		s.report(m, got, "")
		s.finish(m)
	case m.cancelled:
		s.log(m, stateError, event{Error: got.reason()})
		s.log(m, stateCancelled, event{})
		s.finish(m)
	case a.Outcome == OutcomeFailed:
		s.log(m, stateError, event{Error: got.reason()})
		s.log(m, stateFailed, event{Error: got.reason()})
		s.report(m, got, s.bury(m, got))
		s.finish(m)
	default:
		m.due = s.now().Add(a.RetryIn)
		s.log(m, stateError, event{Error: got.reason()})
		s.log(m, stateRetry, event{NextDeliveryTime: m.due.UnixMilli()})
		s.report(m, got, "")
		m.retried++
		s.schedule(m)
	}
}

// finish ends m and gives up what it held. s.mu is held.
func (s *Server) finish(m *message) {
	m.stage = stageDone
	delete(s.messages, m.id)
	s.pendingBytes -= len(m.body)
	if m.parent != nil {
		m.parent.callbacks--
		if m.parent.stage == stageDone {
			s.leaveQueue(m.parent)
		}
	}
	s.leaveQueue(m)
	if len(s.messages) == 0 {
		close(s.quiet)
	}
}

// cancel ends messages, or, while an attempt runs, keeps them from another one.
// It returns how many it concerned. All are marked first, so that the end of one
// does not begin another. s.mu is held.
func (s *Server) cancel(messages ...*message) (count int) {
	for _, m := range messages {
		if m.cancelled || m.stage == stageDone {
			continue
		}
		count++
		m.cancelled = true
		s.log(m, stateCancelRequested, event{})
	}
	for _, m := range messages {
		if m.stage == stageActive || m.stage == stageDone {
			continue
		}
		if m.stop != nil {
			m.stop()
		}
		if m.stage == stageReady {
			s.withdraw(m)
		}
		s.log(m, stateCancelled, event{})
		s.finish(m)
	}
	return count
}

// withdraw takes a message that is ready out of what it waits in. s.mu is held.
func (s *Server) withdraw(m *message) {
	kept, removed := without(s.backlog, m)
	s.backlog = kept
	f := s.flowOf(m)
	if f == nil {
		return
	}
	if removed {
		f.active-- // it had its place in the flow already
	}
	f.waiting, _ = without(f.waiting, m)
	s.pumpFlow(f)
}

func without(list []*message, m *message) (kept []*message, removed bool) {
	for _, other := range list {
		if other == m {
			removed = true
			continue
		}
		kept = append(kept, other)
	}
	return kept, removed
}

// timeout bounds an attempt of m.
func (s *Server) timeout(m *message) time.Duration {
	return min(cmp.Or(m.options.timeout, s.maxTimeout), s.maxTimeout)
}

// Settle waits until no message is waiting or under way, and returns the cause of
// ctx if that ends first. Callbacks are messages, too; those in a paused queue
// wait for ever.
func (s *Server) Settle(ctx context.Context) error {
	for {
		s.mu.Lock()
		pending, quiet := len(s.messages), s.quiet
		s.mu.Unlock()
		if pending == 0 {
			return nil
		}
		select {
		case <-quiet:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
