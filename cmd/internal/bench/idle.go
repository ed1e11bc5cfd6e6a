package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

const (
	idleEvents      = 400
	idleAsynqEvents = 40
	idleWatch       = 10 * time.Second
)

// Idle measures the time from enqueue to receiver while the worker has nothing
// else to do, and what an idle worker and its Redis cost.
func Idle(ctx context.Context) (*Report, error) {
	s, err := startSystem(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	b := &idleBench{system: s, load: load{operations: 1, events: idleEvents, size: 1024, path: "/hook", prefix: "idle"}}
	r := newReport("idle")
	var direct, ours, cpu []Figures
	for rep := range repetitions {
		d, err := b.direct(ctx)
		if err != nil {
			return nil, err
		}
		g, c, err := b.gantry(ctx)
		if err != nil {
			return nil, err
		}
		note("idle %d/%d gantry p50 %.2f ms p99 %.2f ms, idle cpu %.2f %%", rep+1, repetitions, g["p50_ms"], g["p99_ms"], c["cpu_percent"])
		direct, ours, cpu = append(direct, d), append(ours, g), append(cpu, c)
	}
	raw, err := b.asynq(ctx)
	if err != nil {
		return nil, err
	}
	r.Contenders["direct"], r.Contenders["gantry"], r.Contenders["asynq_defaults"] = mergeMedians(direct), mergeMedians(ours), raw
	r.Figures["p50_ms"], r.Figures["p99_ms"] = r.Contenders["gantry"]["p50_ms"], r.Contenders["gantry"]["p99_ms"]
	r.Figures["idle_cpu_percent"] = mergeMedians(cpu)["cpu_percent"]
	r.Targets = map[string]Target{"p50_ms": AtMost(1.5), "p99_ms": AtMost(4), "idle_cpu_percent": AtMost(3)}
	r.judge()
	return r, nil
}

type idleBench struct {
	system *system
	load   load
}

func (b *idleBench) gantry(ctx context.Context) (latency, cpu Figures, err error) {
	if err := b.system.flush(ctx); err != nil {
		return nil, nil, err
	}
	g, err := b.system.gantry(ctx, gantryOptions{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = g.stop(context.WithoutCancel(ctx)) }()
	if err := g.register(ctx, b.load, b.system.sink.base); err != nil {
		return nil, nil, err
	}
	if err := g.worker.Start(ctx); err != nil {
		return nil, nil, err
	}
	op := b.load.operation(0)
	latency, err = b.paced(ctx, pace{events: idleEvents, least: 10 * time.Millisecond, spread: 20 * time.Millisecond}, func(i int) error {
		ev, err := b.load.event(op, i, time.Now().UnixMicro())
		if err != nil {
			return err
		}
		_, err = g.dispatcher.Enqueue(ctx, op, ev)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	cpu, err = b.idleCPU(ctx)
	return latency, cpu, err
}

// idleCPU watches this process, which is the worker, and Redis for a while.
func (b *idleBench) idleCPU(ctx context.Context) (Figures, error) {
	redis0, err := b.system.redis.CPUSeconds()
	if err != nil {
		return nil, err
	}
	own0 := ownCPU()
	select {
	case <-time.After(idleWatch):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	redis1, err := b.system.redis.CPUSeconds()
	if err != nil {
		return nil, err
	}
	used := redis1 - redis0 + ownCPU() - own0
	return Figures{"cpu_percent": 100 * used / idleWatch.Seconds()}, nil
}

// ownCPU is the processor time of this process in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

func (b *idleBench) asynq(ctx context.Context) (Figures, error) {
	if err := b.system.flush(ctx); err != nil {
		return nil, err
	}
	a := b.system.asynq(b.load, asynqOptions{})
	defer a.stop()
	if err := a.start(); err != nil {
		return nil, err
	}
	op := b.load.operation(0)
	return b.paced(ctx, pace{events: idleAsynqEvents, least: 200 * time.Millisecond, spread: 200 * time.Millisecond}, func(i int) error {
		_, err := a.client.EnqueueContext(ctx, asynq.NewTask(rawType, b.load.body(op, i, time.Now().UnixMicro())))
		return err
	})
}

func (b *idleBench) direct(ctx context.Context) (Figures, error) {
	op, url := b.load.operation(0), b.system.sink.base+b.load.path
	return b.paced(ctx, pace{events: idleEvents, least: 10 * time.Millisecond, spread: 20 * time.Millisecond}, func(i int) error {
		_, err := post(ctx, b.system.client, url, b.load.body(op, i, time.Now().UnixMicro()))
		return err
	})
}

// pace spaces events out, so that each meets an idle worker.
type pace struct {
	events        int
	least, spread time.Duration
}

func (b *idleBench) paced(ctx context.Context, p pace, send func(i int) error) (Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	if err := b.system.sink.reset(ctx, p.events); err != nil {
		return nil, err
	}
	for i := range p.events {
		if err := send(i); err != nil {
			return nil, err
		}
		select {
		case <-time.After(p.least + rand.N(p.spread)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	stats, err := b.system.sink.wait(ctx)
	if err != nil {
		return nil, err
	}
	latencies := stats.Latencies["idle"]
	if len(latencies) != p.events {
		return nil, fmt.Errorf("%d latencies of %d events", len(latencies), p.events)
	}
	return Figures{"p50_ms": percentile(latencies, 0.5), "p99_ms": percentile(latencies, 0.99), "events": float64(p.events)}, nil
}
