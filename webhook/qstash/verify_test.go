package qstash_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"maps"
	"strings"
	"testing"
	"time"

	sdk "github.com/upstash/qstash-go"

	"github.com/gantry-hooks/gantry/webhook/qstash"
)

const (
	currentKey = "sig_current_0000000000000000"
	nextKey    = "sig_next_00000000000000000000"
	endpoint   = "https://app.test/v1/qstash/tasks?a=1&b=%2F"
)

// Its hash has characters in which base64 and base64url differ.
var signedBody = []byte(`{"n": 4}`)

func bodyHash(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.URLEncoding.EncodeToString(sum[:])
}

// token is what a signer makes; zero fields are what QStash would do.
type token struct {
	key    string
	header string
	digest func() hash.Hash
	claims map[string]any
	raw    string // in place of claims
	suffix string
}

func segment(raw string) string { return base64.RawURLEncoding.EncodeToString([]byte(raw)) }

func (k token) sign() string {
	if k.header == "" {
		k.header = `{"alg":"HS256","typ":"JWT"}`
	}
	if k.digest == nil {
		k.digest = sha256.New
	}
	if k.raw == "" {
		raw, err := json.Marshal(k.claims)
		if err != nil {
			panic(err)
		}
		k.raw = string(raw)
	}
	signed := segment(k.header) + "." + segment(k.raw)
	mac := hmac.New(k.digest, []byte(k.key))
	mac.Write([]byte(signed))
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) + k.suffix
}

// genuine are the claims of a good token at now; changes replace some, nil
// removes one.
func genuine(now time.Time, changes map[string]any) map[string]any {
	claims := map[string]any{
		"iss": "Upstash", "sub": endpoint, "exp": now.Unix() + 300, "nbf": 0, "iat": now.Unix(), "jti": "jwt_1", "body": bodyHash(signedBody),
	}
	maps.Copy(claims, changes)
	for name, value := range claims {
		if value == nil {
			delete(claims, name)
		}
	}
	return claims
}

func newVerifier(t testing.TB, cfg qstash.VerifierConfig) *qstash.Verifier {
	t.Helper()
	v, err := qstash.NewVerifier(cfg)
	if err != nil {
		t.Fatalf("new verifier: %v", err)
	}
	return v
}

func keys(t testing.TB, current, next string) qstash.Keys {
	t.Helper()
	k, err := qstash.ParseKeys(current, next, qstash.Production)
	if err != nil {
		t.Fatalf("parse keys: %v", err)
	}
	return k
}

func reasonOf(err error) qstash.Reason {
	var refused *qstash.VerifyError
	if errors.As(err, &refused) {
		return refused.Reason
	}
	return ""
}

// row is one line of the table of a verifier's behaviour.
type row struct {
	token     token
	tolerance time.Duration
	url       string // "-" for none
	body      []byte
	headers   func(token string) []string
	want      qstash.Reason
	next      bool
}

func rows(now time.Time) map[string]row {
	claims := func(changes map[string]any) token { return token{claims: genuine(now, changes)} }
	at := func(d time.Duration) any { return now.Add(d).Unix() }
	sum := sha256.Sum256(signedBody)
	empty := bodyHash(nil)
	var reserialised map[string]any
	if err := json.Unmarshal(signedBody, &reserialised); err != nil {
		panic(err)
	}
	compact, _ := json.Marshal(reserialised)
	return map[string]row{
		"signed with the current key":        {token: claims(nil)},
		"signed with the next key":           {token: token{claims: genuine(now, nil), key: nextKey}, next: true},
		"signed with another key":            {token: token{claims: genuine(now, nil), key: "sig_other"}, want: qstash.ReasonUnknownKey},
		"signed with the empty key":          {token: token{claims: genuine(now, nil), key: "-"}, want: qstash.ReasonUnknownKey},
		"hash without padding":               {token: claims(map[string]any{"body": strings.TrimRight(bodyHash(signedBody), "=")})},
		"hash with twice the padding":        {token: claims(map[string]any{"body": bodyHash(signedBody) + "="}), want: qstash.ReasonBody},
		"padding in front":                   {token: claims(map[string]any{"body": "=" + bodyHash(signedBody)}), want: qstash.ReasonBody},
		"hash in base64":                     {token: claims(map[string]any{"body": base64.StdEncoding.EncodeToString(sum[:])}), want: qstash.ReasonBody},
		"hash in hex":                        {token: claims(map[string]any{"body": hex.EncodeToString(sum[:])}), want: qstash.ReasonBody},
		"body changed":                       {token: claims(nil), body: []byte(`{"n": 5}`), want: qstash.ReasonBody},
		"body serialised again":              {token: claims(nil), body: compact, want: qstash.ReasonBody},
		"body that is no UTF-8":              {token: claims(map[string]any{"body": bodyHash([]byte{0xff, 0})}), body: []byte{0xff, 0}},
		"hash missing":                       {token: claims(map[string]any{"body": nil}), want: qstash.ReasonNoBody},
		"hash null":                          {token: token{raw: `{"iss":"Upstash","sub":"` + endpoint + `","exp":99999999999,"body":null}`}, want: qstash.ReasonMalformed},
		"empty hash of an empty body":        {token: claims(map[string]any{"body": ""}), body: []byte{}, want: qstash.ReasonNoBody},
		"empty body":                         {token: claims(map[string]any{"body": empty}), body: []byte{}},
		"no URL configured":                  {token: claims(nil), url: "-", want: qstash.ReasonNoURL},
		"no URL configured nor signed":       {token: claims(map[string]any{"sub": ""}), url: "-", want: qstash.ReasonNoURL},
		"no sub":                             {token: claims(map[string]any{"sub": nil}), want: qstash.ReasonURL},
		"sub of another endpoint":            {token: claims(map[string]any{"sub": "https://app.test/b"}), want: qstash.ReasonURL},
		"trailing slash":                     {token: claims(map[string]any{"sub": "https://app.test/"}), url: "https://app.test", want: qstash.ReasonURL},
		"http for https":                     {token: claims(map[string]any{"sub": "http://app.test/a"}), url: "https://app.test/a", want: qstash.ReasonURL},
		"query dropped":                      {token: claims(map[string]any{"sub": "https://app.test/a"}), url: "https://app.test/a?x=1", want: qstash.ReasonURL},
		"query decoded":                      {token: claims(map[string]any{"sub": "https://app.test/v1/qstash/tasks?a=1&b=/"}), want: qstash.ReasonURL},
		"case of the host":                   {token: claims(map[string]any{"sub": "https://APP.test/a"}), url: "https://app.test/a", want: qstash.ReasonURL},
		"wrong issuer":                       {token: claims(map[string]any{"iss": "upstash"}), want: qstash.ReasonIssuer},
		"no issuer":                          {token: claims(map[string]any{"iss": nil}), want: qstash.ReasonIssuer},
		"expired a second ago":               {token: claims(map[string]any{"exp": at(-time.Second)}), want: qstash.ReasonExpired},
		"expired a second ago, tolerated":    {token: claims(map[string]any{"exp": at(-time.Second)}), tolerance: 5 * time.Second},
		"expired longer ago than tolerated":  {token: claims(map[string]any{"exp": at(-5 * time.Second)}), tolerance: 5 * time.Second, want: qstash.ReasonExpired},
		"expires now":                        {token: claims(map[string]any{"exp": at(0)}), want: qstash.ReasonExpired},
		"expires in a second":                {token: claims(map[string]any{"exp": at(time.Second)})},
		"no expiry":                          {token: claims(map[string]any{"exp": nil}), want: qstash.ReasonNoExpiry},
		"expiry as text":                     {token: claims(map[string]any{"exp": fmt.Sprint(at(time.Minute))}), want: qstash.ReasonMalformed},
		"expiry null":                        {token: token{raw: `{"iss":"Upstash","exp":null}`}, want: qstash.ReasonMalformed},
		"expiry beyond all measure":          {token: token{raw: `{"iss":"Upstash","exp":1e300}`}, want: qstash.ReasonMalformed},
		"name of the expiry in capitals":     {token: claims(map[string]any{"exp": nil, "EXP": at(time.Minute)}), want: qstash.ReasonNoExpiry},
		"not before in 3 s":                  {token: claims(map[string]any{"nbf": at(3 * time.Second)}), want: qstash.ReasonNotYet},
		"not before in 3 s, tolerated":       {token: claims(map[string]any{"nbf": at(3 * time.Second)}), tolerance: 5 * time.Second},
		"not before now":                     {token: claims(map[string]any{"nbf": at(0)})},
		"no not before":                      {token: claims(map[string]any{"nbf": nil})},
		"not before as text":                 {token: claims(map[string]any{"nbf": "0"}), want: qstash.ReasonMalformed},
		"issued in an hour":                  {token: claims(map[string]any{"iat": at(time.Hour)})},
		"no algorithm":                       {token: token{header: `{"alg":"none"}`, claims: genuine(now, nil)}, want: qstash.ReasonAlgorithm},
		"algorithm missing":                  {token: token{header: `{"typ":"JWT"}`, claims: genuine(now, nil)}, want: qstash.ReasonAlgorithm},
		"algorithm in small letters":         {token: token{header: `{"alg":"hs256"}`, claims: genuine(now, nil)}, want: qstash.ReasonAlgorithm},
		"algorithm of another family":        {token: token{header: `{"alg":"RS256"}`, claims: genuine(now, nil)}, want: qstash.ReasonAlgorithm},
		"HS384 with the right key":           {token: token{header: `{"alg":"HS384"}`, digest: sha512.New384, claims: genuine(now, nil)}, want: qstash.ReasonAlgorithm},
		"HS512 with the right key":           {token: token{header: `{"alg":"HS512"}`, digest: sha512.New, claims: genuine(now, nil)}, want: qstash.ReasonAlgorithm},
		"critical extension":                 {token: token{header: `{"alg":"HS256","crit":["b64"],"b64":false}`, claims: genuine(now, nil)}, want: qstash.ReasonMalformed},
		"signature with padding":             {token: token{claims: genuine(now, nil), suffix: "="}, want: qstash.ReasonMalformed},
		"line break in the signature":        {token: token{claims: genuine(now, nil), suffix: "\n"}, want: qstash.ReasonMalformed},
		"fourth segment":                     {token: token{claims: genuine(now, nil), suffix: ".x"}, want: qstash.ReasonMalformed},
		"claims with something behind":       {token: token{raw: `{"iss":"Upstash"} {}`}, want: qstash.ReasonMalformed},
		"claims that are a list":             {token: token{raw: `[]`}, want: qstash.ReasonMalformed},
		"claims that are null":               {token: token{raw: `null`}, want: qstash.ReasonIssuer},
		"no header":                          {token: claims(nil), headers: func(string) []string { return nil }, want: qstash.ReasonNoSignature},
		"empty header":                       {token: claims(nil), headers: func(string) []string { return []string{""} }, want: qstash.ReasonNoSignature},
		"the same header twice":              {token: claims(nil), headers: func(s string) []string { return []string{s, s} }, want: qstash.ReasonSeveralSignatures},
		"two signatures in one header":       {token: claims(nil), headers: func(s string) []string { return []string{s + ", " + s} }, want: qstash.ReasonMalformed},
		"a second, empty header":             {token: claims(nil), headers: func(s string) []string { return []string{s, ""} }, want: qstash.ReasonSeveralSignatures},
		"no token":                           {token: claims(nil), headers: func(string) []string { return []string{"Bearer x"} }, want: qstash.ReasonMalformed},
		"a million dots":                     {token: claims(nil), headers: func(string) []string { return []string{strings.Repeat(".", 1<<20)} }, want: qstash.ReasonMalformed},
		"expired and signed by the next key": {token: token{claims: genuine(now, map[string]any{"exp": at(-time.Hour)}), key: nextKey}, want: qstash.ReasonExpired},
	}
}

func (r row) complete() (headers []string, url string, body []byte) {
	switch r.token.key {
	case "":
		r.token.key = currentKey
	case "-":
		r.token.key = ""
	}
	signed := r.token.sign()
	headers = []string{signed}
	if r.headers != nil {
		headers = r.headers(signed)
	}
	url, body = r.url, r.body
	switch url {
	case "":
		url = endpoint
	case "-":
		url = ""
	}
	if body == nil {
		body = signedBody
	}
	return headers, url, body
}

func TestVerify(t *testing.T) {
	t.Parallel()
	// On a whole second, so that a token can end exactly now.
	now := time.Unix(time.Now().Unix(), 0)
	for name, test := range rows(now) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVerifier(t, qstash.VerifierConfig{
				Keys: keys(t, currentKey, nextKey), Tolerance: test.tolerance, Now: func() time.Time { return now },
			})
			headers, url, body := test.complete()
			got, err := v.Verify(headers, url, body)
			if reason := reasonOf(err); reason != test.want || (err == nil) != (test.want == "") {
				t.Fatalf("got %v, want reason %q", err, test.want)
			}
			if err != nil {
				if got != (qstash.Verified{}) {
					t.Errorf("refusal with %+v", got)
				}
				return
			}
			if got.ByNext != test.next || got.JTI != "jwt_1" || !got.Expires.After(now.Add(-time.Minute)) {
				t.Errorf("verified as %+v", got)
			}
		})
	}
}

// Whatever is accepted here is accepted by the SDK's receiver as well: being
// stricter is the only difference.
func TestVerifyIsStricterThanTheSDK(t *testing.T) {
	t.Parallel()
	theirs := sdk.NewReceiver(currentKey, nextKey)
	accepted := 0
	for name, test := range rows(time.Now()) {
		v := newVerifier(t, qstash.VerifierConfig{Keys: keys(t, currentKey, nextKey), Tolerance: test.tolerance})
		headers, url, body := test.complete()
		if _, err := v.Verify(headers, url, body); err != nil {
			continue
		}
		accepted++
		if err := theirs.Verify(sdk.VerifyOptions{Signature: headers[0], Url: url, Body: string(body), Tolerance: test.tolerance}); err != nil {
			t.Errorf("%s: accepted here and not by the SDK: %v", name, err)
		}
	}
	if accepted < 10 {
		t.Errorf("only %d rows are accepted", accepted)
	}
}

// The empty key is the one that everybody has.
func TestVerifyNeverTriesAnEmptyKey(t *testing.T) {
	t.Parallel()
	now := time.Now()
	forged := token{claims: genuine(now, nil), key: ""}.sign()
	if err := sdk.NewReceiver(currentKey, "").Verify(sdk.VerifyOptions{Signature: forged, Url: endpoint, Body: string(signedBody)}); err != nil {
		t.Fatalf("the forgery is none: %v", err)
	}
	for _, pair := range [][2]string{{currentKey, ""}, {"", currentKey}} {
		v := newVerifier(t, qstash.VerifierConfig{Keys: keys(t, pair[0], pair[1])})
		if _, err := v.Verify([]string{forged}, endpoint, signedBody); reasonOf(err) != qstash.ReasonUnknownKey {
			t.Errorf("keys %q: got %v", pair, err)
		}
		good := token{claims: genuine(now, nil), key: currentKey}.sign()
		if _, err := v.Verify([]string{good}, endpoint, signedBody); err != nil {
			t.Errorf("keys %q: one key is not enough: %v", pair, err)
		}
	}
	for name, v := range map[string]*qstash.Verifier{"nil": nil, "zero": {}} {
		if _, err := v.Verify([]string{forged}, endpoint, signedBody); reasonOf(err) != qstash.ReasonUnknownKey {
			t.Errorf("%s verifier: got %v", name, err)
		}
	}
}

func TestNewVerifierRefuses(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]qstash.VerifierConfig{
		"no keys":            {},
		"negative tolerance": {Keys: keys(t, currentKey, nextKey), Tolerance: -1},
		"endless tolerance":  {Keys: keys(t, currentKey, nextKey), Tolerance: time.Hour},
	} {
		if v, err := qstash.NewVerifier(cfg); err == nil {
			t.Errorf("%s: got %v", name, v)
		}
	}
}

func TestParseKeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		current, next string
		policy        qstash.KeyPolicy
		want          error
	}{
		"both":                       {current: currentKey, next: nextKey},
		"current alone":              {current: currentKey},
		"next alone":                 {next: nextKey},
		"none":                       {want: qstash.ErrNoKey},
		"none, in development":       {policy: qstash.Development, want: qstash.ErrNoKey},
		"white space":                {current: " ", want: qstash.ErrKeyFormat},
		"line break":                 {current: currentKey + "\n", want: qstash.ErrKeyFormat},
		"published current":          {current: qstash.DevCurrentKey, next: nextKey, want: qstash.ErrDevelopmentKey},
		"published next":             {current: currentKey, next: qstash.DevNextKey, want: qstash.ErrDevelopmentKey},
		"published of a second user": {current: "sig_7GVPjvuwsfqF65iC8fSrs1dfYruM", want: qstash.ErrDevelopmentKey},
		"published, in development":  {current: qstash.DevCurrentKey, next: qstash.DevNextKey, policy: qstash.Development},
	} {
		got, err := qstash.ParseKeys(test.current, test.next, test.policy)
		if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
		for _, shown := range []string{fmt.Sprint(got, err), fmt.Sprintf("%+v %#v %q %x", got, got, got, got)} {
			for _, secret := range []string{currentKey, nextKey, qstash.DevCurrentKey, hex.EncodeToString([]byte(currentKey))} {
				if strings.Contains(shown, secret) {
					t.Errorf("%s: %s shows a key", name, shown)
				}
			}
		}
		if want := test.want == nil && test.current != "" && test.next != ""; got.Rotatable() != want {
			t.Errorf("%s: rotatable is %t", name, got.Rotatable())
		}
	}
}

// No refusal tells anything about the request or the keys.
func TestVerifyErrorsAreSafe(t *testing.T) {
	t.Parallel()
	v := newVerifier(t, qstash.VerifierConfig{Keys: keys(t, currentKey, nextKey)})
	for name, test := range rows(time.Now()) {
		headers, url, body := test.complete()
		_, err := v.Verify(headers, url, body)
		if err == nil {
			continue
		}
		if text := err.Error(); text != "verify QStash signature: "+string(reasonOf(err)) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

func FuzzVerify(f *testing.F) {
	now := time.Now()
	for _, test := range rows(now) {
		headers, url, body := test.complete()
		if len(headers) == 1 && len(headers[0]) < 4096 {
			f.Add(headers[0], url, body)
		}
	}
	v, err := qstash.NewVerifier(qstash.VerifierConfig{Keys: keys(f, currentKey, nextKey), Tolerance: time.Second})
	if err != nil {
		f.Fatal(err)
	}
	theirs := sdk.NewReceiver(currentKey, nextKey)
	f.Fuzz(func(t *testing.T, header, url string, body []byte) {
		_, err := v.Verify([]string{header}, url, body)
		if err != nil {
			if reasonOf(err) == "" {
				t.Fatalf("refused without a reason: %v", err)
			}
			return
		}
		if err := theirs.Verify(sdk.VerifyOptions{Signature: header, Url: url, Body: string(body), Tolerance: 2 * time.Second}); err != nil {
			t.Fatalf("accepted here and not by the SDK: %v", err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	body := []byte(strings.Repeat("x", 10<<10))
	now := time.Now()
	for name, key := range map[string]string{"current": currentKey, "next": nextKey} {
		b.Run(name, func(b *testing.B) {
			v := newVerifier(b, qstash.VerifierConfig{Keys: keys(b, currentKey, nextKey), Now: func() time.Time { return now }})
			signed := []string{token{claims: genuine(now, map[string]any{"body": bodyHash(body)}), key: key}.sign()}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(signed, endpoint, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
