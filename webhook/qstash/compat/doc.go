// Package compat is a server that speaks QStash's HTTP API, for development and
// tests: the official clients publish to it unmodified, and the official
// receivers accept what it delivers. It signs every attempt afresh, retries with
// QStash's backoff, keeps queues in order, and can be told to misbehave in each
// way that a client or a receiver must survive (Fault).
//
// It protects one invariant: the destination is kept byte for byte, from the
// request line to the subject of the signature, so that a receiver which checks
// the URL is tested by what it will meet.
//
// Everything is kept in memory, in bounds, and is gone at the end. The server is
// an open sender of HTTP requests whose usual credentials are public, so it
// belongs on a loopback address only. It knows nothing of Gantry's publisher and
// verifier, so that neither is tested against itself. What it imitates and what
// it does not is in docs/qstash-dev.md.
package compat
