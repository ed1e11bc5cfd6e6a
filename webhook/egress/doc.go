// Package egress is the only way out: an HTTP client that decides about an
// address before it connects to it. It classifies addresses by the IANA
// special-purpose registries, resolves a name once, judges every address of the
// answer, and dials the very address that it judged, so that a name which
// changes its mind between check and connection gains nothing.
//
// It protects one invariant: no byte leaves for an address that the client's
// Policy refuses, whatever the spelling of the host, a reply's redirect, a
// proxy or a reused connection say. A Client has one policy for its whole life,
// and the zero Client refuses everything.
//
// Every package that calls an address chosen by somebody else takes a *Client.
// Rules: docs/behaviour.md §8.
package egress
