package verify

import (
	"context"
	"errors"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

// The defaults of Config.
const (
	DefaultMaxBody    = 1 << 20
	DefaultWindow     = signature.Tolerance
	DefaultLease      = 2 * time.Minute
	DefaultKeep       = 72 * time.Hour
	DefaultRetryAfter = 5 * time.Second
)

// maxWindow keeps a misread setting from letting signatures count for ever.
const maxWindow = time.Hour

// Config says what a receiver accepts.
type Config struct {
	// Schemes are those that are accepted. Required.
	Schemes []Scheme
	// MaxBody bounds a request in bytes; 0 means DefaultMaxBody. A larger one is
	// answered with 413, and one of QStash with 489, which ends its retries.
	MaxBody int64
	// Window is how far the timestamp of Standard Webhooks may lie from Now, in either
	// direction; 0 means DefaultWindow, an hour is the most. QStash's signatures have
	// an end of their own.
	Window time.Duration
	// Store remembers what was finished, so that a message that comes twice runs once;
	// nil lets each of its deliveries run. Processes behind one address must share it.
	// Leave it nil where the reply is what the sender wants, as with controls: a
	// repetition is answered without it.
	Store Store
	// Scope is the name of this endpoint, needed where several share a Store and a
	// sender uses one id for all of them. "" is a name like any other.
	Scope string
	// Lease is how long a handler has with a message; 0 means DefaultLease. The
	// request's context ends with it. When a process dies, the message is free for its
	// next delivery after it. Not used without a Store.
	Lease time.Duration
	// Keep is how long a finished message is remembered; 0 means DefaultKeep. Make it
	// longer than senders go on trying.
	Keep time.Duration
	// RetryAfter is what a sender is asked to wait when the message is in progress or
	// the Store does not answer; 0 means DefaultRetryAfter. Whole seconds, rounded up.
	RetryAfter time.Duration
	// Now is the clock that signatures are judged by; nil means time.Now.
	Now func() time.Time
	// Logger hears why requests are refused; nil means nobody does.
	Logger logrus.FieldLogger
	// Notify is called for the same, and for what is repeated, before the answer is
	// sent; nil means nobody is. It must be safe for concurrent use and must not
	// block.
	Notify func(ctx context.Context, e Event)
}

func (c Config) withDefaults() Config {
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxBody
	}
	if c.Window == 0 {
		c.Window = DefaultWindow
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	if c.Keep == 0 {
		c.Keep = DefaultKeep
	}
	if c.RetryAfter == 0 {
		c.RetryAfter = DefaultRetryAfter
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = logging.Silent()
	}
	if c.Notify == nil {
		c.Notify = func(context.Context, Event) {}
	}
	return c
}

func (c Config) validate() error {
	if len(c.Schemes) == 0 {
		return errors.New("no scheme is accepted")
	}
	if c.MaxBody < 0 || c.Lease < 0 || c.Keep < 0 || c.RetryAfter < 0 {
		return errors.New("MaxBody, Lease, Keep and RetryAfter must not be negative")
	}
	if c.Window < 0 || c.Window > maxWindow {
		return errors.New("Window must be within 0s and " + maxWindow.String())
	}
	return nil
}
