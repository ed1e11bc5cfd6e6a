package worker

import (
	"context"
	"errors"
	"time"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// publishPeriod is the time between two notes to producers about the
// environment hooks; a change is published at the next one.
const publishPeriod = 2 * time.Second

// republish keeps what producers know of this worker current.
func (w *Worker) republish() {
	log := logging.NewThrottle(w.log)
	for {
		w.pause(publishPeriod)
		if w.stopped() {
			return
		}
		ctx, cancel := context.WithTimeout(w.work, claimTimeout)
		if err := errors.Join(w.publish(ctx), w.noticeLoss(ctx)); err != nil {
			log.Warn("worker.publish_failed", err)
		} else {
			log.Recovered("worker.publish_recovered")
		}
		cancel()
	}
}

// publish tells type, matcher and policy of the environment hooks: no address,
// no secret.
func (w *Worker) publish(ctx context.Context) error {
	hooks, err := w.cfg.EnvironmentHooks()
	if err != nil {
		return err
	}
	info := lane.WorkerInfo{ID: w.cfg.ID, Silent: w.cfg.Silent, Hooks: make([]lane.PublishedHook, 0, len(hooks))}
	for i := range hooks {
		info.Hooks = append(info.Hooks, published(&hooks[i]))
	}
	return w.cfg.Store.Publish(ctx, info)
}

func published(h *tasks.Hook) lane.PublishedHook {
	p := lane.PublishedHook{Type: h.Type, Matcher: h.Matcher, Control: h.Control()}
	if h.Webhook != nil {
		p.OnError = h.Webhook.OnError
	}
	return p
}

// noticeLoss says when Redis came back without its data: work goes on with new
// events, and what was pending is gone.
func (w *Worker) noticeLoss(ctx context.Context) error {
	born, err := w.cfg.Store.Born(ctx)
	if err != nil {
		return err
	}
	if w.born != 0 && born != w.born {
		w.log.Error("redis.data_lost")
	}
	w.born = born
	return nil
}
