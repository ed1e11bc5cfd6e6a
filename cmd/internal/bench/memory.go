package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Memory measures what a pending event costs in Redis: the same task documents
// in lanes and as asynq tasks.
func Memory(ctx context.Context) (*Report, error) {
	s, err := startSystem(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	b := &memoryBench{system: s, load: load{operations: 200, events: 100, size: 1024, path: "/hook", prefix: "op"}}
	r := newReport("memory")
	var ours, raw []Figures
	for rep := range repetitions {
		g, err := b.measure(ctx, b.lanes)
		if err != nil {
			return nil, err
		}
		a, err := b.measure(ctx, b.asynq)
		if err != nil {
			return nil, err
		}
		note("memory %d/%d gantry %.0f, asynq %.0f bytes per event", rep+1, repetitions, g["bytes_per_event"], a["bytes_per_event"])
		ours, raw = append(ours, g), append(raw, a)
	}
	r.Contenders["gantry"], r.Contenders["asynq"] = mergeMedians(ours), mergeMedians(raw)
	r.Figures["bytes_ratio"] = r.Contenders["gantry"]["bytes_per_event"] / r.Contenders["asynq"]["bytes_per_event"]
	r.Targets = map[string]Target{"bytes_ratio": AtMost(0.85)}
	r.judge()
	return r, nil
}

type memoryBench struct {
	system *system
	load   load
}

// documents are the encoded tasks of one operation.
func (b *memoryBench) documents(operation string) ([]lane.Item, error) {
	hooks, err := tasks.EncodeHooks(b.load.hooks("http://127.0.0.1:1"))
	if err != nil {
		return nil, err
	}
	items := make([]lane.Item, b.load.events)
	for i := range items {
		t := &tasks.Task{ID: tasks.NewID(), OperationID: operation, Type: tasks.AfterStep, Event: b.load.body(operation, i, 0), Hooks: hooks, EnqueuedAt: 1764526000000}
		doc, err := t.Encode()
		if err != nil {
			return nil, err
		}
		items[i] = lane.Item{ID: t.ID, Doc: doc, Digest: tasks.ContentDigest(t.Type, t.Event)}
	}
	return items, nil
}

func (b *memoryBench) measure(ctx context.Context, fill func(context.Context) error) (Figures, error) {
	if err := b.system.flush(ctx); err != nil {
		return nil, err
	}
	before, err := b.usedMemory(ctx)
	if err != nil {
		return nil, err
	}
	if err := fill(ctx); err != nil {
		return nil, err
	}
	after, err := b.usedMemory(ctx)
	if err != nil {
		return nil, err
	}
	return Figures{"bytes_per_event": (after - before) / float64(b.load.total())}, nil
}

func (b *memoryBench) lanes(ctx context.Context) error {
	g, err := b.system.gantry(ctx, gantryOptions{})
	if err != nil {
		return err
	}
	defer func() { _ = g.stop(context.WithoutCancel(ctx)) }()
	for o := range b.load.operations {
		items, err := b.documents(b.load.operation(o))
		if err != nil {
			return err
		}
		// One at a time, as live producers do: what is stored must not depend on it.
		for i := range items {
			if _, err := g.store.Append(ctx, b.load.operation(o), items[i:i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *memoryBench) asynq(ctx context.Context) error {
	c := b.system.connect()
	defer c.Close()
	client := asynq.NewClientFromRedisClient(c)
	for o := range b.load.operations {
		items, err := b.documents(b.load.operation(o))
		if err != nil {
			return err
		}
		for _, it := range items {
			if _, err := client.EnqueueContext(ctx, asynq.NewTask(rawType, it.Doc)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *memoryBench) usedMemory(ctx context.Context) (float64, error) {
	c := b.system.connect()
	defer c.Close()
	info, err := c.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("read INFO memory: no used_memory")
}
