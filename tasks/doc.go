// Package tasks holds the words that every part of Gantry shares: hook types
// and their events, hooks and their webhook configuration, the task that
// carries one event through Redis, failure classes, error codes and log keys,
// together with the pure functions on them (JSON codec, validation, matcher).
//
// It is a leaf: it imports nothing of this module, holds no state beyond
// caches, and never talks to the network. Its rules are written down in
// docs/behaviour.md, its JSON in docs/wire.md and docs/events.md.
package tasks
