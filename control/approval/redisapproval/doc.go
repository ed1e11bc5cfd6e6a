// Package redisapproval keeps approvals in Redis. It is the only home of their keys
// and of the Lua that changes them: scripts/<transition>.lua, one script per
// transition, each with its contract in its header. The operation places a row, so
// that all rows of a batch share one cluster slot.
//
// Redis TIME is not needed: nothing here depends on the time but what expires, and
// everything does. Every transition may be repeated after a lost reply.
package redisapproval
