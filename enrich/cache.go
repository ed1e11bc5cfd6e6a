package enrich

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// logLookupFailed is the log event of a directory that gave an error.
const logLookupFailed = "email.lookup_failed"

// emailCache shares lookups and their results among the payloads of a Builder
// (docs/behaviour.md §11). Entries leave in the order of their insertion; a hit
// does not make an entry younger. A pending lookup is an entry like any other.
type emailCache struct {
	directory Directory
	now       func() time.Time
	logger    logrus.FieldLogger
	metrics   *metrics
	capacity  int
	ttl       time.Duration

	mu      sync.Mutex
	entries map[string]*list.Element
	// order holds *lookup, the oldest insertion in front.
	order list.List
}

// lookup is one question to the directory. email and found may be read once
// done is closed.
type lookup struct {
	userID  string
	started time.Time
	done    chan struct{}
	email   string
	found   bool
}

func newEmailCache(config Config, m *metrics) *emailCache {
	return &emailCache{
		directory: config.Directory,
		now:       config.Now,
		logger:    config.Logger,
		metrics:   m,
		capacity:  config.CacheSize,
		ttl:       config.CacheTTL,
		entries:   map[string]*list.Element{},
	}
}

// get returns the email of a user. The only error is that of ctx, which ends
// this wait and never the lookup.
func (c *emailCache) get(ctx context.Context, userID string) (email string, found bool, err error) {
	if err := ctx.Err(); err != nil {
		return "", false, err
	}
	l := c.lookup(ctx, userID)
	select {
	case <-l.done:
	case <-ctx.Done():
	}
	// When both happened, the cancellation counts.
	if err := ctx.Err(); err != nil {
		return "", false, err
	}
	return l.email, l.found, nil
}

// lookup returns the live entry of a user, or starts a new one.
func (c *emailCache) lookup(ctx context.Context, userID string) *lookup {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if element, ok := c.entries[userID]; ok {
		if l := valueOf(element); now.Sub(l.started) < c.ttl {
			c.metrics.hits.Inc()
			return l
		}
		c.drop(element)
	}
	if c.order.Len() >= c.capacity {
		c.drop(c.order.Front())
	}
	l := &lookup{userID: userID, started: now, done: make(chan struct{})}
	c.entries[userID] = c.order.PushBack(l)
	// The first waiter must not take the lookup with it when it gives up: others
	// may wait, and the result serves the next request.
	go c.run(context.WithoutCancel(ctx), l)
	return l
}

func (c *emailCache) drop(element *list.Element) {
	delete(c.entries, valueOf(element).userID)
	c.order.Remove(element)
}

// run asks the directory. A failure is kept like a missing email.
func (c *emailCache) run(ctx context.Context, l *lookup) {
	defer close(l.done)
	email, found, err := c.ask(ctx, l.userID)
	switch {
	case err != nil:
		c.metrics.failed.Inc()
		c.logger.WithField(tasks.LogErr, err).Warn(logLookupFailed)
	case found:
		c.metrics.found.Inc()
		l.email, l.found = email, true
	default:
		c.metrics.missing.Inc()
	}
}

// ask keeps a panic of the directory from ending the process: a lookup never
// affects a delivery.
func (c *emailCache) ask(ctx context.Context, userID string) (email string, found bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("look up email: panic: %v", r)
		}
	}()
	return c.directory.Email(ctx, userID)
}

func valueOf(element *list.Element) *lookup {
	l, _ := element.Value.(*lookup)
	return l
}
