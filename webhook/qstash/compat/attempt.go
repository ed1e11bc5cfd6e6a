package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

const (
	// maxAnswerBytes is how much of a reply's body is kept for the DLQ and callbacks.
	maxAnswerBytes = 64 << 10
	// statusNonRetryable, with the header below, ends a message at once.
	statusNonRetryable = 489
	headerNonRetryable = "Upstash-NonRetryable-Error"
)

// answer is what came of one attempt: a reply, or an error.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	err     error
	elapsed time.Duration
}

// success reports whether the message is delivered.
func (a answer) success() bool { return a.status >= 200 && a.status <= 299 }

// final reports whether the receiver wants no retry.
func (a answer) final() bool {
	return a.status == statusNonRetryable && a.header.Get(headerNonRetryable) == "true"
}

// reason says in words why the attempt failed.
func (a answer) reason() string {
	if a.err != nil {
		return a.err.Error()
	}
	return "status " + strconv.Itoa(a.status)
}

// kinds lists the faults in the order of their declaration.
func (f faultSet) kinds() (kinds []FaultKind) {
	for _, kind := range deliveryFaults {
		if f[kind] {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

var errTimeout = errors.New("the receiver did not answer in time")

// try is one attempt to come: the message as it stands then.
type try struct {
	message *message
	retried int
	keys    Keys
	faults  faultSet
}

// attempt delivers once, or as often as the faults have it.
func (s *Server) attempt(t try) answer {
	if t.faults[FaultLateSecond] {
		return s.unseen(t)
	}
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.timeout(t.message), errTimeout)
	defer cancel()
	if !t.faults[FaultConcurrent] {
		got := s.send(ctx, t)
		if t.faults[FaultDuplicate] && got.success() {
			s.send(ctx, t)
		}
		return got
	}
	other := make(chan struct{})
	go func() {
		defer close(other)
		s.send(ctx, t)
	}()
	got := s.send(ctx, t)
	<-other
	return got
}

// unseen sends and does not see the answer: it reports a timeout once there is an
// answer or the time is over, and lets the receiver work on.
func (s *Server) unseen(t try) answer {
	start := s.now()
	answered := make(chan struct{})
	s.running.Go(func() {
		defer close(answered)
		ctx, cancel := context.WithTimeoutCause(s.ctx, s.maxTimeout, errTimeout)
		defer cancel()
		s.send(ctx, t)
	})
	over := make(chan struct{})
	stop := s.clock.AfterFunc(s.timeout(t.message), func() { close(over) })
	defer stop()
	select {
	case <-answered:
	case <-over:
	case <-s.ctx.Done():
	}
	return answer{err: errTimeout, elapsed: s.now().Sub(start)}
}

// send makes one request and reads its reply.
func (s *Server) send(ctx context.Context, t try) (got answer) {
	start := s.now()
	defer func() { got.elapsed = s.now().Sub(start) }()
	m := t.message
	req, err := http.NewRequestWithContext(ctx, m.options.method, m.url, bytes.NewReader(m.body))
	if err != nil {
		return answer{err: err}
	}
	// A kept connection that the receiver has closed would count as an attempt.
	req.Close = true
	req.Header = m.passedOn()
	req.Header.Set("User-Agent", "Upstash-QStash")
	req.Header.Set("Upstash-Signature", seal(t, start))
	req.Header.Set("Upstash-Message-Id", m.id)
	req.Header.Set("Upstash-Retried", strconv.Itoa(t.retried))
	req.Header.Set("Upstash-Caller-Ip", m.callerIP)
	req.Header.Set("Upstash-Region", s.region)
	if m.topic != "" {
		req.Header.Set("Upstash-Topic-Name", m.topic)
	}
	resp, err := s.egress.Do(req)
	if err != nil {
		return answer{err: causeOf(ctx, err)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return answer{err: fmt.Errorf("read the reply: %w", causeOf(ctx, err))}
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: slices.Clip(body)}
}

// causeOf returns why ctx ended, if it did, else err.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
