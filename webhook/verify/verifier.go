package verify

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

// The headers that name a message and count its attempts. None of them is signed.
const (
	headerMessageID  = "Upstash-Message-Id"
	headerRetried    = "Upstash-Retried"
	headerDeliveryID = "Gantry-Delivery-Id"
	headerAttempt    = "Gantry-Attempt"
)

// Facts is what is known of a request that passed.
type Facts struct {
	// Scheme is the one that decided.
	Scheme Name
	// ID names the message, the same for each of its attempts; "" when the sender
	// names none. It is webhook-id, QStash's message id, or Gantry-Delivery-Id where
	// only the body is signed.
	ID string
	// IDSigned says that the sender's key stands for ID. Only Standard Webhooks signs
	// it.
	IDSigned bool
	// Key is the place of the key that signed, 0 being the first or current one. With
	// QStash, 1 is the next one. Anything but 0 says that the keys were rotated and
	// that the receiver's should be, too.
	Key int
	// Attempt counts from 1; 0 when the sender does not say. It is not signed.
	Attempt int
	// Timestamp is when the sender signed; zero when it does not say.
	Timestamp time.Time
	// Expires is when the signature ends; zero when it has no end of its own.
	Expires time.Time

	marks []mark
}

// mark is what the store remembers a message by.
type mark struct {
	key string
	// keep is how long it is remembered; 0 means Config.Keep.
	keep time.Duration
}

type factsKey struct{}

// FromContext returns the facts about the request that a handler serves, or
// false when it did not come through a Handler of this package.
func FromContext(ctx context.Context) (Facts, bool) {
	facts, ok := ctx.Value(factsKey{}).(Facts)
	return facts, ok
}

// Verifier decides about requests. It is safe for concurrent use and keeps nothing
// of a request. Most receivers want Handler; a Verifier by itself is for those
// that have no http.Handler, such as functions.
type Verifier struct {
	config  Config
	schemes map[Name]Scheme
	qstash  *qstash.Verifier
	// nextWarning is when a due rotation is logged again, in Unix nanoseconds.
	nextWarning atomic.Int64
}

// New returns a Verifier. It is an error when no scheme is listed, when one has no
// key, and when another field of config is out of its bounds: a receiver that
// could accept nothing, or everything, does not start.
func New(config Config) (*Verifier, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure receiver: %w", err)
	}
	v := &Verifier{config: config, schemes: map[Name]Scheme{}}
	for _, s := range config.Schemes {
		if _, twice := v.schemes[s.name]; twice {
			return nil, fmt.Errorf("configure receiver: scheme %s is listed twice", s.name)
		}
		if err := v.add(s); err != nil {
			return nil, fmt.Errorf("configure receiver: scheme %s: %w", s.name, err)
		}
	}
	return v, nil
}

func (v *Verifier) add(s Scheme) error {
	v.schemes[s.name] = s
	if s.name != NameQStash {
		if s.keys.Len() == 0 {
			return signature.ErrNoKey
		}
		return nil
	}
	if err := s.qstash.validate(); err != nil {
		return err
	}
	verifier, err := qstash.NewVerifier(qstash.VerifierConfig{
		Keys: s.qstash.Keys, Tolerance: s.qstash.Tolerance, Now: v.config.Now,
	})
	v.qstash = verifier
	return err
}

// pick returns the scheme that decides about a request, or false when it carries
// no signature of an accepted one.
func (v *Verifier) pick(header http.Header) (Scheme, bool) {
	for _, name := range strongestFirst {
		if s, accepted := v.schemes[name]; accepted && len(header.Values(name.header())) > 0 {
			return s, true
		}
	}
	return Scheme{}, false
}

// Verify decides about a request by its headers and its body's bytes, as they
// arrived; it reads r.Body not at all. An error is a *RefusedError.
func (v *Verifier) Verify(r *http.Request, body []byte) (Facts, error) {
	s, found := v.pick(r.Header)
	if !found {
		return Facts{}, &RefusedError{Reason: ReasonNoSignature}
	}
	facts, err := v.by(s, r, body)
	if err != nil {
		return Facts{}, &RefusedError{Scheme: s.name, Reason: reasonOf(err)}
	}
	facts.Scheme = s.name
	return facts, nil
}

func (v *Verifier) by(s Scheme, r *http.Request, body []byte) (Facts, error) {
	switch s.name {
	case NameQStash:
		return v.byQStash(s, r, body)
	case NameStandard:
		match, err := s.keys.Check(r.Header, body, signature.Window{Now: v.config.Now(), Tolerance: v.config.Window})
		return Facts{
			ID: match.ID, IDSigned: true, Key: match.Key, Attempt: count(r.Header, headerAttempt, 0), Timestamp: match.Timestamp,
			marks: []mark{v.mark(NameStandard, match.ID)},
		}, err
	}
	match, err := s.keys.CheckBody(r.Header, body)
	facts := Facts{ID: one(r.Header, headerDeliveryID), Key: match.Key, Attempt: count(r.Header, headerAttempt, 0)}
	if facts.ID != "" {
		facts.marks = []mark{v.mark(NameBody, facts.ID, digest(body))}
	}
	return facts, err
}

// byQStash verifies a token. Message ids are not signed: with a copied token and
// an invented id somebody could have a message run twice, or have another one
// taken for finished. So the token itself is marked, which is new for each
// attempt, and the id together with the body.
func (v *Verifier) byQStash(s Scheme, r *http.Request, body []byte) (Facts, error) {
	tokens, address := r.Header.Values(qstash.HeaderSignature), s.qstash.address(r)
	verified, err := v.qstash.Verify(tokens, address, body)
	if err != nil {
		return Facts{}, err
	}
	facts := Facts{ID: one(r.Header, headerMessageID), Attempt: count(r.Header, headerRetried, 1), Expires: verified.Expires}
	if verified.ByNext {
		facts.Key = 1
	}
	token := v.mark("qstash-token", tokens[0])
	token.keep = max(verified.Expires.Sub(v.config.Now()), 0) + s.qstash.Tolerance + time.Minute
	facts.marks = []mark{token}
	if facts.ID != "" {
		facts.marks = append(facts.marks, v.mark(NameQStash, address, facts.ID, digest(body)))
	}
	return facts, nil
}

// mark hashes what names a message, with the lengths of the parts, so that stores
// see keys of one size and nothing that a sender wrote.
func (v *Verifier) mark(kind Name, parts ...string) mark {
	h := sha256.New()
	for _, part := range append([]string{v.config.Scope}, parts...) {
		var length [binary.MaxVarintLen64]byte
		h.Write(length[:binary.PutUvarint(length[:], uint64(len(part)))])
		h.Write([]byte(part))
	}
	return mark{key: string(kind) + ":" + base64.RawURLEncoding.EncodeToString(h.Sum(nil))}
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return string(sum[:])
}

// The bounds of headers that are not signed.
const (
	maxID      = 512
	maxAttempt = 1 << 20
)

// one returns the value of a header that is given once and is not absurdly long.
func one(header http.Header, name string) string {
	values := header.Values(name)
	if len(values) != 1 || len(values[0]) > maxID {
		return ""
	}
	return values[0]
}

// count reads a counter and adds offset; 0 when there is none.
func count(header http.Header, name string, offset int) int {
	n, err := strconv.ParseUint(one(header, name), 10, 32)
	if err != nil || n > maxAttempt {
		return 0
	}
	return int(n) + offset
}
