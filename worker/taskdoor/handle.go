package taskdoor

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
)

const (
	// slotWait is how long a message waits for a free delivery before it is sent away.
	slotWait = 2 * time.Second
	// claimTimeout bounds what is said to the claims after the request is gone.
	claimTimeout = 5 * time.Second
	// unavailableWait is when to come again after a fault of ours.
	unavailableWait = 5 * time.Second
)

// message is one verified request.
type message struct {
	body []byte
	// retried is the number of attempts before this one, direct says that a runtime
	// brought it itself.
	retried int
	direct  bool

	task   *tasks.Task
	relay  tasks.Relay
	caller []tasks.Hook
	event  *tasks.Event
}

// decode reads the message whole, so that what can never be worked on is refused
// before anything is done.
func (m *message) decode() (err error) {
	if m.task, err = tasks.DecodeTask(m.body); err != nil {
		return err
	}
	if m.relay, err = m.task.TakeRelay(); err != nil {
		return err
	}
	if m.caller, err = tasks.StoredHooks(m.task.Hooks); err != nil {
		return err
	}
	m.event, err = tasks.ParseEvent(m.task.Type, m.task.OperationID, m.task.Event)
	return err
}

// last reports whether nobody brings the message again after this attempt.
func (m *message) last() bool { return m.direct || m.retried >= m.relay.Retries }

// ticket names the message's work. Work is recognised by the signed task id and
// hook, because QStash names a message anew when it is published or replayed
// again. The stream of one hook is apart from those of others.
func (m *message) ticket(lease time.Duration) Ticket {
	return Ticket{
		Operation: m.task.OperationID, Key: m.task.ID + "\x00" + m.relay.Hook,
		Stream: m.relay.Stream + "\x00" + m.relay.Hook, Sequence: m.relay.Sequence,
		// Better out of order than not at all.
		Force: m.last(), Lease: lease,
	}
}

// handle works on a message under a claim.
func (d *Door) handle(ctx context.Context, m *message) answer {
	j := &job{door: d, message: m, log: d.config.Logger.WithFields(m.task.LogFields())}
	if a, refused := j.prepare(); refused {
		return j.told(a)
	}
	j.ticket = m.ticket(j.lease())
	grant, err := d.config.Claims.Claim(ctx, j.ticket)
	if err != nil {
		j.log.WithField(tasks.LogErr, err).Error(logClaim)
		return j.told(unavailable())
	}
	j.grant = grant
	switch grant.State {
	case Done:
		return j.told(answer{status: http.StatusOK, result: resultDuplicate})
	case Busy:
		return j.told(answer{status: http.StatusConflict, result: resultBusy, wait: grant.Wait})
	case Early:
		return j.told(answer{status: http.StatusServiceUnavailable, result: resultEarly, wait: grant.Wait})
	case Granted:
	}
	if j.hooks == nil {
		return j.told(j.append(ctx))
	}
	return j.told(j.deliverAll(ctx))
}

func unavailable() answer {
	return answer{status: http.StatusServiceUnavailable, result: resultUnavailable, wait: unavailableWait}
}

// job is the work of one message.
type job struct {
	door    *Door
	message *message
	log     logrus.FieldLogger
	// hooks are those to deliver to; nil when the task goes into its lane.
	hooks []tasks.HookInForce
	// unmatched says that a hook was left out because its matcher gave no answer.
	unmatched bool

	ticket Ticket
	grant  Grant
}

// told says in one line what became of the message.
func (j *job) told(a answer) answer {
	log := j.log.WithFields(logrus.Fields{
		tasks.LogAttempt: j.message.retried + 1, tasks.LogSequence: j.message.relay.Sequence,
		tasks.LogOutcome: a.result, tasks.LogStatus: a.status,
	})
	if j.message.relay.Hook != "" {
		log = log.WithField(tasks.LogHookKey, j.message.relay.Hook)
	}
	if j.grant.Late || j.grant.Gap {
		log = log.WithField(tasks.LogLate, j.grant.Late).WithField(tasks.LogGap, j.grant.Gap)
	}
	switch {
	case a.status >= 500 || a.status == StatusNonRetryable, j.grant.Late, j.grant.Gap:
		log.Warn(logMessage)
	default:
		log.Info(logMessage)
	}
	return a
}

// prepare finds out what is to be done; refused says that nothing is, and why.
func (j *job) prepare() (a answer, refused bool) {
	config, relay := &j.door.config, j.message.relay
	if relay.Hook == "" && config.Lanes != nil {
		return answer{}, false
	}
	if config.Deliverer == nil {
		return unavailable(), true
	}
	environment, err := config.EnvironmentHooks()
	if err != nil {
		j.log.WithField(tasks.LogErr, err).Error(logRefused)
		return unavailable(), true
	}
	caller := j.message.caller
	if relay.Hook != "" && len(caller) > 0 {
		// The message is about its own hook and none of the environment.
		environment = nil
	}
	hooks, failures := tasks.InForce(j.message.event, caller, environment)
	own := len(caller) > 0
	for _, f := range failures {
		// A matcher without an answer is neither a match nor a miss, and another try
		// takes as long.
		j.log.WithField(tasks.LogHookID, f.Hook.ID).WithField(tasks.LogErr, f.Err).Error(logRefused)
		j.unmatched = j.unmatched || relay.Hook == "" || len(named([]tasks.HookInForce{f.HookInForce}, relay.Hook, own)) == 1
	}
	if relay.Hook != "" {
		hooks = named(hooks, relay.Hook, own)
	}
	switch {
	case len(hooks) > 0:
		j.hooks = hooks
		return answer{}, false
	case j.unmatched:
		return finally(resultGivenUp, reasonMatcher), true
	}
	return answer{status: http.StatusOK, result: resultRemoved}, true
}

// reasonMatcher says that the matcher of a hook gave no answer.
const reasonMatcher = "matcher"

// named picks the hook that a message is for. One that the message brings along
// has lost its siblings, and with them its occurrence.
func named(hooks []tasks.HookInForce, key string, own bool) []tasks.HookInForce {
	for _, h := range hooks {
		if own {
			h.Key = key
		}
		if h.Key == key {
			return []tasks.HookInForce{h}
		}
	}
	return nil
}

// lease is how long the work may take at most.
func (j *job) lease() time.Duration {
	lease := j.door.config.LeaseMargin
	for _, h := range j.hooks {
		// A delivery through QStash may publish twice and then fetch.
		lease += 3 * webhook.Timeout(h.Hook.Webhook)
	}
	return lease
}

// append puts the task into its lane, which recognises a task that it has.
func (j *job) append(ctx context.Context) answer {
	task := j.message.task
	doc, err := task.Encode()
	if err != nil {
		j.fail(ctx, Failure{GivenUp: true})
		return finally(resultMalformed, "task")
	}
	item := lane.Item{ID: task.ID, Doc: doc, Digest: tasks.ContentDigest(task.Type, task.Event)}
	appended, err := j.door.config.Lanes.Append(ctx, task.OperationID, []lane.Item{item})
	var reused *lane.ReusedError
	switch {
	case errors.As(err, &reused):
		j.fail(ctx, Failure{GivenUp: true})
		return finally(resultMalformed, "id_reused")
	case err != nil:
		j.log.WithField(tasks.LogErr, err).Error(logClaim)
		j.fail(ctx, Failure{Next: unavailableWait, GivenUp: j.message.last()})
		return unavailable()
	}
	j.finish(ctx)
	if len(appended) == 1 && appended[0].Duplicate {
		return answer{status: http.StatusOK, result: resultDuplicate}
	}
	return answer{status: http.StatusOK, result: resultStored}
}

// finish says that the work is done. A failure to say so is no failure of the
// work: a repetition would find it done by its id, or repeat it, as any crash may.
func (j *job) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	if err := j.door.config.Claims.Finish(ctx, j.ticket, j.grant.Token); err != nil {
		j.log.WithField(tasks.LogErr, err).Error(logClaim)
	}
}

// fail gives the work back.
func (j *job) fail(ctx context.Context, f Failure) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	if err := j.door.config.Claims.Fail(ctx, j.ticket, j.grant.Token, f); err != nil {
		j.log.WithField(tasks.LogErr, err).Error(logClaim)
	}
}
