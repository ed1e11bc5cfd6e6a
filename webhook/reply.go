package webhook

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
)

// MaxReplyBytes is the size of the largest reply of a control that is read, after
// decompression (docs/behaviour.md §12).
const MaxReplyBytes = 65536

// maxEncodedBytes bounds a compressed reply on the wire, which could be endless
// and still come to nothing.
const maxEncodedBytes = 16 * MaxReplyBytes

const headerAcceptEncoding = "Accept-Encoding"

// askForEncoding tells the receiver which encodings are understood, unless the
// hook says something itself.
func askForEncoding(header http.Header) {
	for name := range header {
		if len(name) == len(headerAcceptEncoding) && strings.EqualFold(name, headerAcceptEncoding) {
			return
		}
	}
	header[headerAcceptEncoding] = []string{"gzip"}
}

// replyError is a body that arrived, and that is refused.
type replyError struct {
	class  tasks.FailureClass
	detail string
}

func (e *replyError) Error() string { return e.detail }

var (
	errReplyTooLarge = &replyError{class: tasks.ClassResponseTooLarge}
	errReplyEncoding = &replyError{class: tasks.ClassInvalidResponse, detail: "unknown content encoding"}
	errReplyGzip     = &replyError{class: tasks.ClassInvalidResponse, detail: "broken content encoding"}
)

// readReply reads the body of a reply, decoded. An error is a *replyError, or
// that of the connection.
func readReply(resp *http.Response) ([]byte, error) {
	switch encoding := contentEncoding(resp.Header); encoding {
	case "":
		if resp.ContentLength > MaxReplyBytes {
			return nil, errReplyTooLarge
		}
		return readBounded(resp.Body, resp.ContentLength)
	case "gzip", "x-gzip":
		return readGzip(resp.Body)
	default:
		return nil, errReplyEncoding
	}
}

// contentEncoding returns the encodings of a reply in lower case, without
// identity, which is none.
func contentEncoding(header http.Header) string {
	var encodings []string
	for _, value := range header.Values("Content-Encoding") {
		for encoding := range strings.SplitSeq(value, ",") {
			encoding = strings.ToLower(strings.Trim(encoding, " \t"))
			if encoding != "" && encoding != "identity" {
				encodings = append(encodings, encoding)
			}
		}
	}
	return strings.Join(encodings, ", ")
}

// readBounded reads r to its end, one byte beyond the bound at most. length is
// what was declared, -1 if nothing was.
func readBounded(r io.Reader, length int64) ([]byte, error) {
	size := 512
	if length >= 0 && length <= MaxReplyBytes {
		// One more than is expected, so that the end is seen without growing.
		size = int(length) + 1
	}
	body := make([]byte, 0, size)
	for {
		if len(body) > MaxReplyBytes {
			return nil, errReplyTooLarge
		}
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := r.Read(body[len(body):min(cap(body), MaxReplyBytes+1)])
		body = body[:len(body)+n]
		if err == io.EOF && len(body) <= MaxReplyBytes {
			return body, nil
		}
		if err != nil && len(body) <= MaxReplyBytes {
			return nil, err
		}
	}
}

// readGzip reads a gzip body. An empty one is empty. What is wrong with the
// connection goes before what is wrong with the encoding.
func readGzip(body io.Reader) ([]byte, error) {
	wire := &wireReader{r: body, left: maxEncodedBytes}
	reader, err := gzip.NewReader(wire)
	if errors.Is(err, io.EOF) && wire.err == nil && wire.left == maxEncodedBytes {
		return []byte{}, nil
	}
	var decoded []byte
	if err == nil {
		decoded, err = readBounded(reader, -1)
	}
	switch {
	case err == nil, errors.Is(err, errReplyTooLarge):
		return decoded, err
	case wire.err != nil:
		return nil, wire.err
	}
	return nil, errReplyGzip
}

// wireReader remembers how reading from the connection ended, and ends it when
// there is too much.
type wireReader struct {
	r    io.Reader
	left int
	// err is the error of the connection; nil while it is fine, and at its end.
	err error
}

// Read implements io.Reader.
func (w *wireReader) Read(p []byte) (int, error) {
	if w.left <= 0 {
		w.err = errReplyTooLarge
		return 0, w.err
	}
	n, err := w.r.Read(p[:min(len(p), w.left)])
	w.left -= n
	if err != nil && err != io.EOF {
		w.err = err
	}
	return n, err
}
