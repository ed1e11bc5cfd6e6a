// Package taskdoor is the door through which serialized tasks come in from
// QStash: POST /v1/qstash/tasks. It lets in what one of the account's keys signed
// for the door's public URL, or what a runtime signed itself when QStash would
// not take it, and nothing else.
//
// With lanes a task joins its operation's lane and the worker delivers it.
// Without, the door delivers at once, and QStash repeats what fails. Either way a
// message is worked on by one at a time, is not repeated once it is done, and
// keeps its place behind the earlier messages of its stream as long as these can
// still come. The invariant: a message is answered with success only when its
// work is stored or delivered.
//
// The door knows lanes, deliverers and claims by small interfaces of its own; the
// handler for it is put up by cmd/internal/app. Rules: docs/behaviour.md §9.
package taskdoor
