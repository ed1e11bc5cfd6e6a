// Package signature signs and verifies webhook requests: by Standard Webhooks
// (webhook-id, webhook-timestamp, webhook-signature) and by the plain
// X-Webhook-Signature. Both speak about the same bytes, those of the body as it
// is sent.
//
// It is pure: it reads no clock, no environment and no request of its own, and
// its Keys never show themselves, whatever prints them. Senders and receivers
// may import it. Rules: docs/behaviour.md §8.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of the two schemes.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
	HeaderBody      = "X-Webhook-Signature"
)

// Tolerance is how far a timestamp may lie from the receiver's clock, in either
// direction.
const Tolerance = 5 * time.Minute

const (
	secretPrefix  = "whsec_"
	versionPrefix = "v1,"
	bodyPrefix    = "sha256="
)

// What is wrong with a secret or a request. None of the texts holds a key, a
// signature or a body.
var (
	ErrNoKey     = errors.New("no signing key")
	ErrKeyFormat = errors.New("signing key is not base64 after " + secretPrefix)
	ErrMissing   = errors.New("signature headers are missing or malformed")
	ErrTimestamp = errors.New("signature timestamp is outside the tolerance")
	ErrMismatch  = errors.New("no signature matches")
)

// Keys are the signing keys of one endpoint, the current one first, then those
// that receivers may still or already hold during a rotation. The zero value
// has no key: it signs nothing and verifies nothing.
type Keys struct{ keys [][]byte }

// ParseKeys reads keys separated by white space: "whsec_" and base64 as Standard
// Webhooks writes them, or any other text taken as it stands. The error is
// ErrNoKey or ErrKeyFormat and never shows the value.
func ParseKeys(value string) (Keys, error) {
	var k Keys
	for field := range strings.FieldsSeq(value) {
		key, err := parseKey(field)
		if err != nil {
			return Keys{}, err
		}
		k.keys = append(k.keys, key)
	}
	if len(k.keys) == 0 {
		return Keys{}, ErrNoKey
	}
	return k, nil
}

func parseKey(field string) ([]byte, error) {
	encoded, prefixed := strings.CutPrefix(field, secretPrefix)
	if !prefixed {
		return []byte(field), nil
	}
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return nil, ErrKeyFormat
	}
	if len(key) == 0 {
		return nil, ErrNoKey
	}
	return key, nil
}

// Len returns the number of keys.
func (k Keys) Len() int { return len(k.keys) }

// String hides the keys.
func (k Keys) String() string { return "[" + strconv.Itoa(len(k.keys)) + " signing keys]" }

// Format hides the keys from every verb of fmt.
func (k Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText hides the keys.
func (k Keys) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Headers are the values that a signed request carries.
type Headers struct {
	// ID and Timestamp are those that were signed, Timestamp in Unix seconds.
	ID        string
	Timestamp string
	// Signature holds one signature for each key, separated by spaces.
	Signature string
	// Body is the signature of the body alone, made with the first key.
	Body string
}

// Sign signs body as it will be sent. id is the same for each attempt of a
// delivery, timestamp is that of the attempt. Without keys the result is empty.
func (k Keys) Sign(id string, timestamp time.Time, body []byte) Headers {
	if len(k.keys) == 0 {
		return Headers{}
	}
	h := Headers{ID: id, Timestamp: strconv.FormatInt(timestamp.Unix(), 10)}
	var list strings.Builder
	for i, key := range k.keys {
		if i > 0 {
			list.WriteByte(' ')
		}
		list.WriteString(versionPrefix)
		list.WriteString(base64.StdEncoding.EncodeToString(standardMAC(key, h.ID, h.Timestamp, body)))
	}
	h.Signature = list.String()
	h.Body = bodyPrefix + hex.EncodeToString(mac(k.keys[0], body))
	return h
}

// Verify checks a request by Standard Webhooks: one of the signatures must match
// one of the keys, and the timestamp must lie within Tolerance of now. The error
// is ErrNoKey, ErrMissing, ErrTimestamp or ErrMismatch.
func (k Keys) Verify(header http.Header, body []byte, now time.Time) error {
	if len(k.keys) == 0 {
		return ErrNoKey
	}
	id, stamp, list := header.Get(HeaderID), header.Get(HeaderTimestamp), header.Get(HeaderSignature)
	seconds, err := strconv.ParseUint(stamp, 10, 40)
	if err != nil || id == "" || list == "" {
		return ErrMissing
	}
	if now.Sub(time.Unix(int64(seconds), 0)).Abs() > Tolerance {
		return ErrTimestamp
	}
	for signed := range strings.FieldsSeq(list) {
		encoded, known := strings.CutPrefix(signed, versionPrefix)
		if !known {
			continue
		}
		given, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil && k.matches(given, func(key []byte) []byte { return standardMAC(key, id, stamp, body) }) {
			return nil
		}
	}
	return ErrMismatch
}

// VerifyBody checks a request by X-Webhook-Signature, which knows neither id nor
// time and therefore says nothing about a replay. The error is ErrNoKey,
// ErrMissing or ErrMismatch.
func (k Keys) VerifyBody(header http.Header, body []byte) error {
	if len(k.keys) == 0 {
		return ErrNoKey
	}
	encoded, known := strings.CutPrefix(header.Get(HeaderBody), bodyPrefix)
	if !known {
		return ErrMissing
	}
	given, err := hex.DecodeString(encoded)
	if err != nil {
		return ErrMissing
	}
	if !k.matches(given, func(key []byte) []byte { return mac(key, body) }) {
		return ErrMismatch
	}
	return nil
}

// matches compares given with what each key makes, in constant time for each.
func (k Keys) matches(given []byte, sum func(key []byte) []byte) bool {
	found := false
	for _, key := range k.keys {
		found = hmac.Equal(given, sum(key)) || found
	}
	return found
}

func standardMAC(key []byte, id, timestamp string, body []byte) []byte {
	head := make([]byte, 0, len(id)+len(timestamp)+2)
	head = append(append(append(append(head, id...), '.'), timestamp...), '.')
	return mac(key, head, body)
}

func mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		h.Write(part) // never fails
	}
	return h.Sum(nil)
}
