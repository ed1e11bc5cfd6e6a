package bench

import (
	"context"
	"errors"
	"time"

	"github.com/gantry-hooks/gantry/worker"
)

// repetitions of each measurement; medians count.
const repetitions = 3

// runTimeout bounds one repetition of one contender.
const runTimeout = 3 * time.Minute

// benchRetry is the delay after a failed request, for contenders alike.
const benchRetry = 200 * time.Millisecond

// Delivery measures how fast events of many operations reach an HTTP sink: a
// backlog, and with producers live; in order, also when requests fail.
func Delivery(ctx context.Context) (*Report, error) {
	s, err := startSystem(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	r := newReport("delivery")
	l := load{operations: 200, events: 200, size: 1024, path: "/hook", prefix: "op"}
	d := &deliveryBench{system: s, load: l}
	names := []string{"direct", "asynq_backlog", "gantry_backlog", "asynq_live", "gantry_live", "asynq_failing", "gantry_failing"}
	runs := map[string][]Figures{}
	for rep := range repetitions {
		for _, name := range names {
			f, err := d.run(ctx, name)
			if err != nil {
				return nil, err
			}
			note("delivery %d/%d %-15s %8.0f deliveries/s, %0.f inversions, %0.f lost", rep+1, repetitions, name, f["per_second"], f["inversions"], f["lost"])
			runs[name] = append(runs[name], f)
		}
	}
	for _, name := range names {
		r.Contenders[name] = mergeMedians(runs[name])
	}
	r.Figures["backlog_ratio"] = r.Contenders["gantry_backlog"]["per_second"] / r.Contenders["asynq_backlog"]["per_second"]
	r.Figures["live_ratio"] = r.Contenders["gantry_live"]["per_second"] / r.Contenders["asynq_live"]["per_second"]
	for _, name := range []string{"gantry_backlog", "gantry_live", "gantry_failing"} {
		for _, f := range runs[name] {
			r.Figures["inversions"] += f["inversions"]
			r.Figures["lost"] += f["lost"]
		}
	}
	r.Targets = map[string]Target{
		"backlog_ratio": AtLeast(3), "live_ratio": AtLeast(2), "inversions": AtMost(0), "lost": AtMost(0),
	}
	r.judge()
	return r, nil
}

type deliveryBench struct {
	system *system
	load   load
}

// run measures one contender once, on an empty Redis.
func (d *deliveryBench) run(ctx context.Context, name string) (Figures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, errors.New("bench "+name+" took too long"))
	defer cancel()
	if err := d.system.flush(ctx); err != nil {
		return nil, err
	}
	if err := d.system.sink.reset(ctx, d.load.total()); err != nil {
		return nil, err
	}
	l := d.load
	switch name {
	case "direct":
		return d.direct(ctx)
	case "asynq_backlog":
		return d.asynq(ctx, l, backlog)
	case "asynq_live":
		return d.asynq(ctx, l, live)
	case "asynq_failing":
		l.path += "?fail=1"
		return d.asynq(ctx, l, backlog)
	case "gantry_live":
		return d.gantry(ctx, l, live)
	case "gantry_failing":
		l.path += "?fail=1"
		return d.gantry(ctx, l, backlog)
	}
	return d.gantry(ctx, l, backlog)
}

// shape says whether the load waits before the worker starts.
type shape int

const (
	backlog shape = iota
	live
)

func (d *deliveryBench) gantry(ctx context.Context, l load, s shape) (Figures, error) {
	g, err := d.system.gantry(ctx, gantryOptions{retry: worker.RetryPolicy{InitialDelay: benchRetry, Jitter: -1}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.stop(context.WithoutCancel(ctx)) }()
	if err := g.register(ctx, l, d.system.sink.base); err != nil {
		return nil, err
	}
	start := func() error { return g.worker.Start(ctx) }
	if s == live {
		return d.measure(ctx, start, func() error { return g.produce(ctx, l) })
	}
	return d.measure(ctx, func() error { return g.preload(ctx, l) }, start)
}

func (d *deliveryBench) asynq(ctx context.Context, l load, s shape) (Figures, error) {
	a := d.system.asynq(l, asynqOptions{check: 10 * time.Millisecond, delayedCheck: 200 * time.Millisecond, retry: benchRetry})
	defer a.stop()
	produce := func() error { return a.produce(ctx, l) }
	if s == live {
		return d.measure(ctx, a.start, produce)
	}
	return d.measure(ctx, produce, a.start)
}

func (d *deliveryBench) direct(ctx context.Context) (Figures, error) {
	l, url := d.load, d.system.sink.base+d.load.path
	return d.measure(ctx, func() error { return nil }, func() error {
		return inParallel(ctx, slots, l.operations, func(ctx context.Context, o int) error {
			op := l.operation(o)
			for i := range l.events {
				if _, err := post(ctx, d.system.client, url, l.body(op, i, 0)); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// measure prepares, then times from the start of act to the last arrival.
func (d *deliveryBench) measure(ctx context.Context, prepare, act func() error) (Figures, error) {
	if err := prepare(); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := act(); err != nil {
		return nil, err
	}
	stats, err := d.system.sink.wait(ctx)
	if err != nil {
		return nil, err
	}
	elapsed := time.Unix(0, stats.LastAt).Sub(began).Seconds()
	return Figures{
		"per_second": float64(stats.Delivered) / elapsed, "inversions": float64(stats.Inversions),
		"lost": float64(d.load.total() - stats.Delivered), "repeats": float64(stats.Repeats),
	}, nil
}
