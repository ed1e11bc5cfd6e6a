package tasks

import (
	"errors"
	"fmt"
)

// patternParser reads the grammar of ECMA-262 annex B, without flags. A fault
// stops it: parse methods return nil from then on, and fault says why.
type patternParser struct {
	src   []uint16
	at    int
	depth int
	fault error
	// groups and names are known before parsing: a back-reference may point
	// forward, and one name changes what \k means everywhere.
	groups int
	named  bool
	names  map[string]int
	opened int
	// pending are the named references, which may point forward as well.
	pending []namedReference
}

type namedReference struct {
	name string
	node *node
}

// parsePattern parses text, or says in words for its author why ECMAScript
// refuses it.
func parsePattern(text string) (*pattern, error) {
	if len(text) > MaxMatcherBytes {
		return nil, fmt.Errorf("pattern is longer than %d bytes", MaxMatcherBytes)
	}
	p := &patternParser{src: units(text), names: map[string]int{}}
	p.countGroups()
	root := p.choice()
	if p.fault == nil && p.at < len(p.src) {
		p.fail("unmatched )")
	}
	p.resolveNames()
	if p.fault != nil {
		return nil, p.fault
	}
	return &pattern{root: root, groups: p.groups}, nil
}

func (p *patternParser) fail(message string) *node {
	if p.fault == nil {
		p.fault = errors.New(message)
	}
	return nil
}

// countGroups counts capturing groups without parsing: outside classes, an
// unescaped ( that ? does not follow, or that starts a named group.
func (p *patternParser) countGroups() {
	class := false
	for i := 0; i < len(p.src); i++ {
		switch c := p.src[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '(' && (i+1 >= len(p.src) || p.src[i+1] != '?'):
			p.groups++
		case c == '(' && p.namedAt(i+2):
			p.groups++
			p.named = true
		}
	}
}

// namedAt reports whether the < of a named group, not of a look-behind, is at i.
func (p *patternParser) namedAt(i int) bool {
	return i+1 < len(p.src) && p.src[i] == '<' && p.src[i+1] != '=' && p.src[i+1] != '!'
}

func (p *patternParser) more() bool { return p.fault == nil && p.at < len(p.src) }

// peek returns the unit n places ahead; 0 at the end, so check what may be 0.
func (p *patternParser) peek(n int) uint16 {
	if p.at+n < len(p.src) {
		return p.src[p.at+n]
	}
	return 0
}

func (p *patternParser) looksAt(text string) bool {
	for i := range len(text) {
		if p.at+i >= len(p.src) || p.src[p.at+i] != uint16(text[i]) {
			return false
		}
	}
	return true
}

func (p *patternParser) take(text string) bool {
	if p.looksAt(text) {
		p.at += len(text)
		return true
	}
	return false
}

func (p *patternParser) choice() *node {
	if p.depth++; p.depth > maxGroupDepth {
		return p.fail("groups are nested too deeply")
	}
	defer func() { p.depth-- }()
	branches := []*node{p.sequence()}
	for p.more() && p.take("|") {
		branches = append(branches, p.sequence())
	}
	if len(branches) == 1 {
		return branches[0]
	}
	return &node{kind: nodeChoice, subs: branches}
}

func (p *patternParser) sequence() *node {
	seq := &node{kind: nodeSequence}
	for p.more() && p.peek(0) != '|' && p.peek(0) != ')' {
		atom, repeatable := p.term()
		if p.fault != nil {
			return nil
		}
		seq.subs = append(seq.subs, p.repeat(atom, repeatable))
	}
	return seq
}

// term parses one atom or assertion; repeatable says whether a quantifier may
// follow.
func (p *patternParser) term() (atom *node, repeatable bool) {
	c := p.src[p.at]
	switch c {
	case '(':
		return p.group()
	case '[':
		return p.class(), true
	case '\\':
		return p.escape()
	case '*', '+', '?':
		return p.fail("nothing to repeat"), false
	case '{':
		from := p.at
		if _, _, ok := p.bounds(); ok {
			return p.fail("nothing to repeat"), false
		}
		p.at = from
	}
	p.at++
	switch c {
	case '^':
		return &node{kind: nodeStart}, false
	case '$':
		return &node{kind: nodeEnd}, false
	case '.':
		return &node{kind: nodeSet, set: lineUnits.complement()}, true
	}
	return literal(c), true
}

func literal(u uint16) *node { return &node{kind: nodeSet, set: unit(u)} }

// repeat parses the quantifier after atom, if there is one.
func (p *patternParser) repeat(atom *node, repeatable bool) *node {
	if !p.more() {
		return atom
	}
	low, high := 0, unbounded
	switch p.peek(0) {
	case '*':
		p.at++
	case '+':
		low = 1
		p.at++
	case '?':
		high = 1
		p.at++
	case '{':
		from := p.at
		var ok bool
		if low, high, ok = p.bounds(); !ok {
			p.at = from
			return atom
		}
	default:
		return atom
	}
	if !repeatable {
		return p.fail("nothing to repeat")
	}
	if low > high {
		return p.fail("numbers out of order in quantifier")
	}
	lazy := p.take("?")
	return &node{kind: nodeRepeat, subs: []*node{atom}, min: low, max: high, lazy: lazy}
}

// bounds parses {n}, {n,} or {n,m}. Any other brace is literal: then ok is
// false and the position means nothing.
func (p *patternParser) bounds() (low, high int, ok bool) {
	p.at++
	low, ok = p.decimal()
	high = low
	if ok && p.take(",") {
		high = unbounded
		if n, bounded := p.decimal(); bounded {
			high = n
		}
	}
	return low, high, ok && p.take("}")
}

// decimal parses digits; a number beyond unbounded is cut to it.
func (p *patternParser) decimal() (n int, ok bool) {
	for ; isDigit(p.peek(0)); p.at++ {
		n, ok = min(n*10+int(p.peek(0)-'0'), unbounded), true
	}
	return n, ok
}

func isDigit(u uint16) bool { return u-'0' <= 9 }

// group parses from an opening parenthesis on.
func (p *patternParser) group() (atom *node, repeatable bool) {
	p.at++
	n := &node{kind: nodeCapture}
	repeatable = true
	switch {
	case p.take("?:"):
		n.kind = nodeGroup
	case p.take("?="):
		n.kind = nodeLook
	case p.take("?!"):
		n.kind, n.negative = nodeLook, true
	case p.take("?<="):
		n.kind, n.behind, repeatable = nodeLook, true, false
	case p.take("?<!"):
		n.kind, n.behind, n.negative, repeatable = nodeLook, true, true, false
	case p.take("?<"):
		p.opened++
		p.declare(p.name())
	case p.peek(0) == '?':
		return p.fail("invalid group: after (? only : = ! <= <! and <name> may follow"), false
	default:
		p.opened++
	}
	n.subs = []*node{p.choice()}
	if p.fault == nil && !p.take(")") {
		return p.fail("unterminated group"), false
	}
	return n, repeatable
}

func (p *patternParser) declare(name string) {
	if p.fault != nil {
		return
	}
	if _, twice := p.names[name]; twice {
		p.fail("duplicate group name")
		return
	}
	p.names[name] = p.opened
}

func (p *patternParser) resolveNames() {
	for _, ref := range p.pending {
		number, ok := p.names[ref.name]
		if !ok {
			p.fail("reference to an unknown group name")
			return
		}
		ref.node.number = number
	}
}
