// Command tool-call is the loop of an agent runtime in Go, as small as it gets:
// a made-up model asks for three tool calls, and each goes through Gantry. The
// policy, a web server within the program, lets one through, denies one before it
// runs, and withholds the result of one.
//
//	go run ./examples/tool-call
//
// Alone it needs nothing else. With an address of Redis it hands its questions
// and events to the workers there, such as those of a "gantry dev" that runs with
// the same REDIS_URL:
//
//	go run ./examples/tool-call -redis redis://127.0.0.1:6379/0
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/tasks"
)

func main() {
	redisURL := flag.String("redis", "", "address of a Redis that workers listen at; none runs everything here")
	namespace := flag.String("namespace", "gantry-dev", "namespace of those workers; that of gantry dev unless given")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, settings{redisURL: *redisURL, namespace: *namespace, out: os.Stdout}); err != nil {
		fmt.Fprintln(os.Stderr, "tool-call:", err)
		os.Exit(1)
	}
}

// settings are what the program is told.
type settings struct {
	redisURL, namespace string
	out                 io.Writer
}

// wanted is what the made-up model asks for, one after the other.
var wanted = []toolcall.ModelCall{
	{ID: "call_1", Identifier: "clock", APIName: "now", Arguments: `{}`},
	{ID: "call_2", Identifier: "shell", APIName: "run", Arguments: `{"command":"rm -rf /"}`},
	{ID: "call_3", Identifier: "mail", APIName: "read", Arguments: `{"folder":"inbox"}`},
}

// execute runs a tool of this runtime.
func execute(_ context.Context, call toolcall.ModelCall) (tasks.ToolResult, error) {
	switch call.Identifier {
	case "clock":
		return tasks.ToolResult{Content: "it is noon", Success: true}, nil
	case "mail":
		return tasks.ToolResult{Content: "your password is 1234", Success: true}, nil
	default:
		return tasks.ToolResult{}, errors.New("nobody should have let that through")
	}
}

// run plays one operation.
func run(ctx context.Context, s settings) (err error) {
	policy, err := startPolicy()
	if err != nil {
		return err
	}
	defer policy.stop()
	parts, err := connect(ctx, s)
	if err != nil {
		return err
	}
	defer parts.close()
	runner, err := toolcall.New(toolcall.Config{
		Controls: parts.controls, Mocks: parts.dispatcher, Observer: parts.dispatcher, Hooks: parts.dispatcher,
	})
	if err != nil {
		return err
	}
	defer func() {
		// Notifications may still be on their way when the loop is over.
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, runner.Close(ending))
	}()
	operation := "run-" + tasks.NewID()
	if err := parts.dispatcher.Register(ctx, operation, policy.hooks()); err != nil {
		return err
	}
	for i, call := range wanted {
		if err := one(ctx, runner, turn{operation: operation, index: i, call: call, out: s.out}); err != nil {
			return err
		}
	}
	// Before the operation ends, everything about its calls must be on its way.
	if err := runner.Flush(ctx, operation); err != nil {
		return err
	}
	return parts.dispatcher.Unregister(ctx, operation)
}

// turn is one call of the loop.
type turn struct {
	operation string
	index     int
	call      toolcall.ModelCall
	out       io.Writer
}

// one takes a call through all its steps and tells what the model gets to see.
func one(ctx context.Context, runner *toolcall.Runner, t turn) error {
	call := toolcall.Call{Context: toolcall.BuildContext(toolcall.Facts{
		Call:    t.call,
		Runtime: toolcall.Runtime{OperationID: t.operation, StepIndex: t.index},
		Run:     toolcall.RunContext{CallIndex: 1, ParentMessageID: "message-1"},
	})}
	outcome, err := runner.Run(ctx, call, func(ctx context.Context, _ int) (tasks.ToolResult, error) {
		return execute(ctx, t.call)
	}, toolcall.Options{Retry: toolcall.Retry{MaxAttempts: 2}})
	if err != nil {
		// Nobody could decide about the call, so it must not count as made.
		return err
	}
	tool := t.call.Identifier + "/" + t.call.APIName
	switch outcome.Status {
	case toolcall.StatusExecuted:
		fmt.Fprintf(t.out, "%s: %s\n", tool, outcome.Result.Content)
	case toolcall.StatusBlocked:
		// The result stands in for the denied one: the model reads why, and goes on.
		fmt.Fprintf(t.out, "%s: denied after %d attempts: %s\n", tool, outcome.Attempts, outcome.Result.Content)
	case toolcall.StatusFailed:
		fmt.Fprintf(t.out, "%s: failed: %v\n", tool, outcome.Err)
	case toolcall.StatusDeferred:
		fmt.Fprintf(t.out, "%s: the result comes later\n", tool)
	case toolcall.StatusCancelled:
		return context.Cause(ctx)
	}
	return nil
}
