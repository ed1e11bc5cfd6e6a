package ingress

import (
	"context"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// requestIDHeader names a request in both directions.
const requestIDHeader = "X-Request-Id"

// unmatched is the route of requests that no pattern matches.
const unmatched = "unmatched"

// exchange is one request and its answer, for what the framework does not
// carry: the name of the request and the connection.
type exchange struct {
	id     string
	start  time.Time
	writer *recorder
	// request is the one that the mux saw, with its pattern.
	request *http.Request
}

type exchangeKey struct{}

// exchangeOf finds the exchange that observe put into ctx.
func exchangeOf(ctx context.Context) *exchange {
	if e, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return e
	}
	return &exchange{}
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader remembers the first status that is not informational.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write counts bytes.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap gives http.ResponseController the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// observe names the request, answers a panic, and writes the one log line.
func (a *API) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &exchange{id: requestID(r), start: time.Now(), writer: &recorder{ResponseWriter: w}}
		e.request = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, e))
		header := w.Header()
		header.Set(requestIDHeader, e.id)
		header.Set("Cache-Control", "no-store")
		header.Set("X-Content-Type-Options", "nosniff")
		defer a.finish(e)
		next.ServeHTTP(e.writer, e.request)
	})
}

// finish is deferred around the handlers: it recovers a panic, then counts and
// logs the request.
func (a *API) finish(e *exchange) {
	fault := recover()
	if fault == http.ErrAbortHandler { //nolint:errorlint // the documented identity
		panic(fault)
	}
	if fault != nil {
		a.config.Logger.WithFields(logrus.Fields{
			logKeyRequestID: e.id, tasks.LogErr: fault, logKeyStack: string(debug.Stack()),
		}).Error(logPanic)
		if e.writer.status == 0 {
			p := newProblem(CodeInternal, "something went wrong that is not the caller's fault; the log names the request")
			p.RequestID = e.id
			p.write(e.writer)
		}
	}
	if e.writer.status == 0 {
		e.writer.status = http.StatusOK // what net/http sends when nothing was written
	}
	elapsed := time.Since(e.start)
	route := e.request.Pattern
	if route == "" || route == fallbackPattern {
		route = unmatched
	}
	a.metrics.observe(route, e.writer.status, elapsed)
	line := a.config.Logger.WithFields(logrus.Fields{
		logKeyRequestID: e.id, logKeyMethod: e.request.Method, logKeyRoute: route,
		tasks.LogStatus: e.writer.status, tasks.LogElapsedMS: elapsed.Milliseconds(), tasks.LogBytes: e.writer.bytes,
	})
	if probe(e.request.URL.Path) {
		line.Debug(logRequest)
		return
	}
	line.Info(logRequest)
}

// probe reports whether path is asked by machines all the time.
func probe(path string) bool {
	return path == "/healthz" || path == "/readyz" || path == "/metrics"
}

// requestID takes over the caller's name of the request when it is harmless in
// logs and headers, else draws one.
func requestID(r *http.Request) string {
	id := r.Header.Get(requestIDHeader)
	if id == "" || len(id) > 128 {
		return tasks.NewID()
	}
	for _, c := range []byte(id) {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '.' || c == ':' || c == '/' || c == '='
		if !plain {
			return tasks.NewID()
		}
	}
	return id
}
