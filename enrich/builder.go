package enrich

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// The defaults of Config (docs/behaviour.md §11).
const (
	DefaultCacheSize = 1000
	DefaultCacheTTL  = 5 * time.Minute
)

// Directory finds the email of a user. found is false when the user is unknown
// or has no email. ctx outlives the request that asked, and bounds nothing: the
// directory sets its own time limit. It is called by several goroutines.
type Directory interface {
	Email(ctx context.Context, userID string) (email string, found bool, err error)
}

// Config is what a Builder needs. The zero value builds payloads without email.
type Config struct {
	// Directory finds emails; nil means that no payload gets one.
	Directory Directory
	// Now is the clock of the email cache; nil means time.Now.
	Now func() time.Time
	// Logger hears of lookups that failed; nil means silence.
	Logger logrus.FieldLogger
	// CacheSize is the number of users whose result is kept; 0 means DefaultCacheSize.
	CacheSize int
	// CacheTTL is how long a result is used, from the start of its lookup; 0
	// means DefaultCacheTTL.
	CacheTTL time.Duration
	// Registerer takes the metrics; nil means that they are not exported.
	Registerer prometheus.Registerer
}

// Builder builds payloads. Make one with New; its methods may be called by
// several goroutines and share one email cache.
type Builder struct {
	emails *emailCache
}

// New returns a Builder. The error is a refused Config or metric.
func New(config Config) (*Builder, error) {
	if config.CacheSize < 0 || config.CacheTTL < 0 {
		return nil, fmt.Errorf("configure payloads: cache of %d users for %s is negative", config.CacheSize, config.CacheTTL)
	}
	if config.Directory == nil {
		return &Builder{}, nil
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Logger == nil {
		config.Logger = logging.Silent()
	}
	if config.CacheSize == 0 {
		config.CacheSize = DefaultCacheSize
	}
	if config.CacheTTL == 0 {
		config.CacheTTL = DefaultCacheTTL
	}
	metrics, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, err
	}
	return &Builder{emails: newEmailCache(config, metrics)}, nil
}

// Build returns the payload of one notification (docs/behaviour.md §10): the
// event, projected and merged as the hook asks, without what must stay inside.
// The bytes are the caller's own. The error is that of ctx when it ended before
// or during the email lookup, and then nothing may be sent; any other error
// says that event or body is no JSON object.
func (b *Builder) Build(ctx context.Context, d webhook.Delivery) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	payload := borrowObject()
	defer payload.giveBack()
	if err := payload.load(d.Event); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	fields := d.Hook.Webhook.EventFields
	who := identity{wanted: fields == nil || slices.Contains(fields, keyUserEmail), event: payload.find(keyUserID)}

	if fields != nil {
		payload.project(fields)
	}
	payload.addHook(d.Hook.ID, d.Type)
	if err := payload.merge(d.Hook.Webhook.Body); err != nil {
		return nil, fmt.Errorf("read body of the webhook: %w", err)
	}
	if d.Type == tasks.AfterToolCall {
		if err := payload.redactResult(); err != nil {
			return nil, fmt.Errorf("redact result: %w", err)
		}
	}
	payload.remove(keyMock)
	return b.finish(ctx, payload, who)
}

// BuildControl returns the payload that asks a control hook for its decision
// (docs/behaviour.md §10): the whole event with its full result, and the email
// under the same rule. Its errors are those of Build.
func (b *Builder) BuildControl(ctx context.Context, hookID string, hookType tasks.HookType, event json.RawMessage) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	payload := borrowObject()
	defer payload.giveBack()
	if err := payload.load(event); err != nil {
		return nil, fmt.Errorf("read event: %w", err)
	}
	who := identity{wanted: true, event: payload.find(keyUserID)}
	payload.addHook(hookID, hookType)
	return b.finish(ctx, payload, who)
}

// finish removes what no receiver gets, adds the email and writes the payload.
func (b *Builder) finish(ctx context.Context, payload *object, who identity) ([]byte, error) {
	payload.remove(keyFinalState)
	payload.remove(keyUserEmail)
	email, found, err := b.email(ctx, who.of(payload))
	if err != nil {
		return nil, err
	}
	if found {
		payload.set(keyUserEmail, tasks.AppendString(nil, email))
	}
	return payload.encode(), nil
}

func (b *Builder) email(ctx context.Context, userID string) (email string, found bool, err error) {
	if b.emails == nil || userID == "" {
		return "", false, nil
	}
	return b.emails.get(ctx, userID)
}
