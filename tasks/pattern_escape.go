package tasks

import (
	"unicode"
	"unicode/utf16"
)

// escape parses a backslash outside a class.
func (p *patternParser) escape() (atom *node, repeatable bool) {
	if p.at+1 >= len(p.src) {
		return p.fail(`\ at the end of the pattern`), false
	}
	p.at++
	c := p.src[p.at]
	switch {
	case c == 'b' || c == 'B':
		p.at++
		return &node{kind: nodeBoundary, negative: c == 'B'}, false
	case c == 'k' && p.named:
		p.at++
		return p.namedReference(), true
	case c >= '1' && c <= '9':
		if n := p.reference(); n != nil {
			return n, true
		}
	}
	if set, ok := classEscape(c); ok {
		p.at++
		return &node{kind: nodeSet, set: set}, true
	}
	return literal(p.character(false)), true
}

// reference parses \1 and the like when the pattern has so many groups;
// otherwise it is an old octal escape, and nil is returned.
func (p *patternParser) reference() *node {
	from := p.at
	if n, _ := p.decimal(); n <= p.groups {
		return &node{kind: nodeBackReference, number: n}
	}
	p.at = from
	return nil
}

func (p *patternParser) namedReference() *node {
	if !p.take("<") {
		return p.fail("invalid named reference")
	}
	n := &node{kind: nodeBackReference}
	p.pending = append(p.pending, namedReference{name: p.name(), node: n})
	return n
}

// character parses the escape of one character, from behind the backslash.
func (p *patternParser) character(class bool) uint16 {
	c := p.src[p.at]
	p.at++
	switch c {
	case 't':
		return '\t'
	case 'n':
		return '\n'
	case 'v':
		return '\v'
	case 'f':
		return '\f'
	case 'r':
		return '\r'
	case 'c':
		return p.control(class)
	case 'x':
		return p.hex(2, 'x')
	case 'u':
		return p.hex(4, 'u')
	case 'k':
		if p.named {
			p.fail("invalid escape")
		}
	}
	if c >= '0' && c <= '7' {
		return p.octal(c - '0')
	}
	return c
}

// control parses \cX. When no control letter follows, the backslash itself is
// meant, and the c is read again as a character of its own.
func (p *patternParser) control(class bool) uint16 {
	letter := p.peek(0)
	if letter|0x20-'a' < 26 || class && (isDigit(letter) || letter == '_') {
		p.at++
		return letter % 32
	}
	p.at--
	return '\\'
}

// hex parses exactly n hexadecimal digits; with fewer the letter is meant.
func (p *patternParser) hex(n int, letter uint16) uint16 {
	var value uint16
	for i := range n {
		u := p.peek(i)
		if u > 0x7F || !isHex(byte(u)) {
			return letter
		}
		value = value<<4 | hexValue(u)
	}
	p.at += n
	return value
}

func hexValue(u uint16) uint16 {
	if isDigit(u) {
		return u - '0'
	}
	return u | 0x20 - 'a' + 10
}

// octal parses the rest of an old octal escape, at most \377.
func (p *patternParser) octal(value uint16) uint16 {
	for range 2 {
		digit := p.peek(0) - '0'
		if digit > 7 || value*8+digit > 0o377 {
			break
		}
		value = value*8 + digit
		p.at++
	}
	return value
}

// class parses from an opening bracket on.
func (p *patternParser) class() *node {
	p.at++
	negative := p.take("^")
	set := unitSet{}
	for {
		if p.at >= len(p.src) {
			return p.fail("unterminated character class")
		}
		if p.take("]") {
			break
		}
		from, single := p.classAtom()
		if p.fault != nil {
			return nil
		}
		if p.peek(0) != '-' || p.at+1 >= len(p.src) || p.peek(1) == ']' {
			set = append(set, from...)
			continue
		}
		p.at++
		to, singleToo := p.classAtom()
		switch {
		case p.fault != nil:
			return nil
		case !single || !singleToo:
			set = append(append(append(set, from...), to...), unitRange{'-', '-'})
		case from[0].lo > to[0].lo:
			return p.fail("range out of order in character class")
		default:
			set = append(set, unitRange{from[0].lo, to[0].lo})
		}
	}
	if set = set.normal(); negative {
		set = set.complement()
	}
	return &node{kind: nodeSet, set: set}
}

// classAtom parses one member of a class; single says that it is one character
// and may bound a range.
func (p *patternParser) classAtom() (set unitSet, single bool) {
	c := p.src[p.at]
	if c != '\\' {
		p.at++
		return unit(c), true
	}
	if p.at+1 >= len(p.src) {
		p.fail(`\ at the end of the pattern`)
		return nil, false
	}
	p.at++
	if set, ok := classEscape(p.src[p.at]); ok {
		p.at++
		return set, false
	}
	if p.take("b") {
		return unit('\b'), true
	}
	return unit(p.character(true)), true
}

// name parses a group name and its closing angle bracket.
func (p *patternParser) name() string {
	runes := []rune{}
	for p.fault == nil {
		if p.take(">") {
			if len(runes) == 0 {
				break
			}
			return string(runes)
		}
		r, ok := p.nameRune()
		if !ok || !identifierRune(r, len(runes) == 0) {
			break
		}
		runes = append(runes, r)
	}
	p.fail("invalid group name")
	return ""
}

// nameRune parses one character of a group name, which may be a pair of units
// or an escape with or without braces.
func (p *patternParser) nameRune() (rune, bool) {
	if p.at >= len(p.src) {
		return 0, false
	}
	if p.src[p.at] != '\\' {
		r := rune(p.src[p.at])
		p.at++
		return p.pair(r, func() (rune, bool) {
			low := rune(p.peek(0))
			p.at++
			return low, true
		}), true
	}
	if !p.take(`\u`) {
		return 0, false
	}
	if p.take("{") {
		return p.bracedRune()
	}
	r, ok := p.unitEscape()
	if !ok {
		return 0, false
	}
	return p.pair(r, func() (rune, bool) {
		if !p.take(`\u`) {
			return 0, false
		}
		return p.unitEscape()
	}), true
}

// pair joins a high surrogate with the low one that next reads; when there is
// none, the position stays.
func (p *patternParser) pair(high rune, next func() (rune, bool)) rune {
	if !utf16.IsSurrogate(high) {
		return high
	}
	from := p.at
	if low, ok := next(); ok {
		if r := utf16.DecodeRune(high, low); r != unicode.ReplacementChar {
			return r
		}
	}
	p.at = from
	return high
}

func (p *patternParser) unitEscape() (rune, bool) {
	from := p.at
	u := p.hex(4, 0)
	return rune(u), p.at > from
}

func (p *patternParser) bracedRune() (rune, bool) {
	var value rune
	from := p.at
	for ; p.peek(0) <= 0x7F && isHex(byte(p.peek(0))); p.at++ {
		if value = value<<4 | rune(hexValue(p.peek(0))); value > unicode.MaxRune {
			return 0, false
		}
	}
	return value, p.at > from && p.take("}")
}

// identifierRune reports whether r may stand in a group name.
func identifierRune(r rune, first bool) bool {
	if r == '$' || r == '_' || unicode.In(r, unicode.L, unicode.Nl, unicode.Other_ID_Start) {
		return !unicode.In(r, unicode.Pattern_Syntax, unicode.Pattern_White_Space) || r == '$'
	}
	if first {
		return false
	}
	return r == 0x200C || r == 0x200D || unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue)
}
