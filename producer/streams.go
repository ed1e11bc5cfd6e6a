package producer

import (
	"context"
	"fmt"
	"sync"

	"github.com/gantry-hooks/gantry/tasks"
)

const (
	// maxStreams bounds the operations whose numbering is remembered. One that is
	// forgotten starts a new stream.
	maxStreams = 100_000
	// maxNumbers bounds the numbers that an operation keeps for repeated calls.
	maxNumbers = 128
)

// streams number the messages of operations, so that a receiver can tell when one
// is late or missing. Numbers live as long as the process: another process
// numbers a stream of its own.
type streams struct {
	mu         sync.Mutex
	operations map[string]*stream
}

// stream is the numbering of one operation's messages.
type stream struct {
	operation string
	name      string
	// users is the number of calls that hold or want it.
	users int
	// turn holds one token, which a call takes while it publishes.
	turn chan struct{}
	// last is the last number given out, by hook ("" for whole tasks).
	last map[string]int64
	// numbers are those of the latest messages, and ids the order in which they came:
	// a repeated call must not number anew what a relay knows already, because the
	// relay drops the repetition.
	numbers map[string]int64
	ids     []string
}

func newStreams() *streams { return &streams{operations: map[string]*stream{}} }

// enter waits for the operation's turn.
func (s *streams) enter(ctx context.Context, operation string) (*stream, error) {
	one := s.take(operation)
	select {
	case <-one.turn:
		return one, nil
	case <-ctx.Done():
		s.mu.Lock()
		one.users--
		s.mu.Unlock()
		return nil, fmt.Errorf("wait for earlier events of operation %q: %w", operation, context.Cause(ctx))
	}
}

func (s *streams) take(operation string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.operations[operation]
	if one == nil {
		if len(s.operations) >= maxStreams {
			s.forgetIdle()
		}
		one = &stream{
			operation: operation, name: tasks.NewID(), turn: make(chan struct{}, 1),
			last: map[string]int64{}, numbers: map[string]int64{},
		}
		one.turn <- struct{}{}
		s.operations[operation] = one
	}
	one.users++
	return one
}

// forgetIdle makes room by forgetting any operation that nobody uses now.
func (s *streams) forgetIdle() {
	for operation, one := range s.operations {
		if one.users == 0 {
			delete(s.operations, operation)
			return
		}
	}
}

// leave gives the turn to the next call.
func (s *streams) leave(one *stream) {
	one.turn <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	one.users--
}

// forget ends an operation's numbering.
func (s *streams) forget(operation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.operations, operation)
}

// number gives m its place. What is delayed has none: it is due by its clock, and
// nothing waits for it.
func (s *stream) number(m *message) {
	if m.delay > 0 {
		return
	}
	m.relay.Stream = s.name
	if m.relay.Sequence = s.numbers[m.id]; m.relay.Sequence != 0 {
		return
	}
	s.last[m.relay.Hook]++
	m.relay.Sequence, m.fresh = s.last[m.relay.Hook], true
	if s.ids = append(s.ids, m.id); len(s.ids) > maxNumbers {
		delete(s.numbers, s.ids[0])
		s.ids = s.ids[1:]
	}
	s.numbers[m.id] = m.relay.Sequence
}

// settle takes back the numbers of messages that nobody will ever see under them:
// as far as they are the last ones, because a gap makes receivers wait. The
// others stay theirs, for a repeated call.
func (s *stream) settle(messages []*message) {
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		known := m.result.Duplicate && !m.doubted // under an earlier number
		if !m.fresh || !m.unseen && !known || s.last[m.relay.Hook] != m.relay.Sequence {
			continue
		}
		s.last[m.relay.Hook]--
		delete(s.numbers, m.id)
	}
}
