package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
)

// bodyKind says how a body is to be read.
type bodyKind int

// The kinds of bodies.
const (
	// bodyJSON is one JSON document.
	bodyJSON bodyKind = iota
	// bodyLines is one JSON document a line.
	bodyLines
)

// lineTypes are the media types of bodyLines.
var lineTypes = map[string]bool{
	"application/x-ndjson": true, "application/ndjson": true, "application/jsonl": true, "application/x-jsonlines": true,
}

// readBody returns the raw bytes of a JSON body: the framework must not decode
// it, because numbers, duplicate keys and invalid UTF-8 would not survive.
func (a *API) readBody(ctx context.Context) ([]byte, error) {
	kind, err := kindOf(exchangeOf(ctx).request)
	if err != nil {
		return nil, err
	}
	if kind != bodyJSON {
		return nil, newProblem(CodeUnsupportedMediaType, "the body must be application/json")
	}
	return a.readAll(exchangeOf(ctx))
}

// readEvents is readBody for a route that takes lines as well.
func (a *API) readEvents(ctx context.Context) ([]byte, bodyKind, error) {
	kind, err := kindOf(exchangeOf(ctx).request)
	if err != nil {
		return nil, kind, err
	}
	raw, err := a.readAll(exchangeOf(ctx))
	return raw, kind, err
}

// kindOf reads the headers of a body. No content-type at all counts as JSON.
func kindOf(r *http.Request) (bodyKind, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return bodyJSON, newProblem(CodeUnsupportedEncoding, "the body is encoded; send it plain, without content-encoding").
			with("Accept-Encoding", "identity")
	}
	contentType := r.Header.Get("Content-Type")
	if contentType == "" {
		return bodyJSON, nil
	}
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err == nil && lineTypes[media]:
		return bodyLines, nil
	case err == nil && (media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json")):
		return bodyJSON, nil
	}
	return bodyJSON, newProblem(CodeUnsupportedMediaType,
		"the content-type is not read here; send application/json, or application/x-ndjson for many events")
}

// readAll reads the body within the limits of bytes and time.
func (a *API) readAll(e *exchange) ([]byte, error) {
	limit := a.config.MaxBody
	// net/http lifts the deadline once the body is read. A writer without deadlines
	// is no error.
	_ = http.NewResponseController(e.writer).SetReadDeadline(time.Now().Add(a.config.BodyTimeout))
	if e.request.ContentLength > limit {
		return nil, tooLarge(e.request, limit)
	}
	// The inner writer, because it closes the connection after an oversized body.
	raw, err := io.ReadAll(http.MaxBytesReader(e.writer.ResponseWriter, e.request.Body, limit))
	var oversized *http.MaxBytesError
	switch {
	case err == nil:
	case errors.As(err, &oversized):
		return nil, tooLarge(e.request, limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, newProblem(CodeBodyTimeout, fmt.Sprintf("the body did not arrive within %s", a.config.BodyTimeout)).
			with("Connection", "close")
	default:
		return nil, newProblem(CodeBodyIncomplete, "the body ended early").with("Connection", "close")
	}
	return raw, nil
}

// maxSpill bounds what is read of an oversized body beyond its limit.
const maxSpill = 4 << 20

// tooLarge refuses an oversized body. A caller that is still sending when its
// connection ends may lose the answer, so that a body which is not far too large
// is read and dropped first; one that waits for leave to send is not asked to.
func tooLarge(r *http.Request, limit int64) error {
	if r.ContentLength <= limit+maxSpill && r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, limit+maxSpill) // what does not arrive is not missed
	}
	return newProblem(CodeBodyTooLarge, fmt.Sprintf("the body is larger than the limit of %d bytes", limit))
}
