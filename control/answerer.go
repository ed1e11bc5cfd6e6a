package control

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/internal/wait"
	"github.com/gantry-hooks/gantry/tasks"
)

// ErrStopped is the cause with which evaluations are cut off when the grace
// period of a stop is over. Their questions are given back.
var ErrStopped = errors.New("answerer stopped")

// errEnded is the cause with which an evaluation is cut off when nobody waits for
// it here any more.
var errEnded = errors.New("question ended elsewhere")

// AnswererConfig configures an Answerer. Exchange and Evaluator are required.
type AnswererConfig struct {
	Exchange Exchange
	// Evaluator asks the controls of a question.
	Evaluator Judge
	// Slots is the number of questions answered at the same time; 0 means
	// DefaultSlots. It is one more than the shards at least, because each shard keeps
	// one while it waits. Too few make askers wait for a slot within their timeout.
	Slots int
	// Heartbeat is the time between two renewals of what is held; 0 means
	// DefaultHeartbeat. The lease must outlast three of them. It is also how soon a
	// cancelled question is noticed.
	Heartbeat time.Duration
	// Sweep is the time between two looks for questions of dead workers; 0 means
	// DefaultSweep. Lease and Sweep together bound a takeover.
	Sweep time.Duration
	// Grace is how long Stop lets evaluations finish before it gives their questions
	// back; 0 means DefaultGrace.
	Grace time.Duration
	// ID names the worker in logs; "" draws one.
	ID string
	// Logger receives trouble and takeovers; nil discards them.
	Logger logrus.FieldLogger
	// Registerer takes the metrics; nil keeps them unregistered.
	Registerer prometheus.Registerer
}

// Defaults of AnswererConfig.
const (
	DefaultSlots     = 50
	DefaultHeartbeat = 350 * time.Millisecond
	DefaultSweep     = 400 * time.Millisecond
	DefaultGrace     = 5 * time.Second
)

func (c AnswererConfig) withDefaults() AnswererConfig {
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.Sweep == 0 {
		c.Sweep = DefaultSweep
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.ID == "" {
		c.ID = tasks.NewID()
	}
	if c.Logger == nil {
		c.Logger = logging.Silent()
	}
	return c
}

func (c AnswererConfig) validate() error {
	switch {
	case c.Exchange == nil || c.Evaluator == nil:
		return errors.New("control: Exchange and Evaluator are required")
	case c.Slots < 0 || c.Heartbeat < 0 || c.Sweep < 0 || c.Grace < 0:
		return fmt.Errorf("control: Slots (%d), Heartbeat (%s), Sweep (%s) and Grace (%s) must not be negative", c.Slots, c.Heartbeat, c.Sweep, c.Grace)
	}
	return nil
}

// Answerer takes questions and answers them until it is stopped. NewAnswerer
// makes one; the zero value is not usable.
type Answerer struct {
	cfg     AnswererConfig
	log     *logrus.Entry
	metrics *answererMetrics
	inHand  *inHand
	// slots holds one token per question that may be answered at once: listeners take
	// them, evaluations give them back.
	slots chan struct{}
	// stopping is closed by Stop: nothing new is taken after it. ended is closed when
	// Stop has returned.
	stopping, ended chan struct{}
	stopOnce        sync.Once
	// work ends the evaluations when the grace period is over, settling what settles
	// them and keeps their leases.
	work, settling       context.Context
	endWork, endSettling context.CancelCauseFunc
	// takers are the listeners; evaluations what they started; keepers the heartbeats
	// and sweepers.
	takers, evaluations, keepers sync.WaitGroup
	// failing is what each shard's listener last met; nil when it went well.
	failing []atomic.Pointer[string]
}

// NewAnswerer checks a configuration and makes an Answerer that is not yet running.
func NewAnswerer(cfg AnswererConfig) (*Answerer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	// Each shard's listener keeps one while it waits.
	cfg.Slots = max(cfg.Slots, cfg.Exchange.Shards()+1)
	counters, err := newAnswererMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	a := &Answerer{
		cfg: cfg, log: cfg.Logger.WithField(tasks.LogWorkerID, cfg.ID), metrics: counters, inHand: newInHand(),
		slots: make(chan struct{}, cfg.Slots), stopping: make(chan struct{}), ended: make(chan struct{}),
		failing: make([]atomic.Pointer[string], cfg.Exchange.Shards()),
	}
	for range cfg.Slots {
		a.slots <- struct{}{}
	}
	a.work, a.endWork = context.WithCancelCause(context.Background())
	a.settling, a.endSettling = context.WithCancelCause(context.Background())
	return a, nil
}

// Start starts to take questions. Without Redis it goes on trying: questions are
// answered as soon as there is one. It never fails today.
func (a *Answerer) Start(context.Context) error {
	for shard := range a.cfg.Exchange.Shards() {
		a.takers.Go(func() { a.listen(shard) })
		a.keepers.Go(func() { a.sweep(shard) })
		a.keepers.Go(func() { a.beat(shard) })
	}
	a.log.WithField(tasks.LogCount, a.cfg.Slots).Info("control.started")
	return nil
}

// stopPatience bounds the last part of a stop: giving back what was cut off.
const stopPatience = 3 * time.Second

// Stop takes no new questions, lets those in hand finish within the grace period
// or ctx, gives the rest back, so that another worker takes them at once, and
// waits until nothing runs any more. An error means that something still ran at
// the end. A further call waits for the first one.
func (a *Answerer) Stop(ctx context.Context) error {
	first := false
	a.stopOnce.Do(func() { first = true; close(a.stopping) })
	if !first {
		return wait.For(ctx, a.ended)
	}
	defer close(a.ended)
	grace, cancel := context.WithTimeoutCause(ctx, a.cfg.Grace, ErrStopped)
	defer cancel()
	idle := wait.Returned(func() { a.takers.Wait(); a.evaluations.Wait() })
	graceful := wait.For(grace, idle) == nil
	a.endWork(ErrStopped)
	// The caller's time may be over by now.
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancelLast()
	err := wait.For(last, idle)
	a.endSettling(ErrStopped)
	end, cancelEnd := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancelEnd()
	err = errors.Join(err, wait.For(end, wait.Returned(a.keepers.Wait)))
	a.log.WithField(tasks.LogGraceful, graceful).Info("control.stopped")
	return err
}

// Ready reports why no questions can be taken now, or nil.
func (a *Answerer) Ready() error {
	for i := range a.failing {
		if reason := a.failing[i].Load(); reason != nil {
			return errors.New(*reason)
		}
	}
	if a.stopped() {
		return ErrStopped
	}
	return nil
}

func (a *Answerer) stopped() bool { return wait.Closed(a.stopping) }

// pause waits, unless the answerer is stopped first.
func (a *Answerer) pause(d time.Duration) { wait.Pause(a.stopping, d) }
