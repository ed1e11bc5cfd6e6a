package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

const (
	// controlCalls is the number of questions of one measurement, controlWarm of those
	// before that do not count.
	controlCalls = 5000
	controlWarm  = 300
	// besideRate is the number of notifications per second beside the questions.
	besideRate = 2000
	// backlogEvents queue behind a slow endpoint beside the questions.
	backlogEvents = 10_000
)

// The figures of the control bench.
const (
	overheadP50 = "overhead_p50_ms"
	overheadP99 = "overhead_p99_ms"
)

// Control measures what a verdict costs next to a direct call of the same hook,
// alone and beside notifications; how many callers can wait; what a call without a
// control costs; and what becomes of questions in the hands of a killed worker.
func Control(ctx context.Context) (*Report, error) {
	s, err := startSystem(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	b := &controlBench{system: s, report: newReport("control")}
	for _, part := range []func(context.Context) error{b.latency, b.waiters, b.noControl, b.crash} {
		bounded, cancel := context.WithTimeoutCause(ctx, 2*runTimeout, errors.New("bench control took too long"))
		err := part(bounded)
		cancel()
		if err != nil {
			return nil, err
		}
	}
	r := b.report
	r.Targets = map[string]Target{
		overheadP50: AtMost(0.4), overheadP99: AtMost(2),
		"beside_notifications_overhead_p99_ms": AtMost(5), "beside_notifications_per_second": AtLeast(0.95 * besideRate),
		"beside_backlog_p99_over_ms": AtMost(0), "beside_backlog_left": AtLeast(1),
		"waiters_connections": AtMost(20), "waiters_goroutines_per_caller": AtMost(2), "waiters_unanswered": AtMost(0),
		"no_control_us": AtMost(5), "no_control_redis_commands": AtMost(0),
		"crash_unanswered": AtMost(0), "crash_late": AtMost(0), "crash_differing": AtMost(0), "crash_takeover_seconds": AtMost(2),
	}
	r.judge()
	return r, nil
}

type controlBench struct {
	system *system
	report *Report
}

// latency measures the closed loop: with the worker in a process of its own, in
// this one, beside notifications and beside a backlog.
func (b *controlBench) latency(ctx context.Context) error {
	names := []string{"own_process", "same_process", "beside_notifications", "beside_backlog"}
	runs := map[string][]Figures{}
	for rep := range repetitions {
		for _, name := range names {
			f, err := b.loop(ctx, name)
			if err != nil {
				return fmt.Errorf("measure %s: %w", name, err)
			}
			note("control %d/%d %-21s p50 %.3f ms p99 %.3f ms, direct p50 %.3f ms p99 %.3f ms",
				rep+1, repetitions, name, f["p50_ms"], f["p99_ms"], f["direct_p50_ms"], f["direct_p99_ms"])
			runs[name] = append(runs[name], f)
		}
	}
	r := b.report
	for _, name := range names {
		r.Contenders[name] = mergeMedians(runs[name])
	}
	quiet, beside, backlog := r.Contenders["own_process"], r.Contenders["beside_notifications"], r.Contenders["beside_backlog"]
	r.Figures[overheadP50], r.Figures[overheadP99] = quiet[overheadP50], quiet[overheadP99]
	r.Figures["same_process_overhead_p50_ms"] = r.Contenders["same_process"][overheadP50]
	r.Figures["same_process_overhead_p99_ms"] = r.Contenders["same_process"][overheadP99]
	r.Figures["beside_notifications_overhead_p99_ms"] = beside[overheadP99]
	r.Figures["beside_notifications_per_second"] = beside["notifications_per_second"]
	r.Figures["beside_backlog_p99_ratio"] = backlog["p99_ms"] / quiet["p99_ms"]
	// Allowed is a quarter more, or half a millisecond.
	r.Figures["beside_backlog_p99_over_ms"] = max(0, backlog["p99_ms"]-max(1.25*quiet["p99_ms"], quiet["p99_ms"]+0.5))
	r.Figures["beside_backlog_left"] = backlog["backlog_left"]
	return nil
}

// loop measures one contender once, on an empty Redis.
func (b *controlBench) loop(ctx context.Context, name string) (Figures, error) {
	if err := b.system.flush(ctx); err != nil {
		return nil, err
	}
	a, err := b.system.asker(ctx)
	if err != nil {
		return nil, err
	}
	defer a.close()
	var stop func() error
	if name == "same_process" {
		stop, err = b.system.startAnswerer(ctx)
	} else {
		stop, err = b.system.launchWorker(controlWorker)
	}
	if err != nil {
		return nil, err
	}
	ask, err := a.caller(ctx, "control-000000", b.system.sink.base+"/allow")
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	measure := func() (Figures, error) { return b.measure(ctx, ask) }
	switch name {
	case "beside_notifications":
		measure = func() (Figures, error) { return b.besideNotifications(ctx, a, ask) }
	case "beside_backlog":
		measure = func() (Figures, error) { return b.besideBacklog(ctx, a, ask) }
	}
	f, err := measure()
	return f, errors.Join(err, stop())
}

// measure asks and calls in turn, so that what the machine does besides meets
// both alike.
func (b *controlBench) measure(ctx context.Context, ask caller) (Figures, error) {
	url := b.system.sink.base + "/allow"
	var asked, direct []float64
	for i := range controlWarm + controlCalls {
		began := time.Now()
		status, err := post(ctx, b.system.client, url, ask.body)
		if err != nil || status != 200 {
			return nil, fmt.Errorf("call directly: status %d: %w", status, err)
		}
		between := time.Now()
		v, err := ask.evaluate(ctx, "")
		ended := time.Now()
		if err != nil {
			return nil, err
		}
		if v.Outcome != tasks.OutcomeAllowed || v.By != tasks.ByWorker {
			return nil, fmt.Errorf("question %d came to %s by %s", i, v.Outcome, v.By)
		}
		if i >= controlWarm {
			direct = append(direct, between.Sub(began).Seconds()*1000)
			asked = append(asked, ended.Sub(between).Seconds()*1000)
		}
	}
	f := Figures{"calls": float64(len(asked))}
	for name, p := range map[string]float64{"p50_ms": 0.5, "p99_ms": 0.99} {
		f[name], f["direct_"+name] = percentile(asked, p), percentile(direct, p)
		f["overhead_"+name] = f[name] - f["direct_"+name]
	}
	return f, nil
}

// besideNotifications measures while other operations get their events.
func (b *controlBench) besideNotifications(ctx context.Context, a *asker, ask caller) (Figures, error) {
	if err := b.system.sink.reset(ctx, 1<<30); err != nil {
		return nil, err
	}
	l := load{operations: 200, size: 1024, path: "/hook", prefix: "beside"}
	if err := a.register(ctx, l, b.system.sink.base); err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.notify(running, l) }()
	f, err := b.measure(ctx, ask)
	stats, statsErr := b.system.sink.stats(ctx)
	stop()
	if err := errors.Join(err, statsErr, <-ended); err != nil {
		return nil, err
	}
	f["notifications_per_second"] = float64(stats.Delivered) / time.Since(a.began).Seconds()
	return f, nil
}

// besideBacklog measures while events of other operations queue behind an
// endpoint that takes its time.
func (b *controlBench) besideBacklog(ctx context.Context, a *asker, ask caller) (Figures, error) {
	if err := b.system.sink.reset(ctx, 1<<30); err != nil {
		return nil, err
	}
	l := load{operations: 100, events: backlogEvents / 100, size: 1024, path: "/sluggish", prefix: "backlog"}
	if err := a.register(ctx, l, b.system.sink.base); err != nil {
		return nil, err
	}
	if err := a.preload(ctx, l); err != nil {
		return nil, err
	}
	f, err := b.measure(ctx, ask)
	if err != nil {
		return nil, err
	}
	stats, err := b.system.sink.stats(ctx)
	f["backlog_left"] = float64(l.total() - stats.Delivered)
	return f, err
}

// noControl measures a question that no control matches.
func (b *controlBench) noControl(ctx context.Context) error {
	if err := b.system.flush(ctx); err != nil {
		return err
	}
	a, err := b.system.asker(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	if err := a.lanes.publish(ctx); err != nil {
		return err
	}
	ask, err := a.caller(ctx, "quiet-000000", b.system.sink.base+"/allow")
	if err != nil {
		return err
	}
	ask.event, err = toolEvent(ask.operation, "calendar", "read")
	if err != nil {
		return err
	}
	for { // until the client has learned that the worker has no controls
		if v, err := ask.evaluate(ctx, ""); err != nil {
			return err
		} else if v.By == tasks.ByAsker && v.Outcome == tasks.OutcomeNone {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	const calls = 200_000
	before, began := a.commands.Load(), time.Now()
	for range calls {
		if _, err := ask.evaluate(ctx, ""); err != nil {
			return err
		}
	}
	took := time.Since(began)
	b.report.Figures["no_control_us"] = float64(took.Nanoseconds()) / calls / 1000
	b.report.Figures["no_control_redis_commands"] = float64(a.commands.Load() - before)
	note("control without a match %.2f us", b.report.Figures["no_control_us"])
	return nil
}

// caller asks about one tool call of one operation.
type caller struct {
	client    *control.Client
	operation string
	event     *tasks.Event
	// body is the event as a direct call sends it.
	body    []byte
	timeout time.Duration
}

func (c caller) evaluate(ctx context.Context, id string) (tasks.Verdict, error) {
	return c.client.Evaluate(ctx, control.Request{ID: id, Event: c.event, Timeout: c.timeout})
}
