package conformance_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// fault is a way in which a receiver fails to answer.
type fault string

const (
	faultRefused     fault = "refused"
	faultDNS         fault = "dns"
	faultTLS         fault = "tls"
	faultConnectHang fault = "connect_hang"
	faultReset       fault = "reset"
	faultHang        fault = "hang"
	faultNotHTTP     fault = "not_http"
	faultTruncated   fault = "truncated"
	faultResetBody   fault = "reset_mid_body"
	faultHangBody    fault = "timeout_mid_body"
)

// faults are the names that cases use.
var faults = map[string]fault{
	"refused": faultRefused, "connect_refused": faultRefused, "connection_refused": faultRefused, "econnrefused": faultRefused,
	"dns": faultDNS, "dns_failure": faultDNS, "dns_error": faultDNS, "nxdomain": faultDNS, "enotfound": faultDNS,
	"tls": faultTLS, "tls_failure": faultTLS, "tls_error": faultTLS,
	"connect_timeout": faultConnectHang, "timeout_connect": faultConnectHang,
	"reset": faultReset, "connection_reset": faultReset, "econnreset": faultReset, "network": faultReset, "network_error": faultReset,
	"hang": faultHang, "timeout": faultHang, "timeout_headers": faultHang,
	"not_http":  faultNotHTTP,
	"truncated": faultTruncated, "truncated_body": faultTruncated,
	"reset_mid_body":   faultResetBody,
	"timeout_mid_body": faultHangBody, "hang_mid_body": faultHangBody,
}

// answer is what a receiver does with a request.
type answer struct {
	status  int
	headers map[string]string
	body    []byte
	endless bool
	delay   time.Duration
	fault   fault
}

func fine() answer { return answer{status: http.StatusOK} }

// rawAnswer is an answer as an object in a case.
type rawAnswer struct {
	Status  *int              `json:"status"`
	Text    *string           `json:"text"`
	JSON    json.RawMessage   `json:"json"`
	Body    *rawBody          `json:"body"`
	Headers map[string]string `json:"headers"`
	Stream  string            `json:"stream"`
	Fault   string            `json:"fault"`
	DelayMS float64           `json:"delay_ms"`
}

// rawBody is text, bytes, or both in parts.
type rawBody struct {
	UTF8   *string   `json:"utf8"`
	Base64 *string   `json:"base64"`
	Repeat *string   `json:"repeat"`
	Count  int       `json:"count"`
	Parts  []rawBody `json:"parts"`
	// Gzip is what is compressed.
	Gzip *rawBody `json:"gzip"`
}

// answerOf reads a status code, "ok", the name of a fault, or an object.
func (r *run) answerOf(raw json.RawMessage) answer {
	a := fine()
	var name string
	switch {
	case raw == nil:
		return a
	case json.Unmarshal(raw, &a.status) == nil && string(raw) != "null":
	case json.Unmarshal(raw, &name) == nil && string(raw) != "null":
		if name != "ok" {
			a.fault = r.fault(name)
		}
	default:
		a = r.objectAnswer(raw)
	}
	if a.status < 100 || a.status > 999 {
		r.notUnderstood("status", a.status)
	}
	return a
}

func (r *run) fault(name string) fault {
	f, known := faults[strings.ToLower(name)]
	if !known {
		r.notUnderstood("fault", name)
	}
	return f
}

func (r *run) objectAnswer(raw json.RawMessage) answer {
	var o rawAnswer
	r.decodePart(raw, &o)
	a := fine()
	a.headers, a.delay = o.Headers, time.Duration(o.DelayMS*float64(time.Millisecond))
	if o.Status != nil {
		a.status = *o.Status
	}
	if o.Fault != "" {
		a.fault = r.fault(o.Fault)
	}
	switch o.Stream {
	case "":
	case "endless":
		a.endless = true
	default:
		r.notUnderstood("stream", o.Stream)
	}
	switch {
	case o.Text != nil:
		a.body = []byte(*o.Text)
	case o.JSON != nil:
		a.body = o.JSON
	case o.Body != nil:
		a.body = r.bodyOf(*o.Body)
	}
	return a
}

func (r *run) compress(body []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(body); err != nil {
		r.fatalf("compress a body: %v", err)
	}
	if err := w.Close(); err != nil {
		r.fatalf("compress a body: %v", err)
	}
	return out.Bytes()
}

func (r *run) bodyOf(b rawBody) []byte {
	switch {
	case b.UTF8 != nil:
		return []byte(*b.UTF8)
	case b.Base64 != nil:
		decoded, err := base64.StdEncoding.DecodeString(*b.Base64)
		if err != nil {
			r.notUnderstood("base64", *b.Base64)
		}
		return decoded
	case b.Repeat != nil:
		return bytes.Repeat([]byte(*b.Repeat), b.Count)
	case b.Gzip != nil:
		return r.compress(r.bodyOf(*b.Gzip))
	}
	var out []byte
	for _, part := range b.Parts {
		out = append(out, r.bodyOf(part)...)
	}
	return out
}
