package qstash

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/gantry-hooks/gantry/tasks"
)

// maxSeconds bounds the times of a token, far beyond any that makes sense.
const maxSeconds = 1 << 40

var (
	errNotString = errors.New("claim is not a string")
	errNotTime   = errors.New("claim is not a number of seconds")
)

// claims are the claims of a token. They are read by their exact names, and a
// time must be a number: what another reader would have to guess is refused.
type claims struct {
	issuer, subject, id, body string
	expires, notBefore        *jwt.NumericDate
}

// UnmarshalJSON reads the claims; what is not known is ignored.
func (c *claims) UnmarshalJSON(raw []byte) error {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return err
	}
	*c = claims{}
	for _, m := range members {
		switch m.Key {
		case "iss":
			err = readString(&c.issuer, m.Value)
		case "sub":
			err = readString(&c.subject, m.Value)
		case "jti":
			err = readString(&c.id, m.Value)
		case "body":
			err = readString(&c.body, m.Value)
		case "exp":
			err = readTime(&c.expires, m.Value)
		case "nbf":
			err = readTime(&c.notBefore, m.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readString(field *string, raw json.RawMessage) error {
	if raw[0] != '"' {
		return errNotString
	}
	return json.Unmarshal(raw, field)
}

func readTime(field **jwt.NumericDate, raw json.RawMessage) error {
	if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return errNotTime
	}
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || math.Abs(seconds) > maxSeconds {
		return errNotTime
	}
	*field = &jwt.NumericDate{Time: time.Unix(int64(math.Floor(seconds)), 0)}
	return nil
}

// GetExpirationTime and the following make claims a jwt.Claims.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.expires, nil }

// GetNotBefore returns the claim nbf.
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) { return c.notBefore, nil }

// GetIssuedAt returns nothing: when a token was made does not matter.
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) { return nil, nil }

// GetIssuer returns the claim iss.
func (c *claims) GetIssuer() (string, error) { return c.issuer, nil }

// GetSubject returns the claim sub.
func (c *claims) GetSubject() (string, error) { return c.subject, nil }

// GetAudience returns nothing: QStash names none.
func (c *claims) GetAudience() (jwt.ClaimStrings, error) { return nil, nil }
