package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

func TestDevOnce(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"embedded":   nil,
		"real Redis": {"REDIS_URL": servertest.URL(servertest.FlushedClient(t))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := invoke(t, env, "dev", "--once")
			if got.code != exitOK {
				t.Fatalf("exit code %d: %s\n%s", got.code, got.err, got.out)
			}
			contains(t, got.out,
				"Playing an agent run: 45 events of 3 operations", "http_5xx 503, retry in 1", "delivered 204 on attempt 3",
				"dead: endpoint_gone (http_4xx 410)", "41 of 42 delivered, in order: yes. 2 attempts were repeated",
				"→ refund-limit", "denied in", "More than 100 needs a manager.", "3 tool calls were asked about before they ran: 2 allowed, 1 denied.")
			if strings.Contains(got.out, "\x1b") {
				t.Errorf("there are colours in what is no terminal")
			}
			if banner := strings.Contains(got.err, "keeps nothing"); banner != (env == nil) {
				t.Errorf("the banner: %q", got.err)
			}
		})
	}
}

// fetchCommands finds the curl commands of a text and runs them.
func fetchCommands(t *testing.T, text string) (answers []map[string]any) {
	t.Helper()
	words := regexp.MustCompile(`'([^']*)'|(\S+)`)
	for command := range strings.SplitSeq(strings.ReplaceAll(text, "\\\n", " "), "\n") {
		command = strings.TrimSpace(command)
		if !strings.HasPrefix(command, "curl ") {
			continue
		}
		var parts []string
		for _, match := range words.FindAllStringSubmatch(command, -1) {
			parts = append(parts, match[1]+match[2])
		}
		answers = append(answers, fetchCommand(t, parts[1:]))
	}
	return answers
}

// fetchCommand does what curl does with the few options that are used.
func fetchCommand(t *testing.T, args []string) map[string]any {
	t.Helper()
	method, url, body, header := http.MethodPost, "", "", http.Header{}
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-X":
			i++
			method = args[i]
		case "-H":
			i++
			name, value, _ := strings.Cut(args[i], ": ")
			header.Set(name, value)
		case "-d":
			i++
			body = args[i]
		default:
			if url != "" || strings.HasPrefix(args[i], "-") {
				t.Fatalf("curl with %q", args)
			}
			url = args[i]
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewBufferString(body))
	if err != nil {
		t.Fatalf("build request: %v", err)
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	var answer map[string]any
	if err != nil || res.StatusCode/100 != 2 || json.Unmarshal(raw, &answer) != nil {
		t.Fatalf("%s %s answered %d: %s", method, url, res.StatusCode, raw)
	}
	return answer
}

// startDev runs "gantry dev" within the test and returns what it writes.
func startDev(t *testing.T, args ...string) *lines {
	t.Helper()
	out := newLines()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"dev", "--listen", "127.0.0.1:0"}, args...), &process{
			in: strings.NewReader(""), out: out, err: out, env: func(string) (string, bool) { return "", false },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != exitOK {
			t.Errorf("gantry dev ended with %d:\n%s", code, out)
		}
	})
	return out
}

var (
	apiAddress      = regexp.MustCompile(`API +(http://\S+)`)
	receiverAddress = regexp.MustCompile(`Receiver +(http://\S+)`)
)

func TestDevStaysUpAndItsCommandsWork(t *testing.T) {
	t.Parallel()
	out := startDev(t, "--no-demo")
	out.await(t, "Ctrl-C ends it.", 1)
	answers := fetchCommands(t, out.String())
	if len(answers) != 2 || answers[1]["settled"] != true {
		t.Fatalf("the commands were answered with %v", answers)
	}
	out.await(t, "delivered 204", 1)
	contains(t, out.String(), "my-run", "afterStep", "hello")
}

// TestReadmeCommandsWork runs what the README tells a stranger to run.
func TestReadmeCommandsWork(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	out := startDev(t, "--no-demo")
	out.await(t, "Ctrl-C ends it.", 1)
	text := strings.NewReplacer(
		"http://127.0.0.1:8484", apiAddress.FindStringSubmatch(out.String())[1],
		"http://127.0.0.1:8485", receiverAddress.FindStringSubmatch(out.String())[1],
	).Replace(string(readme))
	answers := fetchCommands(t, text)
	if len(answers) != 4 || answers[1]["settled"] != true || answers[3]["status"] != "blocked" || answers[3]["reason"] != "More than 100 needs a manager." {
		t.Fatalf("the commands were answered with %v", answers)
	}
}

func TestDevAnswersQuestions(t *testing.T) {
	t.Parallel()
	out := startDev(t)
	out.await(t, "Ctrl-C ends it.", 1)
	contains(t, out.String(), "Ask before a tool runs:", "--operation run-refund-c41d --tool billing/refund")
	env := map[string]string{varAPI: apiAddress.FindStringSubmatch(out.String())[1]}
	denied := invoke(t, env, "evaluate", "--operation", "run-refund-c41d", "--tool", "billing/refund", "--args", `{"amount":"890.00"}`)
	if denied.code != exitBlocked {
		t.Errorf("exit code %d: %s", denied.code, denied.err)
	}
	contains(t, denied.out, "BLOCKED  More than 100 needs a manager.", "Denied by control refund-limit of run-refund-c41d.")
	allowed := invoke(t, env, "evaluate", "--operation", "run-refund-c41d", "--tool", "billing/refund", "--args", `{"amount":"89.00"}`)
	if allowed.code != exitOK {
		t.Errorf("exit code %d: %s", allowed.code, allowed.err)
	}
	explained := invoke(t, env, "hooks", "explain", "run-refund-c41d", "billing/refund")
	if explained.code != exitOK {
		t.Errorf("exit code %d: %s", explained.code, explained.err)
	}
	contains(t, explained.out, "refund-limit", "^billing/", "block", "5s", "No control matches: nobody is asked")
}

func TestOperatorsCommands(t *testing.T) {
	t.Parallel()
	out := startDev(t)
	out.await(t, "Ctrl-C ends it.", 1)
	api := apiAddress.FindStringSubmatch(out.String())[1]
	env := map[string]string{varAPI: api}
	list := invoke(t, env, "dead", "list", "--json", "--hook", "old-crm")
	var letter struct{ ID, OperationID string }
	if err := json.Unmarshal([]byte(list.out), &letter); err != nil || letter.OperationID != "run-scout-92be" {
		t.Fatalf("dead list gives %q, %s", list.out, list.err)
	}
	contains(t, invoke(t, env, "dead", "list").out, letter.ID, "onError → old-crm", "endpoint_gone", "http_4xx 410")
	if got := invoke(t, env, "dead", "list", "--hook", "other"); got.out != "No dead letter.\n" {
		t.Errorf("dead list of another hook gives %q", got.out)
	}
	contains(t, invoke(t, env, "dead", "show", letter.ID).out, "endpoint_gone", `"errorMessage": "weather source unreachable"`)
	contains(t, invoke(t, env, "dead", "show", "none").err, "no such dead letter")
	contains(t, invoke(t, env, "lanes").out, "No lane has anything to do.")
	contains(t, invoke(t, env, "lanes", "run-report-7f3a").out, "run-report-7f3a", "idle", "22")
	contains(t, invoke(t, env, "lanes", "run-report-7f3a", "--json").out, `"state":"idle"`)

	replay := invoke(t, env, "dead", "replay", "--hook", "old-crm", "--json")
	if replay.code != exitOK || !strings.HasPrefix(replay.out, `{"replayed":1,`) {
		t.Errorf("dead replay gives %d, %q, %q", replay.code, replay.out, replay.err)
	}
	out.await(t, "dead: endpoint_gone", 2)
	if got := invoke(t, env, "dead", "replay", "none"); got.code != exitFailure || !strings.Contains(got.err, "none was not put back: not_found") {
		t.Errorf("replay of nothing gives %d, %q", got.code, got.err)
	}
	if got := invoke(t, env, "dead", "replay", "--operation", "other"); got.code != exitOK {
		t.Errorf("replay of no letters gives %d, %q", got.code, got.err)
	}
}

func TestEnqueue(t *testing.T) {
	t.Parallel()
	out := startDev(t, "--no-demo")
	out.await(t, "Ctrl-C ends it.", 1)
	env := map[string]string{varAPI: apiAddress.FindStringSubmatch(out.String())[1]}
	sink := newSink(t)
	hooks := file(t, "hooks.yaml", "- id: h\n  type: afterStep\n  webhook: {url: '"+sink.URL+"'}\n")
	line := func(operation, step string) string {
		return `{"type":"afterStep","event":{"agentId":"a","operationId":"` + operation + `","userId":"u","stepIndex":` + step + "}}\n"
	}
	good := line("one", "1") + line("two", "1") + "\n" + line("one", "2") + line("two", "2") + line("one", "3")
	bad := line("one", "4") + `{"type":"afterStep","event":{"operationId":"one"}}` + "\n" + line("one", `"5"`) + "{\n"

	totals := func(got commandResult, code int) (counts map[string]int) {
		t.Helper()
		if got.code != code {
			t.Fatalf("exit code %d, want %d: %s", got.code, code, got.err)
		}
		if got.out != "" {
			if err := json.Unmarshal([]byte(got.out), &counts); err != nil {
				t.Fatalf("totals are %q", got.out)
			}
		}
		return counts
	}
	events := file(t, "events.jsonl", good)
	first := totals(invoke(t, env, "enqueue", "--hooks", hooks, "--events", events, "--await", "final", "--json"), exitOK)
	if first["sent"] != 5 || first["delivered"] != 5 || first["duplicates"] != 0 {
		t.Fatalf("totals are %v", first)
	}
	sink.await(t, 5)
	again := totals(invoke(t, env, "enqueue", "--events", events, "--json"), exitOK)
	if again["duplicates"] != 5 {
		t.Fatalf("the file is not joined when it is sent again: %v", again)
	}

	refused := invoke(t, env, "enqueue", "--events", file(t, "bad.jsonl", bad))
	if refused.code != exitFailure {
		t.Errorf("exit code %d, want %d", refused.code, exitFailure)
	}
	contains(t, refused.err, "bad.jsonl:2", "bad.jsonl:3", "event.stepIndex", "bad.jsonl:4", "nothing was sent")
	partly := invokeWith(t.Context(), strings.NewReader(bad), env, "enqueue", "--events", "-", "--continue", "--json", "--await", "first")
	if got := totals(partly, exitFailure); got["sent"] != 1 || got["duplicates"] != 0 {
		t.Fatalf("totals are %v, so the bad file was sent before", got)
	}
	contains(t, partly.err, "stdin:2")
	sink.await(t, 6)

	repeated := totals(invoke(t, env, "enqueue", "--events", events, "--run", "again", "--json", "--await", "final"), exitOK)
	if repeated["delivered"] != 5 || repeated["duplicates"] != 0 {
		t.Fatalf("totals of another run are %v", repeated)
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	var one []int
	for _, a := range sink.arrivals {
		if a.operation == "one" {
			one = append(one, a.step)
		}
	}
	if want := []int{1, 2, 3, 4, 1, 2, 3}; !slices.Equal(one, want) {
		t.Fatalf("operation one arrived as %v, want %v", one, want)
	}
}

func TestEnqueueWaitsForASystemThatIsBusy(t *testing.T) {
	t.Parallel()
	var bodies []string
	api := newSink(t)
	api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body) // a broken request shows in the bodies
		bodies = append(bodies, string(raw))
		w.Header().Set("Content-Type", "application/json")
		if len(bodies) < 3 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"unavailable","detail":"the store did not answer"}`)
			return
		}
		_, _ = io.WriteString(w, `{"receipts":[{"id":"x","sequence":1}]}`)
	})
	events := file(t, "e.jsonl", `{"type":"beforeCallAgent","operationId":"op","event":{"agentId":"a","instruction":"i"}}`)
	got := invoke(t, map[string]string{varAPI: api.URL}, "enqueue", "--events", events)
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	contains(t, got.err, "the store did not answer (unavailable); trying again", "sent 1 events: 1 new")
	if len(bodies) != 3 || bodies[0] != bodies[2] || !strings.Contains(bodies[0], `"id":"evt_`) {
		t.Fatalf("sent %q", bodies)
	}
}
