package main

import (
	"runtime/debug"
	"testing"
)

// The heap may grow to the floor, and beyond it only as the runtime would.
func TestHeapFloor(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{
		1 << 20: 9500, 8 << 20: 1100, 24 << 20: 300, 48 << 20: 100, 500 << 20: 100,
	} {
		if got := gcPercent(live); got != want {
			t.Errorf("percent for %d MiB alive is %d, want %d", live>>20, got, want)
		}
	}
}

// Who sets GOGC has decided.
func TestHeapFloorLeavesGOGCAlone(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	keepHeapFloor(func(name string) (string, bool) { return "77", name == "GOGC" })
	if got := debug.SetGCPercent(before); got != 77 {
		t.Fatalf("percent is %d after a start with GOGC=77", got)
	}
}
