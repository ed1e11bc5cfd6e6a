package webhook

import (
	"context"
	"maps"
	"strconv"
	"strings"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"github.com/gantry-hooks/gantry/tasks"
)

const (
	// headerBypass lets a request pass the protection in front of a deployment, and
	// envBypass is the variable with its value.
	headerBypass = "x-vercel-protection-bypass"
	envBypass    = "VERCEL_AUTOMATION_BYPASS_SECRET"

	publishFailed = "QStash publish failed"
)

// publish hands the request to the relay. What cannot be resolved fails without
// a fallback. A publish of which nothing is known is repeated at once under the
// same id, which the relay recognises. One that surely came to nothing is
// followed by exactly one fetch, unless the hook forbids it
// (docs/behaviour.md §9).
func (d *Deliverer) publish(ctx context.Context, del *Delivery, body []byte) Result {
	publication, err := d.publication(del, body)
	if err != nil {
		return failedBefore(err)
	}
	said := d.askPublisher(ctx, publication)
	unsettled := del.Unsettled
	if said.unknown() && ctx.Err() == nil {
		unsettled = true
		said = d.askPublisher(ctx, publication)
	}
	switch {
	case said.Outcome == PublishAccepted:
		return Result{Delivered: true, Status: said.Status}
	case ctx.Err() != nil:
		return Result{Cancelled: true}
	}
	result := said.failure()
	switch {
	case unsettled && del.Queued:
		// By this class the next attempt knows that it must not fetch.
		result.Class = tasks.ClassQStash
		return result
	case del.Hook.Webhook.Fallback == tasks.FallbackNone:
		return result
	}
	fetched := d.fetch(ctx, del, body)
	fetched.FellBack, fetched.Publish = true, result.Message
	return fetched
}

// publication resolves what the environment has a say in and builds what the
// relay gets. An error means that nothing may be sent, by any road.
func (d *Deliverer) publication(del *Delivery, body []byte) (Publication, error) {
	w := del.Hook.Webhook
	t, err := d.targets.resolve(w.URL, relayBase(d.env))
	if err != nil {
		return Publication{}, err
	}
	header, err := d.headers(del.Hook)
	if err != nil {
		return Publication{}, err
	}
	// The relay's own name stands in User-Agent, unless the hook sets another.
	d.addOwn(del, header, configuredOwn{userAgent: true, traceparent: ownSet(header).traceparent})
	if err := d.sign(del, header, body); err != nil {
		return Publication{}, err
	}
	if secret, ok := d.env(envBypass); ok && secret != "" && ownOrigin(t, d.env) {
		value, fault := trimHeaderValue(secret)
		if fault != "" {
			return Publication{}, configurationf("%s: %s", envBypass, fault)
		}
		maps.DeleteFunc(header, func(name string, _ []string) bool { return strings.EqualFold(name, headerBypass) })
		header[headerBypass] = []string{latin1(value)}
	}
	p := Publication{
		URL: t.href, Header: header, Body: body, Timeout: Timeout(w),
		DeliveryID: del.ID, OperationID: del.OperationID, Type: del.Type,
	}
	if del.Hook.Options != nil {
		p.Retry = del.Hook.Options.Retry
	}
	return p, nil
}

func (d *Deliverer) askPublisher(ctx context.Context, p Publication) PublishResult {
	if d.publisher == nil {
		return PublishResult{Outcome: PublishNotSent, Class: tasks.ClassConfiguration, Message: MessageNoToken}
	}
	return d.publisher.Publish(ctx, p)
}

// MessageNoToken is the message of a publish without a token for the relay, by
// the contract's words (docs/behaviour.md §9).
const MessageNoToken = "QSTASH_TOKEN not available"

func (r *PublishResult) unknown() bool { return r.Outcome == PublishUnknown || r.Outcome == "" }

// failure is the result of an attempt whose publish was not accepted.
func (r *PublishResult) failure() Result {
	result := Result{Class: r.Class, Status: r.Status, RetryAfter: r.RetryAfter, Message: r.Message}
	if result.Class == "" {
		result.Class = tasks.ClassQStash
	}
	if result.Message == "" {
		result.Message = publishFailed
		if r.Status != 0 {
			result.Message += " (HTTP " + strconv.Itoa(r.Status) + ")"
		}
	}
	return result
}

// ownOrigin reports whether t is at one of the deployment's own addresses: the
// same scheme, host and port.
func ownOrigin(t *target, env tasks.Environment) bool {
	for _, name := range []string{envInternalAppURL, envAppURL} {
		value, ok := env(name)
		if !ok || value == "" {
			continue
		}
		base, err := whatwg.Parse(value)
		if err == nil && base.Scheme() == t.url.Scheme && base.Host() == t.url.Host {
			return true
		}
	}
	return false
}
