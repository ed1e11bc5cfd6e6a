package enrich

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// identity decides whose email a payload gets, if any (docs/behaviour.md §10).
type identity struct {
	// wanted says that the hook's projection has room for an email.
	wanted bool
	// event is the userId of the event, for a payload without one; nil means absent.
	event json.RawMessage
}

// of returns the user whose email belongs to payload; "" means nobody. A userId
// in the payload decides alone, also when it names no user.
func (i identity) of(payload *object) string {
	if !i.wanted {
		return ""
	}
	if id := payload.find(keyUserID); id != nil {
		return text(id)
	}
	return text(i.event)
}

// text decodes a JSON string; anything else gives "". A string with half a
// surrogate pair gives "" too: decoding makes all of those alike, and an
// identity must not turn into another one.
func text(raw json.RawMessage) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	inner := string(raw[1 : len(raw)-1])
	if !strings.Contains(inner, `\`) {
		return inner
	}
	var decoded string
	if json.Unmarshal(raw, &decoded) != nil {
		return ""
	}
	if strings.ContainsRune(decoded, utf8.RuneError) {
		return ""
	}
	return decoded
}
