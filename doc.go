// Package gantry is the root of the module and holds no code: its tests keep
// the laws of the tree, which package may import which, where a third-party
// library has its home, and how long a file may grow. docs/adr/ says why.
//
// Start with package producer to dispatch hook events from Go, or with the
// command cmd/gantry for everything else.
package gantry
