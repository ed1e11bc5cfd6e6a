package tasks

import (
	"fmt"
	"strconv"
	"strings"
)

// dialect is the language that a pattern is written in for an engine.
type dialect uint8

const (
	// linear is the language of the standard library's regexp, which takes time
	// linear in the text but has neither look-around nor back-references.
	linear dialect = iota
	// backtracking is the language of regexp2's ECMAScript mode.
	backtracking
)

// maxProgram bounds the size of a pattern for the linear engine, which copies
// what is repeated.
const maxProgram = 20000

// emitter writes a pattern for one engine.
type emitter struct {
	dialect dialect
	out     strings.Builder
}

func (p *pattern) write(d dialect) string {
	e := emitter{dialect: d}
	e.node(p.root)
	return e.out.String()
}

// size estimates the number of instructions of n for the linear engine, or -1
// when n cannot be written for it.
func (n *node) size() int {
	total := 1
	switch n.kind {
	case nodeLook, nodeBackReference:
		return -1
	case nodeSet:
		// The linear engine sees runes: half of a pair is nothing to it.
		if n.set.onlySurrogates() {
			return -1
		}
		total += len(n.set) / 8
	}
	for _, sub := range n.subs {
		size := sub.size()
		if size < 0 || total > maxProgram {
			return -1
		}
		total += size
	}
	if n.kind == nodeRepeat {
		times := max(n.min, 1)
		if n.max != unbounded {
			times = max(n.max, 1)
		}
		if times > maxProgram {
			return -1
		}
		total *= times
	}
	if total > maxProgram {
		return -1
	}
	return total
}

func (e *emitter) node(n *node) {
	switch n.kind {
	case nodeSet:
		e.set(n.set)
	case nodeSequence:
		for _, sub := range n.subs {
			e.node(sub)
		}
	case nodeChoice:
		for i, sub := range n.subs {
			if i > 0 {
				e.out.WriteByte('|')
			}
			e.node(sub)
		}
	case nodeStart:
		e.either(`\A`, `^`)
	case nodeEnd:
		e.either(`\z`, `$`)
	case nodeBoundary:
		if n.negative {
			e.out.WriteString(`\B`)
		} else {
			e.out.WriteString(`\b`)
		}
	case nodeBackReference:
		e.out.WriteString(`(?:\` + strconv.Itoa(n.number) + `)`)
	case nodeRepeat:
		e.enclose("(?:", n.subs[0])
		e.quantifier(n)
	case nodeGroup, nodeCapture, nodeLook:
		e.enclose(e.opening(n), n.subs[0])
	}
}

func (e *emitter) either(linearText, backtrackingText string) {
	if e.dialect == linear {
		e.out.WriteString(linearText)
	} else {
		e.out.WriteString(backtrackingText)
	}
}

func (e *emitter) enclose(opening string, n *node) {
	e.out.WriteString(opening)
	e.node(n)
	e.out.WriteByte(')')
}

func (e *emitter) opening(n *node) string {
	switch {
	case n.kind == nodeCapture && e.dialect == backtracking:
		return "("
	case n.kind != nodeLook:
		return "(?:"
	case n.behind && n.negative:
		return "(?<!"
	case n.behind:
		return "(?<="
	case n.negative:
		return "(?!"
	}
	return "(?="
}

func (e *emitter) quantifier(n *node) {
	switch {
	case n.min == 0 && n.max == unbounded:
		e.out.WriteByte('*')
	case n.min == 1 && n.max == unbounded:
		e.out.WriteByte('+')
	case n.min == 0 && n.max == 1:
		e.out.WriteByte('?')
	case n.max == unbounded:
		fmt.Fprintf(&e.out, "{%d,}", n.min)
	default:
		fmt.Fprintf(&e.out, "{%d,%d}", n.min, n.max)
	}
	if n.lazy {
		e.out.WriteByte('?')
	}
}

func (e *emitter) set(s unitSet) {
	s = s.normal()
	if e.dialect == linear {
		s = s.withoutSurrogates()
	}
	switch {
	case len(s) == 0:
		e.either(`[^\x{0}-\x{10FFFF}]`, `(?!)`)
	case len(s) == 1 && s[0].lo == s[0].hi:
		e.unit(s[0].lo)
	default:
		e.out.WriteByte('[')
		for _, r := range s {
			e.units(r)
		}
		e.out.WriteByte(']')
	}
}

// units writes a range within a class. Where it crosses into or out of the
// surrogates it is cut, because those stand elsewhere (standIn).
func (e *emitter) units(r unitRange) {
	for _, part := range [...]unitRange{{0, 0xD7FF}, {0xD800, 0xDFFF}, {0xE000, maxUnit}} {
		lo, hi := max(r.lo, part.lo), min(r.hi, part.hi)
		if lo > hi {
			continue
		}
		e.unit(lo)
		if lo < hi {
			e.out.WriteByte('-')
			e.unit(hi)
		}
	}
}

// unit writes one unit so that it means itself everywhere: letters and digits
// as they are, everything else by number.
func (e *emitter) unit(u uint16) {
	switch r := standIn(u); {
	case isDigit(u) || u|0x20-'a' < 26 || r > maxUnit:
		e.out.WriteRune(r)
	case e.dialect == linear:
		fmt.Fprintf(&e.out, `\x{%X}`, u)
	default:
		fmt.Fprintf(&e.out, `\u%04X`, u)
	}
}

// standIn returns the rune that stands for a code unit in the backtracking
// engine. Half of a surrogate pair is no rune, and an engine that searches
// strings loses it, so a private character of plane 16 takes its place; whole
// characters of that plane are pairs here and never seen.
func standIn(u uint16) rune {
	if u >= 0xD800 && u <= 0xDFFF {
		return rune(u) + 0x100000
	}
	return rune(u)
}
