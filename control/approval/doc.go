// Package approval holds the messages of tool calls that wait for a human, and the
// publication of what the human answered (docs/behaviour.md §19).
//
// The invariant is that an answer is claimed first and seen later: a claim records
// the decision on the row and keeps the answer apart, where no reader of the row
// finds it. Only after the result controls have agreed is it published, once. Each
// step is one transition of the Store; the Register keeps nothing in memory.
package approval
