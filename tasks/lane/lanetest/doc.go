// Package lanetest is the conformance suite of lane stores. Run checks each
// transition of docs/state-machine.md by itself; RunModel plays random
// histories with crashes, lost replies and replays against a store and a plain
// in-memory model, which must agree after every step. A store's own tests call
// both; nothing else imports this package.
package lanetest
