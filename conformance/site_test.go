package conformance_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// directory is the directory of emails.
type directory struct {
	mu sync.Mutex
	// email answers a lookup; it runs without mu.
	email   func(user string) (string, bool, error)
	lookups []string
}

// Email implements enrich.Directory.
func (d *directory) Email(_ context.Context, user string) (string, bool, error) {
	d.mu.Lock()
	d.lookups = append(d.lookups, user)
	answer := d.email
	d.mu.Unlock()
	return answer(user)
}

func (d *directory) asked() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.lookups...)
}

var errDirectory = errors.New("directory is down")

// site is one deployment as far as deliveries go: it makes them with the
// product's deliverer, one for each hook, whose connections end at the hook's
// own receiver.
type site struct {
	r       *run
	env     tasks.Environment
	answers map[string]answer
	// relayed is what QStash says about each hook; it takes everything else.
	relayed map[string]answer
	rec     *recorder
	journal *journal
	payload *enrich.Builder

	// byURL tells hooks apart by their url instead of their id.
	byURL bool

	mu    sync.Mutex
	hooks map[string]*delivering
}

// key names a hook among the answers and the calls.
func (s *site) key(hook *tasks.Hook) string {
	if s.byURL {
		return hook.Webhook.URL
	}
	return hook.ID
}

// delivering is the way out of one hook.
type delivering struct {
	receiver  *receiver
	deliverer *webhook.Deliverer
	err       error
}

// siteConfig is what a case fixes of a site; zero fields are its defaults.
type siteConfig struct {
	env       map[string]string
	answers   map[string]answer
	relayed   map[string]answer
	directory *directory
	now       func() time.Time
	byURL     bool
}

func (r *run) site(cfg siteConfig) *site {
	s := &site{
		r: r, env: environment(cfg.env), answers: cfg.answers, relayed: cfg.relayed, rec: &recorder{}, journal: &journal{}, hooks: map[string]*delivering{},
		byURL: cfg.byURL,
	}
	build := enrich.Config{Logger: s.journal.logger(), Now: cfg.now}
	if cfg.directory != nil {
		build.Directory = cfg.directory
	}
	builder, err := enrich.New(build)
	if err != nil {
		r.fatalf("build the payload builder: %v", err)
	}
	s.payload = builder
	return s
}

// Deliver implements the Deliverer of producer and worker.
func (s *site) Deliver(ctx context.Context, del webhook.Delivery) webhook.Result {
	d := s.delivering(s.key(del.Hook))
	if d.err != nil {
		return webhook.Result{Class: tasks.ClassConfiguration, Message: d.err.Error()}
	}
	d.receiver.begin(s.scheme(del.Hook))
	return d.deliverer.Deliver(ctx, del)
}

func (s *site) scheme(hook *tasks.Hook) string {
	if url, err := webhook.ResolveURL(hook.Webhook.URL, s.env); err == nil && strings.HasPrefix(url, "https:") {
		return "https"
	}
	return "http"
}

func (s *site) delivering(hook string) *delivering {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.hooks[hook]
	if d == nil {
		d = s.build(hook)
		s.hooks[hook] = d
	}
	return d
}

func (s *site) build(hook string) *delivering {
	a, given := s.answers[hook]
	if !given {
		a = fine()
	}
	rc := newReceiver(hook, a, s.rec)
	client, err := egress.New(egress.Config{
		Policy: egress.Trusted(), Resolver: rc, DialTCP: rc.dial, RootCAs: trusted().pool(),
	})
	if err != nil {
		return &delivering{err: err}
	}
	s.r.t.Cleanup(func() { client.Close(); rc.close() })
	through, err := s.relay(hook)
	if err != nil {
		return &delivering{err: err}
	}
	deliverer, err := webhook.New(webhook.Config{
		Env: s.env, HeaderEnv: []string{"*"}, Callers: client, Operator: client, Payloads: s.payload, Publisher: through,
	})
	return &delivering{receiver: rc, deliverer: deliverer, err: err}
}

// deliver makes one attempt at a hook outside of any dispatcher.
func (s *site) deliver(ctx context.Context, hook *tasks.Hook, event []byte) webhook.Result {
	return s.Deliver(ctx, webhook.Delivery{
		Hook: hook, Type: hook.Type, Event: event, ID: "delivery", TaskID: "task", OperationID: "op", Attempt: 1,
	})
}
