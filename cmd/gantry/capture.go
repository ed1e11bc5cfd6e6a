package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// capture is a request as somebody recorded it.
type capture struct {
	header http.Header
	body   []byte
	// Notes say what is odd about the recording.
	Notes []string
}

func newCapture() *capture { return &capture{header: http.Header{}} }

// addHeader reads one line of a header.
func (c *capture) addHeader(line string) error {
	name, value, found := strings.Cut(line, ":")
	value = strings.Trim(value, " \t")
	if !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
		return errors.New("want NAME: VALUE")
	}
	c.header.Add(name, value)
	return nil
}

var errNoRequest = errors.New("the capture does not begin with a request line such as POST /hook HTTP/1.1")

// parseCapture reads a whole request. Recordings have lost their CRs at times, and
// bodies have gained a line break, so that lines may end either way, and what is
// behind the declared length is dropped.
func parseCapture(raw []byte) (*capture, error) {
	raw = bytes.TrimLeft(raw, "\r\n")
	line, rest, _ := cutLine(raw)
	if parts := strings.Fields(line); len(parts) != 3 || !strings.HasPrefix(parts[2], "HTTP/") {
		return nil, errNoRequest
	}
	c := newCapture()
	for number := 2; ; number++ {
		var more bool
		if line, rest, more = cutLine(rest); line == "" {
			break
		}
		if err := c.addHeader(line); err != nil {
			return nil, fmt.Errorf("read line %d of the capture: %w", number, err)
		}
		if !more {
			break
		}
	}
	c.body = rest
	switch {
	case strings.EqualFold(c.header.Get("Transfer-Encoding"), "chunked"):
		c.unchunk()
	case c.header.Get("Content-Length") != "":
		c.cut()
	}
	return c, nil
}

// cutLine cuts the first line off, without its end.
func cutLine(raw []byte) (line string, rest []byte, more bool) {
	before, after, found := bytes.Cut(raw, []byte("\n"))
	return string(bytes.TrimSuffix(before, []byte("\r"))), after, found
}

// unchunk undoes the chunks of a body, if the recording still has them.
func (c *capture) unchunk() {
	decoded, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(c.body)))
	if err != nil {
		c.Notes = append(c.Notes, "the body is not in chunks, although a header says so: taken as it is")
		return
	}
	c.body = decoded
}

// cut makes the body as long as was declared.
func (c *capture) cut() {
	length, err := strconv.Atoi(c.header.Get("Content-Length"))
	switch {
	case err != nil || length < 0:
		c.Notes = append(c.Notes, "Content-Length is no number: the body is taken to the end of the capture")
	case length > len(c.body):
		c.Notes = append(c.Notes, fmt.Sprintf("the body has %d bytes and Content-Length says %d: the capture is not what was sent", len(c.body), length))
	case length < len(c.body):
		if len(bytes.TrimSpace(c.body[length:])) > 0 {
			c.Notes = append(c.Notes, fmt.Sprintf("%d bytes behind the end of the body are left out", len(c.body)-length))
		}
		c.body = c.body[:length]
	}
}
