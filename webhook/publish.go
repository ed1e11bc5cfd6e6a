package webhook

import (
	"context"
	"strconv"

	"github.com/gantry-hooks/gantry/tasks"
)

// envQStashToken is the variable without which no publish is tried.
const envQStashToken = "QSTASH_TOKEN"

// publish hands the request to the relay. What cannot be resolved fails without
// a fallback; a failed publish is followed by exactly one fetch, unless the hook
// forbids it (docs/behaviour.md §9).
func (d *Deliverer) publish(ctx context.Context, del *Delivery, body []byte) Result {
	w := del.Hook.Webhook
	t, err := d.targets.resolve(w.URL, relayBase(d.env))
	if err != nil {
		return failedBefore(err)
	}
	header, err := d.headers(del.Hook)
	if err != nil {
		return failedBefore(err)
	}
	result := d.askPublisher(ctx, Publication{
		URL: t.href, Header: header, Body: body, Timeout: Timeout(w), DeliveryID: del.ID,
	})
	if result.Delivered || result.Cancelled || w.Fallback == tasks.FallbackNone {
		return result
	}
	fetched := d.fetch(ctx, del, body)
	fetched.FellBack, fetched.Publish = true, result.Message
	return fetched
}

// askPublisher makes the publish and returns its outcome alone.
func (d *Deliverer) askPublisher(ctx context.Context, p Publication) Result {
	if token, ok := d.env(envQStashToken); !ok || token == "" || d.publisher == nil {
		return Result{Class: tasks.ClassConfiguration, Message: envQStashToken + " not available"}
	}
	attempt, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	said := d.publisher.Publish(attempt, p)
	switch {
	case said.Accepted:
		return Result{Delivered: true, Status: said.Status}
	case ctx.Err() != nil:
		return Result{Cancelled: true}
	}
	message := said.Message
	if message == "" {
		message = "QStash publish failed"
		if said.Status != 0 {
			message += " (HTTP " + strconv.Itoa(said.Status) + ")"
		}
	}
	return Result{Class: tasks.ClassQStash, Status: said.Status, RetryAfter: said.RetryAfter, Message: message}
}
