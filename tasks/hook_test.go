package tasks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/google/go-cmp/cmp"
)

func ptr[T any](v T) *T { return &v }

func noop(context.Context, *tasks.Event) error { return nil }

// webhookWith returns a list of one hook whose webhook has more members.
func webhookWith(hookType, members string) string {
	return fmt.Sprintf(`[{"id":"x","type":%q,"webhook":{"url":"https://rx.test/in"%s}}]`, hookType, members)
}

type refusal struct {
	why, raw string
	code     tasks.Reason
	path     string
}

// refusals hold in both modes.
var refusals = []refusal{
	{"no array", `{}`, tasks.InvalidHook, "hooks"},
	{"null list", `null`, tasks.InvalidHook, "hooks"},
	{"broken JSON", `[{]`, tasks.InvalidJSON, ""},
	{"bad UTF-8", "[\"\xff\"]", tasks.InvalidUTF8, ""},
	{"null hook", `[null]`, tasks.InvalidHook, "hooks[0]"},
	{"no id", `[{"type":"onError","webhook":{"url":"/x"}}]`, tasks.InvalidID, "hooks[0].id"},
	{"numeric id", `[{"id":1,"type":"onError","webhook":{"url":"/x"}}]`, tasks.InvalidID, "hooks[0].id"},
	{"null id", `[{"id":null,"type":"onError","webhook":{"url":"/x"}}]`, tasks.InvalidID, "hooks[0].id"},
	{"id in another case", `[{"ID":"x","type":"onError","webhook":{"url":"/x"}}]`, tasks.InvalidID, "hooks[0].id"},
	{"no type", `[{"id":"x","webhook":{"url":"/x"}}]`, tasks.UnknownType, "hooks[0].type"},
	{"unknown type", webhookWith("OnError", ""), tasks.UnknownType, "hooks[0].type"},
	{"null type", `[{"id":"x","type":null,"webhook":{"url":"/x"}}]`, tasks.UnknownType, "hooks[0].type"},
	{"no action", `[{"id":"x","type":"onError"}]`, tasks.NoAction, "hooks[0]"},
	{"null webhook", `[{"id":"x","type":"onError","webhook":null}]`, tasks.InvalidWebhook, "hooks[0].webhook"},
	{"text webhook", `[{"id":"x","type":"onError","webhook":"https://rx.test"}]`, tasks.InvalidWebhook, "hooks[0].webhook"},
	{"null matcher", `[{"id":"x","type":"beforeToolCall","matcher":null,"webhook":{"url":"/x"}}]`, tasks.InvalidMatcher, "hooks[0].matcher"},
	{"bad matcher", `[{"id":"x","type":"beforeToolCall","matcher":"a**","webhook":{"url":"/x"}}]`, tasks.InvalidMatcher, "hooks[0].matcher"},
	{"empty matcher on a step", `[{"id":"x","type":"onError","matcher":"","webhook":{"url":"/x"}}]`, tasks.MatcherNotToolEvent, "hooks[0].matcher"},
	{"star matcher on a step", `[{"id":"x","type":"onError","matcher":"*","webhook":{"url":"/x"}}]`, tasks.MatcherNotToolEvent, "hooks[0].matcher"},
	{"the second of two", webhookWith("onError", "")[:len(webhookWith("onError", ""))-1] + `,{"id":"y"}]`, tasks.UnknownType, "hooks[1].type"},
	{"unknown webhook key", webhookWith("onError", `,"retries":3`), tasks.UnknownField, "hooks[0].webhook.retries"},
	{"webhook key in another case", webhookWith("onError", `,"Timeout":3`), tasks.UnknownField, "hooks[0].webhook.Timeout"},
	{"no url", `[{"id":"x","type":"onError","webhook":{"timeout":1}}]`, tasks.InvalidURL, "hooks[0].webhook.url"},
	{"last url counts", webhookWith("onError", `,"url":null`), tasks.InvalidURL, "hooks[0].webhook.url"},
	{"zero timeout", webhookWith("onError", `,"timeout":0`), tasks.InvalidTimeout, "hooks[0].webhook.timeout"},
	{"negative timeout", webhookWith("onError", `,"timeout":-0.1`), tasks.InvalidTimeout, "hooks[0].webhook.timeout"},
	{"tiny timeout", webhookWith("onError", `,"timeout":1e-400`), tasks.InvalidTimeout, "hooks[0].webhook.timeout"},
	{"infinite timeout", webhookWith("onError", `,"timeout":1e400`), tasks.InvalidTimeout, "hooks[0].webhook.timeout"},
	{"long timeout", webhookWith("onError", `,"timeout":2147483.648`), tasks.InvalidTimeout, "hooks[0].webhook.timeout"},
	{"text timeout", webhookWith("onError", `,"timeout":"5"`), tasks.InvalidTimeout, "hooks[0].webhook.timeout"},
	{"null timeout", webhookWith("onError", `,"timeout":null`), tasks.InvalidTimeout, "hooks[0].webhook.timeout"},
	{"delivery", webhookWith("onError", `,"delivery":"Fetch"`), tasks.InvalidDelivery, "hooks[0].webhook.delivery"},
	{"empty delivery", webhookWith("onError", `,"delivery":""`), tasks.InvalidDelivery, "hooks[0].webhook.delivery"},
	{"null fallback", webhookWith("onError", `,"fallback":null`), tasks.InvalidFallback, "hooks[0].webhook.fallback"},
	{"onError", webhookWith("onError", `,"onError":"abort"`), tasks.InvalidOnError, "hooks[0].webhook.onError"},
	{"responseHandling", webhookWith("onError", `,"responseHandling":"toolResult"`), tasks.InvalidResponseHandling, "hooks[0].webhook.responseHandling"},
	{"variable with a dash", webhookWith("onError", `,"allowedEnvVars":["A","A-B"]`), tasks.InvalidAllowedEnvVar, "hooks[0].webhook.allowedEnvVars[1]"},
	{"variable with a digit first", webhookWith("onError", `,"allowedEnvVars":["1A"]`), tasks.InvalidAllowedEnvVar, "hooks[0].webhook.allowedEnvVars[0]"},
	{"variable that is no string", webhookWith("onError", `,"allowedEnvVars":[null]`), tasks.InvalidAllowedEnvVar, "hooks[0].webhook.allowedEnvVars[0]"},
	{"null variables", webhookWith("onError", `,"allowedEnvVars":null`), tasks.InvalidAllowedEnvVar, "hooks[0].webhook.allowedEnvVars"},
	{"headers array", webhookWith("onError", `,"headers":[]`), tasks.InvalidHeaders, "hooks[0].webhook.headers"},
	{"header number", webhookWith("onError", `,"headers":{"X-A":"1","X-B":2}`), tasks.InvalidHeaders, "hooks[0].webhook.headers.X-B"},
	{"body text", webhookWith("onError", `,"body":"{}"`), tasks.InvalidBody, "hooks[0].webhook.body"},
	{"body array", webhookWith("onError", `,"body":[]`), tasks.InvalidBody, "hooks[0].webhook.body"},
	{"null body", webhookWith("onError", `,"body":null`), tasks.InvalidBody, "hooks[0].webhook.body"},
	{"eventFields text", webhookWith("onError", `,"eventFields":"a"`), tasks.InvalidEventFields, "hooks[0].webhook.eventFields"},
	{"eventFields number", webhookWith("onError", `,"eventFields":["a",1]`), tasks.InvalidEventFields, "hooks[0].webhook.eventFields[1]"},
	{"blocking notification", webhookWith("beforeToolCall", `,"onError":"block"`), tasks.OnErrorRequiresControl, "hooks[0].webhook.onError"},
	{"blocking ignore", webhookWith("beforeToolCall", `,"onError":"block","responseHandling":"ignore"`), tasks.OnErrorRequiresControl, "hooks[0].webhook.onError"},
	{"control of an error", webhookWith("onToolCallError", `,"responseHandling":"toolCall"`), tasks.ControlEventType, "hooks[0].webhook.responseHandling"},
	{"queued control", webhookWith("beforeToolCall", `,"responseHandling":"toolCall","delivery":"qstash"`), tasks.ControlRequiresFetch, "hooks[0].webhook.delivery"},
	{"projected control", webhookWith("beforeToolCall", `,"responseHandling":"toolCall","eventFields":[]`), tasks.ControlNoProjectionOrBody, "hooks[0].webhook"},
	{"control with a body", webhookWith("afterToolCall", `,"responseHandling":"toolCall","body":{}`), tasks.ControlNoProjectionOrBody, "hooks[0].webhook"},
	{"options text", `[{"id":"x","type":"onError","webhook":{"url":"/x"},"gantry":"fast"}]`, tasks.InvalidOptions, "hooks[0].gantry"},
	{"null options", `[{"id":"x","type":"onError","webhook":{"url":"/x"},"gantry":null}]`, tasks.InvalidOptions, "hooks[0].gantry"},
	{"unknown option", optionsWith(`"retries":{}`), tasks.InvalidOptions, "hooks[0].gantry.retries"},
	{"a key instead of its name", optionsWith(`"signingKeyEnv":"whsec_a/b+c="`), tasks.InvalidOptions, "hooks[0].gantry.signingKeyEnv"},
	{"empty key name", optionsWith(`"signingKeyEnv":""`), tasks.InvalidOptions, "hooks[0].gantry.signingKeyEnv"},
	{"no attempts", optionsWith(`"retry":{"attempts":0}`), tasks.InvalidOptions, "hooks[0].gantry.retry.attempts"},
	{"negative attempts", optionsWith(`"retry":{"attempts":-1}`), tasks.InvalidOptions, "hooks[0].gantry.retry.attempts"},
	{"half an attempt", optionsWith(`"retry":{"attempts":1.5}`), tasks.InvalidOptions, "hooks[0].gantry.retry.attempts"},
	{"too many attempts", optionsWith(`"retry":{"clientErrorAttempts":1001}`), tasks.InvalidOptions, "hooks[0].gantry.retry.clientErrorAttempts"},
	{"shrinking delay", optionsWith(`"retry":{"factor":0.5}`), tasks.InvalidOptions, "hooks[0].gantry.retry.factor"},
	{"infinite age", optionsWith(`"retry":{"maxAgeSeconds":1e999}`), tasks.InvalidOptions, "hooks[0].gantry.retry.maxAgeSeconds"},
	{"unknown retry key", optionsWith(`"retry":{"jitter":1}`), tasks.InvalidOptions, "hooks[0].gantry.retry.jitter"},
}

func optionsWith(members string) string {
	return `[{"id":"x","type":"onError","webhook":{"url":"/x"},"gantry":{` + members + `}}]`
}

func TestParseHooksRefuses(t *testing.T) {
	t.Parallel()
	for _, mode := range []tasks.ParseMode{tasks.ParseRegister, tasks.ParseRestore} {
		for _, row := range refusals {
			t.Run(string(mode)+"/"+row.why, func(t *testing.T) {
				t.Parallel()
				hooks, err := tasks.ParseHooks([]byte(row.raw), tasks.ParseOptions{Mode: mode})
				if invalid := wantCode(t, err, row.code); invalid.Path != row.path || hooks != nil {
					t.Fatalf("path is %q, want %q; hooks %v", invalid.Path, row.path, hooks)
				}
			})
		}
	}
}

func TestParseHooksModes(t *testing.T) {
	t.Parallel()
	handlers := map[string]tasks.Handler{"log": noop, "gone": nil}
	for _, row := range []struct {
		why, raw string
		mode     tasks.ParseMode
		code     tasks.Reason
		ids      []string
	}{
		{"extra keys are dropped", `[{"id":"x","type":"onError","webhook":{"url":"/x"},"priority":3,"":1}]`, tasks.ParseRegister, "", []string{"x"}},
		{"extra keys are refused when stored", `[{"id":"x","type":"onError","webhook":{"url":"/x"},"priority":3}]`, tasks.ParseRestore, tasks.UnknownField, nil},
		{"even an empty one", `[{"id":"x","type":"onError","webhook":{"url":"/x"},"":3}]`, tasks.ParseRestore, tasks.UnknownField, nil},
		{"keys are case-sensitive when stored", `[{"id":"x","type":"onError","webhook":{"url":"/x"},"Matcher":"a"}]`, tasks.ParseRestore, tasks.UnknownField, nil},
		{"a handler by name", `[{"id":"x","type":"onError","handler":"log"}]`, tasks.ParseRegister, "", []string{"x"}},
		{"a handler that is unknown", `[{"id":"x","type":"onError","handler":"other"}]`, tasks.ParseRegister, tasks.InvalidHandler, nil},
		{"a handler that is nil", `[{"id":"x","type":"onError","handler":"gone"}]`, tasks.ParseRegister, tasks.InvalidHandler, nil},
		{"a handler that is an object", `[{"id":"x","type":"onError","handler":{}}]`, tasks.ParseRegister, tasks.InvalidHandler, nil},
		{"a handler that is null", `[{"id":"x","type":"onError","handler":null,"webhook":{"url":"/x"}}]`, tasks.ParseRegister, tasks.InvalidHandler, nil},
		{"a stored handler", `[{"id":"x","type":"onError","handler":"log","webhook":{"url":"/x"}}]`, tasks.ParseRestore, tasks.UnknownField, nil},
		{
			"a control with a handler",
			`[{"id":"x","type":"beforeToolCall","handler":"log","webhook":{"url":"/x","responseHandling":"toolCall"}}]`,
			tasks.ParseRegister, tasks.ControlNoHandler, nil,
		},
		{"reserved ids are dropped unread", `[{"id":"server-env-webhook:x","type":1},{"id":"","type":"onError","webhook":{"url":"/x"}}]`, tasks.ParseRegister, "", []string{""}},
		{"and when stored", `[{"id":"server-env-webhook:onError","webhook":null,"x":1}]`, tasks.ParseRestore, "", []string{}},
		{"the last id decides", `[{"id":"server-env-webhook:x","id":"x","type":"onError","webhook":{"url":"/x"}}]`, tasks.ParseRegister, "", []string{"x"}},
		{"the prefix is case-sensitive", `[{"id":"Server-Env-Webhook:x","type":"onError","webhook":{"url":"/x"}}]`, tasks.ParseRegister, "", []string{"Server-Env-Webhook:x"}},
		{"duplicates are kept", `[{"id":"x","type":"onError","webhook":{"url":"/x"}},{"id":"x","type":"onError","webhook":{"url":"/x"}}]`, tasks.ParseRestore, "", []string{"x", "x"}},
		{"an empty list", ` [ ] `, tasks.ParseRestore, "", []string{}},
	} {
		hooks, err := tasks.ParseHooks([]byte(row.raw), tasks.ParseOptions{Mode: row.mode, Handlers: handlers})
		if row.code != "" {
			wantCode(t, err, row.code)
			continue
		}
		ids := []string{}
		for _, h := range hooks {
			ids = append(ids, h.ID)
		}
		if diff := cmp.Diff(row.ids, ids); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", row.why, err, diff)
		}
	}
}

const fullHook = `[{"id":"a<b","type":"afterToolCall","matcher":"^mail/","webhook":{"url":"https://rx.test/in","delivery":"qstash","fallback":"none",` +
	`"onError":"continue","responseHandling":"ignore","timeout":0.05,"headers":{"B":"${X}","a":"1"},"allowedEnvVars":["X"],"eventFields":[],` +
	`"body":{"n":1e400,"n": 2}},"gantry":{"retry":{"attempts":3,"maxAgeSeconds":60.5},"signingKeyEnv":"KEY"}}]`

func TestEncodeHooksRoundTrip(t *testing.T) {
	t.Parallel()
	hooks, err := tasks.ParseHooks([]byte(fullHook), tasks.ParseOptions{Mode: tasks.ParseRestore})
	if err != nil {
		t.Fatal(err)
	}
	want := []tasks.Hook{{
		ID: "a<b", Type: tasks.AfterToolCall, Matcher: ptr("^mail/"),
		Webhook: &tasks.Webhook{
			URL: "https://rx.test/in", Delivery: tasks.DeliverQStash, Fallback: tasks.FallbackNone, OnError: tasks.PolicyContinue,
			ResponseHandling: tasks.HandleIgnore, Timeout: 0.05, Headers: map[string]string{"a": "1", "B": "${X}"},
			AllowedEnvVars: []string{"X"}, EventFields: []string{}, Body: json.RawMessage(`{"n":1e400,"n": 2}`),
		},
		Options: &tasks.HookOptions{Retry: &tasks.RetryOptions{Attempts: 3, MaxAgeSeconds: 60.5}, SigningKeyEnv: "KEY"},
	}}
	if diff := cmp.Diff(want, hooks); diff != "" {
		t.Fatalf("ParseHooks (-want +got):\n%s", diff)
	}
	raw, err := tasks.EncodeHooks(hooks)
	if err != nil || string(raw) != fullHook {
		t.Fatalf("EncodeHooks = %s, %v; want %s", raw, err, fullHook)
	}
}

func TestEncodeHooksLeavesOutWhatIsNotStored(t *testing.T) {
	t.Parallel()
	hooks := []tasks.Hook{
		{ID: "handler", Type: tasks.OnError, Handler: noop},
		{ID: "both", Type: tasks.OnError, Handler: noop, Webhook: &tasks.Webhook{URL: "/x"}},
		{ID: tasks.ReservedIDPrefix + "onError", Type: tasks.OnError, Webhook: &tasks.Webhook{URL: "/env"}},
	}
	raw, err := tasks.EncodeHooks(hooks)
	if want := `[{"id":"both","type":"onError","webhook":{"url":"/x"}}]`; err != nil || string(raw) != want {
		t.Fatalf("EncodeHooks = %s, %v; want %s", raw, err, want)
	}
	raw, err = tasks.EncodeHooks(nil)
	if err != nil || string(raw) != `[]` {
		t.Fatalf("EncodeHooks(nil) = %s, %v", raw, err)
	}
	hooks[1].Webhook.Body = json.RawMessage(`[]`)
	_, err = tasks.EncodeHooks(hooks)
	wantCode(t, err, tasks.InvalidBody)
}

func TestValidateHooksTakesASnapshot(t *testing.T) {
	t.Parallel()
	given, err := tasks.ParseHooks([]byte(fullHook), tasks.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := tasks.ValidateHooks(given)
	if err != nil {
		t.Fatal(err)
	}
	*given[0].Matcher = "changed"
	given[0].Webhook.URL = "changed"
	given[0].Webhook.Headers["a"] = "changed"
	given[0].Webhook.AllowedEnvVars[0] = "changed"
	given[0].Webhook.Body[1] = '!'
	given[0].Options.Retry.Attempts = 9
	if raw, err := tasks.EncodeHooks(kept); err != nil || string(raw) != fullHook {
		t.Fatalf("snapshot changed: %s, %v", raw, err)
	}
	if kept[0].Webhook.EventFields == nil {
		t.Fatal("an empty projection became an absent one")
	}
}

func TestValidateHooksRefusesGoValues(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		why  string
		hook tasks.Hook
		code tasks.Reason
	}{
		{"zero", tasks.Hook{}, tasks.UnknownType},
		{"no action", tasks.Hook{Type: tasks.OnError}, tasks.NoAction},
		{"bad id", tasks.Hook{ID: "\xff", Type: tasks.OnError, Handler: noop}, tasks.InvalidID},
		{"no url", tasks.Hook{Type: tasks.OnError, Webhook: &tasks.Webhook{}}, tasks.InvalidURL},
		{"body that is no object", tasks.Hook{Type: tasks.OnError, Webhook: &tasks.Webhook{URL: "/x", Body: json.RawMessage{}}}, tasks.InvalidBody},
		{"unknown delivery", tasks.Hook{Type: tasks.OnError, Webhook: &tasks.Webhook{URL: "/x", Delivery: "mail"}}, tasks.InvalidDelivery},
		{"negative timeout", tasks.Hook{Type: tasks.OnError, Webhook: &tasks.Webhook{URL: "/x", Timeout: -1}}, tasks.InvalidTimeout},
		{"empty variable", tasks.Hook{Type: tasks.OnError, Webhook: &tasks.Webhook{URL: "/x", AllowedEnvVars: []string{""}}}, tasks.InvalidAllowedEnvVar},
		{"matcher", tasks.Hook{Type: tasks.OnError, Handler: noop, Matcher: ptr("")}, tasks.MatcherNotToolEvent},
		{"options", tasks.Hook{Type: tasks.OnError, Handler: noop, Options: &tasks.HookOptions{Retry: &tasks.RetryOptions{Factor: -1}}}, tasks.InvalidOptions},
	} {
		good := tasks.Hook{ID: "good", Type: tasks.OnError, Handler: noop}
		kept, err := tasks.ValidateHooks([]tasks.Hook{good, row.hook})
		if invalid := wantCode(t, err, row.code); !strings.HasPrefix(invalid.Path, "hooks[1]") || kept != nil {
			t.Errorf("%s: path %q, kept %v", row.why, invalid.Path, kept)
		}
	}
	kept, err := tasks.ValidateHooks([]tasks.Hook{{ID: tasks.ReservedIDPrefix + "x"}})
	if err != nil || len(kept) != 0 {
		t.Fatalf("a reserved id is not dropped: %v, %v", kept, err)
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"https://hooks.acme.test", "HTTPS://HOOKS.ACME.TEST/In", "http://127.0.0.1:3210/x", "http://[::1]/", "http://localhost",
		"/", "/api/hook?src=a#z", "/a//b", "/a:b@c", "https://bücher.example/", "https://h.test:65535/?q=a b",
	} {
		if err := tasks.CheckURL(good); err != nil {
			t.Errorf("CheckURL(%q): %v", good, err)
		}
	}
	for _, bad := range []string{
		"", " ", "//cdn.evil.test/x", "hooks/done", "ftp://files.acme.test/x", "javascript:alert(1)", "https:foo", "https:/foo",
		"https://", "https://?q", "https://bot:pw@hooks.acme.test/", "https://bot@hooks.acme.test/", `https://hooks.acme.test\in`,
		`/\evil.test/x`, "/\t/evil.test/x", "/x\n", "https://h.test/\x00", "https://h.test/\u0085", "https://hooks.acme.test:70000/",
		"https://bad host.test/", "https://[::1", "https://%00.test/", "https://1.2.3.256/", "https://a<b/",
	} {
		wantCode(t, tasks.CheckURL(bad), tasks.InvalidURL)
	}
}

func TestStoredHooksShares(t *testing.T) {
	t.Parallel()
	raw := []byte(fullHook)
	first, err := tasks.StoredHooks(raw)
	if err != nil {
		t.Fatal(err)
	}
	second, err := tasks.StoredHooks([]byte(fullHook))
	if err != nil || &first[0] != &second[0] {
		t.Fatalf("the list was parsed twice (%v)", err)
	}
	copy(raw, strings.Repeat("x", len(raw)))
	if first[0].ID != "a<b" || string(first[0].Webhook.Body) != `{"n":1e400,"n": 2}` {
		t.Fatal("the list shares memory with its source")
	}
	none, err := tasks.StoredHooks(nil)
	if err != nil || none != nil {
		t.Fatalf("StoredHooks(nil) = %v, %v", none, err)
	}
	_, err = tasks.StoredHooks([]byte(`null`))
	wantCode(t, err, tasks.InvalidHook)
}

// FuzzParseHooks holds that what is accepted can be stored and restored, and
// that nothing makes the parser panic.
func FuzzParseHooks(f *testing.F) {
	f.Add([]byte(fullHook))
	for _, row := range refusals {
		f.Add([]byte(row.raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		hooks, err := tasks.ParseHooks(raw, tasks.ParseOptions{})
		if err != nil {
			return
		}
		stored, err := tasks.EncodeHooks(hooks)
		if err != nil {
			t.Fatalf("EncodeHooks of %s: %v", raw, err)
		}
		again, err := tasks.ParseHooks(stored, tasks.ParseOptions{Mode: tasks.ParseRestore})
		if diff := cmp.Diff(hooks, again); err != nil || diff != "" {
			t.Fatalf("stored as %s: %v (-want +got):\n%s", stored, err, diff)
		}
	})
}
