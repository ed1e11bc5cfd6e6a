package verify

import (
	"io"
	"net/http"
)

// recorder passes a reply through and remembers its status.
type recorder struct {
	http.ResponseWriter
	status int
}

// success reports whether the reply is a 2xx. Nothing written is one: the server
// sends 200 then.
func (r *recorder) success() bool { return r.status == 0 || r.status >= 200 && r.status <= 299 }

// WriteHeader implements http.ResponseWriter. Informational statuses come before
// the one that counts, except 101, which is final.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	r.sent()
	return r.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom, so that files are sent as fast as without
// the recorder.
func (r *recorder) ReadFrom(src io.Reader) (int64, error) {
	r.sent()
	return io.Copy(r.ResponseWriter, src)
}

// Flush implements http.Flusher.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError is what http.ResponseController calls.
func (r *recorder) FlushError() error {
	r.sent()
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Unwrap leads http.ResponseController to everything else.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// sent notes the status that the server sends when a handler names none.
func (r *recorder) sent() {
	if r.status == 0 {
		r.status = http.StatusOK
	}
}
