package verify_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/webhook/verify"
)

const (
	firstKey   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	secondKey  = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	foreignKey = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	currentKey = "sig_current_0000000000000000"
	nextKey    = "sig_next_00000000000000000000"
	origin     = "https://app.test"
)

// noon is the time of the receivers' clock.
var noon = time.Unix(1_700_000_000, 0)

// bodies are those that a parser on the way would change.
var bodies = []string{
	``, `{"b":1, "a":2}`, `{"n":12345678901234567890}`, `{"n":1e400}`, "{\"s\":\"<&\u2028\"}", `{"a":1,"a":2}`, "\xff\x00binary\n", "{}\r\n",
}

func keys(t testing.TB, values ...string) signature.Keys {
	t.Helper()
	k, err := signature.ParseKeys(strings.Join(values, " "))
	if err != nil {
		t.Fatalf("parse keys: %v", err)
	}
	return k
}

func qstashKeys(t testing.TB, current, next string) qstash.Keys {
	t.Helper()
	k, err := qstash.ParseKeys(current, next, qstash.Production)
	if err != nil {
		t.Fatalf("parse keys: %v", err)
	}
	return k
}

func atNoon() time.Time { return noon }

// all accepts every scheme.
func all(t testing.TB) verify.Config {
	return verify.Config{Now: atNoon, Schemes: []verify.Scheme{
		verify.StandardWebhooks(keys(t, firstKey, secondKey)), verify.BodySignature(keys(t, firstKey, secondKey)),
		verify.QStash(verify.QStashConfig{Keys: qstashKeys(t, currentKey, nextKey), BaseURL: origin}),
	}}
}

// only accepts one scheme of all.
func only(t testing.TB, place int) verify.Config {
	config := all(t)
	config.Schemes = config.Schemes[place : place+1]
	return config
}

func post(path, body string, header http.Header) *http.Request {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	maps.Copy(r.Header, header)
	return r
}

// standard signs as Standard Webhooks does, at noon.
func standard(t testing.TB, key, id, body string) http.Header {
	signed := keys(t, key).Sign(id, noon, []byte(body))
	h := http.Header{}
	h.Set("webhook-id", signed.ID)
	h.Set("webhook-timestamp", signed.Timestamp)
	h.Set("webhook-signature", signed.Signature)
	return h
}

// plain signs the body alone.
func plain(t testing.TB, key, id, body string) http.Header {
	h := http.Header{"Gantry-Delivery-Id": {id}}
	h.Set(signature.HeaderBody, keys(t, key).Sign(id, noon, []byte(body)).Body)
	return h
}

// message is one attempt of QStash.
type message struct {
	key, url, id, jti, body string
	retried                 int
}

// header signs as QStash does, at noon, without the code that verifies.
func (m message) header(t testing.TB) http.Header {
	t.Helper()
	sum := sha256.Sum256([]byte(m.body))
	claims, err := json.Marshal(map[string]any{
		"iss": "Upstash", "sub": m.url, "exp": noon.Unix() + 300, "nbf": 0, "iat": noon.Unix(), "jti": m.jti,
		"body": base64.URLEncoding.EncodeToString(sum[:]),
	})
	if err != nil {
		t.Fatalf("write claims: %v", err)
	}
	segment := base64.RawURLEncoding.EncodeToString
	text := segment([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + segment(claims)
	mac := hmac.New(sha256.New, []byte(m.key))
	mac.Write([]byte(text))
	return http.Header{
		"Upstash-Signature": {text + "." + segment(mac.Sum(nil))}, "Upstash-Message-Id": {m.id},
		"Upstash-Retried": {strconv.Itoa(m.retried)},
	}
}

// endpoint is a handler that keeps what it is given.
type endpoint struct {
	t      testing.TB
	answer func(w http.ResponseWriter, r *http.Request)

	mu     sync.Mutex
	bodies []string
	facts  []verify.Facts
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		e.t.Errorf("read the body: %v", err)
	}
	facts, ok := verify.FromContext(r.Context())
	if !ok || r.ContentLength != int64(len(body)) {
		e.t.Errorf("facts %v, length %d of %d", ok, r.ContentLength, len(body))
	}
	e.mu.Lock()
	e.bodies, e.facts = append(e.bodies, string(body)), append(e.facts, facts)
	e.mu.Unlock()
	if e.answer != nil {
		e.answer(w, r)
	}
}

func (e *endpoint) runs() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.bodies)
}

func (e *endpoint) last() (string, verify.Facts) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.bodies) == 0 {
		return "", verify.Facts{}
	}
	return e.bodies[len(e.bodies)-1], e.facts[len(e.facts)-1]
}

// events keeps what a receiver tells.
type events struct {
	mu   sync.Mutex
	list []verify.Event
}

func (e *events) add(_ context.Context, event verify.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event)
}

// take returns the kinds so far, with their reasons, and forgets them.
func (e *events) take() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var told []string
	for _, event := range e.list {
		text := strings.TrimPrefix(string(event.Kind), "receiver.")
		if event.Reason != "" {
			text += ":" + string(event.Reason)
		}
		told = append(told, text)
	}
	e.list = nil
	return strings.Join(told, " ")
}

// guarded puts the checks in front of a handler.
func guarded(t testing.TB, next http.Handler, config verify.Config) http.Handler {
	t.Helper()
	h, err := verify.Handler(next, config)
	if err != nil {
		t.Fatalf("make the receiver: %v", err)
	}
	return h
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
