// Package redisdeferred keeps deferred results in Redis. It is the only home of
// their keys and of the Lua that changes them: scripts/<transition>.lua, one script
// per transition, each with its contract in its header, each on one cluster slot.
//
// Redis TIME is the only clock, everything expires, and every transition may be
// repeated after a lost reply.
package redisdeferred
