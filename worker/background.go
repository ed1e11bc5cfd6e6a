package worker

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// background is the asynq server: the door for plain asynq clients and the
// engine for bulk work. Nothing hot waits for it, so it may poll slowly.
type background struct {
	cfg    Config
	log    logrus.FieldLogger
	server *asynq.Server
}

func newBackground(cfg Config, log logrus.FieldLogger) *background {
	b := &background{cfg: cfg, log: log}
	b.server = asynq.NewServerFromRedisClient(cfg.Asynq, asynq.Config{
		Concurrency: 4,
		// asynq's keys know no namespace, so the queue has to keep deployments on one
		// Redis apart.
		Queues:          map[string]int{cfg.Namespace: 1},
		Logger:          asynqLogger{log},
		LogLevel:        asynq.WarnLevel,
		ShutdownTimeout: cfg.Grace,
	})
	return b
}

func (b *background) start() error {
	mux := asynq.NewServeMux()
	mux.HandleFunc(tasks.TypeHookDispatch, b.dispatch)
	mux.HandleFunc(tasks.TypeDeadReplay, b.replay)
	mux.HandleFunc(tasks.TypeOperationForget, b.forget)
	if err := b.server.Start(mux); err != nil {
		return fmt.Errorf("start background server: %w", err)
	}
	return nil
}

func (b *background) stop() { b.server.Shutdown() }

// dispatch appends a serialized task to its lane: from here on it is ordered.
// What is no task is quarantined, because asynq's archive drops silently.
func (b *background) dispatch(ctx context.Context, at *asynq.Task) error {
	t, err := tasks.DecodeTask(at.Payload())
	if err == nil {
		_, err = tasks.StoredHooks(t.Hooks)
	}
	if err == nil {
		_, err = tasks.ParseEvent(t.Type, t.OperationID, t.Event)
	}
	if err != nil {
		return b.quarantine(ctx, at.Payload(), err)
	}
	doc, err := t.Encode()
	if err != nil {
		return fmt.Errorf("encode task: %w", err)
	}
	_, err = b.cfg.Store.Append(ctx, t.OperationID, []lane.Item{{ID: t.ID, Doc: doc, Digest: tasks.ContentDigest(t.Type, t.Event)}})
	var reused *lane.ReusedError
	if errors.As(err, &reused) {
		return b.quarantine(ctx, at.Payload(), err)
	}
	return err
}

func (b *background) quarantine(ctx context.Context, raw []byte, cause error) error {
	sum := sha256.Sum256(raw)
	id := "poison_" + base64.RawURLEncoding.EncodeToString(sum[:16])
	if err := b.cfg.Store.Quarantine(ctx, "", id, raw); err != nil {
		return err
	}
	b.log.WithField(tasks.LogErr, cause).WithField(tasks.LogReason, tasks.ReasonPoison).Error("background.task_quarantined")
	return nil
}

// replay replays the dead letters that its filter selects and writes how many
// into the task's result as it goes.
func (b *background) replay(ctx context.Context, at *asynq.Task) error {
	var f lane.DeadFilter
	if err := json.Unmarshal(at.Payload(), &f); err != nil {
		return fmt.Errorf("read filter: %w: %w", err, asynq.SkipRetry)
	}
	replayed, last := 0, time.Time{}
	n, err := b.cfg.Store.ReplayMany(ctx, f, func(lane.DeadLetter) {
		replayed++
		if time.Since(last) > time.Second {
			last = time.Now()
			b.record(at, replayed)
		}
	})
	b.record(at, n)
	return err
}

func (b *background) record(at *asynq.Task, n int) {
	w := at.ResultWriter()
	if w == nil {
		return
	}
	if _, err := fmt.Fprintf(w, `{"replayed":%d}`, n); err != nil {
		b.log.WithField(tasks.LogErr, err).Debug("background.progress_failed")
	}
}

// forget ends an operation.
func (b *background) forget(ctx context.Context, at *asynq.Task) error {
	var p struct {
		OperationID string `json:"operationId"`
	}
	if err := json.Unmarshal(at.Payload(), &p); err != nil || p.OperationID == "" {
		return fmt.Errorf("read operation id: %w", asynq.SkipRetry)
	}
	return b.cfg.Store.Forget(ctx, p.OperationID)
}

// asynqLogger hands asynq's lines to ours, under one event name.
type asynqLogger struct{ log logrus.FieldLogger }

const eventAsynq = "asynq"

func (l asynqLogger) line(args []any) logrus.FieldLogger {
	return l.log.WithField(tasks.LogMessage, fmt.Sprint(args...))
}

// Debug, Info, Warn, Error and Fatal make asynqLogger an asynq.Logger.
func (l asynqLogger) Debug(args ...any) { l.line(args).Debug(eventAsynq) }
func (l asynqLogger) Info(args ...any)  { l.line(args).Info(eventAsynq) }
func (l asynqLogger) Warn(args ...any)  { l.line(args).Warn(eventAsynq) }
func (l asynqLogger) Error(args ...any) { l.line(args).Error(eventAsynq) }

// Fatal does not end the process: a worker outlives its background server.
func (l asynqLogger) Fatal(args ...any) { l.line(args).Error(eventAsynq) }
