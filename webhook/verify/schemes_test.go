package verify_test

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/sirupsen/logrus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/webhook/verify"
)

// TestBodiesArriveAsTheyWereSigned sends what a parser would change, signed by
// the official library, by OpenSSL's rules and by QStash's.
func TestBodiesArriveAsTheyWereSigned(t *testing.T) {
	official, err := standardwebhooks.NewWebhook(firstKey)
	if err != nil {
		t.Fatalf("official signer: %v", err)
	}
	for _, body := range bodies {
		signed, err := official.Sign("msg_1", noon, []byte(body))
		if err != nil {
			t.Fatalf("official signer: %v", err)
		}
		for name, header := range map[verify.Name]http.Header{
			verify.NameStandard: {
				"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {strconv.FormatInt(noon.Unix(), 10)}, "Webhook-Signature": {signed},
			},
			verify.NameBody:   plain(t, firstKey, "msg_1", body),
			verify.NameQStash: message{key: currentKey, url: origin + "/a?x=%2F", id: "msg_1", body: body}.header(t),
		} {
			e := &endpoint{t: t}
			w := serve(guarded(t, e, all(t)), post("/a?x=%2F", body, header))
			got, facts := e.last()
			if w.Code != http.StatusOK || e.runs() != 1 || got != body || facts.Scheme != name || facts.ID != "msg_1" {
				t.Errorf("%s, body %q: status %d, %d runs, body %q, facts %+v", name, body, w.Code, e.runs(), got, facts)
			}
		}
	}
}

// TestReferenceVector is the example of the Standard Webhooks libraries.
func TestReferenceVector(t *testing.T) {
	e := &endpoint{t: t}
	config := only(t, 0)
	config.Now = func() time.Time { return time.Unix(1614265330, 0) }
	w := serve(guarded(t, e, config), post("/", `{"test": 2432232314}`, http.Header{
		"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"},
		"Webhook-Signature": {"v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v2,x v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="},
	}))
	if w.Code != http.StatusOK || e.runs() != 1 {
		t.Fatalf("status %d, %d runs", w.Code, e.runs())
	}
}

func TestFacts(t *testing.T) {
	body := `{}`
	with := func(h http.Header, name, value string) http.Header { h.Set(name, value); return h }
	for name, test := range map[string]struct {
		header http.Header
		want   verify.Facts
	}{
		"standard, first key": {
			with(standard(t, firstKey, "msg_1", body), "Gantry-Attempt", "3"),
			verify.Facts{Scheme: verify.NameStandard, ID: "msg_1", IDSigned: true, Attempt: 3, Timestamp: noon},
		},
		"standard, second key": {
			standard(t, secondKey, "msg_1", body),
			verify.Facts{Scheme: verify.NameStandard, ID: "msg_1", IDSigned: true, Key: 1, Timestamp: noon},
		},
		"standard goes before body": {
			with(standard(t, firstKey, "msg_1", body), "X-Webhook-Signature", "sha256=00"),
			verify.Facts{Scheme: verify.NameStandard, ID: "msg_1", IDSigned: true, Timestamp: noon},
		},
		"body": {
			with(plain(t, secondKey, "msg_2", body), "Gantry-Attempt", "minus one"), verify.Facts{Scheme: verify.NameBody, ID: "msg_2", Key: 1},
		},
		"qstash, current": {
			message{key: currentKey, url: origin + "/a", id: "m", body: body}.header(t),
			verify.Facts{Scheme: verify.NameQStash, ID: "m", Attempt: 1, Expires: noon.Add(5 * time.Minute)},
		},
		"qstash, next, second retry": {
			message{key: nextKey, url: origin + "/a", id: "m", body: body, retried: 2}.header(t),
			verify.Facts{Scheme: verify.NameQStash, ID: "m", Key: 1, Attempt: 3, Expires: noon.Add(5 * time.Minute)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, told := &endpoint{t: t}, &events{}
			config := all(t)
			config.Notify = told.add
			w := serve(guarded(t, e, config), post("/a", body, test.header))
			_, got := e.last()
			if diff := cmp.Diff(test.want, got, cmpopts.IgnoreUnexported(verify.Facts{})); diff != "" || w.Code != http.StatusOK {
				t.Errorf("status %d, facts differ (-want +got):\n%s", w.Code, diff)
			}
			if due := told.take() == "rotation_due"; due != (test.want.Key > 0) {
				t.Errorf("rotation due: %v", due)
			}
		})
	}
}

// refusals are requests that nobody with a key has sent for this endpoint.
func refusals(t *testing.T) map[string]struct {
	header http.Header
	want   verify.Reason
} {
	const body = `{"n":1}`
	edit := func(h http.Header, f func(h http.Header)) http.Header { f(h); return h }
	set := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	good := func() http.Header { return standard(t, firstKey, "msg_1", body) }
	token := func(m message) http.Header {
		if m.url == "" {
			m.url = origin + "/b"
		}
		if m.key == "" {
			m.key = currentKey
		}
		if m.body == "" {
			m.body = body
		}
		return m.header(t)
	}
	type row = struct {
		header http.Header
		want   verify.Reason
	}
	stamp := func(d time.Duration) http.Header {
		signed := keys(t, firstKey).Sign("msg_1", noon.Add(d), []byte(body))
		return edit(good(), func(h http.Header) {
			h.Set("webhook-timestamp", signed.Timestamp)
			h.Set("webhook-signature", signed.Signature)
		})
	}
	return map[string]row{
		"nothing":              {http.Header{}, verify.ReasonNoSignature},
		"foreign key":          {standard(t, foreignKey, "msg_1", body), verify.ReasonMismatch},
		"other body":           {standard(t, firstKey, "msg_1", `{"n":2}`), verify.ReasonMismatch},
		"other id":             {edit(good(), set("webhook-id", "msg_2")), verify.ReasonMismatch},
		"no id":                {edit(good(), func(h http.Header) { h.Del("webhook-id") }), verify.ReasonMalformed},
		"two ids":              {edit(good(), func(h http.Header) { h.Add("webhook-id", "msg_2") }), verify.ReasonMalformed},
		"no timestamp":         {edit(good(), func(h http.Header) { h.Del("webhook-timestamp") }), verify.ReasonMalformed},
		"too old":              {stamp(-5*time.Minute - time.Second), verify.ReasonTimestamp},
		"from the future":      {stamp(5*time.Minute + time.Second), verify.ReasonTimestamp},
		"empty signature":      {edit(good(), set("webhook-signature", "")), verify.ReasonMalformed},
		"unknown version only": {edit(good(), set("webhook-signature", "v1a,AAAA")), verify.ReasonMismatch},
		"body, foreign key":    {plain(t, foreignKey, "", body), verify.ReasonMismatch},
		"body, other body":     {plain(t, firstKey, "", `{}`), verify.ReasonMismatch},
		"body, no prefix":      {http.Header{"X-Webhook-Signature": {"sha1=00"}}, verify.ReasonMalformed},
		"body, no hex":         {http.Header{"X-Webhook-Signature": {"sha256=zz"}}, verify.ReasonMalformed},
		"body, empty":          {http.Header{"X-Webhook-Signature": {"sha256="}}, verify.ReasonMismatch},
		"a bad standard signature is not saved by a good one of the body": {
			edit(plain(t, firstKey, "", body), set("webhook-signature", "v1,AAAA")), verify.ReasonMalformed,
		},
		"qstash, unknown key":    {token(message{key: "sig_unknown"}), verify.Reason(qstash.ReasonUnknownKey)},
		"qstash, for /a at /b":   {token(message{url: origin + "/a"}), verify.Reason(qstash.ReasonURL)},
		"qstash, for http":       {token(message{url: "http://app.test/b"}), verify.Reason(qstash.ReasonURL)},
		"qstash, for a neighbor": {token(message{url: "https://evil.test/b"}), verify.Reason(qstash.ReasonURL)},
		"qstash, other body":     {token(message{body: `{"n":2}`}), verify.Reason(qstash.ReasonBody)},
		"qstash, two tokens": {
			edit(token(message{}), func(h http.Header) { h.Add("Upstash-Signature", h.Get("Upstash-Signature")) }),
			verify.Reason(qstash.ReasonSeveralSignatures),
		},
		"a bad token is not saved by a good signature": {edit(good(), set("Upstash-Signature", "x")), verify.Reason(qstash.ReasonMalformed)},
	}
}

func TestRefusalsAreAllTheSame(t *testing.T) {
	const secrets = `{"n":1}`
	for name, test := range refusals(t) {
		t.Run(name, func(t *testing.T) {
			e, told, log := &endpoint{t: t}, &events{}, &bytes.Buffer{}
			config := all(t)
			config.Notify = told.add
			logger := logrus.New()
			logger.SetOutput(log)
			config.Logger = logger
			w := serve(guarded(t, e, config), post("/b", `{"n":1}`, test.header))
			if w.Code != http.StatusUnauthorized || w.Body.String() != "unauthorized\n" || e.runs() != 0 {
				t.Errorf("status %d, body %q, %d runs", w.Code, w.Body, e.runs())
			}
			want := http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}
			if diff := cmp.Diff(want, w.Header()); diff != "" {
				t.Errorf("headers differ (-want +got):\n%s", diff)
			}
			if got := told.take(); got != "refused:"+string(test.want) {
				t.Errorf("told %s, want %s", got, test.want)
			}
			if text := log.String(); !strings.Contains(text, "receiver.refused") || !strings.Contains(text, "reason="+string(test.want)) ||
				strings.Contains(text, secrets) || strings.Contains(text, "v1,") || strings.Contains(text, firstKey) {
				t.Errorf("log: %s", text)
			}
		})
	}
}

// TestWindowEnds is about the first and last moment that counts.
func TestWindowEnds(t *testing.T) {
	for name, test := range map[string]struct {
		window, off time.Duration
		want        int
	}{
		"default, last moment":    {0, 5 * time.Minute, http.StatusOK},
		"default, first moment":   {0, -5 * time.Minute, http.StatusOK},
		"shorter window":          {time.Minute, 61 * time.Second, http.StatusUnauthorized},
		"longer window":           {time.Hour, 59 * time.Minute, http.StatusOK},
		"longer window, too late": {time.Hour, 61 * time.Minute, http.StatusUnauthorized},
	} {
		config := only(t, 0)
		config.Window = test.window
		config.Now = func() time.Time { return noon.Add(test.off) }
		if w := serve(guarded(t, &endpoint{t: t}, config), post("/", `{}`, standard(t, firstKey, "m", `{}`))); w.Code != test.want {
			t.Errorf("%s: status %d, want %d", name, w.Code, test.want)
		}
	}
}

// TestProxy has the receiver behind a TLS proxy: only the configured URL counts.
func TestProxy(t *testing.T) {
	const public = "https://hooks.example/in?tenant=1"
	config := all(t)
	config.Schemes = []verify.Scheme{verify.QStash(verify.QStashConfig{Keys: qstashKeys(t, currentKey, nextKey), URL: public})}
	h := guarded(t, &endpoint{t: t}, config)
	for _, test := range []struct {
		signedFor string
		want      int
	}{
		{public, http.StatusOK},
		{"http://10.0.0.7:8080/internal/in?tenant=1", http.StatusUnauthorized},
		{"https://evil.test/in?tenant=1", http.StatusUnauthorized},
	} {
		r := post("http://10.0.0.7:8080/internal/in?tenant=1", `{}`, message{key: currentKey, url: test.signedFor, body: `{}`}.header(t))
		r.Header.Set("X-Forwarded-Host", "evil.test")
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("Forwarded", "host=evil.test;proto=https")
		r.Host = "evil.test"
		if w := serve(h, r); w.Code != test.want {
			t.Errorf("signed for %s: status %d, want %d", test.signedFor, w.Code, test.want)
		}
	}
	// A host in the request line, as a client of a proxy writes it, is the client's.
	r := post("/in", `{}`, message{key: currentKey, url: origin + "https://evil.test/in", body: `{}`}.header(t))
	r.RequestURI = "https://evil.test/in"
	if w := serve(guarded(t, &endpoint{t: t}, only(t, 2)), r); w.Code != http.StatusUnauthorized {
		t.Errorf("host in the request line: status %d", w.Code)
	}
}

func TestNoKeysNoReceiver(t *testing.T) {
	good := qstashKeys(t, currentKey, "")
	for name, config := range map[string]verify.Config{
		"nothing":                {},
		"empty scheme":           {Schemes: []verify.Scheme{{}}},
		"standard without a key": {Schemes: []verify.Scheme{verify.StandardWebhooks(signature.Keys{})}},
		"body without a key":     {Schemes: []verify.Scheme{verify.BodySignature(signature.Keys{})}},
		"one of two without a key": {Schemes: []verify.Scheme{
			verify.StandardWebhooks(keys(t, firstKey)), verify.QStash(verify.QStashConfig{URL: origin}),
		}},
		"twice":                  {Schemes: []verify.Scheme{verify.StandardWebhooks(keys(t, firstKey)), verify.StandardWebhooks(keys(t, secondKey))}},
		"qstash without a URL":   {Schemes: []verify.Scheme{verify.QStash(verify.QStashConfig{Keys: good})}},
		"qstash with two URLs":   {Schemes: []verify.Scheme{verify.QStash(verify.QStashConfig{Keys: good, URL: origin, BaseURL: origin})}},
		"qstash for a path":      {Schemes: []verify.Scheme{verify.QStash(verify.QStashConfig{Keys: good, URL: "/in"})}},
		"qstash, slash at end":   {Schemes: []verify.Scheme{verify.QStash(verify.QStashConfig{Keys: good, BaseURL: origin + "/"})}},
		"qstash, long tolerance": {Schemes: []verify.Scheme{verify.QStash(verify.QStashConfig{Keys: good, URL: origin, Tolerance: time.Hour})}},
		"endless window":         {Schemes: []verify.Scheme{verify.StandardWebhooks(keys(t, firstKey))}, Window: 2 * time.Hour},
		"negative lease":         {Schemes: []verify.Scheme{verify.StandardWebhooks(keys(t, firstKey))}, Lease: -1},
	} {
		if h, err := verify.Handler(&endpoint{t: t}, config); err == nil || h != nil {
			t.Errorf("%s: a receiver was made", name)
		}
	}
}

// TestRotationIsLoggedOnceAnHour keeps a due rotation visible and the log short.
func TestRotationIsLoggedOnceAnHour(t *testing.T) {
	log := &bytes.Buffer{}
	logger := logrus.New()
	logger.SetOutput(log)
	config := only(t, 0)
	now := noon
	config.Now, config.Logger, config.Window = func() time.Time { return now }, logger, time.Hour
	h := guarded(t, &endpoint{t: t}, config)
	for _, at := range []time.Duration{0, time.Minute, 59 * time.Minute, time.Hour} {
		now = noon.Add(at)
		if w := serve(h, post("/", `{}`, standard(t, secondKey, "m", `{}`))); w.Code != http.StatusOK {
			t.Fatalf("status %d", w.Code)
		}
	}
	if n := strings.Count(log.String(), "receiver.rotation_due"); n != 2 {
		t.Errorf("logged %d times, want 2:\n%s", n, log)
	}
}

func FuzzVerify(f *testing.F) {
	f.Add("msg_1", "1700000000", "v1,AAAA", "sha256=00", "a.b.c", []byte(`{}`))
	f.Add("", "-1", "v1, v1,=", "sha256=", "..", []byte{0xff})
	v, err := verify.New(all(f))
	if err != nil {
		f.Fatalf("new verifier: %v", err)
	}
	f.Fuzz(func(t *testing.T, id, stamp, list, plain, token string, body []byte) {
		full := http.Header{
			"Webhook-Id": {id}, "Webhook-Timestamp": {stamp}, "Webhook-Signature": {list},
			"X-Webhook-Signature": {plain}, "Upstash-Signature": {token},
			"Upstash-Message-Id": {id}, "Upstash-Retried": {stamp}, "Gantry-Attempt": {stamp},
		}
		for _, without := range [][]string{{}, {"Upstash-Signature"}, {"Upstash-Signature", "Webhook-Signature"}} {
			for _, name := range without {
				full.Del(name)
			}
			r := post("/a", "", full)
			if facts, err := v.Verify(r, body); err == nil {
				t.Fatalf("accepted without a signature: %+v, headers %q", facts, full)
			}
		}
	})
}
