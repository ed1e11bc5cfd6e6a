package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

const (
	verifyKey     = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	verifyOther   = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	verifyCurrent = "sig_current_0000000000000000"
	verifyNext    = "sig_next_00000000000000000000"
	verifyURL     = "https://app.example/hook?tenant=secret"
	verifyBody    = `{"b":1, "a":2}`
)

var verifyAt = time.Unix(1_700_000_000, 0)

// captured writes a request as a recorder would.
func captured(t *testing.T, headers, body string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "captured.http")
	if err := os.WriteFile(name, []byte("POST /hook HTTP/1.1\r\nHost: app.example\r\n"+headers+"\r\n"+body), 0o600); err != nil {
		t.Fatalf("write the capture: %v", err)
	}
	return name
}

// officialHeaders are signed by the official library.
func officialHeaders(t *testing.T, body string) string {
	t.Helper()
	official, err := standardwebhooks.NewWebhook(verifyKey)
	if err != nil {
		t.Fatalf("official signer: %v", err)
	}
	signed, err := official.Sign("msg_1", verifyAt, []byte(body))
	if err != nil {
		t.Fatalf("official signer: %v", err)
	}
	return fmt.Sprintf("webhook-id: msg_1\r\nWebhook-Timestamp: %d\r\nwebhook-signature: %s\r\nGantry-Attempt: 2\r\n", verifyAt.Unix(), signed)
}

// qstashHeaders are signed as QStash does it.
func qstashHeaders(key, url, body string) string {
	sum := sha256.Sum256([]byte(body))
	claims := fmt.Sprintf(`{"iss":"Upstash","sub":%q,"exp":%d,"nbf":0,"jti":"j","body":%q}`,
		url, verifyAt.Unix()+300, base64.URLEncoding.EncodeToString(sum[:]))
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return "Upstash-Signature: " + text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) + "\r\nUpstash-Message-Id: msg_q\r\nUpstash-Retried: 1\r\n"
}

func bodyHeaders(t *testing.T, body string) string {
	t.Helper()
	keys, err := signature.ParseKeys(verifyKey)
	if err != nil {
		t.Fatalf("parse keys: %v", err)
	}
	return "X-Webhook-Signature: " + keys.Sign("", verifyAt, []byte(body)).Body + "\r\n"
}

var verifyEnv = map[string]string{
	"HOOK_KEY": verifyKey, "HOOK_KEYS": verifyOther + " " + verifyKey, "OTHER_KEY": verifyOther, "EMPTY": "",
	"QSTASH_CURRENT_SIGNING_KEY": verifyCurrent, "QSTASH_NEXT_SIGNING_KEY": verifyNext, "DEV_KEY": qstash.DevCurrentKey,
}

func TestVerifyCommand(t *testing.T) {
	const at = "--at=2023-11-14T22:13:20Z"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(verifyBody))
	for name, test := range map[string]struct {
		headers, body string
		args          []string
		code          int
		shows         []string
	}{
		"standard": {
			officialHeaders(t, verifyBody), verifyBody,
			[]string{"--key-env=HOOK_KEY", at},
			exitOK,
			[]string{"scheme standard (by its headers)", "verified: signed with key 1 of 1, message msg_1\n"},
		},
		"unix time, second key": {
			officialHeaders(t, verifyBody), verifyBody,
			[]string{"--key-env=HOOK_KEYS", "--at=1700000300"},
			exitOK,
			[]string{"key 2 of 2", "keys were rotated"},
		},
		"line break behind the body": {
			officialHeaders(t, verifyBody) + length, verifyBody + "\n", []string{"--key-env=HOOK_KEY", at}, exitOK, []string{"verified"},
		},
		"line break in the body": {
			officialHeaders(t, verifyBody), verifyBody + "\n",
			[]string{"--key-env=HOOK_KEY", at},
			exitFailure,
			[]string{"failed       made for this id", "not verified: no_key_matches", "It does verify without the line break at its end"},
		},
		"chunks": {
			officialHeaders(t, verifyBody) + "Transfer-Encoding: chunked\r\n", "e\r\n" + verifyBody + "\r\n0\r\n\r\n",
			[]string{"--key-env=HOOK_KEY", at},
			exitOK,
			[]string{"body of 14 bytes"},
		},
		"chunks undone": {
			officialHeaders(t, verifyBody) + "Transfer-Encoding: chunked\r\n", verifyBody,
			[]string{"--key-env=HOOK_KEY", at},
			exitOK,
			[]string{"note: the body is not in chunks"},
		},
		"cut": {
			officialHeaders(t, verifyBody) + length, verifyBody[:5], []string{"--key-env=HOOK_KEY", at}, exitFailure, []string{"note: the body has 5 bytes"},
		},
		"old": {
			officialHeaders(t, verifyBody), verifyBody,
			[]string{"--key-env=HOOK_KEY"},
			exitFailure,
			[]string{"failed       webhook-timestamp", "passed       made for this id", "outside_window", "with --at 2023-11-14T22:13:20Z it is verified"},
		},
		"old and wrong": {
			officialHeaders(t, verifyBody), verifyBody,
			[]string{"--key-env=OTHER_KEY"},
			exitFailure,
			[]string{"failed       webhook-timestamp", "failed       made for this id", "Another key signed"},
		},
		"body": {
			bodyHeaders(t, verifyBody), verifyBody, []string{"--key-env=HOOK_KEY"}, exitOK, []string{"scheme body", "note: the signature covers the body only"},
		},
		"body, reserialised": {
			bodyHeaders(t, `{"a":1}`), `{ "a": 1 }`, []string{"--key-env=HOOK_KEY"}, exitFailure, []string{"It does verify as compact JSON"},
		},
		"qstash": {
			qstashHeaders(verifyNext, verifyURL, verifyBody), verifyBody,
			[]string{"--url=" + verifyURL, at},
			exitOK,
			[]string{"scheme qstash", "made for https://app.example/hook?…", "key 2 of 2, message msg_q (its id is not signed)", "keys were rotated"},
		},
		"qstash, expired": {
			qstashHeaders(verifyCurrent, verifyURL, verifyBody), verifyBody,
			[]string{"--url=" + verifyURL},
			exitFailure,
			[]string{"failed       in force", "passed       made for this body", "Each attempt has a token", "with --at 2023-11-14T22:18:19Z it is verified"},
		},
		"qstash, slash": {
			qstashHeaders(verifyCurrent, "https://app.example/hook/", verifyBody), verifyBody,
			[]string{"--url=https://app.example/hook", at},
			exitFailure,
			[]string{"wrong_url", "is for https://app.example/hook/; the slash at the end differs", "not reached  made for this body"},
		},
		"qstash, scheme": {
			qstashHeaders(verifyCurrent, "http://app.example/hook", verifyBody), verifyBody,
			[]string{"--url=https://app.example/hook", at},
			exitFailure,
			[]string{"the scheme differs"},
		},
		"qstash, query": {
			qstashHeaders(verifyCurrent, verifyURL, verifyBody), verifyBody,
			[]string{"--url=https://app.example/hook?tenant=1", at},
			exitFailure,
			[]string{"the query differs"},
		},
		"qstash, unknown key": {
			qstashHeaders("sig_x", verifyURL, verifyBody), verifyBody, []string{"--url=" + verifyURL, at}, exitFailure, []string{"unknown_key", "each region has its own"},
		},
		"qstash, development key": {
			qstashHeaders(qstash.DevCurrentKey, verifyURL, verifyBody), verifyBody,
			[]string{"--url=" + verifyURL, "--key-env=DEV_KEY", at},
			exitOK,
			[]string{"a deployed receiver refuses them"},
		},
		"another scheme than is there": {
			officialHeaders(t, verifyBody), verifyBody, []string{"--scheme=body", "--key-env=HOOK_KEY"}, exitFailure, []string{"no_signature", "Try --scheme auto"},
		},
		"unsigned":     {"", verifyBody, []string{"--key-env=HOOK_KEY"}, exitFailure, []string{"scheme none", "no_signature", "gantry.signingKeyEnv"}},
		"not a header": {"nonsense\r\n", "", []string{"--key-env=HOOK_KEY"}, exitFailure, []string{"read line 3 of the capture"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"verify", "--request", captured(t, test.headers, test.body)}, test.args...)
			got := invoke(t, verifyEnv, args...)
			if got.code != test.code {
				t.Errorf("code %d, want %d", got.code, test.code)
			}
			contains(t, got.out+got.err, test.shows...)
			for _, secret := range []string{verifyKey, verifyOther, verifyCurrent, verifyNext, qstash.DevCurrentKey, "tenant=", `"b":1`} {
				if strings.Contains(got.out+got.err, secret) {
					t.Errorf("it shows %q:\n%s%s", secret, got.out, got.err)
				}
			}
		})
	}
}

func TestVerifyCommandUsage(t *testing.T) {
	request := captured(t, officialHeaders(t, verifyBody), verifyBody)
	signed := captured(t, qstashHeaders(verifyCurrent, verifyURL, verifyBody), verifyBody)
	for name, test := range map[string]struct {
		args  []string
		shows string
	}{
		"no request":      {nil, "give the request with"},
		"both":            {[]string{"--request", request, "--header=a: b"}, "leave --header"},
		"no key":          {[]string{"--request", request}, "no key: name the variable"},
		"unset":           {[]string{"--request", request, "--key-env=UNSET"}, "the variable UNSET is not set"},
		"empty":           {[]string{"--request", request, "--key-env=EMPTY"}, "is not set"},
		"the key itself":  {[]string{"--request", request, "--key-env=" + verifyKey}, "never a key"},
		"bad header":      {[]string{"--header", "nonsense"}, "want NAME: VALUE"},
		"bad time":        {[]string{"--request", request, "--at=noon"}, "--at is neither"},
		"qstash, no URL":  {[]string{"--request", signed}, "with --url"},
		"qstash, no host": {[]string{"--request", signed, "--url=/hook"}, "absolute http or https URL"},
		"three keys": {
			[]string{"--request", signed, "--url=" + verifyURL, "--key-env=HOOK_KEYS", "--key-env=HOOK_KEY"}, "QStash has two keys",
		},
	} {
		got := invoke(t, verifyEnv, append([]string{"verify"}, test.args...)...)
		if got.code != exitUsage || !strings.Contains(got.err, test.shows) || strings.Contains(got.err, verifyKey) {
			t.Errorf("%s: code %d, %s", name, got.code, got.err)
		}
	}
	if got := invoke(t, verifyEnv, "verify", "--help"); got.code != exitOK || !strings.Contains(got.out, "Examples:") {
		t.Errorf("help: code %d, %s", got.code, got.out)
	}
}

// TestVerifyCommandParts gives the request in parts, the key in a file, and reads
// the result as a program.
func TestVerifyCommandParts(t *testing.T) {
	dir := t.TempDir()
	body, key := filepath.Join(dir, "body"), filepath.Join(dir, "key")
	for name, text := range map[string]string{body: verifyBody, key: verifyKey + "\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatalf("write: %v", err)
		}
	}
	args := []string{"verify", "--key-file", key, "--body-file", body, "--at=1700000000", "--json"}
	for line := range strings.SplitSeq(strings.TrimSpace(officialHeaders(t, verifyBody)), "\r\n") {
		args = append(args, "--header", line)
	}
	got := invoke(t, nil, args...)
	var result judgement
	if err := json.Unmarshal([]byte(got.out), &result); err != nil || got.code != exitOK {
		t.Fatalf("code %d, %v: %s%s", got.code, err, got.out, got.err)
	}
	if !result.Verified || result.Scheme != "standard" || result.ID != "msg_1" || !result.IDSigned || result.Attempt != 2 ||
		result.Key != "key 1 of 1" || len(result.Checks) != 3 || result.Checks[2].Result != checkPassed || result.Advice == nil {
		t.Errorf("result %+v", result)
	}
	// From the input, and without a body.
	in := "POST / HTTP/1.1\n" + strings.ReplaceAll(officialHeaders(t, ""), "\r\n", "\n") + "\n"
	got = invokeWith(t.Context(), strings.NewReader(in), verifyEnv, "verify", "--request=-", "--key-env=HOOK_KEY", "--at=1700000000")
	if got.code != exitOK {
		t.Errorf("from the input: code %d, %s%s", got.code, got.out, got.err)
	}
}

func FuzzParseCapture(f *testing.F) {
	f.Add([]byte("POST / HTTP/1.1\r\nA: b\r\nContent-Length: 2\r\n\r\n{}\n"))
	f.Add([]byte("\nPOST / HTTP/2\nTransfer-Encoding: chunked\n\n2\r\n{}\r\n0\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.1\nContent-Length: -1\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := parseCapture(raw)
		if err == nil && len(c.body) > len(raw) {
			t.Fatalf("a body of %d bytes in %d", len(c.body), len(raw))
		}
	})
}
