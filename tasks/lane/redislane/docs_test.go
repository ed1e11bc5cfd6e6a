package redislane_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// docs/state-machine.md lists every key that a shard may hold, and no other.
func TestKeysAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/state-machine.md")
	check(t, "read page", err)
	_, table := cut(t, string(page), "## Keys")
	first := regexp.MustCompile(`(?m)^\| ([^|]+) \|`)
	name := regexp.MustCompile("`([^`]+)`")
	var documented []string
	for _, row := range first.FindAllStringSubmatch(table, -1) {
		for _, n := range name.FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, kindOf(n[1]))
		}
	}
	var used []string
	for _, k := range keyKinds {
		used = append(used, kindOf(k))
	}
	slices.Sort(documented)
	slices.Sort(used)
	same(t, "documented keys", documented, slices.Compact(used))
}

// kindOf leaves the fixed part of a key: what stands before the first colon, and
// a colon when something follows.
func kindOf(key string) string {
	return regexp.MustCompile(`:.*`).ReplaceAllString(key, ":")
}

func cut(t *testing.T, text, at string) (before, after string) {
	t.Helper()
	parts := regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(at)+`$`).Split(text, 2)
	if len(parts) != 2 {
		t.Fatalf("page has no part %q", at)
	}
	return parts[0], parts[1]
}
