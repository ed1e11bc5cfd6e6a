// Package lane is the contract of an operation's lane: the ordered queue of
// its events, the queues of deliveries parked per hook, and what their
// transitions take and give. It holds types and errors only; redislane keeps
// them in Redis, lanetest tests any store, and producer and worker meet here.
//
// A lane is idle, ready (some worker should claim it) or claimed (one worker
// holds its lease). A parked queue is waiting, ready or claimed in the same way.
// docs/state-machine.md draws both.
package lane
