package qstash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/upstash/qstash-go"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// The defaults of PublisherConfig.
const (
	DefaultURL     = "https://qstash.upstash.io"
	DefaultTimeout = 10 * time.Second
	// DefaultRetries makes QStash try for about 30 hours with its own backoff, where
	// its own default ends half an hour after the first failure.
	DefaultRetries = 5
	DefaultLabel   = "gantry"
	// DefaultMaxBody is the limit of QStash's free plan.
	DefaultMaxBody = 1 << 20
)

// PublisherConfig says what a Publisher works with.
type PublisherConfig struct {
	// Client is the way to QStash, the operator's. Required.
	Client *egress.Client
	// URL is the base address of the QStash API, without a path as a rule; "" means
	// DefaultURL. A plain http address is taken for this machine only, or under
	// Policy Development. No variable of the process's environment replaces it.
	URL string
	// Token returns the API token as it is now; "" means that there is none, and then
	// nothing is published. Required.
	Token func() string
	// Policy says whether the address may be one of a local server in another place
	// than this machine; the zero value means Production.
	Policy KeyPolicy
	// Timeout bounds a call of the API; 0 means DefaultTimeout.
	Timeout time.Duration
	// Retries is how often QStash repeats a failed attempt at the destination; 0
	// means DefaultRetries, negative means never.
	Retries int
	// Backoff says how long QStash waits in between; the zero value leaves it to
	// QStash.
	Backoff Backoff
	// Label names these messages in QStash's log; "" means DefaultLabel.
	Label string
	// Namespace keeps deployments apart that share an account; "" is a namespace of
	// its own.
	Namespace string
	// MaxBody is the largest body that the account's plan takes, in bytes; 0 means
	// DefaultMaxBody. A larger one is not sent.
	MaxBody int
	// Now is the clock that dates of answers are compared with; nil means time.Now.
	Now func() time.Time
}

// Publisher hands requests to QStash. It keeps no state but what it is
// configured with, and is safe for concurrent use. Build one with NewPublisher.
type Publisher struct {
	config PublisherConfig
	base   base
}

// base is the address of the API, ready to be put before a path.
type base struct {
	scheme, host, path string
}

// NewPublisher returns a Publisher, or an error when cfg cannot work. It sends
// nothing.
func NewPublisher(cfg PublisherConfig) (*Publisher, error) {
	if cfg.Client == nil || cfg.Token == nil {
		return nil, errors.New("configure QStash publisher: Client and Token are required")
	}
	setDefault(&cfg.URL, DefaultURL)
	setDefault(&cfg.Timeout, DefaultTimeout)
	setDefault(&cfg.Retries, DefaultRetries)
	setDefault(&cfg.Label, DefaultLabel)
	setDefault(&cfg.MaxBody, DefaultMaxBody)
	cfg.Retries = max(cfg.Retries, 0)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	b, err := parseBase(cfg.URL, cfg.Policy)
	switch {
	case err != nil:
		return nil, fmt.Errorf("configure QStash publisher: %w", err)
	case cfg.Timeout < 0 || cfg.MaxBody < 0:
		return nil, errors.New("configure QStash publisher: Timeout and MaxBody must not be negative")
	case plain(cfg.Label) != cfg.Label:
		return nil, errors.New("configure QStash publisher: Label may hold letters, digits, '-', '_' and '.' only")
	}
	if err := cfg.Backoff.validate(); err != nil {
		return nil, fmt.Errorf("configure QStash publisher: %w", err)
	}
	if err := checkSDK(); err != nil {
		return nil, fmt.Errorf("configure QStash publisher: %w", err)
	}
	return &Publisher{config: cfg, base: b}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// parseBase reads the address of the API. A trailing slash, and the path under
// which the API used to be documented, are dropped. The error does not show the
// address, which may hold what it should not.
func parseBase(raw string, policy KeyPolicy) (base, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return base{}, errors.New("URL is no http or https address")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return base{}, errors.New("URL must have neither credentials nor a query")
	case u.Scheme == "http" && policy == Production && !loopback(u.Hostname()):
		return base{}, errors.New("URL must be https, because the token goes there")
	}
	path := strings.TrimRight(u.EscapedPath(), "/")
	path = strings.TrimSuffix(path, "/v2/publish")
	return base{scheme: u.Scheme, host: u.Host, path: strings.TrimRight(path, "/")}, nil
}

func loopback(host string) bool {
	return host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.")
}

// at returns the URL of an API path, byte for byte: the SDK and net/url would
// encode a destination in it anew.
func (b base) at(path string) *url.URL {
	return &url.URL{Scheme: b.scheme, Host: b.host, Opaque: b.path + path}
}

// placeholder stands for destinations towards the SDK, which mangles some; the
// true one is put in on the way out.
const placeholder = "https://gantry.invalid"

var errProbe = errors.New("probe")

// checkSDK finds out whether the SDK can be used in this process at all: it
// prefers a variable of the environment over its options, and cannot work with
// one that is no address.
func checkSDK() error {
	reached := false
	client := newSDK("probe", nil, func(*http.Request) (*http.Response, error) { reached = true; return nil, errProbe })
	_, err := client.Publish(sdk.PublishOptions{Url: placeholder})
	if !reached || !errors.Is(err, errProbe) {
		return errors.New("QSTASH_URL in the environment of the process is no address")
	}
	return nil
}

// transport makes a function the way out of an SDK client. A closure, because it
// belongs to one call and carries that call's context.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

// newSDK returns an SDK client for one call.
func newSDK(token string, client *egress.Client, way transport) *sdk.Client {
	web := client.HTTPClient()
	web.Transport = way
	return sdk.NewClientWith(sdk.Options{Url: placeholder, Token: token, Client: web})
}

// Publish implements webhook.Publisher: it makes one call of the API and never
// repeats it. See docs/behaviour.md §9 for the outcomes.
func (p *Publisher) Publish(ctx context.Context, pub webhook.Publication) webhook.PublishResult {
	token := p.config.Token()
	m, fault := p.message(&pub)
	switch {
	case token == "":
		return notAvailable()
	case fault != "":
		return refused(fault)
	}
	c := call{publisher: p, path: "/v2/publish/" + m.destination, edit: m.addTo, body: pub.Body}
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	said, err := newSDK(token, p.config.Client, c.transport(ctx)).Publish(sdk.PublishOptions{
		Url: placeholder, ContentType: m.contentType, Method: http.MethodPost,
		Retries: &m.retries, Timeout: m.timeout, Delay: m.delay, DeduplicationId: m.deduplication,
	})
	result, answered := c.outcome(err)
	if !answered || said.MessageId == "" {
		return withoutID(result)
	}
	result.Outcome, result.MessageID, result.Duplicate = webhook.PublishAccepted, said.MessageId, said.Deduplicated
	return result
}

// notAvailable is the result of a publish without a token.
func notAvailable() webhook.PublishResult {
	return webhook.PublishResult{Outcome: webhook.PublishNotSent, Class: tasks.ClassConfiguration, Message: webhook.MessageNoToken}
}

// refused is the result of a publish that is not made because QStash could not
// take it, or would misunderstand it.
func refused(fault string) webhook.PublishResult {
	return webhook.PublishResult{
		Outcome: webhook.PublishNotSent, Class: tasks.ClassConfiguration, Message: messageFailed + ": " + fault,
	}
}

// readBounded reads an answer whole, and tells whether it was longer than limit.
func readBounded(resp *http.Response, limit int64) (text []byte, tooLong bool, err error) {
	switch n := resp.ContentLength; {
	case n > limit:
		return nil, true, nil
	case n >= 0:
		text = make([]byte, n)
		_, err = io.ReadFull(resp.Body, text)
		return text, false, err
	}
	text, err = io.ReadAll(io.LimitReader(resp.Body, limit+1))
	return text, int64(len(text)) > limit, err
}
