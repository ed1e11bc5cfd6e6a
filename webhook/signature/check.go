package signature

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Window is the time within which a signature counts. The zero value means
// Tolerance around the present.
type Window struct {
	// Now is the receiver's clock; the zero time means time.Now.
	Now time.Time
	// Tolerance is how far the timestamp may lie from Now, in either direction; 0
	// means the constant Tolerance.
	Tolerance time.Duration
}

func (w Window) covers(stamp time.Time) bool {
	if w.Tolerance == 0 {
		w.Tolerance = Tolerance
	}
	if w.Now.IsZero() {
		w.Now = time.Now()
	}
	return w.Now.Sub(stamp).Abs() <= w.Tolerance
}

// Match says what signed a request.
type Match struct {
	// Key is the place of the key among the Keys, the first one being 0. When several
	// match, it is the first of them.
	Key int
	// ID and Timestamp are those that were signed; both are zero for CheckBody, which
	// knows neither.
	ID        string
	Timestamp time.Time
}

// Check is Verify with a window of one's own, and tells which key matched. It
// refuses headers that are given more than once: whoever reads them next may read
// another one than was checked. The error is ErrNoKey, ErrMissing, ErrTimestamp
// or ErrMismatch (docs/behaviour.md §8).
func (k Keys) Check(header http.Header, body []byte, window Window) (Match, error) {
	if len(k.keys) == 0 {
		return Match{}, ErrNoKey
	}
	id, stamp, list := only(header, HeaderID), only(header, HeaderTimestamp), only(header, HeaderSignature)
	seconds, err := strconv.ParseUint(stamp, 10, 40)
	if err != nil || id == "" || list == "" {
		return Match{}, ErrMissing
	}
	at := time.Unix(int64(seconds), 0)
	if !window.covers(at) {
		return Match{}, ErrTimestamp
	}
	given := make([][]byte, 0, 2)
	for signed := range strings.FieldsSeq(list) {
		encoded, known := strings.CutPrefix(signed, versionPrefix)
		if !known {
			continue
		}
		if sum, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			given = append(given, sum)
		}
	}
	key, found := k.first(given, func(key []byte) []byte { return standardMAC(key, id, stamp, body) })
	if !found {
		return Match{}, ErrMismatch
	}
	return Match{Key: key, ID: id, Timestamp: at}, nil
}

// CheckBody is VerifyBody, and tells which key matched. The error is ErrNoKey,
// ErrMissing or ErrMismatch (docs/behaviour.md §8).
func (k Keys) CheckBody(header http.Header, body []byte) (Match, error) {
	if len(k.keys) == 0 {
		return Match{}, ErrNoKey
	}
	encoded, known := strings.CutPrefix(only(header, HeaderBody), bodyPrefix)
	if !known {
		return Match{}, ErrMissing
	}
	given, err := hex.DecodeString(encoded)
	if err != nil {
		return Match{}, ErrMissing
	}
	key, found := k.first([][]byte{given}, func(key []byte) []byte { return mac(key, body) })
	if !found {
		return Match{}, ErrMismatch
	}
	return Match{Key: key}, nil
}

// only returns the value of a header that is given once, in whatever case, else
// nothing.
func only(header http.Header, name string) string {
	value, count := "", 0
	for given, values := range header {
		if len(given) == len(name) && strings.EqualFold(given, name) {
			count += len(values)
			if len(values) > 0 {
				value = values[0]
			}
		}
	}
	if count != 1 {
		return ""
	}
	return value
}

// first returns the place of the first key that made one of the given sums. Each
// key makes its sum once, and sums are compared in constant time.
func (k Keys) first(given [][]byte, sum func(key []byte) []byte) (place int, found bool) {
	for i, key := range k.keys {
		made := sum(key)
		matches := false
		for _, one := range given {
			matches = hmac.Equal(one, made) || matches
		}
		if matches && !found {
			place, found = i, true
		}
	}
	return place, found
}
