// Package producer is the Go face of Gantry for agent runtimes: a Dispatcher
// registers hooks for an operation, dispatches its events, waits for what
// became of them and asks local handlers for mocks.
//
// In local mode everything happens in the runtime's own process: handlers are
// called, webhooks are sent once, nothing is stored. In queue mode an event is
// appended to its operation's lane in Redis and workers deliver it; the
// Dispatcher only waits. However many callers wait, a process holds one
// blocking connection per shard. In QStash mode a runtime that reaches no Redis
// hands events to QStash, which carries them to the workers' endpoint; it hears
// no more of them.
//
// The invariant kept here: an event is either refused with an error, or known
// to match no hook, or handed over. A failure of a critical hook is never
// silent. The package meets the worker in tasks and tasks/lane only, and never
// imports worker or control.
package producer
