// Package worker drains lanes: it claims ready queues, hands each event to its
// hooks in order, settles what came of it and keeps trying what failed, until
// every delivery is delivered, discarded by a rule, or a dead letter.
//
// One file per actor: listener (claims), drainer (delivers), heartbeat (renews
// leases), sweeper (revives what is due), publisher (tells producers about the
// environment hooks), background (the asynq server). All of them share nothing
// but the registry of held queues and the slots that bound concurrency.
//
// The invariant is that nothing leaves Redis before it is settled there, and that
// no delivery starts under a lease that may have ended.
package worker
