// Package feed reads files of hooks and events and sends them to a running
// Gantry: what "gantry enqueue" does, and the demonstration as well.
//
// An event keeps its id from run to run: the one of the file, or one that is
// made from its content. So a feed that broke off is simply sent again, and what
// was stored before is joined, not doubled.
package feed
