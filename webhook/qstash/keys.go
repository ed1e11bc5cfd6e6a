package qstash

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The credentials of the local QStash servers, which everybody knows.
const (
	DevToken      = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0="
	DevCurrentKey = "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r"
	DevNextKey    = "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs"
)

// publishedKeys are the signing keys of all users of the local servers.
var publishedKeys = []string{
	DevCurrentKey, DevNextKey,
	"sig_7GVPjvuwsfqF65iC8fSrs1dfYruM", "sig_5NoELc3EFnZn4DVS5bDs2Nk4b7Ua",
	"sig_6jWGaWRxHsw4vMSJprXadyvrybF", "sig_7qHbvhmahe5GwfePDiS5Lg3pi6Qx",
	"sig_5T8FcSsynBjn9mMLBsXhpacRovJf", "sig_7GFR4YaDshFcqsxWRZpRB161jguD",
}

// KeyPolicy says which signing keys are good enough.
type KeyPolicy bool

// The policies; the zero value means Production.
const (
	// Production refuses the keys of the local servers.
	Production KeyPolicy = false
	// Development takes them.
	Development KeyPolicy = true
)

// What is wrong with signing keys. None of the texts holds a key.
var (
	ErrNoKey          = errors.New("no QStash signing key")
	ErrKeyFormat      = errors.New("QStash signing key holds white space or another character that no key has")
	ErrDevelopmentKey = errors.New("QStash signing key is the published one of the local servers, which anybody can sign with")
)

// Keys are the signing keys of one QStash account: the current one, and the next
// one, which signs after a rotation. One of them may be missing. The zero value
// holds no key and verifies nothing. Whatever prints Keys does not show them.
type Keys struct{ current, next []byte }

// ParseKeys checks the two signing keys. An empty one is left out and never
// tried: a token that was made with the empty key must not pass. Two empty ones
// are ErrNoKey; other errors are ErrKeyFormat, and ErrDevelopmentKey under the
// policy Production (docs/behaviour.md §9).
func ParseKeys(current, next string, policy KeyPolicy) (Keys, error) {
	if current == "" && next == "" {
		return Keys{}, ErrNoKey
	}
	for _, key := range []string{current, next} {
		if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return Keys{}, ErrKeyFormat
		}
		if policy == Production && slices.Contains(publishedKeys, key) {
			return Keys{}, ErrDevelopmentKey
		}
	}
	return Keys{current: []byte(current), next: []byte(next)}, nil
}

// Rotatable reports whether both keys are known, so that a rotation of the keys
// is survived.
func (k Keys) Rotatable() bool { return len(k.current) > 0 && len(k.next) > 0 }

func (k Keys) empty() bool { return len(k.current) == 0 && len(k.next) == 0 }

// String hides the keys.
func (k Keys) String() string {
	switch {
	case k.empty():
		return "[no QStash signing key]"
	case k.Rotatable():
		return "[2 QStash signing keys]"
	}
	return "[1 QStash signing key]"
}

// Format hides the keys from every verb of fmt.
func (k Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText hides the keys.
func (k Keys) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
