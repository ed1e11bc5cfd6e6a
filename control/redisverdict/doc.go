// Package redisverdict carries questions and verdicts over Redis. It is the only
// home of the control keys and of the Lua that changes them:
// scripts/<transition>.lua, one script per transition, each with its contract in
// its header, each on the keys of one shard and therefore on one cluster slot.
//
// A question has one verdict. The first that is written stands and everybody
// reads it; after the deadline the asker's fallback stands, whoever looks.
// Redis TIME is the only clock. Every transition may be repeated after a lost
// reply.
package redisverdict
