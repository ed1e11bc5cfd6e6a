package config

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// masked stands for a secret wherever one would be shown.
const masked = "[redacted]"

// Secret is a value that never prints: every way to format, log or encode it
// gives "[redacted]", or nothing when it is empty. Reveal returns the value.
type Secret string

// Reveal returns the secret itself, for the one place that uses it.
func (s Secret) Reveal() string { return string(s) }

// String returns "[redacted]", or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return masked
}

// GoString is String, so that %#v shows nothing either.
func (s Secret) GoString() string { return s.String() }

// Format writes String whatever the verb, because %x or %q of the underlying
// string would give the secret away.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText makes JSON, and every encoder that knows text, write String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalYAML makes a YAML encoder write String.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// RedisURL is the address of a Redis server. It may carry a password, so it
// prints without its user part and query. Reveal returns the whole.
type RedisURL string

// Reveal returns the address with its credentials, for the Redis client.
func (u RedisURL) Reveal() string { return string(u) }

// String returns the address with its user part and query masked.
func (u RedisURL) String() string {
	if u == "" {
		return ""
	}
	parsed, err := url.Parse(string(u))
	if err != nil || parsed.Host == "" && parsed.Path == "" {
		return masked
	}
	var b strings.Builder
	b.WriteString(parsed.Scheme + "://")
	if parsed.User != nil {
		b.WriteString(masked + "@")
	}
	b.WriteString(parsed.Host + parsed.EscapedPath())
	if parsed.RawQuery != "" {
		b.WriteString("?" + masked)
	}
	return b.String()
}

// GoString is String, so that %#v shows no password.
func (u RedisURL) GoString() string { return u.String() }

// Format writes String whatever the verb.
func (u RedisURL) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(u.String())) }

// MarshalText makes JSON, and every encoder that knows text, write String.
func (u RedisURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// MarshalYAML makes a YAML encoder write String.
func (u RedisURL) MarshalYAML() (any, error) { return u.String(), nil }

// Size is a number of bytes, written as a plain number or with a unit: B, KiB,
// MiB, GiB (powers of 1,024) or kB, MB, GB (powers of 1,000).
type Size int64

// units are tried in order, so each suffix stands before its own suffixes.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"B", 1},
	{"", 1},
}

// String writes the size with the largest binary unit that divides it.
func (s Size) String() string {
	for _, unit := range units[:3] {
		if s != 0 && int64(s)%unit.bytes == 0 {
			return strconv.FormatInt(int64(s)/unit.bytes, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

func parseSize(text string) (Size, bool) {
	for _, unit := range units {
		digits, found := strings.CutSuffix(text, unit.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > (1<<62)/unit.bytes {
			return 0, false
		}
		return Size(n * unit.bytes), true
	}
	return 0, false
}
