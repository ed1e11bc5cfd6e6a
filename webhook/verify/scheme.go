package verify

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

// Name names a scheme.
type Name string

// The names.
const (
	NameStandard Name = "standard"
	NameBody     Name = "body"
	NameQStash   Name = "qstash"
)

// strongestFirst is the order in which the headers of a request are looked for.
var strongestFirst = []Name{NameQStash, NameStandard, NameBody}

// header returns the name of the header that carries the scheme's signature.
func (n Name) header() string {
	switch n {
	case NameQStash:
		return qstash.HeaderSignature
	case NameStandard:
		return signature.HeaderSignature
	}
	return signature.HeaderBody
}

// Detect names the strongest scheme whose signature header is there, or "" when
// there is none. It says nothing about whether the signature is good.
func Detect(header http.Header) Name {
	for _, name := range strongestFirst {
		if len(header.Values(name.header())) > 0 {
			return name
		}
	}
	return ""
}

// Scheme is one way to sign that a receiver accepts. The zero value is none and
// is refused by New.
type Scheme struct {
	name   Name
	keys   signature.Keys
	qstash QStashConfig
}

// StandardWebhooks accepts requests that were signed by Standard Webhooks with
// one of the keys, the current one first. Body, id and timestamp are signed, so
// that a copy of a request is worth nothing once its window is over.
func StandardWebhooks(keys signature.Keys) Scheme { return Scheme{name: NameStandard, keys: keys} }

// BodySignature accepts requests whose X-Webhook-Signature was made with one of
// the keys. It covers the body and nothing else: no id, no time. Whoever has seen
// one request can send it again for ever, so it is for senders that know no
// better; a receiver that accepts it beside Standard Webhooks has given up the
// window of both.
func BodySignature(keys signature.Keys) Scheme { return Scheme{name: NameBody, keys: keys} }

// QStash accepts requests that QStash signed.
func QStash(config QStashConfig) Scheme { return Scheme{name: NameQStash, qstash: config} }

// QStashConfig says what QStash signs for. Either URL or BaseURL is required.
type QStashConfig struct {
	// Keys are the current and the next signing key.
	Keys qstash.Keys
	// URL is the address that was given to QStash for this endpoint, byte for byte:
	// scheme, host, path and query. It fits a handler that serves one endpoint.
	URL string
	// BaseURL is the beginning of the address, such as "https://app.example": what
	// follows is taken from the request line as it arrived. It fits a handler with
	// many paths, when nothing in front of it changes paths.
	BaseURL string
	// Tolerance is how far the two clocks may differ; 0 means not at all, 5 minutes is
	// the most.
	Tolerance time.Duration
}

var errAddress = errors.New("QStash needs either URL or BaseURL, an absolute http or https URL")

func (c QStashConfig) validate() error {
	if (c.URL == "") == (c.BaseURL == "") {
		return errAddress
	}
	address, err := url.Parse(c.URL + c.BaseURL)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return errAddress
	}
	if c.BaseURL != "" && (strings.HasSuffix(c.BaseURL, "/") || strings.ContainsAny(c.BaseURL, "?#")) {
		return errors.New("QStash BaseURL must end before the slash of the path, and has no query")
	}
	return nil
}

// address is the URL that the signature of r must be for, or "" when the request
// line has no path.
func (c QStashConfig) address(r *http.Request) string {
	if c.URL != "" {
		return c.URL
	}
	target := r.RequestURI
	if target == "" && r.URL != nil { // a request that no server has read
		target = r.URL.RequestURI()
	}
	// A client may name a host in the request line, too.
	if !strings.HasPrefix(target, "/") {
		return ""
	}
	return c.BaseURL + target
}

// Reason says why a request was refused. Reasons are for the receiver's logs; a
// sender never sees one. Those of QStash are those of qstash.Reason.
type Reason string

// The reasons.
const (
	// ReasonNoSignature says that no header of an accepted scheme is there.
	ReasonNoSignature Reason = "no_signature"
	// ReasonMalformed says that a header of the scheme is missing, is there more than
	// once or is not of its form.
	ReasonMalformed Reason = "malformed_headers"
	// ReasonTimestamp says that the signature is older, or younger, than the window.
	ReasonTimestamp Reason = "outside_window"
	// ReasonMismatch says that none of the keys made the signature for this body.
	ReasonMismatch Reason = "no_key_matches"
)

// RefusedError is a refusal. Its text holds nothing of the request.
type RefusedError struct {
	// Scheme is the one that decided; "" when the request has none.
	Scheme Name
	Reason Reason
}

// Error names the scheme and the reason.
func (e *RefusedError) Error() string {
	if e.Scheme == "" {
		return "verify request: " + string(e.Reason)
	}
	return fmt.Sprintf("verify request by scheme %s: %s", e.Scheme, e.Reason)
}

func reasonOf(err error) Reason {
	if refused := (*qstash.VerifyError)(nil); errors.As(err, &refused) {
		return Reason(refused.Reason)
	}
	switch {
	case errors.Is(err, signature.ErrMissing):
		return ReasonMalformed
	case errors.Is(err, signature.ErrTimestamp):
		return ReasonTimestamp
	}
	return ReasonMismatch
}
