package webhook

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

const (
	// maxRetryAfter caps what a receiver may ask for.
	maxRetryAfter = 24 * time.Hour
	// A reply is read only so that its connection can be used again, which is worth
	// a little, not much.
	maxDiscard  = 64 << 10
	discardTime = 250 * time.Millisecond
)

// Timeout returns the bound of one attempt of w, up to the reply's headers: its
// timeout in whole milliseconds, rounded up, or tasks.DefaultTimeout
// (docs/behaviour.md §8).
func Timeout(w *tasks.Webhook) time.Duration {
	if w.Timeout <= 0 {
		return tasks.DefaultTimeout
	}
	return time.Duration(math.Ceil(w.Timeout*1000)) * time.Millisecond
}

// Deliver makes one attempt: it builds the payload, sends it, and reports what
// came of it. It neither retries nor logs the outcome. When ctx ends before a
// reply the result is Cancelled, although the receiver may have got the request
// (docs/behaviour.md §8–§9).
func (d *Deliverer) Deliver(ctx context.Context, del Delivery) Result {
	start := d.now()
	result := d.attempt(ctx, &del)
	result.Elapsed = d.now().Sub(start)
	d.metrics.observe(&result)
	return result
}

func (d *Deliverer) attempt(ctx context.Context, del *Delivery) Result {
	switch {
	case ctx.Err() != nil:
		return Result{Cancelled: true}
	case del.Hook == nil || del.Hook.Webhook == nil:
		return failed(tasks.ClassConfiguration, "hook has no webhook")
	case del.Hook.Control():
		return failed(tasks.ClassConfiguration, "hook is a control")
	}
	body, err := d.payloads.Build(ctx, *del)
	if ctx.Err() != nil {
		return Result{Cancelled: true}
	}
	if err != nil {
		return failed(tasks.ClassConfiguration, "payload cannot be built")
	}
	if del.Hook.Webhook.Delivery == tasks.DeliverQStash {
		return d.publish(ctx, del, body)
	}
	return d.fetch(ctx, del, body)
}

// fetch sends the request itself.
func (d *Deliverer) fetch(ctx context.Context, del *Delivery, body []byte) Result {
	out, err := d.prepare(del, body)
	if err != nil {
		return failedBefore(err)
	}
	return d.send(ctx, out)
}

// outgoing is a request that is ready to be sent, and its way out.
type outgoing struct {
	client  *egress.Client
	req     *http.Request
	timeout time.Duration
	conn    connection
}

// prepare resolves what the environment has a say in, anew for each attempt, and
// builds the request. An error means that nothing may be sent.
func (d *Deliverer) prepare(del *Delivery, body []byte) (*outgoing, error) {
	w := del.Hook.Webhook
	t, err := d.targets.resolve(w.URL, fetchBase(d.env))
	if err != nil {
		return nil, err
	}
	header, err := d.headers(del.Hook)
	if err != nil {
		return nil, err
	}
	out := &outgoing{client: d.client(del.Hook), timeout: Timeout(w)}
	if t.spelled != "" {
		if err := out.client.CheckHost(t.spelled); err != nil {
			return nil, err
		}
	}
	if out.req, err = d.newRequest(del, t, header, body); err != nil {
		return nil, err
	}
	return out, nil
}

func (d *Deliverer) headers(hook *tasks.Hook) (http.Header, error) {
	return headerResolver{hook: hook, env: d.env, allow: d.allow}.resolve()
}

// client returns the way out for hook: the operator's for what the operator
// configured, and that includes the host of a relative URL.
func (d *Deliverer) client(hook *tasks.Hook) *egress.Client {
	if hook.Environment() || relative(hook.Webhook.URL) {
		return d.operator
	}
	return d.callers
}

// connection notes that an attempt got past connecting.
type connection struct {
	made  atomic.Bool
	trace httptrace.ClientTrace
}

func (c *connection) got(httptrace.GotConnInfo) { c.made.Store(true) }

// do sends the request within attempt, which bounds all of it, the reply's body
// included.
func (out *outgoing) do(attempt context.Context) (*http.Response, error) {
	out.conn.trace.GotConn = out.conn.got
	return out.client.Do(out.req.WithContext(httptrace.WithClientTrace(attempt, &out.conn.trace)))
}

func (d *Deliverer) send(ctx context.Context, out *outgoing) Result {
	attempt, cancel := context.WithTimeout(ctx, out.timeout)
	defer cancel()
	resp, err := out.do(attempt)
	if err != nil {
		return failedSending(ctx, err, out.conn.made.Load())
	}
	result := d.judge(resp)
	discard(resp, cancel)
	return result
}

// judge maps a reply to a result by its head alone.
func (d *Deliverer) judge(resp *http.Response) Result {
	class := StatusClass(resp.StatusCode)
	if class == "" {
		return Result{Delivered: true, Status: resp.StatusCode}
	}
	result := failed(class, "HTTP "+strconv.Itoa(resp.StatusCode))
	result.Status = resp.StatusCode
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		result.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), d.now())
	}
	switch {
	case resp.Header.Get(HeaderNoRetry) == "true":
		result.Final, result.Reason = true, tasks.ReasonNoRetry
	case resp.StatusCode == http.StatusGone:
		result.Final, result.Reason = true, tasks.ReasonEndpointGone
	}
	return result
}

// retryAfter reads seconds or an HTTP date; anything else, and the past, is 0.
func retryAfter(value string, now time.Time) time.Duration {
	if value == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(date.Sub(now), 0), maxRetryAfter)
}

// discard reads what is left of a short reply, so that its connection is used
// again, and drops the connection of any other. What comes of it changes
// nothing: the reply's head has decided. cancel ends the request.
func discard(resp *http.Response, cancel context.CancelFunc) {
	if resp.ContentLength != 0 && resp.ContentLength <= maxDiscard {
		timer := time.AfterFunc(discardTime, cancel)
		_, _ = io.CopyN(io.Discard, resp.Body, maxDiscard+1)
		timer.Stop()
	}
	_ = resp.Body.Close()
}
