package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/webhook/verify"
)

// judge decides about a captured request, with the code that receivers run.
type judge struct {
	capture  *capture
	name     verify.Name
	detected bool
	url      string
	at       time.Time
	keys     signature.Keys
	qstash   qstash.Keys
	count    int
}

// The results of a check.
const (
	checkPassed     = "passed"
	checkFailed     = "failed"
	checkNotReached = "not reached"
)

// check is one thing that is looked at.
type check struct {
	Check  string `json:"check"`
	Result string `json:"result"`

	reasons []verify.Reason
	// aboutTime says that another time could change the result.
	aboutTime bool
}

// judgement is the result.
type judgement struct {
	Scheme   verify.Name   `json:"scheme,omitempty"`
	Detected bool          `json:"detected"`
	At       time.Time     `json:"at"`
	Verified bool          `json:"verified"`
	Reason   verify.Reason `json:"reason,omitempty"`
	// ID, IDSigned, Attempt and Key are known of a verified request only.
	ID       string   `json:"id,omitempty"`
	IDSigned bool     `json:"idSigned,omitempty"`
	Attempt  int      `json:"attempt,omitempty"`
	Key      string   `json:"key,omitempty"`
	Bytes    int      `json:"bodyBytes"`
	Checks   []check  `json:"checks"`
	Advice   []string `json:"advice"`
	Notes    []string `json:"notes"`
}

// scheme is the one scheme that is accepted.
func (j *judge) scheme() verify.Scheme {
	switch j.name {
	case verify.NameQStash:
		return verify.QStash(verify.QStashConfig{Keys: j.qstash, URL: j.url})
	case verify.NameStandard:
		return verify.StandardWebhooks(j.keys)
	}
	return verify.BodySignature(j.keys)
}

// decide runs the receiver's checks for a body at a time. The reason is "" when
// they pass.
func (j *judge) decide(body []byte, at time.Time) (verify.Facts, verify.Reason, error) {
	v, err := verify.New(verify.Config{Schemes: []verify.Scheme{j.scheme()}, Now: func() time.Time { return at }})
	if err != nil {
		return verify.Facts{}, "", usagef("%w", err)
	}
	facts, err := v.Verify(&http.Request{Header: j.capture.header}, body)
	if refused := (*verify.RefusedError)(nil); errors.As(err, &refused) {
		return facts, refused.Reason, nil
	}
	return facts, "", err
}

func (j *judge) newJudgement() *judgement {
	return &judgement{
		Scheme: j.name, Detected: j.detected, At: j.at.UTC().Truncate(time.Second), Bytes: len(j.capture.body),
		Checks: []check{}, Advice: []string{}, Notes: append([]string{}, j.capture.Notes...),
	}
}

// unsigned is the judgement about a request without any signature.
func (j *judge) unsigned() *judgement {
	result := j.newJudgement()
	result.Reason = verify.ReasonNoSignature
	result.Checks = append(result.Checks, check{Check: "a header with a signature", Result: checkFailed})
	result.Advice = append(result.Advice, adviceUnsigned)
	return result
}

// judge decides, and finds out about what a receiver does not look at any more.
func (j *judge) judge() (*judgement, error) {
	facts, reason, err := j.decide(j.capture.body, j.at)
	if err != nil {
		return nil, err
	}
	result := j.newJudgement()
	result.Reason, result.Verified = reason, reason == ""
	result.Checks = j.checks()
	if result.Verified {
		result.ID, result.IDSigned, result.Attempt, result.Key = facts.ID, facts.IDSigned, facts.Attempt, describe(facts.Key, j.count)
		if facts.Key > 0 {
			result.Advice = append(result.Advice, "The first key did not sign this: the keys were rotated, so replace those of the receiver.")
		}
		if j.name == verify.NameBody {
			result.Notes = append(result.Notes, "the signature covers the body only: neither the id nor the time, so a copy of the request counts for ever")
		}
	}
	mark(result.Checks, reason, false)
	other := reason
	if signedAt, ok := j.signedAt(); ok && j.aboutTime(result.Checks, reason) {
		if _, other, err = j.decide(j.capture.body, signedAt); err != nil {
			return nil, err
		}
		mark(result.Checks, other, true)
		if other == "" {
			result.Advice = append(result.Advice, "Everything else is right: with --at "+signedAt.UTC().Format(time.RFC3339)+" it is verified.")
		}
	}
	result.Advice = append(result.Advice, j.advice(reason)...)
	if other != reason {
		result.Advice = append(result.Advice, j.advice(other)...)
	}
	return result, nil
}

// mark enters the results: what comes before the reason has passed. The second
// time leaves alone what was about time.
func mark(checks []check, reason verify.Reason, again bool) {
	result := checkPassed
	for i := range checks {
		if slices.Contains(checks[i].reasons, reason) {
			result = checkFailed
		}
		if !again || !checks[i].aboutTime {
			checks[i].Result = result
		}
		if result == checkFailed {
			result = checkNotReached
		}
	}
}

func (j *judge) aboutTime(checks []check, reason verify.Reason) bool {
	return slices.ContainsFunc(checks, func(c check) bool { return c.aboutTime && slices.Contains(c.reasons, reason) })
}

// checks are those of the scheme, in the receiver's order.
func (j *judge) checks() []check {
	when := j.at.UTC().Format(time.RFC3339)
	with := "one of the " + strconv.Itoa(j.count) + " keys"
	if j.count == 1 {
		with = "the key"
	}
	header := func(text string) check {
		return check{Check: text, reasons: []verify.Reason{verify.ReasonNoSignature, verify.ReasonMalformed, verify.Reason(qstash.ReasonSeveralSignatures)}}
	}
	switch j.name {
	case verify.NameStandard:
		return []check{
			header("webhook-id, webhook-timestamp and webhook-signature are there, once each"),
			{Check: "webhook-timestamp is within 5 minutes of " + when, reasons: []verify.Reason{verify.ReasonTimestamp}, aboutTime: true},
			{Check: "made for this id, time and body with " + with, reasons: []verify.Reason{verify.ReasonMismatch}},
		}
	case verify.NameBody:
		return []check{
			header("X-Webhook-Signature is there, once, as sha256= and hex"),
			{Check: "made for this body with " + with, reasons: []verify.Reason{verify.ReasonMismatch}},
		}
	}
	of := func(text string, reasons ...qstash.Reason) check {
		c := check{Check: text}
		for _, reason := range reasons {
			c.reasons = append(c.reasons, verify.Reason(reason))
		}
		return c
	}
	inForce := of("in force at "+when, qstash.ReasonNoExpiry, qstash.ReasonExpired, qstash.ReasonNotYet)
	inForce.aboutTime = true
	return []check{
		header("Upstash-Signature is there, once"),
		of("a signed token (JWT)", qstash.ReasonMalformed),
		of("signed by HS256", qstash.ReasonAlgorithm),
		of("made with "+with, qstash.ReasonUnknownKey),
		of("issued by Upstash", qstash.ReasonIssuer),
		inForce,
		of("made for "+withoutQuery(j.url), qstash.ReasonNoURL, qstash.ReasonURL),
		of("made for this body", qstash.ReasonNoBody, qstash.ReasonBody),
	}
}

// token holds the claims that help to explain a refusal. They are read without
// any check and decide nothing.
type token struct {
	Subject   string   `json:"sub"`
	Expires   *float64 `json:"exp"`
	NotBefore *float64 `json:"nbf"`
}

func (j *judge) token() (t token) {
	parts := strings.Split(j.capture.header.Get(qstash.HeaderSignature), ".")
	if len(parts) != 3 {
		return token{}
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(raw, &t) != nil {
		return token{}
	}
	return t
}

// signedAt is a time at which the signature was in force.
func (j *judge) signedAt() (time.Time, bool) {
	if j.name == verify.NameQStash {
		t := j.token()
		if t.Expires == nil || *t.Expires < 1 || *t.Expires > 1<<40 {
			return time.Time{}, false
		}
		return time.Unix(int64(*t.Expires)-1, 0), true
	}
	seconds, err := strconv.ParseUint(j.capture.header.Get(signature.HeaderTimestamp), 10, 40)
	return time.Unix(int64(seconds), 0), err == nil
}

// lineBreaks are what editors, terminals and recorders do to a body.
var lineBreaks = []struct {
	change string
	apply  func(body []byte) []byte
}{
	{"without the line break at its end", func(b []byte) []byte { return bytes.TrimRight(b, "\r\n") }},
	{"with a line break at its end", func(b []byte) []byte { return append(slices.Clone(b), '\n') }},
	{"with LF for CRLF", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")) }},
	{"with CRLF for LF", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")) }},
	{"as compact JSON", func(b []byte) []byte {
		var out bytes.Buffer
		if json.Compact(&out, b) != nil {
			return b
		}
		return out.Bytes()
	}},
}

// changedBody says which change of the body makes it verify, if one does.
func (j *judge) changedBody() (string, bool) {
	at := j.at
	if signedAt, ok := j.signedAt(); ok {
		at = signedAt
	}
	for _, variant := range lineBreaks {
		body := variant.apply(j.capture.body)
		if bytes.Equal(body, j.capture.body) {
			continue
		}
		if _, reason, err := j.decide(body, at); err == nil && reason == "" {
			return variant.change, true
		}
	}
	return "", false
}

// withoutQuery leaves out what may be secret in a URL.
func withoutQuery(raw string) string {
	before, _, found := strings.Cut(raw, "?")
	if parsed, err := url.Parse(before); err != nil || parsed.User != nil {
		return "a URL"
	}
	if found {
		return before + "?…"
	}
	return before
}
