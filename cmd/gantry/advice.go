package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/verify"
)

const adviceUnsigned = "No header of any scheme is there. Does the hook name a key (gantry.signingKeyEnv), and does a proxy drop headers?"

// advices say what to do about a refusal.
var advices = map[verify.Reason]string{
	verify.ReasonNoSignature: "The header of this scheme is not there. Try --scheme auto, and look whether a proxy drops headers.",
	verify.ReasonMalformed:   "A header is missing, is there twice or is cut. Capture the request before anything else touches it.",
	verify.ReasonTimestamp: "The request is older than five minutes, or the clocks differ: compare webhook-timestamp with the receiver's clock. " +
		"What QStash carries keeps the time of its publishing, so verify that by Upstash-Signature.",
	verify.ReasonMismatch: "Another key signed, or something changed the body. Compare the keys of both sides, whsec_ included, " +
		"and verify the bytes as they arrive, before a JSON parser.",
	verify.Reason(qstash.ReasonSeveralSignatures): "Exactly one Upstash-Signature may be there; something on the way adds one.",
	verify.Reason(qstash.ReasonMalformed):         "The token is cut or is none. Capture the whole header.",
	verify.Reason(qstash.ReasonAlgorithm):         "QStash signs by HS256 and nothing else: this does not come from it.",
	verify.Reason(qstash.ReasonUnknownKey): "None of the keys signed this. Compare them with the console: each region has its own, and after two rotations " +
		"both have changed.",
	verify.Reason(qstash.ReasonIssuer):   "The token was signed with your key for another purpose.",
	verify.Reason(qstash.ReasonNoExpiry): "Tokens of QStash end after five minutes; this one never does and is refused.",
	verify.Reason(qstash.ReasonExpired):  "Each attempt has a token of five minutes. An old capture is judged with --at; otherwise the receiver's clock is ahead.",
	verify.Reason(qstash.ReasonNotYet):   "The receiver's clock is behind, or --at is too early.",
	verify.Reason(qstash.ReasonNoBody):   "The token does not say which body it is for, and is refused.",
	verify.Reason(qstash.ReasonBody):     "Something changed the body. Verify the bytes as they arrive, before a JSON parser.",
}

// advice says what to do about a reason.
func (j *judge) advice(reason verify.Reason) (list []string) {
	switch reason {
	case "":
		return nil
	case verify.Reason(qstash.ReasonURL):
		return []string{differentURL(j.token().Subject, j.url)}
	case verify.ReasonMismatch, verify.Reason(qstash.ReasonBody):
		if change, found := j.changedBody(); found {
			list = append(list, "It does verify "+change+": the capture, or something before the receiver, changed the body.")
		}
	}
	if text, known := advices[reason]; known {
		list = append(list, text)
	}
	return list
}

// differentURL tells two URLs apart, without their queries.
func differentURL(signed, given string) string {
	const rest = " Give --url, and the receiver, the address to which was published, byte for byte."
	a, errA := url.Parse(signed)
	b, errB := url.Parse(given)
	if errA != nil || errB != nil || signed == "" {
		return "The token is for another URL." + rest
	}
	part := "spelling"
	switch {
	case a.Scheme != b.Scheme:
		part = "scheme"
	case a.Host != b.Host:
		part = "host"
	case a.EscapedPath() != b.EscapedPath():
		part = "path"
		if strings.Trim(a.Path, "/") == strings.Trim(b.Path, "/") {
			part = "slash at the end"
		}
	case a.RawQuery != b.RawQuery:
		part = "query"
	}
	return fmt.Sprintf("The token is for %s; the %s differs.%s", screen.Clean(withoutQuery(signed)), part, rest)
}

var resultStyles = map[string]screen.Style{checkPassed: screen.Green, checkFailed: screen.Red, checkNotReached: screen.Dim}

// write writes a judgement for people.
func (r *judgement) write(w io.Writer, theme screen.Theme) error {
	scheme := string(r.Scheme)
	if scheme == "" {
		scheme = "none"
	}
	if r.Detected {
		scheme += " (by its headers)"
	}
	fmt.Fprintf(w, "scheme %s, body of %d bytes\n", scheme, r.Bytes)
	for _, c := range r.Checks {
		fmt.Fprintf(w, "  %s  %s\n", theme.Paint(resultStyles[c.Result], fmt.Sprintf("%-11s", c.Result)), screen.Clean(c.Check))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "%s: %s\n", theme.Paint(screen.Yellow, "note"), note)
	}
	if r.Verified {
		fmt.Fprintf(w, "%s: signed with %s%s\n", theme.Paint(screen.Green, "verified"), r.Key, r.message())
	} else {
		fmt.Fprintf(w, "%s: %s\n", theme.Paint(screen.Red, "not verified"), r.Reason)
	}
	for _, advice := range r.Advice {
		if _, err := fmt.Fprintln(w, advice); err != nil {
			return err
		}
	}
	return nil
}

// message names a verified message.
func (r *judgement) message() string {
	if r.ID == "" {
		return ""
	}
	text := ", message " + screen.Clean(r.ID)
	if !r.IDSigned {
		text += " (its id is not signed)"
	}
	return text
}
