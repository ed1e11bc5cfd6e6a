package tasks

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
)

// HookInForce is a hook that an event must reach, with the name under which
// its deliveries stand in Redis.
type HookInForce struct {
	// Hook is shared and read-only.
	Hook *Hook
	// Key is HookKey of the hook and its occurrence.
	Key string
	// Occurrence counts hooks in force with the same id, type and matcher, from 0.
	Occurrence int
}

// MatchFailure is a hook whose matcher gave no answer. It counts as a failed
// delivery with the class configuration, never as a match.
type MatchFailure struct {
	HookInForce
	Err error
}

// HookKey returns the short name of a hook in Redis: 16 characters of base64url
// over id, type and matcher, and the occurrence among hooks that share all
// three. It outlives changes of everything else in the hook.
func HookKey(h *Hook, occurrence int) string {
	return hookIdentity(h) + "." + strconv.Itoa(occurrence)
}

// identity is what makes two hooks the same hook for Redis.
type identity struct {
	id, matcher string
	hookType    HookType
	matched     bool
}

func identityOf(h *Hook) identity {
	i := identity{id: h.ID, hookType: h.Type}
	if h.Matcher != nil {
		i.matcher, i.matched = *h.Matcher, true
	}
	return i
}

var identities = newCache[identity, string](1 << 20)

func hookIdentity(h *Hook) string {
	who := identityOf(h)
	if key, ok := identities.get(who); ok {
		return key
	}
	buf := appendPart(make([]byte, 0, 128), who.id)
	buf = appendPart(buf, string(who.hookType))
	if who.matched {
		buf = appendPart(buf, who.matcher)
	}
	sum := sha256.Sum256(buf)
	key := base64.RawURLEncoding.EncodeToString(sum[:12])
	who.id, who.matcher = strings.Clone(who.id), strings.Clone(who.matcher)
	identities.put(who, key, len(who.id)+len(who.matcher)+96)
	return key
}

// InForce selects the hooks that must hear of ev (docs/behaviour.md §3-§5): of
// its type, not deciding about a tool call, with an action, and matching; first
// the caller's in their order, then the environment's. A caller's hook with a
// reserved id is dropped. Hooks whose matcher gave no answer come back apart.
func InForce(ev *Event, caller, env []Hook) ([]HookInForce, []MatchFailure) {
	s := selection{event: ev}
	for i := range caller {
		if !caller[i].Environment() {
			s.consider(&caller[i])
		}
	}
	for i := range env {
		s.consider(&env[i])
	}
	return s.hooks, s.failures
}

type selection struct {
	event *Event
	// controls selects the hooks that decide instead of those that observe.
	controls bool
	hooks    []HookInForce
	failures []MatchFailure
	// counts takes over from looking through hooks and failures once they are many.
	counts map[identity]int
}

// few is the number of hooks up to which looking through them costs less than a
// map.
const few = 16

func (s *selection) consider(h *Hook) {
	if h.Type != s.event.Type || h.Control() != s.controls || (h.Webhook == nil && h.Handler == nil) {
		return
	}
	matches, err := h.Matches(s.event)
	if err != nil {
		n := s.occurrence(h)
		hook := HookInForce{Hook: h, Key: HookKey(h, n), Occurrence: n}
		s.failures = append(s.failures, MatchFailure{HookInForce: hook, Err: err})
		return
	}
	if matches {
		n := s.occurrence(h)
		s.hooks = append(s.hooks, HookInForce{Hook: h, Key: HookKey(h, n), Occurrence: n})
	}
}

// occurrence counts the selected hooks that are h for Redis; h is selected next.
func (s *selection) occurrence(h *Hook) int {
	who := identityOf(h)
	if s.counts == nil && len(s.hooks)+len(s.failures) < few {
		n := 0
		s.selected(func(i identity) {
			if i == who {
				n++
			}
		})
		return n
	}
	if s.counts == nil {
		s.counts = map[identity]int{}
		s.selected(func(i identity) { s.counts[i]++ })
	}
	n := s.counts[who]
	s.counts[who]++
	return n
}

func (s *selection) selected(visit func(identity)) {
	for i := range s.hooks {
		visit(identityOf(s.hooks[i].Hook))
	}
	for i := range s.failures {
		visit(identityOf(s.failures[i].Hook))
	}
}
