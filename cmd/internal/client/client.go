// Package client talks to the HTTP API of a running Gantry, for the commands of
// operators and the demonstration. Requests that change something carry their
// ids, so that repeating one after a lost answer is safe, and the client does.
//
// It knows the API's documents, not its code, as a client in any other language
// would.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config says where the API is and how to call it.
type Config struct {
	// URL is the address of the API, without a path. Required.
	URL string
	// Token is the bearer token; "" sends none.
	Token string
	// Timeout bounds one request, not counting what it asks to wait for; 0 means
	// 30s. RetryFor is how long a call that found the system unavailable is
	// repeated; 0 repeats nothing.
	Timeout  time.Duration
	RetryFor time.Duration
	// OnRetry hears why a call is repeated, and when; nil means nobody does.
	OnRetry func(cause error, after time.Duration)
}

// Client calls one API. It is safe for concurrent use.
type Client struct {
	config Config
	base   *url.URL
	http   *http.Client
}

// maxReply bounds what is read of a reply.
const maxReply = 64 << 20

// New checks the address; it connects to nothing.
func New(config Config) (*Client, error) {
	base, err := url.Parse(config.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, errors.New("the API's address is not http://host:port or https://host")
	}
	if base.User != nil {
		return nil, errors.New("the API's address carries credentials; pass a token instead")
	}
	if config.Timeout == 0 {
		config.Timeout = 30 * time.Second
	}
	return &Client{config: config, base: base, http: &http.Client{
		// A redirect would carry the token somewhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is a refusal of the API: its problem document, as far as there is one.
type Error struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Faults []struct {
		Path    string `json:"path"`
		Message string `json:"message"`
		Fix     string `json:"fix"`
	} `json:"errors"`
	RequestID string `json:"requestId"`
	// retryAfter is what the server asked for.
	retryAfter time.Duration
}

// Error says what was refused and what would be right.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Detail == "" {
		fmt.Fprintf(&b, "the API answered with status %d and no reason", e.Status)
	} else {
		b.WriteString(e.Detail)
	}
	if len(e.Faults) == 1 && e.Faults[0].Fix != "" {
		b.WriteString("; " + e.Faults[0].Fix)
	}
	for i := 1; i < len(e.Faults); i++ {
		fmt.Fprintf(&b, "\n%s: %s; %s", e.Faults[i].Path, e.Faults[i].Message, e.Faults[i].Fix)
	}
	if e.Code != "" {
		b.WriteString(" (" + e.Code + ")")
	}
	switch e.Code {
	case "unauthenticated":
		b.WriteString("; set GANTRY_TOKEN or pass --token-file")
	case "internal":
		b.WriteString("; request " + e.RequestID)
	}
	return b.String()
}

// request is one call.
type request struct {
	method string
	// path is escaped already.
	path  string
	query url.Values
	// body is JSON; nil sends none.
	body []byte
	// wait is what the call asks the server to wait for.
	wait time.Duration
}

// call makes a request, repeats it while the system is unavailable, and decodes
// its answer into out; nil drops it.
func (c *Client) call(ctx context.Context, r request, out any) error {
	start := time.Now()
	for attempt := 0; ; attempt++ {
		err := c.once(ctx, r, out)
		delay, again := retry(err, attempt)
		if !again || ctx.Err() != nil || time.Since(start)+delay > c.config.RetryFor {
			return err
		}
		if c.config.OnRetry != nil {
			c.config.OnRetry(err, delay)
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return err
		}
	}
}

// retry decides whether an error may pass, and after which delay.
func retry(err error, attempt int) (time.Duration, bool) {
	if err == nil {
		return 0, false
	}
	delay := min(200*time.Millisecond<<min(attempt, 5), 5*time.Second)
	delay += time.Duration(rand.Int64N(int64(delay) / 4))
	var refused *Error
	if !errors.As(err, &refused) {
		var transport *transportError
		return delay, errors.As(err, &transport)
	}
	// 503 is not the request's fault, 429 is a matter of time.
	if refused.Status != http.StatusServiceUnavailable && refused.Status != http.StatusTooManyRequests {
		return 0, false
	}
	return max(delay, refused.retryAfter), true
}

// transportError is a request without an answer.
type transportError struct{ err error }

// Error is the fault without the URL, which the command knows.
func (e *transportError) Error() string { return e.err.Error() }

// Unwrap gives the fault.
func (e *transportError) Unwrap() error { return e.err }

func (c *Client) once(ctx context.Context, r request, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout+r.wait)
	defer cancel()
	target := strings.TrimSuffix(c.base.String(), "/") + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return fmt.Errorf("build request: %w", err)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.config.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.config.Token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	if err != nil {
		return c.unreachable(err)
	}
	if res.StatusCode/100 != 2 {
		return refusal(res, raw)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("read the answer of %s: it is not the API of Gantry: %w", c.base.Host, err)
	}
	return nil
}

// unreachable names the address instead of the whole request.
func (c *Client) unreachable(err error) error {
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	return &transportError{fmt.Errorf("reach the API at %s: %w", c.base.Host, err)}
}

func refusal(res *http.Response, raw []byte) error {
	e := &Error{}
	if json.Unmarshal(raw, e) != nil {
		e = &Error{}
	}
	e.Status = res.StatusCode
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds >= 0 {
		e.retryAfter = time.Duration(seconds) * time.Second
	}
	return e
}
