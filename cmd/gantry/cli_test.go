package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/config"
)

// contains fails unless every text is in got.
func contains(t *testing.T, got string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("%q is missing in:\n%s", text, got)
		}
	}
}

func TestEveryCommandHasExamples(t *testing.T) {
	for _, name := range []string{
		"dev", "serve", "worker", "enqueue", "lanes", "dead list", "dead show", "dead replay", "hooks check", "hooks explain", "evaluate",
		"config check", "config docs", "bench delivery", "qstash dev", "version",
	} {
		got := invoke(t, nil, append(strings.Fields(name), "--help")...)
		if got.code != exitOK {
			t.Errorf("%s --help: exit code %d: %s", name, got.code, got.err)
		}
		contains(t, got.out, "Examples:", "gantry ")
	}
	contains(t, invoke(t, nil).out, "Exit codes: 0 done, 1 failed, 2 wrong usage", "gantry dev")
}

func TestWrongUsage(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"unknown command": {[]string{"sevre"}, "did you mean \"serve\""},
		"unknown flag":    {[]string{"serve", "--port=1"}, "unknown flag --port"},
		"unknown setting": {[]string{"--set", "api.lisen=:1", "serve"}, "did you mean api.listen?"},
		"open dev":        {[]string{"dev", "--listen", "0.0.0.0:0"}, "listens on this machine only"},
		"once, no demo":   {[]string{"dev", "--once", "--no-demo"}, "leave nothing to do"},
		"no letters":      {[]string{"dead", "replay"}, "ids, or filters, or --all"},
		"two choices":     {[]string{"dead", "replay", "--all", "msg_1"}, "ids, or filters, or --all"},
		"limit":           {[]string{"lanes", "--limit", "0"}, "use 1 to 1000"},
		"address":         {[]string{"lanes", "--api", "localhost:8484"}, "http://host:port"},
		"token file":      {[]string{"lanes", "--token-file", "missing"}, "token file"},
		"events file":     {[]string{"enqueue", "--events", "missing.jsonl"}, "missing.jsonl"},
		"serve, no Redis": {[]string{"serve"}, "set REDIS_URL, or use gantry dev"},
	} {
		t.Run(name, func(t *testing.T) {
			got := invoke(t, nil, test.args...)
			if got.code != exitUsage || got.out != "" {
				t.Errorf("exit code %d, want %d; output %q", got.code, exitUsage, got.out)
			}
			contains(t, got.err, test.want)
		})
	}
}

func TestUnreachableSystem(t *testing.T) {
	// A port of this machine that nobody listens on; --api is not repeated for a
	// minute because the context ends first.
	got := invoke(t, nil, "dead", "list", "--api", "http://127.0.0.1:1", "--token-file", file(t, "token", "secret-token\n"))
	if got.code != exitFailure {
		t.Errorf("exit code %d, want %d", got.code, exitFailure)
	}
	contains(t, got.err, "reach the API at 127.0.0.1:1", "is it running")
	if strings.Contains(got.err, "secret-token") {
		t.Errorf("the token is shown: %s", got.err)
	}
}

func TestConfigCheckListsEveryProblem(t *testing.T) {
	env := map[string]string{"GANTRY_LANE_LEASE": "2s", "GANTRY_RETRY_FACTOR": "much", "GANTRY_LANE_LEESE": "4s", "REDIS_URL": "redis://:pw-secret@h"}
	got := invoke(t, env, "config", "check")
	if got.code != exitUsage {
		t.Errorf("exit code %d, want %d", got.code, exitUsage)
	}
	contains(t, got.err, "lane.lease (GANTRY_LANE_LEASE)", "retry.factor (GANTRY_RETRY_FACTOR)", "did you mean GANTRY_LANE_LEASE?")
	asJSON := invoke(t, env, "config", "check", "--json")
	var verdict struct {
		Valid    bool
		Problems []string
	}
	if err := json.Unmarshal([]byte(asJSON.out), &verdict); err != nil || verdict.Valid || len(verdict.Problems) != 3 {
		t.Errorf("--json gives %s (%v)", asJSON.out, err)
	}
	if strings.Contains(got.out+got.err+asJSON.out+asJSON.err, "pw-secret") {
		t.Errorf("a password is shown")
	}
}

func TestConfigCheckShowsSettings(t *testing.T) {
	path := file(t, "gantry.yaml", "worker: {batch: 8}\nredis: {url: 'redis://:pw-secret@h'}\n")
	got := invoke(t, map[string]string{varAPI: "http://h", varToken: "t"}, "--config", path, "--set", "worker.batch=16", "config", "check")
	if got.code != exitOK {
		t.Fatalf("exit code %d: %s", got.code, got.err)
	}
	contains(t, got.out, "batch: 16", "[redacted]@h")
	if strings.Contains(got.out, "pw-secret") {
		t.Errorf("a password is shown")
	}
	broken := invoke(t, map[string]string{config.VarWebhookURL: "nowhere"}, "config", "check")
	if broken.code != exitUsage {
		t.Errorf("broken environment hooks: exit code %d", broken.code)
	}
	contains(t, broken.err, config.VarWebhookURL, config.VarWebhookEvents)
}

func TestConfigDocsAreCheckedIn(t *testing.T) {
	want, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if diff := cmp.Diff(string(want), invoke(t, nil, "config", "docs").out); diff != "" {
		t.Fatalf("docs/config.md differs (-file +command):\n%s", diff)
	}
}

func TestVersion(t *testing.T) {
	contains(t, invoke(t, nil, "version").out, "gantry ", "go1.")
	var got map[string]string
	if err := json.Unmarshal([]byte(invoke(t, nil, "version", "--json").out), &got); err != nil || got["version"] == "" {
		t.Fatalf("--json gives %v, %v", got, err)
	}
}

func TestHooksCheck(t *testing.T) {
	good := file(t, "good.yaml", "- id: a\n  type: afterStep\n  webhook: {url: https://hooks.example/a}\n")
	bad := file(t, "bad.yaml", "hooks:\n- id: a\n  type: afterStep\n  webhook: {url: 'ftp://hooks.example/a'}\n")
	many := file(t, "many.json", `{"operations":{"op":[{"id":"a","type":"afterStep","webhook":{"url":"https://h.example/","retries":3}}]}}`)
	manyYAML := file(t, "many.yaml", "operations:\n  op:\n  - id: a\n    type: afterStep\n    webhook: {url: https://h.example/}\n")
	if got := invoke(t, nil, "hooks", "check", good, manyYAML, "../../examples/agent-run/hooks.json"); got.code != exitOK {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	got := invoke(t, nil, "hooks", "check", good, bad, many)
	if got.code != exitFailure {
		t.Errorf("exit code %d, want %d", got.code, exitFailure)
	}
	contains(t, got.out, "good.yaml: 1 hooks, all valid")
	contains(t, got.err, "bad.yaml:4", "many.json: operations.op.hooks[0].webhook.retries")
	asJSON := invoke(t, nil, "hooks", "check", "--json", good, bad)
	contains(t, asJSON.out, `"valid":true,"hooks":1`, `"valid":false`)
}

func TestMaskLetter(t *testing.T) {
	raw := `{"id":"d","task":{"v":1,"event":{"n":1e400,"token":"kept"},"hooks":[{"id":"h","webhook":{"url":"https://h.example/p?key=s3cret",` +
		`"headers":{"Authorization":"Bearer ${HOOK_T}","X-Key":"s3cret","Content-Type":"text/plain","X-Mixed":"s3cret ${HOOK_T}","X-Odd":7},` +
		`"body":{"apiToken":"s3cret","channel":"#ops","deep":{"password":{"a":"s3cret"}}}}},{"id":"u","webhook":{"url":"https://me:s3cret@h.example/"}}]}}`
	want := `{"id":"d","task":{"v":1,"event":{"n":1e400,"token":"kept"},"hooks":[{"id":"h","webhook":{"url":"https://h.example/p?[redacted]",` +
		`"headers":{"Authorization":"Bearer ${HOOK_T}","X-Key":"[redacted]","Content-Type":"text/plain","X-Mixed":"[redacted]${HOOK_T}","X-Odd":"[redacted]"},` +
		`"body":{"apiToken":"[redacted]","channel":"#ops","deep":{"password":"[redacted]"}}}},{"id":"u","webhook":{"url":"[redacted]"}}]}}`
	if diff := cmp.Diff(want, string(maskLetter(json.RawMessage(raw)))); diff != "" {
		t.Fatalf("masked differently (-want +got):\n%s", diff)
	}
}
