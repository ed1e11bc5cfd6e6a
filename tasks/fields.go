package tasks

import (
	"encoding/json"
	"unicode/utf8"
)

// LastFields returns the value of each of names in the JSON object raw, byte for
// byte and sharing memory with raw; nil where it is absent. Names are
// case-sensitive and the last of duplicate keys counts. It is as strict as
// CheckJSON, but bounds neither nesting nor numbers: it is for texts of others
// whose length is bounded already, and takes no stack for their depth. A value
// that is no object gives an *InvalidError with the code NotObject.
func LastFields(raw []byte, names ...string) ([]json.RawMessage, error) {
	if !utf8.Valid(raw) {
		return nil, notUTF8(raw)
	}
	values := make([]json.RawMessage, len(names))
	s := scanner{raw: raw}
	if !s.flatObject(func(key string, value json.RawMessage) {
		for i, name := range names {
			if key == name {
				values[i] = value
			}
		}
	}) {
		return nil, s.invalid()
	}
	return values, nil
}

// flatObject is object without recursion.
func (s *scanner) flatObject(visit func(key string, value json.RawMessage)) bool {
	s.space()
	if s.peek() != '{' {
		s.other = s.flatValue() && s.atEnd()
		return false
	}
	s.at++
	s.space()
	if s.peek() == '}' {
		s.at++
		return s.atEnd()
	}
	for {
		keyAt := s.at
		if s.peek() != '"' || !s.text() {
			return false
		}
		key := decodeKey(s.raw[keyAt:s.at])
		if !s.colon() {
			return false
		}
		valueAt := s.at
		if !s.flatValue() {
			return false
		}
		visit(key, s.raw[valueAt:s.at:s.at])
		s.space()
		switch s.peek() {
		case ',':
			s.at++
			s.space()
		case '}':
			s.at++
			return s.atEnd()
		default:
			return false
		}
	}
}

// flatValue scans one value of any depth; open holds what must still be closed.
func (s *scanner) flatValue() bool {
	var open []byte
	for {
		opened, ok := s.flatStart(&open)
		if !ok {
			return false
		}
		if opened {
			continue
		}
		more, ok := s.flatEnd(&open)
		if !ok || !more {
			return ok
		}
	}
}

// flatStart scans a scalar or an empty array or object, or goes into one that is
// not empty, up to the value that comes first in it.
func (s *scanner) flatStart(open *[]byte) (opened, ok bool) {
	c := s.peek()
	if c != '{' && c != '[' {
		return false, s.value()
	}
	// The closing brackets stand two behind the opening ones.
	closing := c + 2
	s.at++
	s.space()
	if s.peek() == closing {
		s.at++
		return false, true
	}
	*open = append(*open, closing)
	return true, c == '[' || s.flatKey()
}

// flatEnd scans what stands behind a value: closing brackets, and then a comma
// (more is true) or the end of the outermost value.
func (s *scanner) flatEnd(open *[]byte) (more, ok bool) {
	for len(*open) > 0 {
		closing := (*open)[len(*open)-1]
		s.space()
		switch s.peek() {
		case closing:
			s.at++
			*open = (*open)[:len(*open)-1]
		case ',':
			s.at++
			s.space()
			return true, closing == ']' || s.flatKey()
		default:
			return false, false
		}
	}
	return false, true
}

func (s *scanner) flatKey() bool { return s.peek() == '"' && s.text() && s.colon() }

func (s *scanner) colon() bool {
	s.space()
	if s.peek() != ':' {
		return false
	}
	s.at++
	s.space()
	return true
}

func (s *scanner) atEnd() bool {
	s.space()
	return s.at == len(s.raw)
}
