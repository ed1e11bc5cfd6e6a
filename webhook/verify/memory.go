package verify

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// DefaultMemoryEntries is the default of MemoryConfig.MaxEntries.
const DefaultMemoryEntries = 100_000

// MemoryConfig says how much a Memory remembers.
type MemoryConfig struct {
	// MaxEntries bounds the messages that are remembered, finished or in progress; 0
	// means DefaultMemoryEntries. When it is full the message that was finished first
	// is forgotten before its time, and would run again. An entry takes about 300
	// bytes.
	MaxEntries int
	// Now is the clock of leases; nil means time.Now.
	Now func() time.Time
}

// Memory is a Store for receivers of one process. It forgets everything at the
// end of the process. It is safe for concurrent use.
type Memory struct {
	max int
	now func() time.Time

	mu      sync.Mutex
	entries map[string]*list.Element
	// done and claimed hold the entries, the oldest first.
	done, claimed *list.List
}

// entry is one id. owner is "" when it is done.
type entry struct {
	id, owner string
	ends      time.Time
}

// NewMemory returns an empty Memory.
func NewMemory(config MemoryConfig) *Memory {
	if config.MaxEntries <= 0 {
		config.MaxEntries = DefaultMemoryEntries
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Memory{
		max: config.MaxEntries, now: config.Now,
		entries: map[string]*list.Element{}, done: list.New(), claimed: list.New(),
	}
}

// Claim implements Store. The error is ErrStoreFull.
func (m *Memory) Claim(_ context.Context, id, owner string, lease time.Duration) (State, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if e := m.find(id, now); e != nil {
		switch e.owner {
		case "":
			return StateDone, nil
		case owner:
			e.ends = now.Add(lease)
			return StateNew, nil
		}
		return StateInProgress, nil
	}
	if !m.makeRoom(now) {
		return "", ErrStoreFull
	}
	m.entries[id] = m.claimed.PushBack(&entry{id: id, owner: owner, ends: now.Add(lease)})
	return StateNew, nil
}

// Done implements Store. It never fails.
func (m *Memory) Done(_ context.Context, id, _ string, keep time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.remove(id)
	// Finished work is remembered even when claims fill the store: there are never
	// more of them than requests at a time.
	m.makeRoom(now)
	m.entries[id] = m.done.PushBack(&entry{id: id, ends: now.Add(keep)})
	return nil
}

// Release implements Store. It never fails.
func (m *Memory) Release(_ context.Context, id, owner string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.find(id, m.now()); e != nil && e.owner == owner && owner != "" {
		m.remove(id)
	}
	return nil
}

// Len returns how many messages are remembered.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}

// find returns what is known of id now; nil when that is nothing. It holds mu.
func (m *Memory) find(id string, now time.Time) *entry {
	element, found := m.entries[id]
	if !found {
		return nil
	}
	e := element.Value.(*entry) //nolint:errcheck // the lists hold nothing else
	if now.Before(e.ends) {
		return e
	}
	m.remove(id)
	return nil
}

// remove forgets id. It holds mu.
func (m *Memory) remove(id string) {
	element, found := m.entries[id]
	if !found {
		return
	}
	delete(m.entries, id)
	// A list leaves the elements of another alone.
	m.done.Remove(element)
	m.claimed.Remove(element)
}

// makeRoom forgets what has ended, and what was finished first when that is not
// enough. It reports whether there is room. It holds mu.
func (m *Memory) makeRoom(now time.Time) bool {
	for _, l := range []*list.List{m.done, m.claimed} {
		for front := l.Front(); front != nil; front = l.Front() {
			e := front.Value.(*entry) //nolint:errcheck // the lists hold nothing else
			if now.Before(e.ends) {
				break
			}
			m.remove(e.id)
		}
	}
	if len(m.entries) >= m.max && m.done.Len() > 0 {
		m.remove(m.done.Front().Value.(*entry).id) //nolint:errcheck // the lists hold nothing else
	}
	return len(m.entries) < m.max
}
