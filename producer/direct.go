package producer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

const (
	// DefaultDirectTimeout bounds one request of a DirectSender.
	DefaultDirectTimeout = 30 * time.Second
	// maxDirectReply is how much of a reply is read so that its connection lives on.
	maxDirectReply = 4 << 10
)

// DirectConfig is what a DirectSender needs.
type DirectConfig struct {
	// Endpoint is the URL of the workers' POST /v1/qstash/tasks, as the runtime
	// reaches it. Required.
	Endpoint string
	// Client is the operator's way out. Required.
	Client *egress.Client
	// Keys sign what is sent, because the endpoint refuses what nobody signed.
	// Required.
	Keys signature.Keys
	// Timeout bounds one request; 0 means DefaultDirectTimeout. Workers without Redis
	// deliver within it.
	Timeout time.Duration
	// Now is the clock of signatures; nil means time.Now.
	Now func() time.Time
}

// DirectSender brings task documents to the workers' endpoint with Gantry's own
// signature, by Standard Webhooks. It is safe for concurrent use.
type DirectSender struct{ config DirectConfig }

// NewDirect returns a DirectSender, or an error when config lacks what is
// required.
func NewDirect(config DirectConfig) (*DirectSender, error) {
	switch {
	case config.Endpoint == "" || config.Client == nil:
		return nil, errors.New("configure direct sender: Endpoint and Client are required")
	case config.Keys.Len() == 0:
		return nil, fmt.Errorf("configure direct sender: %w", signature.ErrNoKey)
	case config.Timeout < 0:
		return nil, fmt.Errorf("configure direct sender: timeout %s is negative", config.Timeout)
	}
	if config.Timeout == 0 {
		config.Timeout = DefaultDirectTimeout
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	return &DirectSender{config: config}, nil
}

// DirectError says that the endpoint did not take a document.
type DirectError struct {
	// Status is the HTTP status of the reply; 0 when none arrived.
	Status int
	// Err is why none arrived; its text may name addresses. nil when one did.
	Err error
}

// Error names the status, or that there is none. It shows no address.
func (e *DirectError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("send to the workers: HTTP %d", e.Status)
	}
	return "send to the workers: " + string(egress.FailureClass(e.Err))
}

// Unwrap gives the reason.
func (e *DirectError) Unwrap() error { return e.Err }

// Send implements Direct with one request. An error is a *DirectError; without a
// status the workers may have the document all the same.
func (s *DirectSender) Send(ctx context.Context, id string, doc []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.config.Endpoint, bytes.NewReader(doc))
	if err != nil {
		return &DirectError{Err: err}
	}
	signed := s.config.Keys.Sign(id, s.config.Now(), doc)
	req.Header = http.Header{
		"Content-Type":            {"application/json"},
		signature.HeaderID:        {signed.ID},
		signature.HeaderTimestamp: {signed.Timestamp},
		signature.HeaderSignature: {signed.Signature},
		// A kept connection that turns out to be closed is replaced; the task's id makes
		// that harmless.
		"Idempotency-Key": {},
	}
	resp, err := s.config.Client.Do(req)
	if err != nil {
		return &DirectError{Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.CopyN(io.Discard, resp.Body, maxDirectReply)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return &DirectError{Status: resp.StatusCode}
	}
	return nil
}
