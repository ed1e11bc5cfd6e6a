package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/app"
	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/webhook"
)

// gate is a control that denies the tool "disk" and notes what it was asked.
type gate struct {
	*httptest.Server
	asked chan map[string]any
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{asked: make(chan map[string]any, 100)}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var payload map[string]any
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &payload) != nil {
			t.Errorf("the gate was sent %q (%v)", raw, err)
		}
		g.asked <- payload
		decision := `{"decision":"allow"}`
		if payload["identifier"] == "disk" {
			decision = `{"decision":"deny","reason":"not the disk"}`
		}
		_, _ = io.WriteString(w, decision)
	}))
	t.Cleanup(g.Close)
	return g
}

// guard registers a control of both phases for an operation.
func (g *gate) guard(t *testing.T, system *app.App, operation string) {
	t.Helper()
	must(t, system, http.MethodPut, "/v1/operations/"+operation+"/hooks", fmt.Sprintf(`[
		{"id":"gate","type":"beforeToolCall","webhook":{"url":"%[1]s/gate","responseHandling":"toolCall","onError":"block"}},
		{"id":"gate","type":"afterToolCall","webhook":{"url":"%[1]s/gate","responseHandling":"toolCall","onError":"block"}},
		{"id":"watch","type":"afterToolCall","webhook":{"url":"%[1]s/watch"}}
	]`, g.URL))
}

func toolQuestion(tool, more string) string {
	return fmt.Sprintf(`{"type":"beforeToolCall",%s"event":{"toolCallId":"c","assistantMessageId":"m","identifier":%q,"apiName":"run",
		"args":{},"callIndex":1,"stepIndex":0,"executor":"server"}}`, more, tool)
}

const evaluate = "/v1/operations/op/tool-calls:evaluate"

func TestQuestionsAreAnswered(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*app.Params){
		"real Redis": func(*app.Params) {},
		"embedded":   func(p *app.Params) { p.Config.Redis.URL, p.Embedded = "", true },
		"shards":     func(p *app.Params) { p.Config.Redis.Shards = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate(t)
			p := params(t, settings(t))
			change(&p)
			heard := make(chan string, 10)
			p.OnAsked = func(req webhook.ControlRequest, reply webhook.ControlReply) {
				heard <- req.Hook.ID + " " + string(reply.Body)
			}
			system := start(t, p)
			g.guard(t, system, "op")
			allowed := must(t, system, http.MethodPost, evaluate, toolQuestion("mail", ""))
			if allowed["status"] != "allow" || allowed["outcome"] != "allowed" || allowed["by"] != "worker" {
				t.Fatalf("verdict is %v", allowed)
			}
			if got := <-heard; got != `gate {"decision":"allow"}` {
				t.Fatalf("heard %q", got)
			}
			denied := must(t, system, http.MethodPost, evaluate, toolQuestion("disk", `"id":"q1",`))
			if denied["status"] != "blocked" || denied["reason"] != "not the disk" {
				t.Fatalf("verdict is %v", denied)
			}
			again := must(t, system, http.MethodGet, "/v1/operations/op/verdicts/q1?wait=5s", "")
			if again["status"] != "blocked" || again["reason"] != "not the disk" || len(g.asked) != 2 {
				t.Fatalf("verdict is %v after %d requests", again, len(g.asked))
			}
			if status, _ := call(t, system, http.MethodPost, evaluate, toolQuestion("mail", `"id":"q1",`)); status != http.StatusConflict {
				t.Fatalf("another question under the same id is answered %d", status)
			}
			nobody := must(t, system, http.MethodPost, "/v1/operations/other/tool-calls:evaluate", toolQuestion("disk", ""))
			if nobody["status"] != "allow" || nobody["outcome"] != "no_control" {
				t.Fatalf("verdict is %v", nobody)
			}
		})
	}
}

func TestQuestionsGoOnWithoutTheirRequest(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	system := start(t, params(t, settings(t)))
	g.guard(t, system, "op")
	status, pending := call(t, system, http.MethodPost, evaluate+"?wait=0s", toolQuestion("disk", `"id":"q",`))
	if status != http.StatusAccepted || pending["status"] != "pending" {
		t.Fatalf("answered %d: %v", status, pending)
	}
	verdict := must(t, system, http.MethodGet, "/v1/operations/op/verdicts/q?wait=20s", "")
	if verdict["status"] != "blocked" {
		t.Fatalf("verdict is %v", verdict)
	}
	if taken := must(t, system, http.MethodDelete, "/v1/operations/op/verdicts/q", ""); taken["status"] != "blocked" {
		t.Fatalf("a verdict was changed to %v", taken)
	}
	if status, _ := call(t, system, http.MethodGet, "/v1/operations/op/verdicts/unknown", ""); status != http.StatusNotFound {
		t.Fatalf("an unknown question is answered %d", status)
	}
}

func TestTheDeploymentsControlsAreAskedLast(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	system := start(t, params(t, settings(t), "AGENT_HOOK_WEBHOOK_URL="+g.URL+"/env", "AGENT_HOOK_WEBHOOK_TOKEN=tk",
		"AGENT_HOOK_WEBHOOK_EVENTS=beforeToolCall", "AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING=toolCall", "AGENT_HOOK_WEBHOOK_ON_ERROR=block"))
	g.guard(t, system, "op")
	verdict := must(t, system, http.MethodPost, evaluate, toolQuestion("mail", ""))
	controls, _ := verdict["controls"].([]any)
	if len(controls) != 2 || fmt.Sprint(controls[1].(map[string]any)["hookId"]) != "server-env-webhook:beforeToolCall" {
		t.Fatalf("verdict is %v", verdict)
	}
	explained := must(t, system, http.MethodPost, "/v1/operations/op/tool-calls:explain", toolQuestion("mail", ""))
	if list, _ := explained["controls"].([]any); len(list) != 2 {
		t.Fatalf("explained are %v", explained)
	}
}

func TestWithoutTheControlRoleThePolicyDecides(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	cfg.Control.Role, cfg.Control.Timeout = config.ControlOff, 300*time.Millisecond
	system := start(t, params(t, cfg))
	g := newGate(t)
	g.guard(t, system, "op")
	began := time.Now()
	verdict := must(t, system, http.MethodPost, evaluate, toolQuestion("mail", ""))
	if verdict["status"] != "blocked" || verdict["outcome"] != "unanswered_closed" || verdict["reason"] != "hook_control_error" {
		t.Fatalf("verdict is %v", verdict)
	}
	if took := time.Since(began); took > 5*time.Second || len(g.asked) != 0 {
		t.Fatalf("answered after %s, with %d requests", took, len(g.asked))
	}
	// What such a worker publishes says nothing about those that answer.
	unknown := must(t, system, http.MethodPost, "/v1/operations/other/tool-calls:evaluate", toolQuestion("mail", ""))
	if unknown["status"] != "blocked" || unknown["outcome"] != "unanswered_closed" {
		t.Fatalf("verdict is %v", unknown)
	}
}

func TestStoredHooksThatAreInvalidPermitNothing(t *testing.T) {
	t.Parallel()
	system := start(t, params(t, settings(t)))
	if err := system.Store().PutHooks(t.Context(), "op", json.RawMessage(`[{"id":5}]`)); err != nil {
		t.Fatalf("put hooks: %v", err)
	}
	status, answer := call(t, system, http.MethodPost, evaluate, toolQuestion("mail", ""))
	if status != http.StatusConflict || answer["code"] != "stored_hooks_invalid" {
		t.Fatalf("answered %d: %v", status, answer)
	}
}

func TestDeferredResults(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	system := start(t, params(t, settings(t)))
	g.guard(t, system, "op")
	open := func(id, tool string) {
		t.Helper()
		body := fmt.Sprintf(`{"operationId":"op","call":{"toolCallId":"c","assistantMessageId":"m","identifier":%q,"apiName":"run","arguments":"{}"}}`, tool)
		if status, answer := call(t, system, http.MethodPost, "/v1/deferred/"+id+":open", body); status != http.StatusAccepted {
			t.Fatalf("open answers %d: %v", status, answer)
		}
	}
	open("d1", "mail")
	waiting := make(chan map[string]any, 1)
	go func() {
		_, answer := call(t, system, http.MethodGet, "/v1/deferred/d1?wait=20s", "")
		waiting <- answer
	}()
	done := must(t, system, http.MethodPost, "/v1/deferred/d1:complete", `{"result":{"content":"sent","success":true}}`)
	if done["outcome"] != "published" || done["denied"] != false {
		t.Fatalf("completed is %v", done)
	}
	if answer := <-waiting; answer["final"] != true || fmt.Sprint(answer["result"]) != "map[content:sent success:true]" {
		t.Fatalf("the waiting caller got %v", answer)
	}
	if again := must(t, system, http.MethodPost, "/v1/deferred/d1:complete", `{"result":{"content":"other","success":true}}`); again["outcome"] != "duplicate" {
		t.Fatalf("completed again is %v", again)
	}
	<-g.asked // the control
	if watched := <-g.asked; watched["hookType"] != "afterToolCall" {
		t.Fatalf("notified is %v", watched)
	}
	open("d2", "disk")
	denied := must(t, system, http.MethodPost, "/v1/deferred/d2:complete", `{"result":{"content":"all files","success":true}}`)
	if denied["denied"] != true || fmt.Sprint(denied["verdict"].(map[string]any)["reason"]) != "not the disk" {
		t.Fatalf("completed is %v", denied)
	}
	if status, answer := call(t, system, http.MethodPost, "/v1/deferred/d2:open", `{"operationId":"op"}`); status != http.StatusConflict || answer["code"] != "id_reused" {
		t.Fatalf("another placeholder is answered %d: %v", status, answer)
	}
	if status, _ := call(t, system, http.MethodPost, "/v1/deferred/none:complete", `{"result":{"content":"","success":true}}`); status != http.StatusNotFound {
		t.Fatalf("an unknown placeholder is answered %d", status)
	}
	open("d3", "mail")
	if status, _ := call(t, system, http.MethodGet, "/v1/deferred/d3?wait=1ms", ""); status != http.StatusAccepted {
		t.Fatalf("an open placeholder is answered %d", status)
	}
}

// TestWaitingCallersSurviveTheEndOfTheirServer drains an API in the middle of a
// question: the caller is told where to go on, and finds the verdict at another.
func TestWaitingCallersSurviveTheEndOfTheirServer(t *testing.T) {
	t.Parallel()
	cfg := settings(t)
	asked, release := make(chan struct{}), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-release
		_, _ = io.WriteString(w, `{"decision":"deny"}`)
	}))
	t.Cleanup(receiver.Close)
	worker := start(t, params(t, cfg)) // both roles: it is the other API, too
	alone := params(t, cfg)
	alone.Roles = []app.Role{app.RoleAPI}
	first, err := app.New(t.Context(), alone)
	if err != nil {
		t.Fatalf("compose: %v", err)
	}
	if err := first.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	must(t, first, http.MethodPut, "/v1/operations/op/hooks",
		fmt.Sprintf(`[{"id":"slow","type":"beforeToolCall","webhook":{"url":%q,"responseHandling":"toolCall"}}]`, receiver.URL))
	answers := make(chan map[string]any, 1)
	go func() {
		_, answer := call(t, first, http.MethodPost, evaluate, toolQuestion("mail", `"id":"q",`))
		answers <- answer
	}()
	<-asked
	if err := first.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if answer := <-answers; answer["status"] != "pending" {
		t.Fatalf("the waiting caller got %v", answer)
	}
	close(release)
	verdict := must(t, worker, http.MethodGet, "/v1/operations/op/verdicts/q?wait=20s", "")
	if verdict["status"] != "blocked" || verdict["outcome"] != "denied" {
		t.Fatalf("verdict is %v", verdict)
	}
}
