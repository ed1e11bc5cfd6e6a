package tasks

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf16"

	"github.com/dlclark/regexp2/v2"
)

// DefaultMatchTimeout bounds one evaluation of a matcher that needs
// backtracking. All others take time linear in the tool's name.
const DefaultMatchTimeout = 50 * time.Millisecond

// matchClock is how often the backtracking engine looks at the time; a match
// is stopped at most two ticks after its limit.
const matchClock = 10 * time.Millisecond

// ErrMatchTimeout says that a matcher was stopped at its limit of time or
// memory. It is never read as "matches" nor as "does not match".
var ErrMatchTimeout = errors.New("matcher ran out of time")

// Matcher is a compiled tool matcher: an ECMAScript regular expression without
// flags that is searched, unanchored, in "identifier/apiName"
// (docs/behaviour.md §3). It is safe for concurrent use; the zero value matches
// everything.
//
// Patterns are those of ECMA-262 with its annex B, including look-around and
// back-references; limits beyond the standard are MaxMatcherBytes and the depth
// of groups. Text is matched as UTF-16 code units, as the standard says without
// the flag u. Half of a surrogate pair, which only an escape in JSON can name,
// becomes U+FFFD before it is matched.
type Matcher struct {
	// linear is nil when the pattern needs backtracking, and left aside when the
	// text is too long for work, the cost of one unit of text.
	linear *regexp.Regexp
	work   int
	// full is nil when everything matches.
	full *regexp2.Regexp
}

// maxLinearWork bounds units of text times size of the pattern for the linear
// engine, which cannot be stopped; beyond it the engine with a clock is used.
const maxLinearWork = 20_000_000

var (
	matchers     = newCache[string, *Matcher](4 << 20)
	matchTimeout atomic.Int64
)

func init() {
	matchTimeout.Store(int64(DefaultMatchTimeout))
	regexp2.SetTimeoutCheckPeriod(matchClock)
}

// SetMatchTimeout changes the time limit of matchers compiled from now on, for
// the whole process; 0 restores DefaultMatchTimeout. Call it before the first
// hook is read.
func SetMatchTimeout(limit time.Duration) {
	if limit <= 0 {
		limit = DefaultMatchTimeout
	}
	matchTimeout.Store(int64(limit))
	matchers.clear()
}

// CompileMatcher compiles pattern, or says why ECMAScript refuses it with an
// *InvalidError of the code InvalidMatcher. "" and "*" match everything.
func CompileMatcher(pattern string) (*Matcher, error) {
	if matchesAll(pattern) {
		return &Matcher{}, nil
	}
	if m, ok := matchers.get(pattern); ok {
		return m, nil
	}
	m, err := compileMatcher(pattern)
	if err != nil {
		return nil, &InvalidError{
			Code: InvalidMatcher, Message: "matcher does not compile: " + err.Error(),
			Fix: `use an ECMAScript regular expression without flags, "*" or ""`,
		}
	}
	matchers.put(strings.Clone(pattern), m, 4096+32*len(pattern))
	return m, nil
}

func matchesAll(pattern string) bool { return pattern == "" || pattern == "*" }

func compileMatcher(text string) (*Matcher, error) {
	parsed, err := parsePattern(text)
	if err != nil {
		return nil, err
	}
	m := &Matcher{}
	if m.full, err = regexp2.Compile(parsed.write(backtracking), regexp2.ECMAScript); err != nil {
		return nil, fmt.Errorf("engine refuses it: %w", err)
	}
	m.full.MatchTimeout = time.Duration(matchTimeout.Load())
	if m.work = parsed.root.size(); m.work > 0 {
		// The standard library has limits of its own (repetition, nesting); beyond
		// them the other engine does the work.
		if fast, err := regexp.Compile(parsed.write(linear)); err == nil {
			m.linear = fast
		}
	}
	return m, nil
}

// Match reports whether m matches the tool identifier/apiName. The error is
// ErrMatchTimeout when a limit came first.
func (m *Matcher) Match(identifier, apiName string) (bool, error) {
	return m.search(identifier + "/" + apiName)
}

func (m *Matcher) search(text string) (bool, error) {
	if m.full == nil {
		return true, nil
	}
	if m.linear != nil && len(text) <= maxLinearWork/m.work && plane0(text) {
		return m.linear.MatchString(text), nil
	}
	ok, err := m.full.MatchRunes(codeUnits(text))
	if err != nil {
		return false, ErrMatchTimeout
	}
	return ok, nil
}

// plane0 reports whether each character of text is one UTF-16 code unit, so
// that runes and units are the same. A four-byte sequence starts at 0xF0.
func plane0(text string) bool {
	for i := range len(text) {
		if text[i] >= 0xF0 {
			return false
		}
	}
	return true
}

// codeUnits returns the UTF-16 code units of text, one in each rune, as the
// backtracking engine sees them.
func codeUnits(text string) []rune {
	all := make([]rune, 0, len(text))
	for _, r := range text {
		if r > maxUnit {
			high, low := utf16.EncodeRune(r)
			all = append(all, standIn(uint16(high)), standIn(uint16(low)))
			continue
		}
		all = append(all, r)
	}
	return all
}

// Matches reports whether h's matcher selects ev. No matcher, "" and "*" select
// every event; a real pattern selects none that lacks a tool name. The hook's
// type is not looked at. An error is ErrMatchTimeout, or an *InvalidError for a
// pattern that was never validated.
func (h *Hook) Matches(ev *Event) (bool, error) {
	if h.Matcher == nil || matchesAll(*h.Matcher) {
		return true, nil
	}
	m, err := CompileMatcher(*h.Matcher)
	if err != nil || !ev.tool.ok {
		return false, err
	}
	return m.search(ev.tool.full)
}
