// Package deferred holds the results of tool calls that come later: a placeholder
// is opened when the call is made, a callback completes it, and whoever needs the
// result waits for it (docs/behaviour.md §18).
//
// The invariant is one final result: a callback is asked about first and published
// once, and whatever comes after, the first one stands, be it a denial or empty.
// What becomes of a placeholder is decided by its Store alone; the Service keeps
// nothing in memory.
package deferred
