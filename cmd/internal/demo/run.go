package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
	"github.com/gantry-hooks/gantry/cmd/internal/feed"
	"github.com/gantry-hooks/gantry/examples"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/worker"
)

// Run is one playing of the agent run. Make it before the worker starts, because
// Attempt must hear of everything.
type Run struct {
	receiver *Receiver
	hooks    *feed.Hooks
	events   []feed.Event
	// questions are asked before the event of their tool call, or together with the
	// next one that has such an event.
	questions []feed.Event

	mu sync.Mutex
	// open are the deliveries that have come to no end yet.
	open map[delivery]bool
	dead map[delivery]bool
	// retries counts the attempts that failed and were parked.
	retries map[stream]int
	ended   chan struct{}
	// verdicts are those of the questions, in their order.
	verdicts []client.Verdict
}

// delivery is one event at one hook.
type delivery struct {
	stream stream
	event  string
}

// NewRun reads the embedded files. suffix is added to the operations' ids, so
// that a Redis that remembers an earlier run does not take this for the same.
func NewRun(receiver *Receiver, suffix string) (*Run, error) {
	hooks, err := readFile(examples.AgentRunHooks)
	if err != nil {
		return nil, err
	}
	events, err := readFile(examples.AgentRunEvents)
	if err != nil {
		return nil, err
	}
	questions, err := readFile(examples.AgentRunQuestions)
	if err != nil {
		return nil, err
	}
	hooks = bytes.ReplaceAll(hooks, []byte(examples.AgentRunReceiver), []byte(receiver.Address()))
	plain, err := feed.ParseHooks(examples.AgentRunHooks, hooks)
	if err != nil {
		return nil, err
	}
	if suffix != "" {
		for _, id := range plain.Operations() {
			old, renamed := quoted(id), quoted(id+suffix)
			hooks, events = bytes.ReplaceAll(hooks, old, renamed), bytes.ReplaceAll(events, old, renamed)
			questions = bytes.ReplaceAll(questions, old, renamed)
		}
	}
	r := &Run{
		receiver: receiver, open: map[delivery]bool{}, dead: map[delivery]bool{},
		retries: map[stream]int{}, ended: make(chan struct{}),
	}
	if r.hooks, err = feed.ParseHooks(examples.AgentRunHooks, hooks); err != nil {
		return nil, err
	}
	if r.events, err = readEvents(examples.AgentRunEvents, events, suffix); err != nil {
		return nil, err
	}
	if r.questions, err = readEvents(examples.AgentRunQuestions, questions, suffix); err != nil {
		return nil, err
	}
	return r, r.expect()
}

func readEvents(name string, raw []byte, run string) ([]feed.Event, error) {
	events, faults, err := feed.ReadEvents(feed.Source{Name: name, Reader: bytes.NewReader(raw), Run: run})
	return events, errors.Join(append(faults, err)...)
}

func readFile(name string) ([]byte, error) {
	raw, err := fs.ReadFile(examples.AgentRun, name)
	if err != nil {
		return nil, fmt.Errorf("read the agent run: %w", err)
	}
	return raw, nil
}

func quoted(text string) []byte { return tasks.AppendString(nil, text) }

// expect works out which deliveries the files ask for.
func (r *Run) expect() error {
	for _, e := range r.events {
		streams, err := r.streams(e)
		if err != nil {
			return err
		}
		for _, s := range streams {
			r.open[delivery{s, e.ID}] = true
		}
	}
	return nil
}

// streams are the streams that an event belongs to.
func (r *Run) streams(e feed.Event) ([]stream, error) {
	raw, _ := r.hooks.For(e.OperationID)
	hooks, err := tasks.StoredHooks(raw)
	if err != nil {
		return nil, fmt.Errorf("read hooks of operation %q: %w", e.OperationID, err)
	}
	inForce, _ := tasks.InForce(e.Parsed, hooks, nil)
	streams := make([]stream, len(inForce))
	for i, h := range inForce {
		streams[i] = stream{e.OperationID, h.Hook.ID, h.Hook.Type}
	}
	return streams, nil
}

// Attempt hears of every attempt of the worker.
func (r *Run) Attempt(a worker.Attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := delivery{stream{a.Delivery.OperationID, a.Delivery.Hook.ID, a.Delivery.Type}, a.Delivery.TaskID}
	if !r.open[d] {
		return
	}
	if a.Standing == lane.StandingParked {
		r.retries[d.stream]++
		return
	}
	if !a.Standing.Final() {
		return
	}
	r.dead[d] = a.Standing == lane.StandingDead
	delete(r.open, d)
	if len(r.open) == 0 {
		close(r.ended)
	}
}

// API is what a run needs of a running Gantry; a *client.Client is one.
type API interface {
	feed.API
	Evaluate(ctx context.Context, q client.Question) (client.Verdict, error)
}

// Play sends hooks and events as a runtime does: one event at a time, pace
// apart, asks about tool calls before they run, and waits until each delivery has
// come to its end.
func (r *Run) Play(ctx context.Context, api API, pace time.Duration) error {
	for _, id := range r.hooks.Operations() {
		hooks, _ := r.hooks.For(id)
		if err := api.PutHooks(ctx, id, hooks); err != nil {
			return fmt.Errorf("register hooks of operation %q: %w", id, err)
		}
	}
	open := r.questions
	for _, e := range r.events {
		var err error
		if open, err = r.ask(ctx, api, e, open); err != nil {
			return err
		}
		if _, err := api.PostEvents(ctx, e.OperationID, []json.RawMessage{e.Document}); err != nil {
			return fmt.Errorf("send event of line %d: %w", e.Line, err)
		}
		pause(ctx, pace)
	}
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask asks the questions that come before an event, and returns those that are
// left.
func (r *Run) ask(ctx context.Context, api API, e feed.Event, open []feed.Event) ([]feed.Event, error) {
	if e.Parsed.Type != tasks.BeforeToolCall {
		return open, nil
	}
	last := slices.IndexFunc(open, func(q feed.Event) bool {
		return q.OperationID == e.OperationID && toolCallID(q) == toolCallID(e)
	})
	for _, q := range open[:last+1] {
		verdict, err := api.Evaluate(ctx, client.Question{OperationID: q.OperationID, Document: q.Document})
		if err != nil {
			return nil, fmt.Errorf("ask the question of line %d: %w", q.Line, err)
		}
		r.mu.Lock()
		r.verdicts = append(r.verdicts, verdict)
		r.mu.Unlock()
	}
	return open[last+1:], nil
}

func toolCallID(e feed.Event) string {
	var call struct {
		ToolCallID string `json:"toolCallId"`
	}
	_ = json.Unmarshal(e.Parsed.Raw, &call) // it was parsed before
	return call.ToolCallID
}

// Guarded is the operation whose tool calls are asked about.
func (r *Run) Guarded() string { return r.questions[0].OperationID }

// Events is the number of events of the run, Operations of its operations.
func (r *Run) Events() int { return len(r.events) }

// Operations is the number of operations of the run.
func (r *Run) Operations() int { return len(r.hooks.Operations()) }
