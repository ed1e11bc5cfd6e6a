package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/gantry-hooks/gantry/config"
)

// write puts text into a file of the test's own folder and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
	return path
}

func load(t *testing.T, file string, overrides map[string]string, lines ...string) *config.Config {
	t.Helper()
	env, names := variables(lines...)
	loaded, err := config.Load(config.Sources{File: file, Env: env, Names: names, Overrides: overrides})
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return loaded
}

func TestLoadWithoutSourcesGivesDefaults(t *testing.T) {
	if diff := cmp.Diff(config.Defaults(), load(t, "", nil)); diff != "" {
		t.Fatalf("settings differ (-want +got):\n%s", diff)
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "gantry.yaml", "worker: {batch: 2, concurrency: 3, drain_events: 400}\nlog:\n")
	got := load(t, file, map[string]string{"worker.batch": "8"},
		"GANTRY_WORKER_BATCH=4", "GANTRY_WORKER_CONCURRENCY=5", "GANTRY_WORKER_GRACE=", "UNRELATED=1")
	want := config.Defaults().Worker
	want.Batch, want.Concurrency, want.DrainEvents = 8, 5, 400
	if diff := cmp.Diff(want, got.Worker); diff != "" {
		t.Fatalf("worker settings differ (-want +got):\n%s", diff)
	}
}

func TestEveryKindOfValue(t *testing.T) {
	file := write(t, "gantry.yaml", `
redis: {url: "rediss://u:pw@db.internal:6380/2", tls: {server_name: db}, namespace: 7}
retry: {factor: 1.5}
webhook: {header_env: [HOOK_*, "*"], egress_allow: [10.0.0.0/8, "::1", hooks.internal, "*.corp.example"]}
api: {max_body: 2MB, listen: ":0", tokens: [runtime:abc, "operator:d:ef"]}
`)
	// The second token has a colon of its own, which no bearer token can carry.
	env, names := variables()
	if _, err := config.Load(config.Sources{File: file, Env: env, Names: names}); err == nil {
		t.Fatalf("loaded a token that a header cannot carry")
	}
	got := load(t, file, nil, "GANTRY_TOKENS=runtime:abc, operator:def=,", "GANTRY_HEADER_ENV= , ",
		"GANTRY_LANE_LEASE=1500ms", "GANTRY_LANE_HEARTBEAT=500ms")
	want := config.Defaults()
	want.Redis.URL, want.Redis.TLS.ServerName, want.Redis.Namespace = "rediss://u:pw@db.internal:6380/2", "db", "7"
	want.Retry.Factor = 1.5
	want.Webhook.HeaderEnv, want.Webhook.EgressAllow = []string{}, []string{"10.0.0.0/8", "::1", "hooks.internal", "*.corp.example"}
	want.API.MaxBody, want.API.Listen = 2_000_000, ":0"
	want.API.Tokens = []config.Secret{"runtime:abc", "operator:def="}
	want.Lane.Lease, want.Lane.Heartbeat = 1500*time.Millisecond, 500*time.Millisecond
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("settings differ (-want +got):\n%s", diff)
	}
	tokens, err := got.API.ReadTokens()
	if err != nil {
		t.Fatalf("read tokens: %v", err)
	}
	wantTokens := []config.Token{
		{Role: config.RoleRuntime, Value: "abc"}, {Role: config.RoleOperator, Value: "def="},
	}
	if diff := cmp.Diff(wantTokens, tokens); diff != "" {
		t.Fatalf("tokens differ (-want +got):\n%s", diff)
	}
}

func TestSecretFiles(t *testing.T) {
	got := load(t, "", nil,
		"GANTRY_REDIS_PASSWORD_FILE="+write(t, "password", " pass word\r\n"),
		"GANTRY_TOKENS_FILE="+write(t, "tokens", "# who\n\nruntime:one\n operator:two \n"),
		"GANTRY_ENRICH_KIND=postgres", "GANTRY_ENRICH_DSN_FILE="+write(t, "dsn", "postgres://h/d\n"))
	password, err := got.Redis.ReadPassword()
	if err != nil || password.Reveal() != " pass word" {
		t.Fatalf("password is %q, %v", password.Reveal(), err)
	}
	dsn, err := got.Enrich.ReadDSN()
	if err != nil || dsn.Reveal() != "postgres://h/d" {
		t.Fatalf("dsn is %q, %v", dsn.Reveal(), err)
	}
	tokens, err := got.API.ReadTokens()
	if err != nil || len(tokens) != 2 || tokens[1].Value.Reveal() != "two" {
		t.Fatalf("tokens are %d, %v", len(tokens), err)
	}
	if err := os.Remove(got.Redis.PasswordFile); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if _, err := got.Redis.ReadPassword(); len(config.SettingErrors(err)) != 1 {
		t.Fatalf("read a missing file: %v", err)
	}
}

func TestEnvFileIsLaidOverTheEnvironment(t *testing.T) {
	vars := write(t, "vars", "GANTRY_LOG_LEVEL=debug\nREDIS_URL=redis://file\n")
	yamlFile := write(t, "gantry.yaml", "env_file: "+vars+"\n")
	for name, got := range map[string]*config.Config{
		"variable": load(t, "", nil, "GANTRY_ENV_FILE="+vars, "REDIS_URL=redis://process"),
		"file":     load(t, yamlFile, nil, "REDIS_URL=redis://process"),
		"flag":     load(t, "", map[string]string{"env_file": vars}, "GANTRY_ENV_FILE=missing", "REDIS_URL=redis://process"),
	} {
		if got.Log.Level != "debug" || got.Redis.URL.Reveal() != "redis://file" || got.EnvFile != vars {
			t.Fatalf("%s: got level %q, url %q, env file %q", name, got.Log.Level, got.Redis.URL, got.EnvFile)
		}
	}
}

func TestVariablesThatAreNoMistake(t *testing.T) {
	env, names := variables("GANTRY_SERVICE_HOST=10.0.0.1", "GANTRY_SERVICE_PORT_HTTP=80", "GANTRY_PORT=tcp://10.0.0.1:80",
		"GANTRY_API_PORT_8484_TCP_ADDR=10.0.0.1", "GANTRY_OTHER=1")
	if _, err := config.Load(config.Sources{Env: env, Names: names, Others: []string{"GANTRY_OTHER"}}); err != nil {
		t.Fatalf("load: %v", err)
	}
	env, names = variables("GANTRY_PORT=8484")
	if _, err := config.Load(config.Sources{Env: env, Names: names}); err == nil {
		t.Fatalf("accepted GANTRY_PORT=8484, which would do nothing")
	}
}

func TestProcessEnvironmentIsTheDefaultSource(t *testing.T) {
	t.Setenv("GANTRY_LOG_FORMAT", "json")
	t.Setenv("GANTRY_LOG_FORMT", "json")
	_, err := config.Load(config.Sources{})
	found := config.SettingErrors(err)
	want := "GANTRY_LOG_FORMT: is not a variable of Gantry; did you mean GANTRY_LOG_FORMAT?"
	if len(found) != 1 || found[0].Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestUnknownOverride(t *testing.T) {
	env, _ := variables()
	_, err := config.Load(config.Sources{Env: env, Overrides: map[string]string{"worker.bach": "1"}})
	if err == nil || !strings.Contains(err.Error(), "did you mean worker.batch?") {
		t.Fatalf("got %v, want a suggestion", err)
	}
}

func TestDeploymentRequirements(t *testing.T) {
	c := config.Defaults()
	if c.RequireRedis() == nil || c.RequireTokens() == nil {
		t.Fatalf("accepted a deployment without Redis or tokens")
	}
	c.Redis.URL, c.API.TokensFile = "redis://localhost", "tokens"
	if err := c.RequireRedis(); err != nil {
		t.Fatalf("refused Redis: %v", err)
	}
	if err := c.RequireTokens(); err != nil {
		t.Fatalf("refused tokens: %v", err)
	}
	if err := c.Validate(); err == nil {
		t.Fatalf("accepted a missing tokens file")
	}
}

func TestSecretsNeverPrint(t *testing.T) {
	c := config.Defaults()
	c.Redis.URL = "redis://user:s3cret@db:6379/1?x=s3cret"
	c.Redis.Password, c.Enrich.DSN = "s3cret", "postgres://u:s3cret@h/d"
	c.API.Tokens = []config.Secret{"runtime:s3cret"}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatalf("marshal JSON: %v", err)
	}
	asYAML, err := yaml.Marshal(c)
	if err != nil {
		t.Fatalf("marshal YAML: %v", err)
	}
	for name, text := range map[string]string{
		"%v": fmt.Sprintf("%v", c), "%+v": fmt.Sprintf("%+v", *c), "%#v": fmt.Sprintf("%#v", c),
		"%q": fmt.Sprintf("%q", c.Redis.Password), "%x": fmt.Sprintf("%x", c.Redis.URL),
		"string": c.Redis.Password.String() + c.Redis.URL.String(), "json": string(asJSON), "yaml": string(asYAML),
		"redacted": string(c.Redacted()),
	} {
		if strings.Contains(text, "s3cret") || strings.Contains(text, fmt.Sprintf("%x", "s3cret")) {
			t.Errorf("%s shows a secret: %s", name, text)
		}
		if !strings.Contains(text, "[redacted]") {
			t.Errorf("%s does not say that something was masked: %s", name, text)
		}
	}
	if got, want := c.Redis.URL.String(), "redis://[redacted]@db:6379/1?[redacted]"; got != want {
		t.Errorf("URL prints as %s, want %s", got, want)
	}
}

func TestRedactedReadsBack(t *testing.T) {
	want := load(t, "", nil, "GANTRY_EGRESS_ALLOW=10.0.0.0/8,a.internal", "GANTRY_MAX_BODY=1025", "REDIS_URL=redis://h",
		"GANTRY_USER_AGENT_SUFFIX=123", "GANTRY_RETRY_MAX_DELAY=90m")
	if diff := cmp.Diff(want, load(t, write(t, "gantry.yaml", string(want.Redacted())), nil), cmp.Transformer("list",
		func(s []config.Secret) int { return len(s) })); diff != "" {
		t.Fatalf("settings differ after a round trip (-want +got):\n%s", diff)
	}
}

func TestEveryFieldIsDocumented(t *testing.T) {
	reference := string(config.Reference())
	for block := range strings.SplitSeq(reference, "\n### ") {
		if paragraphs := strings.Split(strings.TrimSpace(block), "\n\n"); len(paragraphs) < 3 {
			t.Errorf("setting without a comment: %s", block)
		}
	}
	if n := strings.Count(reference, "\nVariable `"); n < 45 || strings.Contains(reference, "Variable ``") {
		t.Fatalf("the reference has %d settings, or one without a variable", n)
	}
}
