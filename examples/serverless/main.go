// Command serverless is an agent runtime without Redis: a function that answers
// requests and hands its hook events to Gantry's workers through QStash. It keeps
// nothing between two requests.
//
//	QSTASH_TOKEN=… GANTRY_TASKS_URL=https://gantry.example/v1/qstash/tasks \
//	AUDIT_URL=https://audit.example/hook go run ./examples/serverless
//
// GANTRY_TASKS_URL is the workers' endpoint, byte for byte as they know it. With
// GANTRY_QSTASH_DIRECT_KEY, which the workers must have, too, events still arrive
// while QStash takes none.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

func main() {
	run, err := newFunction(os.Getenv)
	if err == nil {
		err = http.ListenAndServe("127.0.0.1:8487", run)
	}
	fmt.Fprintln(os.Stderr, "serverless:", err)
	os.Exit(1)
}

// newDispatcher makes what a function keeps while it is warm.
func newDispatcher(env func(name string) string, client *egress.Client) (*producer.Dispatcher, error) {
	publisher, err := qstash.NewPublisher(qstash.PublisherConfig{
		Client: client, URL: env("QSTASH_URL"), Token: func() string { return env("QSTASH_TOKEN") },
	})
	if err != nil {
		return nil, err
	}
	// The workers have no Redis either, so that each message is for one hook.
	config := producer.QStashConfig{Endpoint: env("GANTRY_TASKS_URL"), Relay: publisher, Split: producer.SplitHooks}
	if key := env("GANTRY_QSTASH_DIRECT_KEY"); key != "" {
		keys, err := signature.ParseKeys(key)
		if err != nil {
			return nil, fmt.Errorf("read GANTRY_QSTASH_DIRECT_KEY: %w", err)
		}
		if config.Direct, err = producer.NewDirect(producer.DirectConfig{Endpoint: config.Endpoint, Client: client, Keys: keys}); err != nil {
			return nil, err
		}
	}
	return producer.New(producer.Config{Mode: producer.ModeQStash, QStash: config})
}

// function is one step of an agent run for each request.
type function struct {
	dispatcher *producer.Dispatcher
	client     *egress.Client
	auditURL   string
}

func newFunction(env func(name string) string) (*function, error) {
	// Only addresses of the operator's are called from here; those of hooks are called
	// by the workers, which check them.
	client, err := egress.New(egress.Config{Policy: egress.Trusted()})
	if err != nil {
		return nil, err
	}
	dispatcher, err := newDispatcher(env, client)
	if err != nil {
		return nil, err
	}
	return &function{dispatcher: dispatcher, client: client, auditURL: env("AUDIT_URL")}, nil
}

// Close is for tests; a function is never told that it ends.
func (f *function) Close() {
	f.dispatcher.Close()
	f.client.Close()
}

// step is what a request says.
type step struct {
	Run  string `json:"run"`
	Step int    `json:"step"`
	Said string `json:"said"`
}

// ServeHTTP makes a step. It answers once its event is handed over: what happens
// after the answer is not sure to happen in a function.
func (f *function) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var s step
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&s); err != nil || s.Run == "" {
		http.Error(w, "want {run, step, said}", http.StatusBadRequest)
		return
	}
	if err := f.tell(r.Context(), s); err != nil {
		// The caller sends the step again; by its id the event is recognised.
		http.Error(w, "the step was made, its hooks may not have heard", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// tell dispatches the event of a step. Hooks travel with their events, and are
// registered anew because the process may be new.
func (f *function) tell(ctx context.Context, s step) error {
	err := f.dispatcher.Register(ctx, s.Run, []tasks.Hook{{
		ID: "audit", Type: tasks.AfterStep,
		Webhook: &tasks.Webhook{URL: f.auditURL}, Options: &tasks.HookOptions{SigningKeyEnv: "HOOK_AUDIT_KEY"},
	}})
	if err != nil {
		return err
	}
	event, err := tasks.NewEvent(tasks.StepEvent{
		Type: tasks.AfterStep, AgentID: "agent", OperationID: s.Run, UserID: "user", StepIndex: &s.Step, Content: &s.Said,
	})
	if err != nil {
		return err
	}
	return f.dispatcher.Dispatch(ctx, s.Run, event, producer.WithID(fmt.Sprintf("step-%d", s.Step)))
}
