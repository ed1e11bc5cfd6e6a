package verify

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"
)

const (
	// statusNonRetryable, with its header, is how QStash is told to stop.
	statusNonRetryable = 489
	headerNonRetryable = "Upstash-NonRetryable-Error"
	headerRetryAfter   = "Retry-After"
)

// The answers. They are all that a sender is told.
const (
	textUnauthorized = "unauthorized"
	textTooLarge     = "too large"
	textUnreadable   = "bad request"
	textDuplicate    = "already finished\n"
	textInProgress   = "in progress"
	textUnavailable  = "unavailable"
)

// Handler puts the checks of config in front of next. A request that passes
// reaches it with the body that was signed, byte for byte, with Facts in its
// context, and, when there is a Store, at most once at a time and never again
// after it was answered with a 2xx. Everything else is answered here: 401 without
// a signature that counts, 413 (489 for QStash) over Config.MaxBody, 400 when the
// body breaks off, 200 for what is finished, 409 with Retry-After for what is in
// progress, and 503 with Retry-After when the Store does not answer. The errors
// are those of New (docs/behaviour.md §9).
//
// Streaming works: the ResponseWriter that next gets flushes, and
// http.ResponseController reaches through it.
func Handler(next http.Handler, config Config) (http.Handler, error) {
	wrap, err := Middleware(config)
	if err != nil {
		return nil, err
	}
	return wrap(next), nil
}

// Middleware is Handler in the shape that routers like.
func Middleware(config Config) (func(next http.Handler) http.Handler, error) {
	v, err := New(config)
	if err != nil {
		return nil, err
	}
	return v.Wrap, nil
}

// Wrap puts the checks of v in front of next, as Handler does.
func (v *Verifier) Wrap(next http.Handler) http.Handler { return &handler{Verifier: v, next: next} }

// handler is a Verifier with what it guards.
type handler struct {
	*Verifier
	next http.Handler
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	s, found := h.pick(r.Header)
	if !found {
		// Whoever signs nothing does not get a body read.
		h.report(ctx, Event{Kind: EventRefused, Reason: ReasonNoSignature})
		http.Error(w, textUnauthorized, http.StatusUnauthorized)
		return
	}
	body, ok := h.read(w, r, s.name)
	if !ok {
		return
	}
	facts, err := h.Verify(r, body)
	if err != nil {
		refusal := Event{Kind: EventRefused, Facts: Facts{Scheme: s.name}}
		if refused := (*RefusedError)(nil); errors.As(err, &refused) {
			refusal.Reason = refused.Reason
		}
		h.report(ctx, refusal)
		http.Error(w, textUnauthorized, http.StatusUnauthorized)
		return
	}
	if facts.Key > 0 {
		h.report(ctx, Event{Kind: EventRotationDue, Facts: facts})
	}
	// A copy: the original belongs to the server, which drains its body.
	r = r.WithContext(context.WithValue(ctx, factsKey{}, facts))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if h.config.Store == nil || len(facts.marks) == 0 {
		h.next.ServeHTTP(w, r)
		return
	}
	h.once(w, r, facts)
}

// read reads the body, and answers when it cannot.
func (h *handler) read(w http.ResponseWriter, r *http.Request, scheme Name) (body []byte, ok bool) {
	if r.Body == nil {
		return nil, true
	}
	var err error
	if r.ContentLength > h.config.MaxBody {
		err = &http.MaxBytesError{Limit: h.config.MaxBody}
	} else {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, h.config.MaxBody))
	}
	if err == nil {
		return body, true
	}
	known := Facts{Scheme: scheme}
	if tooLarge := (*http.MaxBytesError)(nil); !errors.As(err, &tooLarge) {
		h.report(r.Context(), Event{Kind: EventUnreadable, Facts: known, Err: err})
		http.Error(w, textUnreadable, http.StatusBadRequest)
		return nil, false
	}
	h.report(r.Context(), Event{Kind: EventTooLarge, Facts: known})
	status := http.StatusRequestEntityTooLarge
	if scheme == NameQStash {
		w.Header().Set(headerNonRetryable, "true")
		status = statusNonRetryable
	}
	http.Error(w, textTooLarge, status)
	return nil, false
}

// once runs the handler under claims of the message.
func (h *handler) once(w http.ResponseWriter, r *http.Request, facts Facts) {
	ends := time.Now().Add(h.config.Lease)
	held := newClaims(h.Verifier, facts)
	state, err := held.take(r.Context())
	switch {
	case err != nil:
		h.report(r.Context(), Event{Kind: EventStoreFailed, Facts: facts, Err: err})
		h.later(w, textUnavailable, http.StatusServiceUnavailable)
		return
	case state == StateDone:
		h.report(r.Context(), Event{Kind: EventDuplicate, Facts: facts})
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, textDuplicate)
		return
	case state != StateNew:
		h.report(r.Context(), Event{Kind: EventInProgress, Facts: facts})
		h.later(w, textInProgress, http.StatusConflict)
		return
	}
	ctx, cancel := context.WithDeadlineCause(r.Context(), ends, ErrLeaseEnded)
	defer cancel()
	reply := &recorder{ResponseWriter: w}
	returned := false
	// A panic goes on to the server, which breaks the connection off; what was
	// answered before it does not count.
	defer func() { held.settle(ctx, returned && reply.success()) }()
	h.next.ServeHTTP(reply, r.WithContext(ctx))
	returned = true
}

// later answers that the sender should come again.
func (h *handler) later(w http.ResponseWriter, text string, status int) {
	w.Header().Set(headerRetryAfter, strconv.FormatInt(int64(math.Ceil(h.config.RetryAfter.Seconds())), 10))
	http.Error(w, text, status)
}
