package taskdoor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

// StatusNonRetryable, together with the header, tells QStash to give a message up
// at once and to keep it among its dead letters.
const (
	StatusNonRetryable = 489
	headerNonRetryable = "Upstash-NonRetryable-Error"
	headerRetried      = "Upstash-Retried"
)

// bodyTimeout bounds the arrival of a message.
const bodyTimeout = 30 * time.Second

// The results, as answers, logs and metrics name them. The set is closed.
const (
	resultStored       = "stored"
	resultDelivered    = "delivered"
	resultDuplicate    = "duplicate"
	resultRemoved      = "hook_removed"
	resultFailed       = "failed"
	resultGivenUp      = "given_up"
	resultBusy         = "busy"
	resultEarly        = "early"
	resultUnavailable  = "unavailable"
	resultUnauthorized = "unauthorized"
	resultTooLarge     = "too_large"
	resultMalformed    = "malformed"
)

var results = []string{
	resultStored, resultDelivered, resultDuplicate, resultRemoved, resultFailed, resultGivenUp, resultBusy, resultEarly,
	resultUnavailable, resultUnauthorized, resultTooLarge, resultMalformed,
}

// The event names of the door's log lines.
const (
	logMessage = "taskdoor.message"
	logRotated = "taskdoor.keys_rotated"
	logRefused = "taskdoor.refused"
	logClaim   = "taskdoor.claim_failed"
)

// Door is the handler of POST /v1/qstash/tasks. Build one with New; it is safe
// for concurrent use.
type Door struct {
	config  Config
	metrics *prometheus.CounterVec
	// slots holds a token for each delivery that runs.
	slots   chan struct{}
	closing chan struct{}
	once    sync.Once
	// warned is the minute in which the rotation of keys was last told of.
	warned atomic.Int64
}

func newMetrics(registerer prometheus.Registerer) (*prometheus.CounterVec, error) {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gantry_taskdoor_messages_total", Help: "Messages from QStash and runtimes, by what became of them.",
	}, []string{"result"})
	for _, result := range results {
		counter.WithLabelValues(result)
	}
	if registerer == nil {
		return counter, nil
	}
	return counter, registerer.Register(counter)
}

// Drain makes the door send everybody away with 503, for the time before a stop.
// It is idempotent.
func (d *Door) Drain() { d.once.Do(func() { close(d.closing) }) }

func (d *Door) draining() bool {
	select {
	case <-d.closing:
		return true
	default:
		return false
	}
}

// answer is what the door says to a message.
type answer struct {
	status int
	result string
	// wait goes into Retry-After; 0 means none.
	wait time.Duration
	// reason says more to the sender of a message that is refused for good.
	reason string
}

// finally is the answer to a message that no repetition helps.
func finally(result, reason string) answer {
	return answer{status: StatusNonRetryable, result: result, reason: reason}
}

// ServeHTTP answers as docs/behaviour.md §9 lists: 200 when the work is stored,
// delivered or was so before; 401 for what is not signed; 409 and 503 with
// Retry-After for what has to wait; 489 for what can never succeed; 500 for a
// delivery that failed.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	a := d.answer(w, r)
	d.metrics.WithLabelValues(a.result).Inc()
	a.write(w)
}

// answer reads a request and has it handled.
func (d *Door) answer(w http.ResponseWriter, r *http.Request) answer {
	if d.draining() {
		return answer{status: http.StatusServiceUnavailable, result: resultUnavailable, wait: runningWait}
	}
	if r.ContentLength > d.config.MaxBody {
		return finally(resultTooLarge, "")
	}
	// Who sends slowly holds nothing for long. A server that cannot bound it has bounds
	// of its own.
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(io.LimitReader(r.Body, d.config.MaxBody+1))
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case int64(len(body)) > d.config.MaxBody:
		return finally(resultTooLarge, "")
	case err != nil:
		// Who is too slow still listens, and silence would be a 200.
		return unavailable()
	}
	m := message{body: body}
	if err := d.authenticate(r, &m); err != nil {
		d.config.Logger.WithField(tasks.LogReason, err.Error()).Warn(logRefused)
		return answer{status: http.StatusUnauthorized, result: resultUnauthorized}
	}
	if err := m.decode(); err != nil {
		reason := "invalid"
		var invalid *tasks.InvalidError
		if errors.As(err, &invalid) {
			reason = string(invalid.Code)
		}
		d.config.Logger.WithField(tasks.LogErr, err).Error(logRefused)
		return finally(resultMalformed, reason)
	}
	return d.handle(r.Context(), &m)
}

func (a answer) write(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	if a.wait > 0 {
		header.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(a.wait.Seconds())), 10))
	}
	if a.status == StatusNonRetryable {
		header.Set(headerNonRetryable, "true")
	}
	w.WriteHeader(a.status)
	text, _ := json.Marshal(struct { // two strings: never fails
		Result string `json:"result"`
		Reason string `json:"reason,omitempty"`
	}{a.result, a.reason})
	_, _ = w.Write(append(text, '\n'))
}

// errUnsigned says that a request has no signature that the door knows.
var errUnsigned = errors.New("no signature")

// authenticate finds out who signed the request. An error's text is for the log.
func (d *Door) authenticate(r *http.Request, m *message) error {
	signed := r.Header.Values(qstash.HeaderSignature)
	if len(signed) == 0 {
		return d.authenticateRuntime(r, m)
	}
	verified, err := d.config.Verifier.Verify(signed, d.config.URL, m.body)
	if err != nil {
		return err
	}
	if verified.ByNext {
		d.warnRotated()
	}
	// Only the body is signed. This number decides about waiting, never about
	// whether the work is done.
	if retried, err := strconv.Atoi(r.Header.Get(headerRetried)); err == nil {
		m.retried = min(max(retried, 0), maxRetried)
	}
	return nil
}

// maxRetried bounds a number that nobody signed.
const maxRetried = 1000

// authenticateRuntime lets in what a runtime brings itself when QStash would not
// take it. Nobody repeats that, so that it does not wait for its turn.
func (d *Door) authenticateRuntime(r *http.Request, m *message) error {
	for _, name := range []string{signature.HeaderID, signature.HeaderTimestamp, signature.HeaderSignature} {
		if len(r.Header.Values(name)) > 1 {
			return fmt.Errorf("verify runtime signature: %w", signature.ErrMissing)
		}
	}
	if d.config.Keys.Len() == 0 || r.Header.Get(signature.HeaderSignature) == "" {
		return errUnsigned
	}
	if err := d.config.Keys.Verify(r.Header, m.body, d.config.Now()); err != nil {
		return fmt.Errorf("verify runtime signature: %w", err)
	}
	m.direct = true
	return nil
}

// warnRotated tells once a minute that the keys should be replaced: after the
// next rotation nothing would come in any more.
func (d *Door) warnRotated() {
	minute := d.config.Now().Unix() / 60
	if d.warned.Swap(minute) != minute {
		d.config.Logger.Warn(logRotated)
	}
}
