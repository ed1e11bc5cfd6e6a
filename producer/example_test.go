package producer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// refuser is a deliverer whose endpoint answers 500.
type refuser struct{}

func (refuser) Deliver(context.Context, webhook.Delivery) webhook.Result {
	return webhook.Result{Class: tasks.ClassHTTP5xx, Status: 500, Message: "status 500"}
}

func ExampleDispatcher_Dispatch() {
	dispatcher, err := producer.New(producer.Config{Deliverer: refuser{}})
	if err != nil {
		panic(err)
	}
	defer dispatcher.Close()
	ctx := context.Background()

	err = dispatcher.Register(ctx, "run-7", []tasks.Hook{
		{ID: "audit", Type: tasks.OnComplete, Webhook: &tasks.Webhook{URL: "https://audit.example/hook", Fallback: tasks.FallbackNone}},
		{ID: "print", Type: tasks.OnComplete, Handler: func(_ context.Context, event *tasks.Event) error {
			fmt.Println("finished:", event.OperationID)
			return nil
		}},
	})
	if err != nil {
		panic(err)
	}
	event, err := tasks.ParseEvent(tasks.OnComplete, "run-7", []byte(`{"agentId":"a","userId":"u","reason":"done"}`))
	if err != nil {
		panic(err)
	}

	err = dispatcher.Dispatch(ctx, "run-7", event)
	var critical *producer.CriticalHookDeliveryError
	if errors.As(err, &critical) {
		fmt.Println(critical)
		fmt.Println(critical.Cause)
	}
	// Output:
	// finished: run-7
	// Critical webhook delivery failed: audit
	// hook "audit" is not delivered: status 500
}

func ExampleDispatcher_DispatchBeforeToolCall() {
	dispatcher, err := producer.New(producer.Config{})
	if err != nil {
		panic(err)
	}
	defer dispatcher.Close()
	ctx := context.Background()

	handlers := map[string]tasks.Handler{"cached": func(_ context.Context, event *tasks.Event) error {
		event.Mock(tasks.ToolResult{Content: "from the cache", Success: true})
		return nil
	}}
	hooks := json.RawMessage(`[{"id":"cache","type":"beforeToolCall","matcher":"^search/","handler":"cached"}]`)
	if err := dispatcher.RegisterRaw(ctx, "run-7", hooks, handlers); err != nil {
		panic(err)
	}
	event, err := tasks.ParseEvent(tasks.BeforeToolCall, "run-7", []byte(`{"toolCallId":"c1","assistantMessageId":"m1",
		"identifier":"search","apiName":"web","args":{},"callIndex":1,"stepIndex":0,"executor":"server"}`))
	if err != nil {
		panic(err)
	}

	mock, err := dispatcher.DispatchBeforeToolCall(ctx, "run-7", event)
	if err != nil {
		panic(err)
	}
	fmt.Println(mock.IsMocked, mock.Result.Content)
	// Output: true from the cache
}

func ExampleHookDispatchTask() {
	task := &tasks.Task{
		ID: "step-1", OperationID: "run-7", Type: tasks.BeforeStep,
		Event: json.RawMessage(`{"agentId":"a","operationId":"run-7","userId":"u"}`),
	}
	wrapped, err := producer.HookDispatchTask(task)
	if err != nil {
		panic(err)
	}
	// Any asynq client takes it: client.EnqueueContext(ctx, wrapped, queue).
	queue := asynq.Queue("default")
	fmt.Println(wrapped.Type(), queue)
	fmt.Println(string(wrapped.Payload()))
	// Output:
	// hook:dispatch Queue("default")
	// {"v":1,"id":"step-1","operationId":"run-7","type":"beforeStep","event":{"agentId":"a","operationId":"run-7","userId":"u"},"enqueuedAt":0}
}
