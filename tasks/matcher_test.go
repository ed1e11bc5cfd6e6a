package tasks_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

func TestMatcherFollowsECMAScript(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		why, pattern, identifier, apiName string
		want                              bool
	}{
		{"an empty matcher takes everything", "", "mail", "send", true},
		{"a lone star takes everything", "*", "mail", "send", true},
		{"search is not anchored", "ail/se", "mail", "send", true},
		{"case matters", "^MAIL/", "mail", "send", false},
		{"the alternation of the whole name", "^(mail/send|calendar/create)$", "mail", "create", false},
		{"a dot takes no line feed", "^fs/a.b$", "fs", "a\nb", false},
		{"a dot takes no line separator", "^fs/a.b$", "fs", "a\u2028b", false},
		{"a dot takes U+0085, which is no line terminator", "^fs/a.b$", "fs", "a\u0085b", true},
		{"$ is the very end", "^fs/read$", "fs", "read\n", false},
		{"^ is the very start only", "^read", "fs\n", "\nread", false},
		{"\\s takes the no-break space", `^fs/a\sb$`, "fs", "a\u00a0b", true},
		{"\\s takes the byte order mark", `^fs/a\sb$`, "fs", "a\ufeffb", true},
		{"\\s takes no zero width space", `^fs/a\sb$`, "fs", "a\u200bb", false},
		{"\\s takes no U+180E", `^fs/a\sb$`, "fs", "a\u180eb", false},
		{"\\s takes no U+0085", `^fs/a\sb$`, "fs", "a\u0085b", false},
		{"\\S is the complement", `^fs/a\Sb$`, "fs", "a\u00a0b", false},
		{"\\d is ASCII", `^fs/\d$`, "fs", "\u0663", false},
		{"\\w is ASCII", `^fs/\w$`, "fs", "é", false},
		{"\\W takes what \\w does not", `^fs/\W$`, "fs", "é", true},
		{"\\b is ASCII", `^fs/\bé`, "fs", "é", false},
		{"\\B is ASCII", `^fs/\Bé`, "fs", "é", true},
		{"\\p is the letter p", `^fs/\p{L}+$`, "fs", "p{L}}}", true},
		{"\\p is no class", `^fs/\p{L}+$`, "fs", "é", false},
		{"a brace that is no quantifier is literal", "^fs/p{L}+$", "fs", "p{L}}", true},
		{"a brace without a lower bound is literal", "^a{,3}/", "a{,3}", "x", true},
		{"an open brace alone is literal", "^{/}$", "{", "}", true},
		{"a closing bracket alone is literal", "^]/", "]", "x", true},
		{"an open brace quantifier", "^a{2,}/", "aaa", "x", true},
		{"leading zeros count nothing", "^a{00002}/", "aa", "x", true},
		{"\\1 refers to a group", `^(\w+)/\1$`, "echo", "echo", true},
		{"\\1 refers to what the group took", `^(\w+)/\1$`, "echo", "other", false},
		{"\\1 before its group is empty", `^\1(a)/`, "a", "x", true},
		{"\\1 in its own group is empty", `^(a\1)/`, "a", "x", true},
		{"a group that took no part is empty", `^(?:(a)|b)\1/`, "b", "x", true},
		{"each round of a loop forgets its groups", `^(?:(a)|b)*\1/`, "ab", "x", true},
		{"an empty round is undone with its groups", `^(?:(?=(a))){0,1}a\1/`, "a", "x", true},
		{"\\2 without a second group is octal", `^(a)\2/`, "a\u0002", "x", true},
		{"\\8 without a group is the digit", `^\8/`, "8", "x", true},
		{"\\10 with one group is octal 10", `^(a)\10/`, "a\b", "x", true},
		{"\\0 is NUL", `^\0/`, "\x00", "x", true},
		{"\\012 is a line feed", `^\012/`, "\n", "x", true},
		{"\\400 is \\40 and a 0", `^\400/`, " 0", "x", true},
		{"\\x41 is A", `^\x41/`, "A", "x", true},
		{"\\x4 is x4", `^\x4/`, "x4", "x", true},
		{"\\u0061 is a", `^\u0061/`, "a", "x", true},
		{"\\u{61} is 61 times u", `^\u{2}/`, "uu", "x", true},
		{"\\cA is U+0001", `^\cA/`, "\u0001", "x", true},
		{"\\c alone is a backslash and a c", `^\c/`, `\c`, "x", true},
		{"\\c1 in a class is U+0011", `^[\c1]/`, "\u0011", "x", true},
		{"\\c1 outside a class is three characters", `^\c1/`, `\c1`, "x", true},
		{"\\b in a class is a backspace", `^[\b]/`, "\b", "x", true},
		{"\\a is a", `^\a/`, "a", "x", true},
		{"\\A is A", `^\A/`, "A", "x", true},
		{"\\z is z", `x\z$`, "a", "xz", true},
		{"\\Q is Q", `^\Qa\E/`, "QaE", "x", true},
		{"\\k without named groups is k", `^\k/`, "k", "x", true},
		{"\\k<n> refers by name", `^(?<n>a)\k<n>/`, "aa", "x", true},
		{"\\k<n> may come first", `^\k<n>(?<n>a)/`, "a", "x", true},
		{"a name may be escaped", `^(?<\u0061>b)\k<a>/`, "bb", "x", true},
		{"an empty class takes nothing", "^[]/", "a", "x", false},
		{"a negated empty class takes all", "^[^]/", "\n", "x", true},
		{"a bracket first closes the class", "^[]a]/", "]a]", "x", false},
		{"a bracket in a class is literal", "^[[]/", "[", "x", true},
		{"a POSIX class is none", "^[[:alpha:]]/", "a]", "x", true},
		{"a POSIX class is a class and a bracket", "^[[:alpha:]]/", "p]", "x", true},
		{"a hyphen at the end is literal", "^[a-]/", "-", "x", true},
		{"a hyphen after a class is literal", `^[\d-x]/`, "-", "x", true},
		{"an escaped hyphen is literal", `^[a\-c]/`, "b", "x", false},
		{"an intersection is none", "^[a-z&&[b]]/", "&]", "x", true},
		{"look-ahead", "^mail/(?!delete)", "mail", "send", true},
		{"look-ahead refuses", "^mail/(?!delete)", "mail", "deleteAll", false},
		{"look-behind", "(?<=^mail/)send$", "mail", "send", true},
		{"look-behind with a loop", "(?<=a{2,3}/)x", "aa", "x", true},
		{"negative look-behind", "(?<!mail/)send$", "mail", "send", false},
		{"a look-ahead may be repeated", "^(?=a)*b/", "b", "x", true},
		{"lazy loops", "^a+?/", "aaa", "x", true},
		{"an astral character is two units for a dot", "^./", "😀", "x", false},
		{"two dots take an astral character", "^../", "😀", "x", true},
		{"a class takes half of an astral character", "^[😀]{2}/", "😀", "x", true},
		{"a literal astral character", "^😀/", "😀", "x", true},
		{"half a pair by escape", `^\ud83d\ude00/`, "😀", "x", true},
		{"a quantifier repeats the second half", "^😀{2}/", "😀😀", "x", false},
		{"empty names are a slash", "^/$", "", "", true},
		{"a slash needs no escape", "^mcp/github/search$", "mcp/github", "search", true},
		{"a slash may be escaped", `^mcp\/x$`, "mcp", "x", true},
		{"an alternative may be empty", "^(?:mail|)/send$", "", "send", true},
		{"big counts are cut", "^a{0,99999999999999999999}/", "aaa", "x", true},
		{"look-behind runs backwards", `(?<=\1(a)/)x`, "aa", "x", true},
		{"look-behind runs backwards, so its reference is set", `(?<=\1(a)/)x`, "ba", "x", false},
	} {
		t.Run(row.why, func(t *testing.T) {
			t.Parallel()
			m, err := tasks.CompileMatcher(row.pattern)
			if err != nil {
				t.Fatalf("CompileMatcher(%q): %v", row.pattern, err)
			}
			got, err := m.Match(row.identifier, row.apiName)
			if err != nil || got != row.want {
				t.Fatalf("%q on %q = %v, %v; want %v", row.pattern, row.identifier+"/"+row.apiName, got, err, row.want)
			}
		})
	}
}

func TestMatcherRefusesWhatECMAScriptRefuses(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		"(",
		"(mail",
		")",
		"*a",
		"**",
		"**/",
		"+",
		"?",
		"a**",
		"a++",
		"a?+",
		"a*+",
		"a{2}{3}",
		"{2}",
		"{1,2}",
		"^*",
		"$+",
		`\b*`,
		"(?<=a)*",
		"(?<!a)?",
		"x{4,2}",
		"[z-a]",
		"[b-a]",
		"[",
		"[a",
		"[^",
		"(?i)a",
		"(?i:a)",
		"(?-i:a)",
		"(?P<n>a)",
		"(?P=n)",
		"(?>a)",
		"(?#c)",
		"(?|a)",
		"(?",
		"(?<",
		"(?<>a)",
		"(?<1>a)",
		"(?<a",
		"(?<a b>c)",
		"(?<n>a)(?<n>b)",
		"(?<n>a)|(?<n>b)",
		`(?<n>a)\k`,
		`(?<n>a)\k<m>`,
		`(?<n>a)[\k]`,
		`\`,
		`a\`,
		`[\`,
		`[\ud83d-\ud83c]`,
		`(?<a>.)\k<`,
		"(?'n'a)",
		"(?(1)a)",
		"[😀-😂]",
		"a|*",
		"(*)",
		"(?:+)",
		strings.Repeat("(", 500) + strings.Repeat(")", 500),
		strings.Repeat("a", tasks.MaxMatcherBytes+1),
	} {
		_, err := tasks.CompileMatcher(pattern)
		var invalid *tasks.InvalidError
		if !errors.As(err, &invalid) || invalid.Code != tasks.InvalidMatcher {
			t.Errorf("CompileMatcher(%.40q) = %v, want %s", pattern, err, tasks.InvalidMatcher)
		}
	}
}

func TestMatcherStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{`^(a+)+(?!b)\1c`, `(?=x)(x+x+)+y`, `^(.*)(.*)(.*)(.*)(.*)(.*)\1q`} {
		m, err := tasks.CompileMatcher(pattern)
		if err != nil {
			t.Fatalf("CompileMatcher(%q): %v", pattern, err)
		}
		start := time.Now()
		_, err = m.Match(strings.Repeat("a", 4000)+strings.Repeat("x", 4000), "")
		if !errors.Is(err, tasks.ErrMatchTimeout) {
			t.Errorf("Match with %q: %v, want %v", pattern, err, tasks.ErrMatchTimeout)
		}
		if took := time.Since(start); took > 40*tasks.DefaultMatchTimeout {
			t.Errorf("Match with %q took %v", pattern, took)
		}
	}
}

func TestMatcherIsLinearWithoutLookAround(t *testing.T) {
	t.Parallel()
	m, err := tasks.CompileMatcher(`^(?:(?:a+)+)+c$`)
	if err != nil {
		t.Fatalf("CompileMatcher: %v", err)
	}
	got, err := m.Match(strings.Repeat("a", 20000), "")
	if err != nil || got {
		t.Fatalf("Match = %v, %v; want false without a timeout", got, err)
	}
}

func TestMatcherBoundsHugePrograms(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		`(?:(?:(?:[^/]{1000}){1000}){1000}){1000}`, `a{2147483647}`, `(?:a{999999999}){999999999}`,
		strings.Repeat(`[a-z]{1000}`, 700),
	} {
		m, err := tasks.CompileMatcher(pattern)
		if err != nil {
			t.Fatalf("CompileMatcher(%.40q): %v", pattern, err)
		}
		if got, err := m.Match("mail", "send"); got || err != nil && !errors.Is(err, tasks.ErrMatchTimeout) {
			t.Errorf("%.40q matches: %v, %v", pattern, got, err)
		}
	}
}

func TestHookMatches(t *testing.T) {
	t.Parallel()
	pattern := func(s string) *string { return &s }
	for _, row := range []struct {
		why     string
		matcher *string
		event   string
		want    bool
	}{
		{"no matcher takes an event without a tool", nil, `{}`, true},
		{"an empty matcher does", pattern(""), `{}`, true},
		{"a star does", pattern("*"), `{}`, true},
		{"a real pattern does not", pattern("."), `{}`, false},
		{"not without an apiName", pattern("send"), `{"identifier":"send"}`, false},
		{"not with an apiName that is no string", pattern("send"), `{"identifier":"send","apiName":1}`, false},
		{"empty names are names", pattern("^/$"), `{"identifier":"","apiName":""}`, true},
		{"keys are case-sensitive", pattern("."), `{"Identifier":"a","apiName":"b"}`, false},
		{"the last duplicate wins", pattern("^b/c$"), `{"identifier":"a","apiName":"c","identifier":"b"}`, true},
		{"escapes are decoded", pattern("^a/b$"), `{"\u0069dentifier":"\u0061","apiName":"b"}`, true},
	} {
		ev, err := tasks.DecodeEvent(tasks.BeforeToolCall, "op", []byte(row.event))
		if err != nil {
			t.Fatalf("%s: DecodeEvent: %v", row.why, err)
		}
		hook := tasks.Hook{Type: tasks.BeforeToolCall, Matcher: row.matcher}
		if got, err := hook.Matches(ev); err != nil || got != row.want {
			t.Errorf("%s: Matches = %v, %v; want %v", row.why, got, err, row.want)
		}
	}
}

// FuzzMatcherTranslate holds that any accepted pattern can be matched, and that
// both engines agree on it: a look-ahead that is always true forces the second.
func FuzzMatcherTranslate(f *testing.F) {
	for _, seed := range []string{
		`^mail/(?!delete)`, `(a|b)*\1`, `[^\s/]+/\w{2,}$`, `\cA[\c_]\x41\u0061\012`, `(?<n>.)\k<n>`, `[]|[^]`, `p{L}{1}`, "😀[😀]",
	} {
		f.Add(seed, "mail/send")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if len(pattern) > 200 || len(text) > 200 {
			return
		}
		m, err := tasks.CompileMatcher(pattern)
		if err != nil {
			return
		}
		if pattern == "" || pattern == "*" {
			return
		}
		other, err := tasks.CompileMatcher(pattern + "|(?=[])x")
		if err != nil {
			t.Fatalf("pattern %q compiles, but not as an alternative: %v", pattern, err)
		}
		got, err := m.Match(text, "")
		want, otherErr := other.Match(text, "")
		if err == nil && otherErr == nil && got != want {
			t.Fatalf("%q on %q: %v in one engine, %v in the other", pattern, text, got, want)
		}
	})
}
