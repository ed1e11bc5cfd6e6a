// Package qstash is the one place that speaks with QStash: it hands requests
// over to it (Publisher) and decides whether a request comes from it (Verifier).
// Nobody else imports the QStash SDK.
//
// Two invariants are kept here. A publish has one of six outcomes, and
// "unknown" is never taken for "not accepted": what may already be on its way is
// not sent by another road. And a request is genuine only if one of the
// configured, non-empty keys signed it for the very URL under which the endpoint
// is known, within its lifetime and over the very bytes that arrived. No error
// of this package holds a token, a key, a destination's query or a text that
// QStash sent.
//
// The package knows the words of tasks and the contract of webhook; it never
// imports producer, worker, control or config. Rules: docs/behaviour.md §9.
package qstash
