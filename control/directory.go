package control

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

const (
	// directoryEvery is the time between two looks at what workers publish, and
	// directoryAgain that after one from which nothing was learned.
	directoryEvery = 2 * time.Second
	directoryAgain = 250 * time.Millisecond
	// directoryTimeout bounds one look; the first question waits for the first one.
	directoryTimeout = time.Second
)

// directory knows the environment controls of the workers, from the first look
// that found a worker that answers on. It looks again in the background, so that a question
// need not. While nobody answers it believes what it learned last: controls are
// only forgotten for others.
type directory struct {
	source Directory
	log    logrus.FieldLogger
	// learned is nil until a worker that answers questions was found.
	learned atomic.Pointer[[]tasks.Hook]
	// looked is closed after the first look.
	looked chan struct{}
}

func newDirectory(source Directory, log logrus.FieldLogger) *directory {
	return &directory{source: source, log: log, looked: make(chan struct{})}
}

// controls returns the environment controls of all workers; known is false when
// no worker that answers was ever seen. It waits for the first look, for patience at most.
func (d *directory) controls(ctx context.Context, patience time.Duration) (hooks []tasks.Hook, known bool) {
	if hooks := d.learned.Load(); hooks != nil {
		return *hooks, true
	}
	select {
	case <-d.looked:
	default:
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-d.looked:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if hooks := d.learned.Load(); hooks != nil {
		return *hooks, true
	}
	return nil, false
}

// run looks until ctx ends.
func (d *directory) run(ctx context.Context) {
	log := logging.NewThrottle(d.log)
	d.look(ctx, log)
	close(d.looked)
	for {
		pause := directoryEvery
		if d.learned.Load() == nil {
			pause = directoryAgain
		}
		if !wait.Pause(ctx.Done(), wait.Jitter(pause)) {
			return
		}
		d.look(ctx, log)
	}
}

func (d *directory) look(ctx context.Context, log *logging.Throttle) {
	ctx, cancel := context.WithTimeout(ctx, directoryTimeout)
	defer cancel()
	workers, err := d.source.Workers(ctx)
	if err != nil {
		log.Warn("control.directory_failed", err)
		return
	}
	log.Recovered("control.directory_recovered")
	if !slices.ContainsFunc(workers, answers) {
		return
	}
	hooks := environmentControls(workers)
	d.learned.Store(&hooks)
}

func answers(w lane.WorkerInfo) bool { return !w.Silent }

// environmentControls returns what differs among the controls that workers have.
func environmentControls(workers []lane.WorkerInfo) []tasks.Hook {
	hooks := []tasks.Hook{}
	for _, w := range workers {
		for _, p := range w.Hooks {
			if !p.Control {
				continue
			}
			h := tasks.Hook{
				ID: tasks.ReservedIDPrefix + string(p.Type), Type: p.Type, Matcher: p.Matcher,
				Webhook: &tasks.Webhook{ResponseHandling: tasks.HandleToolCall, OnError: p.OnError},
			}
			if !slices.ContainsFunc(hooks, func(o tasks.Hook) bool { return sameControl(&h, &o) }) {
				hooks = append(hooks, h)
			}
		}
	}
	return hooks
}

func sameControl(a, b *tasks.Hook) bool {
	if a.Type != b.Type || a.Webhook.OnError != b.Webhook.OnError || (a.Matcher == nil) != (b.Matcher == nil) {
		return false
	}
	return a.Matcher == nil || *a.Matcher == *b.Matcher
}
