package bench

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

const (
	// waitingCallers wait at once in one process.
	waitingCallers = 1000
	// heldQuestions are in the hands of the worker that is killed, crashTimeout is
	// what each of them has.
	heldQuestions = 100
	crashTimeout  = 6 * time.Second
	// lateness is what a verdict may come after its deadline on a busy machine.
	lateness = 50 * time.Millisecond
)

// answer is what one caller got.
type answer struct {
	id      string
	verdict tasks.Verdict
	err     error
	took    time.Duration
}

// crowd lets n callers ask at once, each under an id of its own.
func crowd(ctx context.Context, n int, ask caller, prefix string) <-chan answer {
	answers := make(chan answer, n)
	for i := range n {
		id := fmt.Sprintf("%s-%04d", prefix, i)
		go func() {
			began := time.Now()
			v, err := ask.evaluate(ctx, id)
			answers <- answer{id, v, err, time.Since(began)}
		}()
	}
	return answers
}

// until asks the sink until n requests stand at its gate.
func (s *system) until(ctx context.Context, enough func(gateState) bool) error {
	for {
		var state gateState
		if err := s.sink.call(ctx, "GET", "/gate/state", &state); err != nil {
			return err
		}
		if enough(state) {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *system) gate(ctx context.Context, do string) error {
	return s.sink.call(ctx, "POST", "/gate/"+do, nil)
}

// waiters lets a thousand callers of one process wait at once.
func (b *controlBench) waiters(ctx context.Context) error {
	if err := b.system.flush(ctx); err != nil {
		return err
	}
	kill, err := b.system.launchWorker(controlWorker)
	if err != nil {
		return err
	}
	defer func() { _ = kill() }()
	a, err := b.system.asker(ctx)
	if err != nil {
		return err
	}
	defer a.close()
	ask, err := a.caller(ctx, "waiters-000000", b.system.sink.base+"/gate")
	if err != nil {
		return err
	}
	if _, err := ask.evaluate(ctx, ""); err != nil { // opens what a process has once
		return err
	}
	if err := b.system.gate(ctx, "shut"); err != nil {
		return err
	}
	before := runtime.NumGoroutine()
	answers := crowd(ctx, waitingCallers, ask, "w")
	// The worker's slots are full, and every question has reached Redis.
	err = b.system.until(ctx, func(s gateState) bool { return s.Waiting >= controlSlots })
	if err == nil {
		err = a.posted(ctx, waitingCallers)
	}
	if err != nil {
		return err
	}
	goroutines := runtime.NumGoroutine() - before
	connections, err := a.connections(ctx)
	if err != nil {
		return err
	}
	if err := b.system.gate(ctx, "open"); err != nil {
		return err
	}
	unanswered := 0
	for range waitingCallers {
		if got := <-answers; got.err != nil || got.verdict.Outcome != tasks.OutcomeAllowed {
			unanswered++
		}
	}
	r := b.report
	r.Figures["waiters_connections"] = float64(connections)
	r.Figures["waiters_goroutines_per_caller"] = float64(goroutines) / waitingCallers
	r.Figures["waiters_unanswered"] = float64(unanswered)
	note("control %d callers wait: %d connections, %.2f goroutines a caller, %d unanswered",
		waitingCallers, connections, float64(goroutines)/waitingCallers, unanswered)
	return nil
}

// posted waits until the client has sent n commands, one a question at least.
func (a *asker) posted(ctx context.Context, n int) error {
	for a.commands.Load() < int64(n) {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// connections counts those of this process, as Redis lists them.
func (a *asker) connections(ctx context.Context) (int, error) {
	list, err := a.questions.ClientList(ctx).Result()
	return strings.Count(list, " name="+askerName+" "), err
}

// crash kills a worker that holds a hundred questions: once with nobody to take
// over, so that the policy decides, and once with another worker.
func (b *controlBench) crash(ctx context.Context) error {
	total := Figures{}
	for _, successor := range []bool{false, true} {
		f, err := b.killed(ctx, successor)
		if err != nil {
			return err
		}
		note("control killed with %d questions, successor %t: %.0f unanswered, %.0f late, %.0f differing, last after %.2f s",
			heldQuestions, successor, f["unanswered"], f["late"], f["differing"], f["last_seconds"])
		for _, name := range []string{"unanswered", "late", "differing"} {
			total[name] += f[name]
		}
		if successor {
			b.report.Figures["crash_takeover_seconds"] = f["takeover_seconds"]
		}
	}
	for name, v := range total {
		b.report.Figures["crash_"+name] = v
	}
	return nil
}

// killed plays one crash.
func (b *controlBench) killed(ctx context.Context, successor bool) (Figures, error) {
	if err := b.system.flush(ctx); err != nil {
		return nil, err
	}
	if err := b.system.gate(ctx, "shut"); err != nil {
		return nil, err
	}
	a, err := b.system.asker(ctx)
	if err != nil {
		return nil, err
	}
	defer a.close()
	ask, err := a.caller(ctx, "crash-000000", b.system.sink.base+"/gate")
	if err != nil {
		return nil, err
	}
	ask.timeout = crashTimeout
	kill, err := b.system.launchWorker(controlWorker)
	if err != nil {
		return nil, err
	}
	answers := crowd(ctx, heldQuestions, ask, "c")
	if err := b.system.until(ctx, func(s gateState) bool { return s.Arrived >= heldQuestions }); err != nil {
		return nil, fmt.Errorf("wait for the questions: %w", err)
	}
	next := func() error { return nil }
	if successor {
		if next, err = b.system.launchWorker(controlWorker); err != nil {
			return nil, err
		}
		if err := a.workers(ctx, 2); err != nil {
			return nil, err
		}
	}
	defer func() { _ = next() }()
	if err := kill(); err != nil {
		return nil, err
	}
	died := time.Now()
	f := Figures{}
	if successor {
		if err := b.system.until(ctx, func(s gateState) bool { return s.Arrived >= 2*heldQuestions }); err != nil {
			return nil, fmt.Errorf("wait for the successor: %w", err)
		}
		f["takeover_seconds"] = time.Since(died).Seconds()
		if err := b.system.gate(ctx, "open"); err != nil {
			return nil, err
		}
	}
	want := tasks.OutcomeUnansweredClosed
	if successor {
		want = tasks.OutcomeAllowed
	}
	if err := a.judge(ctx, f, answers, want); err != nil {
		return nil, err
	}
	f["last_seconds"] = time.Since(died).Seconds()
	return f, b.system.gate(ctx, "open")
}

// judge counts what is wrong with the answers: none, another than expected or than
// what stands in Redis, or one after its deadline.
func (a *asker) judge(ctx context.Context, f Figures, answers <-chan answer, want tasks.VerdictOutcome) error {
	for range heldQuestions {
		got := <-answers
		if got.err != nil || got.verdict.Outcome != want {
			f["unanswered"]++
			continue
		}
		if got.took > crashTimeout+lateness {
			f["late"]++
		}
		stands, err := a.client.Await(ctx, "crash-000000", got.id)
		if err != nil {
			return err
		}
		if stands.Outcome != got.verdict.Outcome || stands.Status != got.verdict.Status {
			f["differing"]++
		}
	}
	return nil
}

// workers waits until n workers have published themselves.
func (a *asker) workers(ctx context.Context, n int) error {
	for {
		all, err := a.store.Workers(ctx)
		if err != nil {
			return err
		}
		if len(all) >= n {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
