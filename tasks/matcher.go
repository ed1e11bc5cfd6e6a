package tasks

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlclark/regexp2"
)

// DefaultMatchTimeout bounds one evaluation of a matcher. Only patterns with
// look-around or back-references can come near it.
const DefaultMatchTimeout = 50 * time.Millisecond

// ErrMatchTimeout says that a matcher was stopped at its time limit. It is
// never read as "matches" nor as "does not match".
var ErrMatchTimeout = errors.New("matcher ran out of time")

// Matcher is a compiled tool matcher: an ECMAScript regular expression without
// flags that is searched, unanchored, in "identifier/apiName"
// (docs/behaviour.md §3). It is safe for concurrent use.
type Matcher struct {
	all bool
	re  *regexp2.Regexp
}

var matchers = newCache[string, *Matcher](4 << 20)

// CompileMatcher compiles pattern, or says why ECMAScript refuses it with an
// *InvalidError of the code InvalidMatcher. "" and "*" match everything.
func CompileMatcher(pattern string) (*Matcher, error) {
	if pattern == "" || pattern == "*" {
		return &Matcher{all: true}, nil
	}
	if m, ok := matchers.get(pattern); ok {
		return m, nil
	}
	re, err := regexp2.Compile(pattern, regexp2.ECMAScript)
	if err != nil {
		return nil, &InvalidError{Code: InvalidMatcher, Message: fmt.Sprintf("matcher does not compile: %v", err)}
	}
	re.MatchTimeout = DefaultMatchTimeout
	m := &Matcher{re: re}
	matchers.put(pattern, m, 1024)
	return m, nil
}

// Match reports whether m matches the tool identifier/apiName. The error is
// ErrMatchTimeout when the time limit came first.
func (m *Matcher) Match(identifier, apiName string) (bool, error) {
	return m.search(identifier + "/" + apiName)
}

func (m *Matcher) search(text string) (bool, error) {
	if m.all {
		return true, nil
	}
	ok, err := m.re.MatchString(text)
	if err != nil {
		return false, ErrMatchTimeout
	}
	return ok, nil
}

// Matches reports whether h's matcher selects ev. No matcher, "" and "*" select
// every event; a real pattern selects none that lacks a tool name. The hook's
// type is not looked at. An error is ErrMatchTimeout, or an *InvalidError for a
// pattern that was never validated.
func (h *Hook) Matches(ev *Event) (bool, error) {
	if h.Matcher == nil || *h.Matcher == "" || *h.Matcher == "*" {
		return true, nil
	}
	m, err := CompileMatcher(*h.Matcher)
	if err != nil || !ev.tool.ok {
		return false, err
	}
	return m.search(ev.tool.full)
}
