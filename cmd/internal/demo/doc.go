// Package demo is the show of "gantry dev": a receiver that misbehaves by path,
// an agent run that is played through the HTTP API as any runtime would, a live
// view of what is delivered and decided, and a judgement whether all of it came as promised.
//
// The judgement compares what the receiver saw with what the files of the run
// ask for; it takes no word of the worker for it.
package demo
