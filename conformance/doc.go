// Package conformance runs the cases of the lobe dialect, files in the format
// lobe-hooks-conformance/1, against the real parts of Gantry: its parser, its
// dispatcher, a worker on a real Redis, and its deliverer on real sockets. What
// the cases fix (environment, clock, receivers, the directory of emails) is
// injected where a deployment would inject its own.
//
//	go test ./conformance -v                  the cases of the project
//	go test ./conformance -v -cases=DIR       those of another directory
//
// The table at the end needs -v, since the go command drops what a passing
// package prints; a failing one shows it without.
//
// A case passes, fails or is unsupported. Unsupported is what Gantry, or this
// harness, does not do yet; it is counted apart and never as passed. A case
// with a field that the harness does not know has failed. The package holds
// tests only, and nothing outside of it knows of cases.
package conformance
