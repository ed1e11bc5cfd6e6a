package tasks

import (
	"encoding/json"
	"unicode/utf8"
)

// Member is one member of a JSON object. Value holds the exact bytes of the
// value and may share memory with the object.
type Member struct {
	Key   string
	Value json.RawMessage
}

// CheckJSON reports whether raw is one JSON value in valid UTF-8, nested no
// deeper than MaxNesting. encoding/json repairs bad UTF-8 in silence, which
// would change the bytes that are signed. An error is an *InvalidError with
// the code InvalidUTF8 or InvalidJSON.
func CheckJSON(raw []byte) error { return checkJSON(raw, 0) }

// checkJSON is CheckJSON for a value that so many arrays and objects enclose.
func checkJSON(raw []byte, depth int) error {
	if !utf8.Valid(raw) {
		return notUTF8(raw)
	}
	s := scanner{raw: raw, depth: depth}
	if !s.document() {
		return s.invalid()
	}
	return nil
}

// SplitObject returns the members of the JSON object raw in their order, with
// keys decoded, values byte for byte, and duplicates kept. The whole object is
// checked as by CheckJSON; a value that is no object gives an *InvalidError
// with the code NotObject. Values share memory with raw.
func SplitObject(raw []byte) ([]Member, error) {
	members := make([]Member, 0, 16)
	err := eachMember(raw, func(key []byte, value json.RawMessage) {
		members = append(members, Member{Key: decodeKey(key), Value: value})
	})
	if err != nil {
		return nil, err
	}
	return members, nil
}

// eachMember calls visit with the quoted key and the exact value of each
// member. visit may have seen some members when an error is returned.
func eachMember(raw []byte, visit func(key []byte, value json.RawMessage)) error {
	if !utf8.Valid(raw) {
		return notUTF8(raw)
	}
	s := scanner{raw: raw}
	if !s.object(visit) {
		return s.invalid()
	}
	return nil
}

// AppendObject appends a JSON object with members in the given order to dst.
// Keys are escaped as JSON asks and no further; values are written as they
// are, so the caller answers for their validity.
func AppendObject(dst []byte, members []Member) []byte {
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, m.Key)
		dst = append(dst, ':')
		dst = append(dst, m.Value...)
	}
	return append(dst, '}')
}

const hexDigits = "0123456789abcdef"

// AppendString appends s to dst as a JSON string. Only what JSON demands is
// escaped: no HTML escaping, and U+2028 stays as it is. Invalid UTF-8 becomes
// U+FFFD, so that the result is always valid.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscape(dst, c)
		start = i + 1
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}
