package qstash

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// HeaderSignature carries the signature of a request.
const HeaderSignature = "Upstash-Signature"

const (
	issuer = "Upstash"
	// maxToken is far above what QStash signs, whose longest claim is a URL.
	maxToken = 32 << 10
	// maxTolerance keeps a misread setting from making signatures last for ever.
	maxTolerance = 5 * time.Minute
)

// Reason says why a request was refused. Reasons are for logs and metrics of the
// receiver; a sender learns nothing but that it was refused.
type Reason string

// The reasons.
const (
	ReasonNoURL             Reason = "no_url"
	ReasonNoSignature       Reason = "no_signature"
	ReasonSeveralSignatures Reason = "several_signatures"
	ReasonMalformed         Reason = "malformed_token"
	ReasonAlgorithm         Reason = "wrong_algorithm"
	ReasonUnknownKey        Reason = "unknown_key"
	ReasonIssuer            Reason = "wrong_issuer"
	ReasonNoExpiry          Reason = "no_expiry"
	ReasonExpired           Reason = "expired"
	ReasonNotYet            Reason = "not_yet_valid"
	ReasonURL               Reason = "wrong_url"
	ReasonNoBody            Reason = "no_body_hash"
	ReasonBody              Reason = "wrong_body"
)

// VerifyError is a refusal. Its text holds the reason and nothing of the
// request.
type VerifyError struct{ Reason Reason }

// Error names the reason.
func (e *VerifyError) Error() string { return "verify QStash signature: " + string(e.Reason) }

// Verified is what a genuine request is known by.
type Verified struct {
	// ByNext says that the next key signed it: the keys were rotated, and the
	// configured ones should be replaced before they are rotated again.
	ByNext bool
	// JTI is the token's own id, new for each attempt, so that nothing can be
	// deduplicated by it; "" when there is none.
	JTI string
	// Expires is when the token ends.
	Expires time.Time
}

// VerifierConfig says what a Verifier works with.
type VerifierConfig struct {
	// Keys are the signing keys. Required.
	Keys Keys
	// Tolerance is how far the two clocks may differ, for both ends of a token's
	// life; 0 means not at all, 5 minutes is the most.
	Tolerance time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Verifier decides whether requests come from QStash. It is safe for concurrent
// use and keeps nothing of a request. The zero value refuses everything.
type Verifier struct {
	keys   Keys
	parser *jwt.Parser
}

// NewVerifier returns a Verifier, or an error when there is no key or the
// tolerance is out of bounds.
func NewVerifier(cfg VerifierConfig) (*Verifier, error) {
	if cfg.Keys.empty() {
		return nil, fmt.Errorf("configure QStash verifier: %w", ErrNoKey)
	}
	if cfg.Tolerance < 0 || cfg.Tolerance > maxTolerance {
		return nil, fmt.Errorf("configure QStash verifier: tolerance %s is not within 0s and %s", cfg.Tolerance, maxTolerance)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Verifier{keys: cfg.Keys, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithStrictDecoding(),
		jwt.WithIssuer(issuer), jwt.WithExpirationRequired(), jwt.WithLeeway(cfg.Tolerance), jwt.WithTimeFunc(cfg.Now),
	)}, nil
}

// Verify decides about a request by all values of its Upstash-Signature header,
// the URL under which the endpoint is known to QStash, byte for byte, and the
// body's bytes as they arrived. The URL is the configured one, never one that is
// put together from the request. An error is a *VerifyError
// (docs/behaviour.md §9).
func (v *Verifier) Verify(signatureHeaders []string, url string, body []byte) (Verified, error) {
	token, reason := oneToken(signatureHeaders, url)
	if reason != "" {
		return Verified{}, &VerifyError{Reason: reason}
	}
	c, byNext, reason := v.signed(token)
	if reason == "" {
		reason = c.cover(url, body)
	}
	if reason != "" {
		return Verified{}, &VerifyError{Reason: reason}
	}
	return Verified{ByNext: byNext, JTI: c.id, Expires: c.expires.Time}, nil
}

// oneToken picks the one token of a request.
func oneToken(headers []string, url string) (string, Reason) {
	switch {
	case url == "":
		return "", ReasonNoURL
	case len(headers) == 0 || len(headers) == 1 && headers[0] == "":
		return "", ReasonNoSignature
	case len(headers) > 1:
		return "", ReasonSeveralSignatures
	case len(headers[0]) > maxToken || strings.ContainsFunc(headers[0], notOfToken):
		// Decoders of base64 skip line breaks, and this is where they cannot.
		return "", ReasonMalformed
	}
	return headers[0], ""
}

func notOfToken(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
		return false
	}
	return true
}

var errCritical = errors.New("token names extensions that must be understood")

// signed returns the claims of a token that one of the keys signed and that is
// in force now. The current key comes first; the reason of a refusal is that of
// the key that signed, if one did.
func (v *Verifier) signed(token string) (c *claims, byNext bool, reason Reason) {
	if v == nil || v.parser == nil {
		return nil, false, ReasonUnknownKey
	}
	c = &claims{}
	reached := false
	_, err := v.parser.ParseWithClaims(token, c, func(t *jwt.Token) (any, error) {
		reached = true
		if _, critical := t.Header["crit"]; critical {
			return nil, errCritical
		}
		var key []byte
		key, byNext = v.keys.of(t)
		return key, nil
	})
	switch {
	case err == nil:
		return c, byNext, ""
	case errors.Is(err, errCritical), errors.Is(err, jwt.ErrTokenMalformed):
		return nil, false, ReasonMalformed
	case !reached:
		return nil, false, ReasonAlgorithm
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return nil, false, ReasonUnknownKey
	}
	return nil, false, c.fault(err)
}

// of returns the key that signed t, or one that did not when none did: the
// parser checks it once more. It is never empty.
func (k Keys) of(t *jwt.Token) (key []byte, byNext bool) {
	text := t.Raw[:strings.LastIndexByte(t.Raw, '.')]
	signed := func(key []byte) bool { return len(key) > 0 && t.Method.Verify(text, t.Signature, key) == nil }
	switch {
	case signed(k.current):
		return k.current, false
	case signed(k.next):
		return k.next, true
	case len(k.current) > 0:
		return k.current, false
	}
	return k.next, false
}

// fault tells what the parser found wrong with signed claims, the gravest first.
func (c *claims) fault(err error) Reason {
	switch {
	case c.issuer != issuer:
		return ReasonIssuer
	case c.expires == nil:
		return ReasonNoExpiry
	case errors.Is(err, jwt.ErrTokenExpired):
		return ReasonExpired
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return ReasonNotYet
	}
	return ReasonMalformed
}

// cover reports whether the claims are about this URL and this body.
func (c *claims) cover(url string, body []byte) Reason {
	if subtle.ConstantTimeCompare([]byte(c.subject), []byte(url)) != 1 {
		return ReasonURL
	}
	if c.body == "" {
		return ReasonNoBody
	}
	sum := sha256.Sum256(body)
	var hash [44]byte
	base64.URLEncoding.Encode(hash[:], sum[:])
	// With and without its padding, and nothing else.
	given := []byte(strings.TrimSuffix(c.body, "="))
	if subtle.ConstantTimeCompare(given, hash[:43]) != 1 {
		return ReasonBody
	}
	return ""
}
