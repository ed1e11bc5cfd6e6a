package taskdoor

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// MemoryClaims keeps claims in this process: what a restart forgets may be
// repeated once, and several processes behind one address do not know of each
// other. Use RedisClaims wherever there is a Redis.
type MemoryClaims struct {
	config ClaimsConfig

	mu      sync.Mutex
	tokens  int64
	works   map[string]*work
	streams map[string]*progress
	// ages holds the keys of works in the order in which they were made.
	ages []string
}

// work is one piece of work.
type work struct {
	token     string
	until     time.Time // end of the claim; zero means none
	forgotten time.Time // end of the memory of it being done; zero means not done
	unsettled bool
}

// progress is how far a stream is.
type progress struct {
	// next is the number that should come next, running that it is worked on.
	next    int64
	running bool
	// due is when its next attempt comes, if it was seen; missed is when a later one
	// was seen first, if it was not.
	due, missed time.Time
	touched     time.Time
}

// NewMemoryClaims returns empty claims.
func NewMemoryClaims(config ClaimsConfig) *MemoryClaims {
	return &MemoryClaims{config: config.withDefaults(), works: map[string]*work{}, streams: map[string]*progress{}}
}

// Claim implements Claims.
func (m *MemoryClaims) Claim(_ context.Context, t Ticket) (Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Now()
	w := m.work(t, now)
	switch {
	case now.Before(w.forgotten):
		return Grant{State: Done}, nil
	case now.Before(w.until):
		return Grant{State: Busy, Wait: max(w.until.Sub(now), shortestWait)}, nil
	}
	grant := Grant{State: Granted, Unsettled: w.unsettled}
	if t.Sequence > 0 {
		p := m.stream(t, now)
		if wait := p.wait(t, now, m.config.Patience); wait > 0 {
			return Grant{State: Early, Wait: wait}, nil
		}
		grant.Late, grant.Gap = t.Sequence < p.next, t.Sequence > p.next
		if !grant.Late {
			*p = progress{next: t.Sequence, running: true, due: now.Add(t.Lease), touched: now}
		}
	}
	m.tokens++
	w.token, w.until = strconv.FormatInt(m.tokens, 10), now.Add(t.Lease)
	grant.Token = w.token
	return grant, nil
}

// wait is how long t should wait for its turn; 0 means that it is its turn.
func (p *progress) wait(t Ticket, now time.Time, patience time.Duration) time.Duration {
	if t.Force || t.Sequence <= p.next {
		return 0
	}
	if p.due.IsZero() {
		if p.missed.IsZero() {
			p.missed = now
		}
		return turn(p.missed.Add(patience).Sub(now), patience)
	}
	if !now.Before(p.due.Add(patience)) {
		return 0
	}
	if p.running {
		return runningWait
	}
	return max(p.due.Sub(now)+shortestWait, shortestWait)
}

// turn bounds what is left of somebody's patience; 0 means that nothing is.
func turn(left, patience time.Duration) time.Duration {
	if left <= 0 {
		return 0
	}
	return max(min(left, patience), shortestWait)
}

// Finish implements Claims.
func (m *MemoryClaims) Finish(_ context.Context, t Ticket, token string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Now()
	w := m.work(t, now)
	w.forgotten = now.Add(m.config.Window)
	if w.token == token {
		w.token, w.until = "", time.Time{}
	}
	m.pass(t, now)
	return nil
}

// Fail implements Claims.
func (m *MemoryClaims) Fail(_ context.Context, t Ticket, token string, f Failure) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Now()
	w := m.work(t, now)
	w.unsettled = w.unsettled || f.Unsettled
	if w.token != token {
		return nil
	}
	w.token, w.until = "", time.Time{}
	if t.Sequence == 0 {
		return nil
	}
	if f.GivenUp {
		m.pass(t, now)
		return nil
	}
	if p := m.stream(t, now); p.next == t.Sequence {
		p.running, p.due, p.missed = false, now.Add(f.Next), time.Time{}
	}
	return nil
}

// pass lets the stream go on behind t.
func (m *MemoryClaims) pass(t Ticket, now time.Time) {
	if t.Sequence == 0 {
		return
	}
	if p := m.stream(t, now); p.next <= t.Sequence {
		*p = progress{next: t.Sequence + 1, touched: now}
	}
}

// work returns the record of a piece of work, made if need be.
func (m *MemoryClaims) work(t Ticket, now time.Time) *work {
	key := t.Operation + "\x00" + t.Key
	if w := m.works[key]; w != nil {
		return w
	}
	if len(m.works) >= m.config.MaxEntries {
		m.forget(now)
	}
	w := &work{}
	m.works[key] = w
	m.ages = append(m.ages, key)
	return w
}

// forget makes room: it drops the oldest records, those of running work excepted.
func (m *MemoryClaims) forget(now time.Time) {
	kept := m.ages[:0]
	room := max(m.config.MaxEntries/10, 1)
	for _, key := range m.ages {
		if w := m.works[key]; room > 0 && !now.Before(w.until) {
			delete(m.works, key)
			room--
			continue
		}
		kept = append(kept, key)
	}
	m.ages = kept
}

// stream returns how far a stream is; an unknown one is at its start.
func (m *MemoryClaims) stream(t Ticket, now time.Time) *progress {
	key := t.Operation + "\x00" + t.Stream
	p := m.streams[key]
	if p == nil {
		if len(m.streams) >= m.config.MaxEntries {
			m.forgetStreams(now)
		}
		p = &progress{next: 1}
		m.streams[key] = p
	}
	p.touched = now
	return p
}

// forgetStreams makes room: streams that were not touched for long go, and if
// that is not enough, any.
func (m *MemoryClaims) forgetStreams(now time.Time) {
	for key, p := range m.streams {
		if now.Sub(p.touched) > m.config.Window {
			delete(m.streams, key)
		}
	}
	room := m.config.MaxEntries / 10
	for key := range m.streams {
		if room <= 0 || len(m.streams) < m.config.MaxEntries {
			return
		}
		delete(m.streams, key)
		room--
	}
}
