package toolcall_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/toolcall"
	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// A runtime asks a policy before it runs a tool, and again before it uses the
// result. The policy of the example lets both calls run and keeps the result of
// the second one back.
func Example() {
	policy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "password") {
			fmt.Fprint(w, `{"decision":"deny","reason":"no passwords"}`)
			return
		}
		fmt.Fprint(w, `{"decision":"allow"}`)
	}))
	defer policy.Close()
	client, err := localClient()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	runner, err := toolcall.New(toolcall.Config{Controls: client})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = runner.Close(context.Background()) }()

	hooks := json.RawMessage(`[{"id":"policy","type":"afterToolCall","webhook":{"url":"` + policy.URL + `","responseHandling":"toolCall","onError":"block"}}]`)
	for _, answer := range []string{"it is noon", "the password is 1234"} {
		call := toolcall.Call{Persisted: hooks, Context: toolcall.BuildContext(toolcall.Facts{
			Call:    toolcall.ModelCall{ID: "call_1", Identifier: "mail", APIName: "read", Arguments: `{"folder":"inbox"}`},
			Runtime: toolcall.Runtime{OperationID: "run-1"},
			Run:     toolcall.RunContext{CallIndex: 1, ParentMessageID: "message-1"},
		})}
		outcome, err := runner.Run(context.Background(), call, func(context.Context, int) (tasks.ToolResult, error) {
			return tasks.ToolResult{Content: answer, Success: true}, nil
		}, toolcall.Options{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(outcome.Status, "|", outcome.Result.Content)
	}
	// Output:
	// executed | it is noon
	// blocked | no passwords
}

// localClient asks controls from this process, on this machine too.
func localClient() (*control.Client, error) {
	out, err := egress.New(egress.Config{Policy: egress.Trusted()})
	if err != nil {
		return nil, err
	}
	payloads, err := enrich.New(enrich.Config{})
	if err != nil {
		return nil, err
	}
	deliverer, err := webhook.New(webhook.Config{Env: func(string) (string, bool) { return "", false }, Callers: out, Payloads: payloads})
	if err != nil {
		return nil, err
	}
	evaluator, err := control.NewEvaluator(control.EvaluatorConfig{Asker: deliverer})
	if err != nil {
		return nil, err
	}
	return control.New(control.Config{Evaluator: evaluator})
}

// What is no JSON object counts as no arguments.
func ExampleParseArgs() {
	fmt.Println(string(toolcall.ParseArgs(`{"to":"a"}`)), string(toolcall.ParseArgs(`to a`)))
	// Output: {"to":"a"} {}
}
