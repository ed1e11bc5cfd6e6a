package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapFloor is the heap size below which collecting garbage is not worth its
// time. A worker holds a few megabytes and makes a hundred times as much garbage
// each second, which by default means a dozen collections.
const heapFloor = 96 << 20

const liveHeap = "/gc/heap/live:bytes"

// keepHeapFloor lets the heap grow to heapFloor before it is collected, or to
// twice of what lives when that is more, as ever. Who sets GOGC decides alone;
// GOMEMLIMIT holds in any case.
func keepHeapFloor(env func(string) (string, bool)) {
	if _, set := env("GOGC"); set {
		return
	}
	adjustHeap()
}

// adjustHeap sets the pace of the collector for what lives now, and comes again
// after the next collection.
func adjustHeap() {
	sample := []metrics.Sample{{Name: liveHeap}}
	metrics.Read(sample)
	live := uint64(1)
	if sample[0].Value.Kind() == metrics.KindUint64 {
		live = max(live, sample[0].Value.Uint64())
	}
	debug.SetGCPercent(gcPercent(live))
	// A new object each time: a finalizer runs once.
	next := new(*int)
	runtime.SetFinalizer(next, func(**int) { adjustHeap() })
}

// gcPercent is the growth that takes a heap with so much alive to the floor, and
// at least the runtime's own default.
func gcPercent(live uint64) int {
	const usual = 100
	if live >= heapFloor/2 {
		return usual
	}
	return int((heapFloor - live) * 100 / max(live, 1<<20))
}
