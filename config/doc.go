// Package config reads the settings of a whole Gantry deployment: flags over
// environment variables over a YAML file over defaults, into plain structs. It
// also reads what a deployment brings beside its settings: the environment's
// own hooks (docs/behaviour.md §17), a reloadable file of variables, and files
// of hooks.
//
// The package protects two things. Every mistake is reported at once, with the
// place of the value, what is wrong with it and what would be right; and a
// secret never leaves through a message, a dump or a log.
//
// Only cmd may import it. Every other package takes a small Config of its own,
// and the composition root copies the fields over.
package config

//go:generate go test . -run TestReferenceIsCheckedIn -update
