package qstash

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

const (
	// maxAnswer bounds an answer; what is longer is none.
	maxAnswer = 64 << 10
	// maxWait bounds what an answer may ask for.
	maxWait = 24 * time.Hour

	messageFailed = "QStash publish failed"
)

var errNoAnswer = errors.New("no whole answer")

// call is one call of the API: what is sent beyond the SDK's knowledge, and what
// became of it beyond what the SDK tells.
type call struct {
	publisher *Publisher
	// path is the path of the API with everything behind it.
	path string
	// edit changes the headers that the SDK made.
	edit func(http.Header)
	// body goes in place of the SDK's, which takes a copy, and encodes those of a
	// batch in its own way.
	body []byte
	// limit bounds the answer; 0 means maxAnswer.
	limit int64

	wrote atomic.Bool
	// reached says that the SDK got as far as sending.
	reached bool
	// sending is the error of a request without a whole answer.
	sending error
	status  int
	header  http.Header
	answer  []byte
	tooLong bool
}

// transport returns the way out: it carries ctx, which the SDK cannot, sends to
// the configured address, whatever the SDK believes, and reads the answer whole
// and within bounds, which the SDK does not.
func (c *call) transport(ctx context.Context) transport {
	return func(req *http.Request) (*http.Response, error) {
		c.reached = true
		trace := &httptrace.ClientTrace{WroteHeaders: func() { c.wrote.Store(true) }}
		req = req.WithContext(httptrace.WithClientTrace(ctx, trace))
		req.URL, req.Host = c.publisher.base.at(c.path), ""
		c.edit(req.Header)
		// A kept connection that turns out to be closed is replaced: the deduplication
		// id makes a second sending harmless. The empty list is not sent.
		req.Header["Idempotency-Key"] = []string{}
		req.ContentLength, req.Body = int64(len(c.body)), http.NoBody
		if len(c.body) > 0 {
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }
			req.Body = io.NopCloser(bytes.NewReader(c.body))
		}
		resp, err := c.publisher.config.Client.Do(req)
		if err != nil {
			c.sending = err
			return nil, errNoAnswer
		}
		return c.read(resp)
	}
}

// read takes the answer in, and hands the SDK a copy that needs no closing.
func (c *call) read(resp *http.Response) (*http.Response, error) {
	defer func() { _ = resp.Body.Close() }()
	setDefault(&c.limit, maxAnswer)
	c.status, c.header = resp.StatusCode, resp.Header
	if c.answer, c.tooLong, c.sending = readBounded(resp, c.limit); c.sending != nil || c.tooLong {
		return nil, errNoAnswer
	}
	resp.Body = io.NopCloser(bytes.NewReader(c.answer))
	return resp, nil
}

// outcome tells what became of the call, err being what the SDK returned. The
// result is that of a failure; answered says that a whole answer of success is
// there; what it says is for the caller to find out, and withoutID if it says
// nothing.
func (c *call) outcome(err error) (result webhook.PublishResult, answered bool) {
	switch {
	case !c.reached:
		return webhook.PublishResult{Outcome: webhook.PublishNotSent}, false
	case c.sending != nil && !c.wrote.Load():
		message := messageFailed + " (not sent: " + string(egress.FailureClass(c.sending)) + ")"
		return webhook.PublishResult{Outcome: webhook.PublishNotSent, Message: message}, false
	case c.sending != nil:
		message := messageFailed + " (outcome unknown: " + string(egress.FailureClass(c.sending)) + ")"
		return webhook.PublishResult{Outcome: webhook.PublishUnknown, Status: c.status, Message: message}, false
	}
	result = webhook.PublishResult{Outcome: statusOutcome(c.status), Status: c.status}
	if c.status/100 == 2 {
		return result, err == nil
	}
	result.RetryAfter, result.Limit = c.retryAfter(), c.limits()
	return result, false
}

// withoutID is the result of an answer of success that names no message.
func withoutID(result webhook.PublishResult) webhook.PublishResult {
	if result.Status/100 == 2 && result.Message == "" {
		result.Message = messageFailed + " (HTTP " + strconv.Itoa(result.Status) + " without a message id)"
	}
	return result
}

// statusOutcome is the outcome that a whole answer with this status stands for,
// unless it names a message.
func statusOutcome(status int) webhook.PublishOutcome {
	switch {
	case status == http.StatusTooManyRequests:
		return webhook.PublishThrottled
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		return webhook.PublishRejected
	}
	return webhook.PublishFailed
}

// limits reads the quota of an answer, that of a day first: both kinds may be
// told at once, and the day is the longer wait.
func (c *call) limits() *webhook.RelayLimit {
	for _, kind := range []struct {
		prefix string
		daily  bool
	}{{"RateLimit-", true}, {"Burst-RateLimit-", false}} {
		if c.header.Get(kind.prefix+"Limit") == "" {
			continue
		}
		limit := &webhook.RelayLimit{Daily: kind.daily, Limit: c.count(kind.prefix + "Limit"), Remaining: c.count(kind.prefix + "Remaining")}
		if reset := c.count(kind.prefix + "Reset"); reset > 0 && reset < maxSeconds {
			limit.Reset = time.Unix(reset, 0)
		}
		return limit
	}
	return nil
}

// count reads a number; -1 means that there is none.
func (c *call) count(name string) int64 {
	n, err := strconv.ParseUint(c.header.Get(name), 10, 63)
	if err != nil {
		return -1
	}
	return int64(n)
}

// retryAfter is what an answer of failure asks for: Retry-After in seconds
// or as a date, else the end of the quota.
func (c *call) retryAfter() time.Duration {
	now := c.publisher.config.Now()
	value := c.header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxWait)
	}
	if date, err := http.ParseTime(value); err == nil {
		return min(max(date.Sub(now), 0), maxWait)
	}
	if limit := c.limits(); c.status == http.StatusTooManyRequests && limit != nil && !limit.Reset.IsZero() {
		return min(max(limit.Reset.Sub(now), 0), maxWait)
	}
	return 0
}
