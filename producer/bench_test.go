package producer_test

import (
	"testing"

	"github.com/gantry-hooks/gantry/producer"
)

func BenchmarkEnqueue(b *testing.B) {
	store := newScripted()
	d, err := producer.New(producer.Config{Mode: producer.ModeQueue, Store: store})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	register(b, d, webhookHook("a", ""), webhookHook("b", ""))
	ev := event(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Enqueue(b.Context(), operation, ev); err != nil {
			b.Fatal(err)
		}
	}
}
