package ingress_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer/ingress"
	"github.com/gantry-hooks/gantry/tasks"
)

const hooksPath = "/v1/operations/op/hooks"

// ids reads the ids of the hooks of an answer.
func ids(t *testing.T, a answer) []string {
	t.Helper()
	var list ingress.HookList
	a.want(200).into(&list)
	var hooks []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(list.Hooks, &hooks); err != nil {
		t.Fatalf("decode hooks: %v", err)
	}
	names := []string{}
	for _, h := range hooks {
		names = append(names, h.ID)
	}
	return names
}

func TestHooksOfAnOperation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.token = runtimeToken
	b.call("GET", hooksPath, "").problem(404, "not_found")
	step := func(method, body string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, ids(t, b.call(method, hooksPath, body))); diff != "" {
			t.Fatalf("%s: hooks (-want +got):\n%s", method, diff)
		}
		if diff := cmp.Diff(want, ids(t, b.call("GET", hooksPath, ""))); diff != "" {
			t.Fatalf("stored hooks (-want +got):\n%s", diff)
		}
	}
	step("PUT", "["+hookJSON("a")+"]", "a")
	step("POST", `{"hooks":[`+hookJSON("b")+","+hookJSON("a")+`]}`, "a", "b", "a")
	step("POST", "[]", "a", "b", "a")
	step("PUT", "["+hookJSON("c")+"]", "c")
	step("PUT", "[]", []string{}...)
	b.call("DELETE", hooksPath, "").want(204)
	b.call("DELETE", hooksPath, "").want(204)
	b.call("GET", hooksPath, "").problem(404, "not_found")
}

func TestDeletedHooksStillDeliverWhatIsPending(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(hookJSON("h"))
	b.post("", eventJSON(`"id":"e",`)).want(202)
	b.call("DELETE", hooksPath, "").want(204)
	if doc := b.docs()[0]; !strings.Contains(doc, `"hooks":[{"id":"h"`) {
		t.Fatalf("document is %s", doc)
	}
}

func TestReservedHooksAreDropped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got := ids(t, b.call("PUT", hooksPath, `[{"id":"server-env-webhook:x","type":"nonsense"},`+hookJSON("a")+`]`))
	if diff := cmp.Diff([]string{"a"}, got); diff != "" {
		t.Fatalf("hooks (-want +got):\n%s", diff)
	}
}

func TestInvalidHooks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.register(hookJSON("old"))
	webhook := func(members string) string {
		return `[` + hookJSON("ok") + `,{"id":"x","type":"beforeToolCall","webhook":{"url":"/x",` + members + `}}]`
	}
	for name, test := range map[string]struct {
		body   string
		status int
		code   string
		path   string
	}{
		"empty body":        {"", 400, "invalid_json", ""},
		"utf8":              {"[\"\xff\"]", 400, "invalid_utf8", ""},
		"no array":          {`1`, 422, "invalid_hook", "hooks"},
		"hooks missing":     {`{}`, 422, "missing_field", "hooks"},
		"hooks null":        {`{"hooks":null}`, 422, "invalid_hook", "hooks"},
		"hooks and more":    {`{"hooks":[],"x":1}`, 422, "unknown_field", "x"},
		"hook":              {`[1]`, 422, "invalid_hook", "hooks[0]"},
		"id":                {`[{"type":"onComplete","webhook":{"url":"/x"}}]`, 422, "invalid_id", "hooks[0].id"},
		"type":              {`[{"id":"a","type":"oncomplete","webhook":{"url":"/x"}}]`, 422, "unknown_type", "hooks[0].type"},
		"no action":         {`[{"id":"a","type":"onComplete"}]`, 422, "no_action", "hooks[0]"},
		"handler only":      {`[` + hookJSON("a") + `,{"id":"b","type":"onComplete","handler":"f"}]`, 422, "no_action", "hooks[1]"},
		"handler, object":   {`{"hooks":[{"id":"b","type":"onComplete","handler":"f"}]}`, 422, "no_action", "hooks[0]"},
		"handler, webhook":  {`[{"id":"b","type":"onComplete","handler":"f","webhook":{"url":"/x"}}]`, 422, "invalid_handler", "hooks[0].handler"},
		"matcher":           {`[{"id":"a","type":"onComplete","matcher":"","webhook":{"url":"/x"}}]`, 422, "matcher_not_tool_event", "hooks[0].matcher"},
		"pattern":           {`[{"id":"a","type":"afterToolCall","matcher":"(?i)x","webhook":{"url":"/x"}}]`, 422, "invalid_matcher", "hooks[0].matcher"},
		"webhook":           {`[{"id":"a","type":"onComplete","webhook":1}]`, 422, "invalid_webhook", "hooks[0].webhook"},
		"url":               {`[{"id":"a","type":"onComplete","webhook":{"url":"ftp://x"}}]`, 422, "invalid_url", "hooks[0].webhook.url"},
		"unknown field":     {webhook(`"retry":1`), 422, "unknown_field", "hooks[1].webhook.retry"},
		"timeout":           {webhook(`"timeout":0`), 422, "invalid_timeout", "hooks[1].webhook.timeout"},
		"timeout null":      {webhook(`"timeout":null`), 422, "invalid_timeout", "hooks[1].webhook.timeout"},
		"delivery":          {webhook(`"delivery":"x"`), 422, "invalid_delivery", "hooks[1].webhook.delivery"},
		"fallback":          {webhook(`"fallback":"x"`), 422, "invalid_fallback", "hooks[1].webhook.fallback"},
		"onError":           {webhook(`"onError":"x"`), 422, "invalid_on_error", "hooks[1].webhook.onError"},
		"responseHandling":  {webhook(`"responseHandling":"x"`), 422, "invalid_response_handling", "hooks[1].webhook.responseHandling"},
		"allowedEnvVars":    {webhook(`"allowedEnvVars":["1"]`), 422, "invalid_allowed_env_var", "hooks[1].webhook.allowedEnvVars[0]"},
		"headers":           {webhook(`"headers":[]`), 422, "invalid_headers", "hooks[1].webhook.headers"},
		"body":              {webhook(`"body":[]`), 422, "invalid_body", "hooks[1].webhook.body"},
		"eventFields":       {webhook(`"eventFields":""`), 422, "invalid_event_fields", "hooks[1].webhook.eventFields"},
		"block, no control": {webhook(`"onError":"block"`), 422, "on_error_block_requires_control", "hooks[1].webhook.onError"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := (&bundle{t: t, url: b.url, token: b.token}).call("PUT", hooksPath, test.body).problem(test.status, test.code)
			if len(p.Faults) != 1 || p.Faults[0].Path != test.path {
				t.Fatalf("faults are %+v, want path %q", p.Faults, test.path)
			}
		})
	}
	b.call("POST", hooksPath, `["x"]`).problem(422, "invalid_hook")
	if diff := cmp.Diff([]string{"old"}, ids(t, b.call("GET", hooksPath, ""))); diff != "" {
		t.Fatalf("hooks (-want +got):\n%s", diff)
	}
}

func TestInvalidEnvironmentRefusesHooksAndEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ingress.Config) {
		c.EnvironmentHooks = func() ([]tasks.Hook, error) { return nil, errors.New("AGENT_HOOK_WEBHOOK_URL is secret-value") }
	})
	for _, a := range []answer{
		b.call("PUT", hooksPath, "[]"), b.call("POST", hooksPath, "[]"), b.post("", eventJSON("")),
	} {
		if p := a.problem(503, "environment_invalid"); strings.Contains(a.body, "secret-value") {
			t.Fatalf("problem tells too much: %+v", p)
		}
	}
	b.call("GET", hooksPath, "").problem(404, "not_found")
	b.call("DELETE", hooksPath, "").want(204)
}

func TestStoredHooksThatAreBroken(t *testing.T) {
	t.Parallel()
	for _, stored := range []string{`[{"id":1}]`, `{`, ``} {
		b := setup(t)
		if err := b.store.PutHooks(t.Context(), "op", json.RawMessage(stored)); err != nil {
			t.Fatalf("put hooks: %v", err)
		}
		b.post("", eventJSON("")).problem(409, "stored_hooks_invalid")
		if stored != `[{"id":1}]` {
			b.call("GET", hooksPath, "").problem(409, "stored_hooks_invalid")
		}
		b.register(hookJSON("h"))
		b.post("", eventJSON("")).want(202)
	}
}

// TestOperationIDsInPaths sends ids that a mux likes to change.
func TestOperationIDsInPaths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, id := range []string{
		"a/b", "/", "//", "a/../b", "../../v1", ".", "..", "...", "{op}", "{", "}", "a b", " ", "a:b", ":", "%2F", "100%", "a+b", "a?b#c&d=e",
		"日本語", "é", "e\u0301", "😀", "a;b", "a\\b", "hooks", "events", strings.Repeat("x", 512), strings.Repeat("/", 512), strings.Repeat("日", 170),
	} {
		for _, escaped := range []string{escapeAll(id), url.PathEscape(id)} {
			if escaped == "." || escaped == ".." {
				continue // not a segment of its own; see TestPathsThatAreNoRoutes
			}
			path := "/v1/operations/" + escaped
			var list ingress.HookList
			b.call("PUT", path+"/hooks", "["+hookJSON("h")+"]").want(200).into(&list)
			if list.OperationID != id {
				t.Fatalf("operation is %q, want %q", list.OperationID, id)
			}
			if _, ok, err := b.store.Hooks(t.Context(), id); err != nil || !ok {
				t.Fatalf("hooks of %q are not stored (%v)", id, err)
			}
			eventPath := path + "/events/" + escapeAll(id)
			body, _ := json.Marshal(id)
			b.call("POST", path+"/events", eventJSON(`"id":`+string(body)+`,`)).want(202)
			var status ingress.EventStatus
			b.call("GET", eventPath, "").want(200).into(&status)
			if status.ID != id || status.OperationID != id {
				t.Fatalf("status is %+v, want %q", status, id)
			}
			var view ingress.LaneView
			b.call("GET", "/v1/lanes/"+escaped, "").want(200).into(&view)
			if view.OperationID != id {
				t.Fatalf("lane is %q, want %q", view.OperationID, id)
			}
			b.call("DELETE", path+"/hooks", "").want(204)
		}
	}
}

// escapeAll percent-encodes each byte.
func escapeAll(id string) string {
	const digits = "0123456789ABCDEF"
	var escaped strings.Builder
	for _, c := range []byte(id) {
		escaped.WriteByte('%')
		escaped.WriteByte(digits[c>>4])
		escaped.WriteByte(digits[c&15])
	}
	return escaped.String()
}

func TestInvalidOperationIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, escaped := range []string{strings.Repeat("x", 513), "%00", "a%0Ab", "%FF", "%C2%85", "%7F", "%ED%A0%80"} {
		for _, route := range []string{
			"GET /v1/operations/ID/hooks", "PUT /v1/operations/ID/hooks", "POST /v1/operations/ID/hooks",
			"DELETE /v1/operations/ID/hooks", "POST /v1/operations/ID/events", "GET /v1/operations/ID/events/x", "GET /v1/lanes/ID",
		} {
			method, path, _ := strings.Cut(route, " ")
			p := b.call(method, strings.Replace(path, "ID", escaped, 1), "[]").problem(422, "invalid_operation_id")
			if p.Faults[0].Path != "path.op" {
				t.Fatalf("%s: faults are %+v", route, p.Faults)
			}
		}
		p := b.call("GET", "/v1/operations/op/events/"+escaped, "").problem(422, "invalid_task_id")
		if p.Faults[0].Path != "path.id" {
			t.Fatalf("faults are %+v", p.Faults)
		}
	}
}

func TestPathsThatAreNoRoutes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/operations", "/v1/operations//hooks", "/v1/operations/./hooks", "/v1/operations/../hooks",
		"/v1/operations/op/hooks/", "/v1/operations/a/b/hooks", "/v1/operations/op//hooks", "/v1//lanes", "//v1/lanes", "/v1/lanes/../lanes",
		"/v1/dead-letters:purge", "/V1/lanes", "/docs", "/schemas/Hook.json", "/openapi.yaml", "/metrics",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "PATCH"} {
			a := b.call(method, path, "")
			if a.problem(404, "route_not_found"); a.header.Get("Location") != "" {
				t.Fatalf("%s is redirected to %s", path, a.header.Get("Location"))
			}
		}
	}
}

func TestMethodsThatARouteDoesNotHave(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for route, allow := range map[string]string{
		"PATCH /v1/operations/op/hooks":      "GET, PUT, POST, DELETE",
		"GET /v1/operations/op/events":       "POST",
		"DELETE /v1/operations/a%2Fb/events": "POST",
		"POST /v1/lanes":                     "GET",
		"GET /v1/dead-letters:replay":        "POST",
		"POST /healthz":                      "GET",
		"PUT /openapi.json":                  "GET",
		"OPTIONS /v1/lanes":                  "GET",
	} {
		method, path, _ := strings.Cut(route, " ")
		a := b.call(method, path, "")
		a.problem(405, "method_not_allowed")
		if got := a.header.Get("Allow"); got != allow {
			t.Fatalf("%s: allow is %q, want %q", route, got, allow)
		}
	}
	b.call("HEAD", "/healthz", "").want(200)
}
