// Package webhook executes a webhook hook: it resolves URL and headers, builds
// and signs the request, sends it once, and says in closed words what came of
// it. Retrying, ordering and logging the outcome belong to its callers.
//
// It protects two invariants. The bytes that are signed are the bytes that are
// sent; and no value of a variable, no query, no remote text and no address ever
// stands in a Result, an error or a log line.
//
// Every attempt leaves through an egress.Client: hooks of callers through one
// that reaches public addresses only, the operator's own hooks and
// application-relative URLs through another. Rules: docs/behaviour.md §6–§9.
package webhook
