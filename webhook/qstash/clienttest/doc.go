// Package clienttest holds official QStash clients, in Go and in JavaScript,
// against gantry qstash dev and what it delivers. It has tests only: those of the
// Go client run with every other test; those of the JavaScript client need its
// package and the build tag clients, and are run by make test-clients.
package clienttest
