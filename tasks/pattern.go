package tasks

import (
	"slices"
	"unicode/utf16"
)

// The limits of a matcher's pattern. ECMAScript has none; they keep a caller
// from spending the worker's memory on one pattern.
const (
	// MaxMatcherBytes bounds the length of a pattern in bytes of UTF-8.
	MaxMatcherBytes = 8192
	maxGroupDepth   = 200
)

// pattern is a parsed ECMAScript regular expression without flags. Such an
// expression speaks of UTF-16 code units, so its characters are units and not
// runes: an astral character is a pair of them.
type pattern struct {
	root *node
	// groups is the number of capturing groups.
	groups int
}

type nodeKind uint8

const (
	nodeSet nodeKind = iota
	nodeSequence
	nodeChoice
	nodeGroup
	nodeCapture
	nodeLook
	nodeStart
	nodeEnd
	nodeBoundary
	nodeBackReference
	nodeRepeat
)

// node is one node of a pattern's syntax tree.
type node struct {
	kind nodeKind
	subs []*node
	// set holds the units of a nodeSet.
	set unitSet
	// number is the group of a nodeBackReference.
	number int
	// min, max and lazy describe a nodeRepeat; max is unbounded for no upper bound.
	min, max int
	lazy     bool
	// negative turns a nodeLook or nodeBoundary around; behind makes a nodeLook
	// look behind.
	negative, behind bool
}

// unbounded is the greatest count of a repetition; greater ones are cut to it,
// which no text is long enough to notice.
const unbounded = 1<<31 - 1

// unitRange is a range of UTF-16 code units, both ends included.
type unitRange struct{ lo, hi uint16 }

// unitSet is a set of code units.
type unitSet []unitRange

const maxUnit = 0xFFFF

// normal returns the set as ascending ranges that neither meet nor overlap.
func (s unitSet) normal() unitSet {
	sorted := slices.Clone(s)
	slices.SortFunc(sorted, func(a, b unitRange) int { return int(a.lo) - int(b.lo) })
	merged := sorted[:0]
	for _, r := range sorted {
		if n := len(merged); n > 0 && int(r.lo) <= int(merged[n-1].hi)+1 {
			merged[n-1].hi = max(merged[n-1].hi, r.hi)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// complement returns every unit that is not in s.
func (s unitSet) complement() unitSet {
	rest := unitSet{}
	next := 0
	for _, r := range s.normal() {
		if next < int(r.lo) {
			rest = append(rest, unitRange{uint16(next), r.lo - 1})
		}
		next = int(r.hi) + 1
	}
	if next <= maxUnit {
		rest = append(rest, unitRange{uint16(next), maxUnit})
	}
	return rest
}

// withoutSurrogates returns the units of s that are characters on their own.
func (s unitSet) withoutSurrogates() unitSet {
	return slices.Concat(s.complement(), unitSet{{0xD800, 0xDFFF}}).complement()
}

// onlySurrogates reports whether s is halves of pairs and nothing else.
func (s unitSet) onlySurrogates() bool { return len(s) > 0 && len(s.withoutSurrogates()) == 0 }

func unit(u uint16) unitSet { return unitSet{{u, u}} }

// The classes of ECMAScript without flags: digits and words are ASCII, white
// space is Unicode's with U+FEFF and the line terminators.
var (
	digitUnits = unitSet{{'0', '9'}}
	wordUnits  = unitSet{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	lineUnits  = unitSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}
	spaceUnits = unitSet{
		{'\t', '\r'},
		{' ', ' '},
		{0xA0, 0xA0},
		{0x1680, 0x1680},
		{0x2000, 0x200A},
		{0x2028, 0x2029},
		{0x202F, 0x202F},
		{0x205F, 0x205F},
		{0x3000, 0x3000},
		{0xFEFF, 0xFEFF},
	}
)

// classEscape returns the units of \d, \D, \s, \S, \w and \W.
func classEscape(letter uint16) (unitSet, bool) {
	switch letter {
	case 'd':
		return digitUnits, true
	case 'D':
		return digitUnits.complement(), true
	case 's':
		return spaceUnits, true
	case 'S':
		return spaceUnits.complement(), true
	case 'w':
		return wordUnits, true
	case 'W':
		return wordUnits.complement(), true
	}
	return nil, false
}

func units(text string) []uint16 { return utf16.Encode([]rune(text)) }
