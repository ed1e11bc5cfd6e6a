package redisverdict_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/questions.md lists every key that a shard may hold, and no other.
func TestKeysAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/questions.md")
	check(t, "read page", err)
	_, table, ok := strings.Cut(string(page), "\n## Keys\n")
	if !ok {
		t.Fatal("page has no part Keys")
	}
	var documented []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, kindOfKey(row[1]))
	}
	var used []string
	for _, key := range keyKinds {
		used = append(used, kindOfKey(strings.TrimPrefix(key, prefix)))
	}
	slices.Sort(documented)
	slices.Sort(used)
	same(t, "documented keys", documented, slices.Compact(used))
}

// kindOfKey leaves the fixed part of a key: what stands before the first colon.
func kindOfKey(key string) string {
	kind, _, _ := strings.Cut(key, ":")
	return kind
}
