package compat

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"time"
)

const (
	// lifetime is how long a signature holds; each attempt has its own.
	lifetime = 5 * time.Minute
	// Faults set the clocks of a signature off by so much, more than the tolerance
	// that anybody should allow.
	skew = time.Hour

	messagePrefix = "msg_"
	jwtPrefix     = "jwt_"
	keyPrefix     = "sig_"
	idLetters     = 24
	alphabet      = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
)

// newID draws an id, or a key, that nobody can guess.
func newID(prefix string) string {
	id := []byte(prefix)
	for range idLetters {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet))))
		if err != nil {
			panic(err) // crypto/rand does not fail
		}
		id = append(id, alphabet[n.Int64()])
	}
	return string(id)
}

// claims are what a signature says, in QStash's names.
type claims struct {
	Issuer    string `json:"iss"`
	Subject   string `json:"sub"`
	Expires   int64  `json:"exp"`
	NotBefore int64  `json:"nbf"`
	IssuedAt  int64  `json:"iat"`
	ID        string `json:"jti"`
	Body      string `json:"body"`
}

// seal makes the signature of one attempt: a JWT about the destination and the
// hash of the body, as it is at now, with what the faults change in it.
func seal(t try, now time.Time) string {
	m, keys, faults := t.message, t.keys, t.faults
	hash := sha256.Sum256(m.body)
	c := claims{
		Issuer: "Upstash", Subject: m.url, ID: newID(jwtPrefix),
		IssuedAt: now.Unix(), Expires: now.Add(lifetime).Unix(),
		Body: base64.URLEncoding.EncodeToString(hash[:]),
	}
	key := keys.Current
	if faults[FaultSignNext] {
		key = keys.Next
	}
	if faults[FaultUnknownKey] {
		key = newID(keyPrefix)
	}
	if faults[FaultExpired] {
		c.IssuedAt, c.Expires = now.Add(-skew-lifetime).Unix(), now.Add(-skew).Unix()
	}
	if faults[FaultFutureNBF] {
		c.NotBefore, c.Expires = now.Add(skew).Unix(), now.Add(skew+lifetime).Unix()
	}
	if faults[FaultWrongSubject] {
		c.Subject += "/elsewhere"
	}
	if faults[FaultUnpaddedHash] {
		c.Body = base64.RawURLEncoding.EncodeToString(hash[:])
	}
	return signJWT(key, c)
}

func signJWT(key string, c claims) string {
	var payload bytes.Buffer
	encoder := json.NewEncoder(&payload)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(c); err != nil {
		panic(err) // strings and numbers always encode
	}
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode(bytes.TrimSpace(payload.Bytes()))
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}

func encode(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }
