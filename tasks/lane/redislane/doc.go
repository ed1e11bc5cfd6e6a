// Package redislane keeps lanes in Redis. It is the only home of lane keys and
// of the Lua that changes them: scripts/<transition>.lua, one script per
// transition, each with its contract in its header, each on the keys of one
// shard and therefore on one cluster slot.
//
// Redis TIME is the only clock: leases, due times and windows are computed
// inside the scripts, and Go never compares its own clock with a score. Every
// transition may be repeated after a lost reply.
package redislane
