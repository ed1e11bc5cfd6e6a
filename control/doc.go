// Package control asks whether a tool call may go ahead and whether its result
// may be used, and gets exactly one answer by the deadline, whatever dies
// (docs/behaviour.md §12, §13).
//
// A Client asks. With an Exchange it hands the question to whichever worker has
// an Answerer, over Redis; without one it evaluates here. An Evaluator asks the
// controls one after the other and applies their failure policy.
package control
