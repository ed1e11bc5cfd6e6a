package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/webhook/egress"
)

// asynqCrashTimeout bounds the wait for asynq, which needs up to 138 s by default.
const asynqCrashTimeout = 170 * time.Second

// Crash kills a worker in mid-delivery, in a process of its own, and measures
// how long its lanes stand still.
func Crash(ctx context.Context) (*Report, error) {
	s, err := startSystem(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	b := &crashBench{system: s, load: load{operations: 40, events: 50, size: 1024, path: "/slow", prefix: "op"}}
	r := newReport("crash")
	var ours []Figures
	for rep := range repetitions {
		f, err := b.gantry(ctx)
		if err != nil {
			return nil, err
		}
		note("crash %d/%d gantry resumed after %.2f s, %.0f repeats, %.0f lost", rep+1, repetitions, f["resumed_seconds"], f["repeats"], f["lost"])
		ours = append(ours, f)
	}
	raw, err := b.asynq(ctx)
	if err != nil {
		return nil, err
	}
	note("crash asynq resumed after %.0f s", raw["resumed_seconds"])
	r.Contenders["gantry"], r.Contenders["asynq_defaults"] = mergeMedians(ours), raw
	for _, f := range ours {
		r.Figures["resumed_seconds"] = max(r.Figures["resumed_seconds"], f["resumed_seconds"])
		r.Figures["lost"] += f["lost"]
		r.Figures["inversions"] += f["inversions"]
		r.Figures["repeats_above_in_flight"] = max(r.Figures["repeats_above_in_flight"], f["repeats"]-slots)
	}
	r.Targets = map[string]Target{
		"resumed_seconds": AtMost(5), "lost": AtMost(0), "inversions": AtMost(0), "repeats_above_in_flight": AtMost(0),
	}
	r.judge()
	return r, nil
}

type crashBench struct {
	system *system
	load   load
}

func (b *crashBench) gantry(ctx context.Context) (Figures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, errors.New("crash run took too long"))
	defer cancel()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	g, err := b.system.gantry(ctx, gantryOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = g.stop(context.WithoutCancel(ctx)) }()
	if err := g.register(ctx, b.load, b.system.sink.base); err != nil {
		return nil, err
	}
	if err := g.preload(ctx, b.load); err != nil {
		return nil, err
	}
	if err := b.killed(ctx, "worker"); err != nil {
		return nil, err
	}
	if err := g.worker.Start(ctx); err != nil {
		return nil, err
	}
	return b.figures(ctx, b.load.total())
}

func (b *crashBench) prepare(ctx context.Context) error {
	if err := b.system.flush(ctx); err != nil {
		return err
	}
	return b.system.sink.reset(ctx, b.load.total())
}

// killed runs a worker of a kind in its own process until it is in the middle
// of its deliveries, kills it, and marks the moment at the sink.
func (b *crashBench) killed(ctx context.Context, kind string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.Command(self, "bench", kind, b.system.redis.Addr(), b.system.sink.base+b.load.path)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start victim: %w", err)
	}
	for {
		stats, err := b.system.sink.stats(ctx)
		if err != nil {
			return errors.Join(err, cmd.Process.Kill())
		}
		if stats.Delivered >= b.load.operations*4 {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), cmd.Process.Kill())
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill victim: %w", err)
	}
	_ = cmd.Wait()
	return b.system.sink.call(ctx, "POST", "/mark", nil)
}

func (b *crashBench) figures(ctx context.Context, total int) (Figures, error) {
	stats, err := b.system.sink.wait(ctx)
	if err != nil {
		return nil, err
	}
	return Figures{
		"resumed_seconds": stats.ResumedMS / 1000, "lost": float64(total - stats.Delivered),
		"inversions": float64(stats.Inversions), "repeats": float64(stats.Repeats),
	}, nil
}

// asynq has no lanes to stand still: what counts is when the tasks that were in
// the dead worker's hands run again, which is when everything has arrived.
func (b *crashBench) asynq(ctx context.Context) (Figures, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, asynqCrashTimeout, errors.New("asynq did not recover in time"))
	defer cancel()
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	a := b.system.asynq(b.load, asynqOptions{})
	defer a.stop()
	if err := a.produce(ctx, b.load); err != nil {
		return nil, err
	}
	if err := b.killed(ctx, "asynq-worker"); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := a.start(); err != nil {
		return nil, err
	}
	stats, err := b.system.sink.wait(ctx)
	if err != nil {
		// Not recovered within the bound: the figure is the bound.
		return Figures{"resumed_seconds": asynqCrashTimeout.Seconds(), "lost": float64(b.load.total() - stats.Delivered)}, nil
	}
	return Figures{"resumed_seconds": time.Unix(0, stats.LastAt).Sub(began).Seconds(), "lost": 0}, nil
}

// RunWorker is the body of a worker's process: a Gantry worker, one that answers
// questions as well, or a plain asynq one, on a Redis and a sink of the bench. It runs until it is killed.
func RunWorker(ctx context.Context, kind, redisAddr, url string) error {
	s := &system{log: logrus.New(), sink: &sinkProcess{}}
	s.log.SetOutput(io.Discard)
	var err error
	if s.client, err = egress.New(egress.Config{Policy: egress.Trusted()}); err != nil {
		return err
	}
	s.redisAddr = redisAddr
	if kind == controlWorker {
		return s.controlWorker(ctx)
	}
	if kind == "asynq-worker" {
		a := s.asynq(load{}, asynqOptions{})
		a.url = url
		if err := a.start(); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	g, err := s.gantry(ctx, gantryOptions{})
	if err != nil {
		return err
	}
	if err := g.worker.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
