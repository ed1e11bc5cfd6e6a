// Package app is the composition root: a configuration goes in, a running
// system comes out. It wires the packages to each other, owns every connection
// and listener, starts and stops them in order, and can be embedded in a test.
//
// Only packages below cmd may import it.
package app
