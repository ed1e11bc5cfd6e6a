package producer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// Relay hands messages to QStash, one or many in their order; *qstash.Publisher
// is one.
type Relay interface {
	Publish(ctx context.Context, p webhook.Publication) webhook.PublishResult
	PublishBatch(ctx context.Context, ps []webhook.Publication) []webhook.PublishResult
}

// Direct brings a task document to the workers without a relay. An error says
// that they may not have it. *DirectSender is one.
type Direct interface {
	Send(ctx context.Context, id string, doc []byte) error
}

// Split says what one message of QStash mode holds.
type Split string

// The ways to split; the zero value means SplitTasks.
const (
	// SplitTasks sends one message for each event, for workers that have Redis.
	SplitTasks Split = "tasks"
	// SplitHooks sends one message for each event and hook, for workers without
	// Redis: what is repeated then is one hook's delivery and not its siblings'.
	SplitHooks Split = "hooks"
)

// The defaults of QStashConfig.
const (
	DefaultRelayRetries = 5
	DefaultRelayTimeout = 30 * time.Second
)

// QStashConfig is what QStash mode needs.
type QStashConfig struct {
	// Endpoint is the public URL of the workers' POST /v1/qstash/tasks, byte for byte
	// as the workers know it. Required.
	Endpoint string
	// Relay publishes. Required.
	Relay Relay
	// Direct takes what surely did not reach QStash; nil sends nothing by another
	// road.
	Direct Direct
	// Split says what one message holds; "" means SplitTasks.
	Split Split
	// Retries is how often QStash repeats an attempt at the endpoint; 0 means
	// DefaultRelayRetries, negative means never. A hook's own attempts replace it
	// where a message holds one hook.
	Retries int
	// Timeout bounds one attempt at the endpoint; 0 means DefaultRelayTimeout. Where a
	// message holds one hook, that hook's timeout is added.
	Timeout time.Duration
}

// withDefaults fills in what a zero field stands for.
func (c QStashConfig) withDefaults() QStashConfig {
	if c.Split == "" {
		c.Split = SplitTasks
	}
	if c.Retries == 0 {
		c.Retries = DefaultRelayRetries
	}
	c.Retries = max(c.Retries, 0)
	if c.Timeout == 0 {
		c.Timeout = DefaultRelayTimeout
	}
	return c
}

// validate refuses a configuration that could only fail later.
func (c QStashConfig) validate() error {
	endpoint, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https":
		return errors.New("QStash mode needs the endpoint of the workers, an http or https URL")
	case c.Relay == nil:
		return errors.New("QStash mode needs a relay")
	case c.Split != SplitTasks && c.Split != SplitHooks:
		return fmt.Errorf("split %q is neither %q nor %q", c.Split, SplitTasks, SplitHooks)
	case c.Timeout < 0:
		return fmt.Errorf("relay timeout %s is negative", c.Timeout)
	}
	return nil
}

// relayed is the part of a Dispatcher that QStash mode needs.
type relayed struct {
	config  QStashConfig
	streams *streams
}

// message is one task document on its way, for all hooks of its event or for one.
type message struct {
	// event is the place of its event in the call.
	event int
	task  tasks.Task
	delay time.Duration
	relay tasks.Relay
	// id is the same for each publish of the message.
	id string
	// hook is the one that it is for; nil means all.
	hook *tasks.Hook

	doc    []byte
	result webhook.PublishResult
	// err says that the workers may not have it, unseen that they surely do not.
	err    error
	unseen bool
	// doubted says that a publish of this call is unknown: QStash may have it, and
	// what it says to the next publish tells no more than about that one.
	doubted bool
	// fresh says that its number was given out for this call.
	fresh bool
}

// enqueueRelayed hands events of one operation over to QStash, in their order. In
// its error stand those that may not have been handed over.
func (d *Dispatcher) enqueueRelayed(ctx context.Context, operationID string, events []EventRequest) ([]Receipt, error) {
	receipts := make([]Receipt, len(events))
	var messages []*message
	preparation := d.newPreparation(operationID)
	for i, event := range events {
		ready, err := preparation.relayed(event)
		if err != nil {
			d.metrics.event(eventRefused, len(events))
			return nil, &BatchError{Index: i, Err: err}
		}
		receipts[i] = Receipt{ID: event.ID, Skipped: len(ready) == 0, Duplicate: len(ready) > 0}
		for _, m := range ready {
			m.event = i
			receipts[i].ID = m.task.ID
		}
		messages = append(messages, ready...)
	}
	if err := d.relayed.send(ctx, operationID, messages); err != nil {
		d.metrics.event(eventRefused, len(events))
		return nil, err
	}
	return receipts, d.account(operationID, messages, receipts)
}

// account counts what became of the events and names those that are in doubt.
func (d *Dispatcher) account(operationID string, messages []*message, receipts []Receipt) error {
	failed := map[int]error{}
	for _, m := range messages {
		if m.err != nil && failed[m.event] == nil {
			failed[m.event] = m.err
		}
		receipts[m.event].Duplicate = receipts[m.event].Duplicate && m.result.Duplicate
	}
	unavailable := &UnavailableError{OperationID: operationID}
	for i, receipt := range receipts {
		outcome := eventAppended
		switch err := failed[i]; {
		case err != nil:
			outcome = eventUnavailable
			unavailable.EventIDs = append(unavailable.EventIDs, receipt.ID)
			if unavailable.Err == nil {
				unavailable.Err = err
			}
		case receipt.Skipped:
			outcome = eventSkipped
		case receipt.Duplicate:
			outcome = eventDuplicate
		}
		d.metrics.event(outcome, 1)
	}
	if unavailable.Err != nil {
		return unavailable
	}
	return nil
}

// relayed validates one event and returns its messages; none when no hook
// matches. The environment hooks of this process count: nobody else's are known.
func (p *preparation) relayed(request EventRequest) ([]*message, error) {
	if err := request.check(p.operationID); err != nil {
		return nil, err
	}
	caller, err := p.callerHooks(request)
	if err != nil {
		return nil, err
	}
	environment, err := p.readEnvironment()
	if err != nil {
		return nil, err
	}
	steps := evaluation(request.Event, caller.hooks, environment)
	if len(steps) == 0 {
		return nil, nil
	}
	task := tasks.Task{
		ID: request.ID, OperationID: p.operationID, Type: request.Event.Type, Event: request.Event.Raw,
		EnqueuedAt: p.dispatcher.config.Now().UnixMilli(), Trace: request.Trace,
	}
	if task.ID == "" {
		task.ID = tasks.NewID()
	}
	config := &p.dispatcher.relayed.config
	if config.Split == SplitTasks {
		_, task.Hooks = caller.matching(request.Event)
		whole := &message{task: task, delay: request.Delay, relay: tasks.Relay{Retries: config.Retries}}
		whole.id = tasks.DeliveryID(p.dispatcher.config.Namespace, p.operationID, task.ID, string(SplitTasks))
		return []*message{whole}, nil
	}
	messages := make([]*message, len(steps))
	for i, s := range steps {
		one := &message{
			task: task, delay: request.Delay, hook: s.Hook, relay: tasks.Relay{Hook: s.Key, Retries: config.Retries},
			id: tasks.DeliveryID(p.dispatcher.config.Namespace, p.operationID, task.ID, s.Key),
		}
		one.task.Hooks = caller.only(s.Hook)
		if o := s.Hook.Options; o != nil && o.Retry != nil && o.Retry.Attempts > 0 {
			one.relay.Retries = o.Retry.Attempts - 1
		}
		messages[i] = one
	}
	return messages, nil
}

// publication is the message in a relay's words.
func (r *relayed) publication(m *message) webhook.Publication {
	p := webhook.Publication{
		URL: r.config.Endpoint, Header: http.Header{"Content-Type": {"application/json"}}, Body: m.doc,
		Timeout: r.config.Timeout, Delay: m.delay, DeliveryID: m.id, OperationID: m.task.OperationID, Type: m.task.Type,
		Retry: &tasks.RetryOptions{},
	}
	if m.hook != nil {
		p.Timeout += webhook.Timeout(m.hook.Webhook)
		// One hook does not hold up another of its operation.
		p.OperationID += "\n" + m.relay.Hook
		if m.hook.Options != nil && m.hook.Options.Retry != nil {
			*p.Retry = *m.hook.Options.Retry
		}
	}
	p.Retry.Attempts = m.relay.Retries + 1
	return p
}

// send numbers the messages of an operation and hands them over, one call at a
// time for the operation, so that they leave in the order of the calls. What
// became of each stands in the message; the error says that none was sent.
func (r *relayed) send(ctx context.Context, operationID string, messages []*message) error {
	if len(messages) == 0 {
		return nil
	}
	s, err := r.streams.enter(ctx, operationID)
	if err != nil {
		return err
	}
	defer r.streams.leave(s)
	if err := s.encode(messages); err != nil {
		return err
	}
	r.publish(ctx, messages)
	// What is unknown is published once more, and with it what was not tried because
	// of that: the relay recognises what it has.
	again := uncertain(messages)
	for _, m := range again {
		m.doubted = m.unknown()
	}
	if len(again) > 0 && ctx.Err() == nil {
		r.publish(ctx, again)
	}
	for _, m := range messages {
		m.err = r.settle(ctx, m)
	}
	s.settle(messages)
	return nil
}

// encode numbers the messages and writes their documents, all or none.
func (s *stream) encode(messages []*message) (err error) {
	for i, m := range messages {
		s.number(m)
		m.task.SetRelay(m.relay)
		if m.doc, err = m.task.Encode(); err == nil {
			continue
		}
		for _, unseen := range messages[:i+1] {
			unseen.unseen = true
		}
		s.settle(messages[:i+1])
		return fmt.Errorf("encode event %q: %w", m.task.ID, err)
	}
	return nil
}

// publish makes one try.
func (r *relayed) publish(ctx context.Context, messages []*message) {
	if len(messages) == 1 {
		messages[0].result = r.config.Relay.Publish(ctx, r.publication(messages[0]))
		return
	}
	publications := make([]webhook.Publication, len(messages))
	for i, m := range messages {
		publications[i] = r.publication(m)
	}
	results := r.config.Relay.PublishBatch(ctx, publications)
	for i, m := range messages {
		if m.result = (webhook.PublishResult{}); i < len(results) {
			m.result = results[i]
		}
	}
}

func (m *message) unknown() bool {
	return m.result.Outcome == webhook.PublishUnknown || m.result.Outcome == ""
}

// uncertain returns the messages from the first unknown one on that were not
// decided about.
func uncertain(messages []*message) []*message {
	var again []*message
	for _, m := range messages {
		if m.unknown() || len(again) > 0 && m.result.Outcome == webhook.PublishNotSent && m.result.Class == "" {
			again = append(again, m)
		}
	}
	return again
}

// settle brings to the endpoint directly what surely did not reach QStash. What
// may have is left alone: its message is on its way, or the caller repeats it
// with the same id.
func (r *relayed) settle(ctx context.Context, m *message) error {
	if m.result.Outcome == webhook.PublishAccepted {
		return nil
	}
	refusal := &RelayError{Outcome: m.result.Outcome, Status: m.result.Status, Message: m.result.Message}
	if m.unknown() {
		refusal.Outcome = webhook.PublishUnknown
	}
	switch {
	case m.unknown():
		return refusal
	case r.config.Direct == nil || m.delay > 0:
		m.unseen = !m.doubted
		return refusal
	case ctx.Err() != nil:
		m.unseen = !m.doubted
		return errors.Join(refusal, context.Cause(ctx))
	}
	if err := r.config.Direct.Send(ctx, m.id, m.doc); err != nil {
		return errors.Join(refusal, err)
	}
	return nil
}
