package webhook

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

// The headers that every request carries (docs/behaviour.md §8).
const (
	HeaderDeliveryID = "Gantry-Delivery-Id"
	HeaderTaskID     = "Gantry-Task-Id"
	// HeaderQuestionID stands in place of HeaderTaskID when the reply decides.
	HeaderQuestionID = "Gantry-Question-Id"
	HeaderHookID     = "Gantry-Hook-Id"
	HeaderSequence   = "Gantry-Sequence"
	HeaderToken      = "Gantry-Token"
	HeaderAttempt    = "Gantry-Attempt"
	// HeaderNoRetry is set to "true" by a receiver that wants no further attempt.
	HeaderNoRetry = "Gantry-No-Retry"

	headerUserAgent   = "User-Agent"
	headerTraceparent = "traceparent"
	// The mere presence of this key tells net/http that the request may be sent
	// again when a kept connection turns out to be closed. An empty list of values
	// is not sent.
	headerReplayable = "Idempotency-Key"
)

// reservedHeaders cannot be configured, in lower case.
var reservedHeaders = map[string]bool{
	"gantry-delivery-id": true, "gantry-task-id": true, "gantry-hook-id": true,
	"gantry-sequence": true, "gantry-token": true, "gantry-attempt": true, "gantry-question-id": true,
}

// newRequest builds the request of an attempt from resolved headers, which
// become its own.
func (d *Deliverer) newRequest(del *Delivery, t *target, header http.Header, body []byte) (*http.Request, error) {
	own := ownSet(header)
	d.addOwn(del, header, own)
	if err := d.sign(del, header, body); err != nil {
		return nil, err
	}
	if _, set := header[headerReplayable]; !set {
		header[headerReplayable] = []string{}
	}
	reader := bytes.NewReader(body)
	return &http.Request{
		Method: http.MethodPost, URL: t.url, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(reader), ContentLength: int64(len(body)),
		GetBody: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}, nil
}

// configuredOwn says which of the headers that a hook may replace it does replace.
type configuredOwn struct{ userAgent, traceparent bool }

// ownSet puts configured headers into the form in which they go out.
func ownSet(header http.Header) configuredOwn {
	var own configuredOwn
	agent := ""
	for name, values := range header {
		for i, value := range values {
			values[i] = latin1(value)
		}
		switch {
		case len(name) == len(headerUserAgent) && strings.EqualFold(name, headerUserAgent):
			own.userAgent, agent = true, name
		case len(name) == len(headerTraceparent) && strings.EqualFold(name, headerTraceparent):
			own.traceparent = true
		}
	}
	// net/http looks for this one name under its canonical spelling, and would add
	// its own beside any other.
	if own.userAgent && agent != headerUserAgent {
		header[headerUserAgent] = header[agent]
		delete(header, agent)
	}
	return own
}

// addOwn sets Gantry's headers. The values share one array, which keeps the hot
// path to a single allocation.
func (d *Deliverer) addOwn(del *Delivery, header http.Header, own configuredOwn) {
	values := make([]string, 0, 8)
	set := func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if !own.userAgent {
		header[headerUserAgent] = d.userAgent
	}
	set(HeaderDeliveryID, headerSafe(del.ID))
	if del.Hook.Control() {
		set(HeaderQuestionID, headerSafe(del.TaskID))
	} else {
		set(HeaderTaskID, headerSafe(del.TaskID))
	}
	set(HeaderHookID, headerSafe(del.Hook.ID))
	set(HeaderAttempt, strconv.Itoa(del.Attempt))
	if del.Sequence != 0 {
		set(HeaderSequence, strconv.FormatInt(del.Sequence, 10))
	}
	if del.Token != 0 {
		set(HeaderToken, strconv.FormatInt(del.Token, 10))
	}
	if !own.traceparent && del.Trace != "" && headerSafe(del.Trace) == del.Trace {
		set(headerTraceparent, del.Trace)
	}
}

// sign signs body, the very bytes that are sent, if the hook names a key.
func (d *Deliverer) sign(del *Delivery, header http.Header, body []byte) error {
	if del.Hook.Options == nil || del.Hook.Options.SigningKeyEnv == "" {
		return nil
	}
	keys, err := d.signingKeys(del.Hook)
	if err != nil {
		return err
	}
	signed := keys.Sign(headerSafe(del.ID), d.now(), body)
	values := []string{signed.ID, signed.Timestamp, signed.Signature, signed.Body}
	header[signature.HeaderID] = values[0:1:1]
	header[signature.HeaderTimestamp] = values[1:2:2]
	header[signature.HeaderSignature] = values[2:3:3]
	header[signature.HeaderBody] = values[3:4:4]
	return nil
}

// signingKeys reads the keys of a hook. A hook that asks for signatures is never
// sent without them.
func (d *Deliverer) signingKeys(hook *tasks.Hook) (signature.Keys, error) {
	name := hook.Options.SigningKeyEnv
	if !hook.Environment() && !d.allow.allows(name) {
		return signature.Keys{}, configurationf("signing key %s is not available", quoted(name))
	}
	value, ok := d.env(name)
	if !ok {
		return signature.Keys{}, configurationf("signing key %s is not available", quoted(name))
	}
	keys, err := signature.ParseKeys(value)
	if err != nil {
		return signature.Keys{}, configurationf("signing key %s: %v", quoted(name), err)
	}
	return keys, nil
}

const upperHex = "0123456789ABCDEF"

// headerSafe percent-encodes what may not stand in a header, or not at its ends,
// and the percent sign itself, so that an id can be read back.
func headerSafe(id string) string {
	first := 0
	for first < len(id) && plainByte(id[first]) {
		first++
	}
	if first == len(id) {
		return id
	}
	out := append(make([]byte, 0, len(id)+16), id[:first]...)
	for i := first; i < len(id); i++ {
		if c := id[i]; plainByte(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(out)
}

func plainByte(c byte) bool { return c > ' ' && c < 0x7f && c != '%' }
