package signature_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	other  = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

func mustKeys(t *testing.T, value string) signature.Keys {
	t.Helper()
	keys, err := signature.ParseKeys(value)
	if err != nil {
		t.Fatalf("parse keys: %v", err)
	}
	return keys
}

func httpHeader(h signature.Headers) http.Header {
	header := http.Header{}
	header.Set(signature.HeaderID, h.ID)
	header.Set(signature.HeaderTimestamp, h.Timestamp)
	header.Set(signature.HeaderSignature, h.Signature)
	header.Set(signature.HeaderBody, h.Body)
	return header
}

// The example of the Standard Webhooks libraries.
func TestSignKnownVector(t *testing.T) {
	t.Parallel()
	got := mustKeys(t, secret).Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	want := signature.Headers{
		ID:        "msg_p5jXN8AQM9LWM0D4loKWxJek",
		Timestamp: "1614265330",
		Signature: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		Body:      got.Body,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("signature differs (-want +got):\n%s", diff)
	}
}

// RFC 4231 test case 2: a raw key and the plain body signature.
func TestSignBodyKnownVector(t *testing.T) {
	t.Parallel()
	got := mustKeys(t, "Jefe").Sign("id", time.Unix(1, 0), []byte("what do ya want for nothing?")).Body
	want := "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
	if got != want {
		t.Fatalf("body signature = %s, want %s", got, want)
	}
}

var bodies = []string{
	``, `{"b":1, "a":2}`, `{"n":12345678901234567890}`, `{"n":1e400}`, "{\"s\":\"<&\u2028\"}", `{"a":1,"a":2}`, "\xff\x00binary",
}

func TestOfficialVerifierAccepts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, body := range bodies {
		header := httpHeader(mustKeys(t, secret+" "+other).Sign("msg_1", now, []byte(body)))
		for _, key := range []string{secret, other} {
			official, err := standardwebhooks.NewWebhook(key)
			if err != nil {
				t.Fatalf("official verifier: %v", err)
			}
			if err := official.Verify([]byte(body), header); err != nil {
				t.Errorf("official verifier refuses %q: %v", body, err)
			}
		}
	}
}

func TestVerifyAcceptsOfficialSigner(t *testing.T) {
	t.Parallel()
	official, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatalf("official signer: %v", err)
	}
	now := time.Unix(1700000000, 0)
	for _, body := range bodies {
		signed, err := official.Sign("msg_1", now, []byte(body))
		if err != nil {
			t.Fatalf("official signer: %v", err)
		}
		header := httpHeader(signature.Headers{ID: "msg_1", Timestamp: strconv.FormatInt(now.Unix(), 10), Signature: "v1a,zzz " + signed})
		if err := mustKeys(t, other+" "+secret).Verify(header, []byte(body), now); err != nil {
			t.Errorf("verify %q: %v", body, err)
		}
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 0)
	body := []byte(`{"a":1}`)
	tests := map[string]struct {
		keys string
		edit func(h http.Header)
		body string
		now  time.Time
		want error
	}{
		"unchanged":                   {want: nil},
		"new key of a rotation":       {keys: other + " " + secret},
		"other key":                   {keys: other, want: signature.ErrMismatch},
		"other body":                  {body: `{"a":2}`, want: signature.ErrMismatch},
		"other id":                    {edit: set(signature.HeaderID, "msg_2"), want: signature.ErrMismatch},
		"other timestamp":             {edit: set(signature.HeaderTimestamp, "1700000001"), want: signature.ErrMismatch},
		"no id":                       {edit: set(signature.HeaderID, ""), want: signature.ErrMissing},
		"no timestamp":                {edit: set(signature.HeaderTimestamp, ""), want: signature.ErrMissing},
		"timestamp is no number":      {edit: set(signature.HeaderTimestamp, "soon"), want: signature.ErrMissing},
		"negative timestamp":          {edit: set(signature.HeaderTimestamp, "-1700000000"), want: signature.ErrMissing},
		"no signature":                {edit: set(signature.HeaderSignature, ""), want: signature.ErrMissing},
		"unknown version":             {edit: set(signature.HeaderSignature, "v2,AAAA"), want: signature.ErrMismatch},
		"signature is no base64":      {edit: set(signature.HeaderSignature, "v1,*"), want: signature.ErrMismatch},
		"empty signature":             {edit: set(signature.HeaderSignature, "v1,"), want: signature.ErrMismatch},
		"as late as the tolerance":    {now: at.Add(signature.Tolerance)},
		"later than the tolerance":    {now: at.Add(signature.Tolerance + time.Second), want: signature.ErrTimestamp},
		"as early as the tolerance":   {now: at.Add(-signature.Tolerance)},
		"earlier than the tolerance":  {now: at.Add(-signature.Tolerance - time.Second), want: signature.ErrTimestamp},
		"timestamp beyond all clocks": {edit: set(signature.HeaderTimestamp, "99999999999999999999"), want: signature.ErrMissing},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := httpHeader(mustKeys(t, secret).Sign("msg_1", at, body))
			if test.edit != nil {
				test.edit(header)
			}
			keys, now, got := mustKeys(t, orString(test.keys, secret)), test.now, orString(test.body, string(body))
			if now.IsZero() {
				now = at
			}
			if err := keys.Verify(header, []byte(got), now); !errors.Is(err, test.want) {
				t.Fatalf("Verify = %v, want %v", err, test.want)
			}
		})
	}
}

func TestVerifyBody(t *testing.T) {
	t.Parallel()
	body := []byte(`{"a":1}`)
	tests := map[string]struct {
		keys string
		edit func(h http.Header)
		want error
	}{
		"unchanged":      {keys: secret},
		"second key":     {keys: other + " " + secret},
		"other key":      {keys: other, want: signature.ErrMismatch},
		"no header":      {keys: secret, edit: set(signature.HeaderBody, ""), want: signature.ErrMissing},
		"no hex":         {keys: secret, edit: set(signature.HeaderBody, "sha256=xy"), want: signature.ErrMissing},
		"cut short":      {keys: secret, edit: set(signature.HeaderBody, "sha256=ab"), want: signature.ErrMismatch},
		"other function": {keys: secret, edit: set(signature.HeaderBody, "sha1=ab"), want: signature.ErrMissing},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := httpHeader(mustKeys(t, secret).Sign("msg_1", time.Unix(1, 0), body))
			if test.edit != nil {
				test.edit(header)
			}
			if err := mustKeys(t, test.keys).VerifyBody(header, body); !errors.Is(err, test.want) {
				t.Fatalf("VerifyBody = %v, want %v", err, test.want)
			}
		})
	}
}

func TestParseKeysRefuses(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]error{
		"": signature.ErrNoKey, " \t\n": signature.ErrNoKey, "whsec_": signature.ErrNoKey,
		"whsec_***": signature.ErrKeyFormat, "good whsec_%%": signature.ErrKeyFormat,
	} {
		keys, err := signature.ParseKeys(value)
		if !errors.Is(err, want) || keys.Len() != 0 {
			t.Errorf("ParseKeys(%q) = %v, %v, want %v", value, keys, err, want)
		}
	}
}

func TestZeroKeysRefuse(t *testing.T) {
	t.Parallel()
	var keys signature.Keys
	if got := keys.Sign("id", time.Unix(1, 0), nil); got != (signature.Headers{}) {
		t.Errorf("zero keys sign: %+v", got)
	}
	if err := keys.Verify(http.Header{}, nil, time.Unix(1, 0)); !errors.Is(err, signature.ErrNoKey) {
		t.Errorf("Verify = %v", err)
	}
	if err := keys.VerifyBody(http.Header{}, nil); !errors.Is(err, signature.ErrNoKey) {
		t.Errorf("VerifyBody = %v", err)
	}
}

func TestKeysNeverShow(t *testing.T) {
	t.Parallel()
	keys := mustKeys(t, "topsecretrawkey "+secret)
	encoded, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		t.Fatalf("marshal: %v", err)
	}
	for _, shown := range []string{
		fmt.Sprint(keys), fmt.Sprintf("%v %+v %#v %s %q", keys, keys, keys, keys, keys), string(encoded),
		fmt.Sprintf("%x", keys), fmt.Sprintf("%d", keys), fmt.Sprintf("%v", &keys),
	} {
		for _, leak := range []string{"topsecret", "MfKQ9r8", "746f70736563", "116 111 112"} {
			if strings.Contains(shown, leak) {
				t.Errorf("a key shows: %q", shown)
			}
		}
	}
}

func set(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }

func orString(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

func FuzzVerify(f *testing.F) {
	f.Add("msg_1", "1700000000", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "sha256=00", []byte("{}"))
	keys, err := signature.ParseKeys(secret)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, id, stamp, list, plain string, body []byte) {
		header := httpHeader(signature.Headers{ID: id, Timestamp: stamp, Signature: list, Body: plain})
		if err := keys.Verify(header, body, time.Unix(1700000000, 0)); err == nil && !strings.Contains(list, "v1,") {
			t.Fatalf("accepted without a signature: %q", list)
		}
		if err := keys.VerifyBody(header, body); err == nil && !strings.HasPrefix(plain, "sha256=") {
			t.Fatalf("accepted without a signature: %q", plain)
		}
	})
}

func BenchmarkSign(b *testing.B) {
	keys, err := signature.ParseKeys(secret)
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(strings.Repeat("x", 1024))
	b.ReportAllocs()
	for b.Loop() {
		_ = keys.Sign("msg_1", time.Unix(1700000000, 0), body)
	}
}
