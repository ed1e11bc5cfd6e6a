package bench

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/gantry-hooks/gantry/producer"
)

const (
	isolationSpan   = 10 * time.Second
	isolationHung   = 500
	isolationCutoff = 10 * time.Second
)

// Isolation measures what one operation, whose endpoint hangs for 30 s per
// request with 500 events queued, does to 99 healthy ones.
func Isolation(ctx context.Context) (*Report, error) {
	s, err := startSystem(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	b := &isolationBench{system: s, load: load{operations: 99, events: 50, size: 1024, path: "/hook", prefix: "healthy"}}
	r := newReport("isolation")
	var calm, hung []Figures
	for rep := range repetitions {
		c, err := b.gantry(ctx, 0)
		if err != nil {
			return nil, err
		}
		h, err := b.gantry(ctx, isolationHung)
		if err != nil {
			return nil, err
		}
		note("isolation %d/%d gantry p99 %.2f ms alone, %.2f ms beside the hanging operation", rep+1, repetitions, c["p99_ms"], h["p99_ms"])
		calm, hung = append(calm, c), append(hung, h)
	}
	raw, err := b.asynq(ctx)
	if err != nil {
		return nil, err
	}
	r.Contenders["gantry_alone"], r.Contenders["gantry_beside_hanging"], r.Contenders["asynq_beside_hanging"] = mergeMedians(calm), mergeMedians(hung), raw
	r.Figures["p99_ratio"] = r.Contenders["gantry_beside_hanging"]["p99_ms"] / r.Contenders["gantry_alone"]["p99_ms"]
	r.Figures["lost"] = r.Contenders["gantry_beside_hanging"]["lost"]
	r.Targets = map[string]Target{"p99_ratio": AtMost(2), "lost": AtMost(0)}
	r.judge()
	return r, nil
}

type isolationBench struct {
	system *system
	load   load
}

func (b *isolationBench) gantry(ctx context.Context, hung int) (Figures, error) {
	if err := b.system.flush(ctx); err != nil {
		return nil, err
	}
	g, err := b.system.gantry(ctx, gantryOptions{})
	if err != nil {
		return nil, err
	}
	// The hanging request is in flight at the end; it need not be waited for.
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Millisecond)
	defer cancel()
	defer func() { _ = g.stop(stop) }()
	if err := g.register(ctx, b.load, b.system.sink.base); err != nil {
		return nil, err
	}
	if err := b.hang(ctx, g, hung); err != nil {
		return nil, err
	}
	if err := g.worker.Start(ctx); err != nil {
		return nil, err
	}
	return b.healthy(ctx, func(o, i int) error {
		op := b.load.operation(o)
		ev, err := b.load.event(op, i, time.Now().UnixMicro())
		if err != nil {
			return err
		}
		_, err = g.dispatcher.Enqueue(ctx, op, ev)
		return err
	})
}

// hang queues n events of one operation whose endpoint hangs.
func (b *isolationBench) hang(ctx context.Context, g *gantry, n int) error {
	if n == 0 {
		return nil
	}
	l := load{operations: 1, events: n, size: 1024, path: "/hang", prefix: "hanging"}
	if err := g.register(ctx, l, b.system.sink.base); err != nil {
		return err
	}
	var requests []producer.EventRequest
	for i := range n {
		ev, err := l.event(l.operation(0), i, 0)
		if err != nil {
			return err
		}
		requests = append(requests, producer.EventRequest{Event: ev})
	}
	_, err := g.dispatcher.EnqueueMany(ctx, l.operation(0), requests)
	return err
}

// healthy sends the healthy events evenly over the span and returns how late
// they arrived.
func (b *isolationBench) healthy(ctx context.Context, send func(operation, event int) error) (Figures, error) {
	total := b.load.total()
	if err := b.system.sink.reset(ctx, total); err != nil {
		return nil, err
	}
	gap := isolationSpan / time.Duration(total)
	began := time.Now()
	for n := range total {
		if err := send(n%b.load.operations, n/b.load.operations); err != nil {
			return nil, err
		}
		if ahead := time.Duration(n+1)*gap - time.Since(began); ahead > time.Millisecond {
			select {
			case <-time.After(ahead):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	wait, cancel := context.WithTimeoutCause(ctx, isolationCutoff, errors.New("not all events arrived"))
	defer cancel()
	stats, err := b.system.sink.wait(wait)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	latencies := stats.Latencies["healthy"]
	// An event that did not arrive is at least as late as the cut-off.
	for len(latencies) < total {
		latencies = append(latencies, float64(isolationCutoff.Milliseconds()))
	}
	return Figures{
		"p50_ms": percentile(latencies, 0.5), "p99_ms": percentile(latencies, 0.99),
		"lost": float64(total - stats.Delivered), "inversions": float64(stats.Inversions),
	}, nil
}

func (b *isolationBench) asynq(ctx context.Context) (Figures, error) {
	if err := b.system.flush(ctx); err != nil {
		return nil, err
	}
	a := b.system.asynq(b.load, asynqOptions{check: 10 * time.Millisecond})
	healthy := a.url
	mux := asynq.NewServeMux()
	mux.HandleFunc(rawType, func(ctx context.Context, t *asynq.Task) error {
		_, err := post(ctx, b.system.client, healthy, t.Payload())
		return err
	})
	mux.HandleFunc("bench:hang", func(ctx context.Context, t *asynq.Task) error {
		_, err := post(ctx, b.system.client, b.system.sink.base+"/hang", t.Payload())
		return err
	})
	l := load{prefix: "hanging", size: 1024}
	for i := range isolationHung {
		if _, err := a.client.EnqueueContext(ctx, asynq.NewTask("bench:hang", l.body(l.operation(0), i, 0))); err != nil {
			return nil, err
		}
	}
	if err := a.server.Start(mux); err != nil {
		return nil, err
	}
	defer a.stop()
	f, err := b.healthy(ctx, func(o, i int) error {
		_, err := a.client.EnqueueContext(ctx, asynq.NewTask(rawType, b.load.body(b.load.operation(o), i, time.Now().UnixMicro())))
		return err
	})
	return f, err
}
