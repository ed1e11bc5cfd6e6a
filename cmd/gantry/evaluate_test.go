package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/config"
)

// verdictAPI answers every request with one document and keeps what was asked.
func verdictAPI(t *testing.T, document string) (env map[string]string, asked chan string) {
	t.Helper()
	asked = make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body) // a broken request shows in what was asked
		asked <- r.URL.EscapedPath() + " " + string(raw)
		_, _ = io.WriteString(w, document)
	}))
	t.Cleanup(server.Close)
	return map[string]string{varAPI: server.URL}, asked
}

const toolArgs = `{"to":"lena@example.org","n":1.0}`

func TestEvaluateExitsByTheVerdict(t *testing.T) {
	t.Parallel()
	control := func(more string) string {
		return `"id":"q1","operationId":"run-1","type":"beforeToolCall","controls":[{"hookId":"gate","operationId":"run-1","onError":"block","elapsedMs":12,` + more + `}]`
	}
	for name, test := range map[string]struct {
		document string
		code     int
		want     []string
	}{
		"allow": {
			`{"status":"allow","outcome":"allowed",` + control(`"class":"allow","status":200`) + `}`, exitOK,
			[]string{"ALLOW", "Each control that was asked let it through.", "gate", "run-1", "12 ms", "question q1 of operation run-1"},
		},
		"nobody": {`{"status":"allow","outcome":"no_control","controls":[]}`, exitOK, []string{"ALLOW", "No control matches this call"}},
		"denied": {`{"status":"blocked","outcome":"denied","reason":"no\u001b[2Jmail",` + control(`"class":"deny"`) + `}`, exitBlocked, []string{"BLOCKED  no·[2Jmail", "Denied by control gate of run-1."}},
		"error":  {`{"status":"blocked","outcome":"error_closed","reason":"hook_control_error",` + control(`"class":"error","code":"network_error","failure":"refused"`) + `}`, exitBlocked, []string{"hook_control_error", "No usable answer from control gate of run-1, whose onError is block.", "error network_error (refused)"}},
		"open":   {`{"status":"allow","outcome":"error_open",` + control(`"class":"error","code":"timeout","failure":"timeout"`) + `}`, exitOK, []string{"its onError lets the call through", "error timeout "}},
		"nobody answered": {
			`{"status":"blocked","outcome":"unanswered_closed","reason":"hook_control_error","unsettled":true,"controls":[]}`, exitBlocked,
			[]string{"No worker answered in time", "Redis could not be reached"},
		},
		"cancelled": {`{"status":"cancelled","outcome":"cancelled","controls":[]}`, exitNoVerdict, []string{"CANCELLED", "was taken back"}},
		"pending":   {`{"status":"pending","controls":[]}`, exitNoVerdict, []string{"PENDING", "no verdict yet"}},
		"strange":   {`{"status":"Allow","controls":[]}`, exitNoVerdict, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, _ := verdictAPI(t, test.document)
			got := invoke(t, env, "evaluate", "--operation", "run-1", "--tool", "mail/send")
			if got.code != test.code || got.err != "" {
				t.Fatalf("exit code %d, want %d: %s", got.code, test.code, got.err)
			}
			contains(t, got.out, test.want...)
			asJSON := invoke(t, env, "evaluate", "--operation", "run-1", "--tool", "mail/send", "--json")
			if asJSON.code != test.code || strings.TrimSpace(asJSON.out) != test.document {
				t.Errorf("--json gives %d %s", asJSON.code, asJSON.out)
			}
		})
	}
}

func TestEvaluateAsks(t *testing.T) {
	t.Parallel()
	hooks := file(t, "hooks.yaml", "- id: h\n  type: beforeToolCall\n  webhook: {url: 'http://rx.test/h', responseHandling: toolCall}\n")
	stored := `[{"id":"h","type":"beforeToolCall","webhook":{"url":"http://rx.test/h","responseHandling":"toolCall"}}]`
	event := `{"operationId":"a/b","toolCallId":"gantry-cli","assistantMessageId":"gantry-cli","identifier":"mail","apiName":"send/all","args":` + toolArgs +
		`,"callIndex":1,"stepIndex":0,"executor":"server"`
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"before": {[]string{"--tool", "mail/send/all", "--args", toolArgs}, `{"type":"beforeToolCall","event":` + event + `}}`},
		"after": {
			[]string{"--tool", "mail/send/all", "--args", toolArgs, "--phase", "after", "--result", "sent", "--timeout", "1.5s", "--id", "q"},
			`{"type":"afterToolCall","id":"q","timeout":"1.5s","event":` + event + `,"mocked":false,"result":{"content":"sent","success":true}}}`,
		},
		"whole result": {
			[]string{"--tool", "mail/send/all", "--args", toolArgs, "--phase", "after", "--result", `{"content":"","success":false}`},
			`{"type":"afterToolCall","event":` + event + `,"mocked":false,"result":{"content":"","success":false}}}`,
		},
		"whole event": {[]string{"--event", "-"}, `{"type":"beforeToolCall","event":{"x": 1}}`},
		"chain":       {[]string{"--event", "-", "--chain", "a/b,c"}, `{"type":"beforeToolCall","chain":[{"operationId":"a/b"},{"operationId":"c"}],"event":{"x": 1}}`},
		"hooks": {
			[]string{"--event", "-", "--hooks", hooks},
			`{"type":"beforeToolCall","chain":[{"operationId":"a/b","hooks":` + stored + `}],"event":{"x": 1}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env, asked := verdictAPI(t, `{"status":"allow"}`)
			got := invokeWith(t.Context(), strings.NewReader(" {\"x\": 1}\n"), env, append([]string{"evaluate", "--operation", "a/b"}, test.args...)...)
			if got.code != exitOK {
				t.Fatalf("exit code %d: %s", got.code, got.err)
			}
			if diff := cmp.Diff("/v1/operations/a%2Fb/tool-calls:evaluate "+test.want, <-asked); diff != "" {
				t.Fatalf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWrongQuestions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"nothing":         {nil, "pass --tool or --event"},
		"tool":            {[]string{"--tool", "mail"}, "such as mail/send"},
		"args":            {[]string{"--tool", "mail/send", "--args", "[1]"}, "--args is no JSON object"},
		"event":           {[]string{"--event", "-"}, "stdin does not hold one event"},
		"event and args":  {[]string{"--event", "-", "--args", "{}"}, "drop --args and --result"},
		"result too soon": {[]string{"--tool", "mail/send", "--result", "x"}, "add --phase after"},
		"event and tool":  {[]string{"--tool", "mail/send", "--event", "-"}, "can't be used together"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := invoke(t, nil, append([]string{"evaluate", "--operation", "run-1"}, test.args...)...)
			if got.code != exitUsage {
				t.Errorf("exit code %d, want %d", got.code, exitUsage)
			}
			contains(t, got.err, test.want)
		})
	}
}

// What an error let through can be told by the exit code.
func TestStrictEvaluation(t *testing.T) {
	t.Parallel()
	for outcome, want := range map[string]int{
		"allowed": exitOK, "no_control": exitOK, "error_open": exitBlocked, "unanswered_open": exitBlocked,
	} {
		env, _ := verdictAPI(t, `{"status":"allow","outcome":"`+outcome+`","controls":[]}`)
		got := invoke(t, env, "evaluate", "--operation", "run-1", "--tool", "mail/send", "--strict")
		if got.code != want {
			t.Errorf("%s: exit code %d, want %d", outcome, got.code, want)
		}
	}
}

// A misspelled operation has no controls either, which is no reason to trust it.
func TestUnregisteredOperationIsNamed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusNotFound)
		case strings.HasSuffix(r.URL.Path, ":explain"):
			_, _ = io.WriteString(w, `{"controls":[]}`)
		default:
			_, _ = io.WriteString(w, `{"status":"allow","outcome":"no_control","controls":[]}`)
		}
	}))
	t.Cleanup(server.Close)
	env := map[string]string{varAPI: server.URL}
	for _, args := range [][]string{
		{"evaluate", "--operation", "nosuch", "--tool", "mail/send"},
		{"hooks", "explain", "nosuch", "mail/send", "--phase", "before"},
	} {
		got := invoke(t, env, args...)
		contains(t, got.err, "no hooks are registered for operation nosuch through the API; check the id")
	}
}

// A policy that would fail open fails a check.
func TestStrictExplanation(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]int{"": exitFailure, "continue": exitFailure, "block": exitOK} {
		hook := "- id: h\n  type: beforeToolCall\n  webhook: {url: 'http://rx.test/h', responseHandling: toolCall"
		if policy != "" {
			hook += ", onError: " + policy
		}
		got := invoke(t, nil, "hooks", "explain", "run-1", "mail/send", "--hooks", file(t, "hooks.yaml", hook+"}\n"), "--strict")
		if got.code != want {
			t.Errorf("onError %q: exit code %d, want %d: %s", policy, got.code, want, got.err)
		}
	}
}

func TestEvaluateThatIsInterruptedIsNoPermission(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	got := invokeWith(ctx, strings.NewReader(""), map[string]string{varAPI: server.URL}, "evaluate", "--operation", "run-1", "--tool", "mail/send")
	if got.code != exitNoVerdict {
		t.Fatalf("exit code %d, want %d: %s", got.code, exitNoVerdict, got.err)
	}
}

const explainedHooks = `
- {id: policy, type: beforeToolCall, matcher: ^mail/, webhook: {url: "http://rx.test/p", responseHandling: toolCall}}
- {id: other, type: beforeToolCall, matcher: ^disk/, webhook: {url: "http://rx.test/p", responseHandling: toolCall}}
- {id: chosen, type: beforeToolCall, webhook: {url: "http://rx.test/p", responseHandling: toolCall, onError: continue, timeout: 2.5}}
- {id: watch, type: beforeToolCall, webhook: {url: "http://rx.test/p"}}
- {id: results, type: afterToolCall, webhook: {url: "http://rx.test/p", responseHandling: toolCall, onError: block}}
`

func TestHooksExplainAFile(t *testing.T) {
	t.Parallel()
	hooks := file(t, "hooks.yaml", explainedHooks)
	env := map[string]string{
		config.VarWebhookURL: "http://env.test/", config.VarWebhookToken: "secret-token", config.VarWebhookEvents: "beforeToolCall,afterStep",
		config.VarWebhookResponseHandling: "toolCall", config.VarWebhookOnError: "block",
	}
	got := invoke(t, env, "hooks", "explain", "run-1", "mail/send", "--hooks", hooks)
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	const want = `beforeToolCall mail/send, operation run-1
#  control                            of              matcher     on error            timeout
1  policy                             run-1           ^mail/      continue (not set)  30s
2  chosen                             run-1           every tool  continue            2.5s
3  server-env-webhook:beforeToolCall  the deployment  every tool  block               30s
warning: policy of run-1 lets the call through on error (onError not set)
warning: chosen of run-1 lets the call through on error (onError: continue)
When nobody answers in time, the call is blocked.

afterToolCall mail/send, operation run-1
#  control  of     matcher     on error  timeout
1  results  run-1  every tool  block     30s
When nobody answers in time, the result is withheld.
`
	if diff := cmp.Diff(want, got.out); diff != "" {
		t.Fatalf("explanation (-want +got):\n%s", diff)
	}
	open := invoke(t, nil, "hooks", "explain", "run-1", "mail/send", "--hooks", hooks, "--phase", "before")
	contains(t, open.out, "When nobody answers in time, the call goes ahead.")
	none := invoke(t, nil, "hooks", "explain", "run-1", "web/get", "--hooks", file(t, "none.yaml", "[]"), "--phase", "before")
	contains(t, none.out, "No control matches: nobody is asked, and the call goes ahead.")
}

func TestHooksExplainAsJSON(t *testing.T) {
	t.Parallel()
	got := invoke(t, nil, "hooks", "explain", "run-1", "mail/send", "--hooks", file(t, "hooks.yaml", explainedHooks), "--json")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.code != exitOK || len(lines) != 2 {
		t.Fatalf("exit code %d, output %q: %s", got.code, got.out, got.err)
	}
	var before explanation
	if err := json.Unmarshal([]byte(lines[0]), &before); err != nil {
		t.Fatalf("decode: %v", err)
	}
	want := []leniency{
		{HookID: "policy", OperationID: "run-1", Default: true, Message: "lets the call through on error (onError not set)"},
		{HookID: "chosen", OperationID: "run-1", Message: "lets the call through on error (onError: continue)"},
	}
	if diff := cmp.Diff(want, before.LetsThrough); diff != "" || before.Unanswered != "continue" || len(before.Controls) != 2 {
		t.Fatalf("%s: lets through (-want +got):\n%s", lines[0], diff)
	}
	contains(t, lines[1], `"type":"afterToolCall"`, `"letsThrough":[]`)
}

func TestHooksExplainARunningSystem(t *testing.T) {
	t.Parallel()
	env, asked := verdictAPI(t, `{"controls":[{"environment":true,"onError":"continue","onErrorSet":true},{"hookId":"g\u001b","operationId":"run-1","onError":"block","onErrorSet":true}]}`)
	got := invoke(t, env, "hooks", "explain", "run-1", "mail/send", "--phase", "after")
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	contains(t, got.out, "(no id)", "the deployment", "g·", "warning: (no id) of the deployment lets the call through on error (onError: continue)")
	contains(t, <-asked, "/v1/operations/run-1/tool-calls:explain", `"type":"afterToolCall"`, `"identifier":"mail"`)
}

func TestHooksExplainRefuses(t *testing.T) {
	t.Parallel()
	named := file(t, "hooks.json", `{"operations":{"run-2":[]}}`)
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"other operation": {[]string{"run-1", "mail/send", "--hooks", named}, exitUsage, "it has: run-2"},
		"tool":            {[]string{"run-2", "mail", "--hooks", named}, exitUsage, "such as mail/send"},
		"bad file":        {[]string{"run-2", "mail/send", "--hooks", file(t, "bad.json", "{")}, exitFailure, "bad.json"},
		"no system":       {[]string{"run-1", "mail/send", "--api", "http://127.0.0.1:1"}, exitFailure, "is it running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := invoke(t, nil, append([]string{"hooks", "explain"}, test.args...)...)
			if got.code != test.code {
				t.Errorf("exit code %d, want %d", got.code, test.code)
			}
			contains(t, got.err, test.want)
		})
	}
}
