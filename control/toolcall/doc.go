// Package toolcall runs one tool call of a Go runtime whole: before controls,
// observations, mocks, execution with retries, after controls, and the
// notification, in the one order that is right (docs/behaviour.md §14). Each step
// can be taken by itself too, and BuildContext gathers what the events of a call
// say about it (§16).
//
// The invariant kept here: a tool runs only after an explicit allow, a result is
// used only after an explicit allow, and of a denied result nothing is left
// anywhere, neither in the outcome, nor in a notification, a log or an error.
//
// The package knows no dispatcher. What it needs of one it declares as small
// interfaces, all of which a *producer.Dispatcher has.
package toolcall
