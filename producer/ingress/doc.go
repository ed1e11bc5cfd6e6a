// Package ingress is the HTTP face of Gantry for runtimes in any language: it
// registers the hooks of operations, takes their events into the queue, tells
// and awaits what became of them, and shows lanes and dead letters to operators.
// docs/http-api.md describes it for callers, docs/openapi.json is its contract.
//
// The invariant kept here: the JSON of hooks and events passes through byte for
// byte and is judged by package tasks alone; a request is stored as a whole or
// refused with a problem document that says where and why. Ending a request
// ends its waiting, never the work. No error text of unknown origin, no token
// and no address leaves the process.
//
// The package meets the worker in tasks and tasks/lane only. It is wired by the
// composition root, which also owns the http.Server and its timeouts.
package ingress
