package tasks

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// MaxNesting is the number of arrays and objects that may enclose a JSON
// value. It is the limit of encoding/json, so that what is accepted here can be
// decoded there.
const MaxNesting = 10000

// enclosed is the nesting around an event and a list of hooks: a task document
// holds them as members, and must not become too deep by them.
const enclosed = 1

// scanner checks JSON and finds the bounds of values without decoding them.
// The bytes must be valid UTF-8 already. at is the read position, and the
// position of the fault once a method has returned false.
type scanner struct {
	raw   []byte
	at    int
	depth int
	// lead is the number of bytes from the start of the member on view to its value.
	lead int
	// other says that the document is valid but no object.
	other bool
	// deep says that the fault is the nesting.
	deep bool
}

func (s *scanner) invalid() error {
	if s.other {
		return &InvalidError{Code: NotObject, Message: "JSON is no object", Fix: "send an object"}
	}
	if s.deep {
		return &InvalidError{
			Code: InvalidJSON, Message: fmt.Sprintf("JSON is nested too deep at byte %d", s.at),
			Fix: fmt.Sprintf("nest arrays and objects less than %d deep", MaxNesting),
		}
	}
	fault := fmt.Sprintf("JSON is malformed at byte %d", s.at)
	if s.at >= len(s.raw) {
		fault = fmt.Sprintf("JSON ends early at byte %d", len(s.raw))
	}
	return &InvalidError{Code: InvalidJSON, Message: fault, Fix: "send one whole JSON value by RFC 8259"}
}

func notUTF8(raw []byte) error {
	at := 0
	for at < len(raw) {
		r, size := utf8.DecodeRune(raw[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return &InvalidError{
		Code: InvalidUTF8, Message: fmt.Sprintf("text is not valid UTF-8 at byte %d", at),
		Fix: "send UTF-8 without broken or truncated sequences",
	}
}

// document scans one value and the white space around it.
func (s *scanner) document() bool {
	s.space()
	if !s.value() {
		return false
	}
	s.space()
	return s.at == len(s.raw)
}

// object scans a document that must be an object and shows its members.
func (s *scanner) object(visit func(key []byte, value json.RawMessage)) bool {
	s.space()
	if s.peek() != '{' {
		s.other = s.document()
		return false
	}
	if !s.members(visit) {
		return false
	}
	s.space()
	return s.at == len(s.raw)
}

func (s *scanner) peek() byte {
	if s.at < len(s.raw) {
		return s.raw[s.at]
	}
	return 0
}

func (s *scanner) space() {
	for s.at < len(s.raw) {
		switch s.raw[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) value() bool {
	switch c := s.peek(); c {
	case '"':
		return s.text()
	case '{':
		return s.members(nil)
	case '[':
		return s.elements(nil)
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		if c == '-' || c-'0' <= 9 {
			return s.number()
		}
		return false
	}
}

func (s *scanner) word(w string) bool {
	if len(s.raw)-s.at >= len(w) && string(s.raw[s.at:s.at+len(w)]) == w {
		s.at += len(w)
		return true
	}
	return false
}

// members scans an object from its brace on; visit may be nil.
func (s *scanner) members(visit func(key []byte, value json.RawMessage)) bool {
	if !s.enter() {
		return false
	}
	if s.peek() == '}' {
		return s.leave()
	}
	for {
		keyAt := s.at
		if s.peek() != '"' || !s.text() {
			return false
		}
		key := s.raw[keyAt:s.at]
		s.space()
		if s.peek() != ':' {
			return false
		}
		s.at++
		s.space()
		valueAt := s.at
		if !s.value() {
			return false
		}
		if visit != nil {
			s.lead = valueAt - keyAt
			visit(key, s.raw[valueAt:s.at:s.at])
		}
		if more, ok := s.next('}'); !more {
			return ok
		}
	}
}

// elements scans an array from its bracket on; visit may be nil.
func (s *scanner) elements(visit func(value json.RawMessage)) bool {
	if !s.enter() {
		return false
	}
	if s.peek() == ']' {
		return s.leave()
	}
	for {
		valueAt := s.at
		if !s.value() {
			return false
		}
		if visit != nil {
			visit(s.raw[valueAt:s.at:s.at])
		}
		if more, ok := s.next(']'); !more {
			return ok
		}
	}
}

func (s *scanner) enter() bool {
	if s.depth == MaxNesting {
		s.deep = true
		return false
	}
	s.depth++
	s.at++
	s.space()
	return true
}

func (s *scanner) leave() bool {
	s.depth--
	s.at++
	return true
}

// next scans what stands between two members: a comma (more is true), or the
// closing byte.
func (s *scanner) next(closing byte) (more, ok bool) {
	s.space()
	switch s.peek() {
	case ',':
		s.at++
		s.space()
		return true, true
	case closing:
		return false, s.leave()
	}
	return false, false
}

// text scans a string from its quote on.
func (s *scanner) text() bool {
	i := s.at + 1
	for {
		i = plainEnd(s.raw, i)
		if i >= len(s.raw) {
			s.at = len(s.raw)
			return false
		}
		switch s.raw[i] {
		case '"':
			s.at = i + 1
			return true
		case '\\':
			next := escapeEnd(s.raw, i)
			if next < 0 {
				s.at = i
				return false
			}
			i = next
		default:
			s.at = i
			return false
		}
	}
}

// plainEnd returns the index of the first quote, backslash or control byte at
// or after i. It looks at eight bytes at once, because most of a document is
// the inside of strings.
func plainEnd(raw []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(raw); i += 8 {
		w := binary.LittleEndian.Uint64(raw[i:])
		quote := w ^ (ones * '"')
		slash := w ^ (ones * '\\')
		// A byte borrows from its neighbour above only when it is a hit itself, so the
		// lowest hit is exact.
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w) & highs
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for i < len(raw) && raw[i] >= 0x20 && raw[i] != '"' && raw[i] != '\\' {
		i++
	}
	return i
}

// escapeEnd returns the index after the escape at i, or -1.
func escapeEnd(raw []byte, i int) int {
	if i+1 >= len(raw) {
		return -1
	}
	switch raw[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		if i+6 > len(raw) {
			return -1
		}
		for _, c := range raw[i+2 : i+6] {
			if !isHex(c) {
				return -1
			}
		}
		return i + 6
	}
	return -1
}

func isHex(c byte) bool {
	return c-'0' <= 9 || c|0x20-'a' <= 5
}

func (s *scanner) number() bool {
	if s.peek() == '-' {
		s.at++
	}
	switch {
	case s.peek() == '0':
		s.at++
	case !s.digits():
		return false
	}
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return false
		}
	}
	if s.peek()|0x20 == 'e' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.raw) && s.raw[s.at]-'0' <= 9 {
		s.at++
	}
	return s.at > from
}

// decodeKey decodes a quoted key. The names that the contract knows cost no
// memory.
func decodeKey(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if known, ok := knownKeys[string(inner)]; ok {
		return known
	}
	return decodeString(quoted)
}

// decodeString decodes a valid JSON string, quotes included. Half of a
// surrogate pair becomes U+FFFD, as everywhere in Go.
func decodeString(quoted []byte) string {
	inner := quoted[1 : len(quoted)-1]
	if plainEnd(inner, 0) == len(inner) {
		return string(inner)
	}
	var text string
	if err := json.Unmarshal(quoted, &text); err != nil {
		return string(inner)
	}
	return text
}

// isNull and the like look at the first byte of a valid value.
func isNull(value json.RawMessage) bool   { return value[0] == 'n' }
func isString(value json.RawMessage) bool { return value[0] == '"' }
func isObject(value json.RawMessage) bool { return value[0] == '{' }
func isArray(value json.RawMessage) bool  { return value[0] == '[' }
func isBool(value json.RawMessage) bool   { return value[0] == 't' || value[0] == 'f' }
func isNumber(value json.RawMessage) bool { return value[0] == '-' || value[0]-'0' <= 9 }
