package webhook_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http/httpguts"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

var headerVars = map[string]string{
	"KEY": "k1", "VAL": "v1", "EMPTY": "", "OPEN": "a${b", "DOLLAR": "$", "LF": "tok" + secretHeader + "\n", "CR": secretHeader + "\rx",
	"NUL": secretHeader + "\x00", "CJK": secretHeader + "日本", "BAD": secretHeader + "\xe9", "LATIN": "é", "BELL": secretHeader + "\a", "PAD": " \tx ",
}

func TestResolveHeaders(t *testing.T) {
	t.Parallel()
	names := []string{"KEY", "VAL", "EMPTY", "OPEN", "DOLLAR", "LF", "CR", "NUL", "CJK", "BAD", "LATIN", "BELL", "PAD", "UNSET"}
	const refused = "refused"
	value := func(template, want string) [2]string { return [2]string{template, want} }
	for name, test := range map[string][2]string{
		"literal": value("gold", "gold"), "empty": value("", ""), "one variable": value("Bearer ${KEY}", "Bearer k1"),
		"two variables": value("${KEY}:${VAL}", "k1:v1"), "same twice": value("${KEY}-${KEY}", "k1-k1"),
		"set but empty": value("a${EMPTY}b", "ab"), "empty alone": value("${EMPTY}", ""),
		"dollar is literal": value("$5 and $KEY", "$5 and $KEY"), "braces are literal": value("{KEY}", "{KEY}"),
		"dollar before": value("$${KEY}", "$k1"), "dollar at the end": value("a$", "a$"), "brace after": value("${KEY}}", "k1}"),
		"padding": value("\t padded ", "padded"), "padding from a variable": value("${PAD}", "x"), "inner space": value("a  b", "a  b"),
		"latin": value("${LATIN}ÿ", "éÿ"), "tab inside": value("a\tb", "a\tb"),

		"unset": value("${UNSET}", refused), "not in the hook's list": value("${OTHER}", refused), "wrong case": value("${key}", refused),
		"spaces in the name": value("${ KEY }", refused), "empty name": value("${}", refused), "unclosed": value("${KEY", refused),
		"unclosed second": value("${KEY}${", refused), "nested": value("${A${KEY}}", refused), "default syntax": value("${KEY:-x}", refused),
		"template from a variable": value("${OPEN}", refused), "template made of two parts": value("${DOLLAR}{KEY}", refused),
		"trailing newline": value("${LF}", refused), "carriage return": value("${CR}", refused), "zero byte": value("${NUL}", refused),
		"static newline": value("a\r\nX-Evil: 1", refused), "static zero byte": value("a\x00b", refused),
		"above U+00FF": value("${CJK}", refused), "not UTF-8": value("${BAD}", refused), "control character": value("${BELL}", refused),
		"delete character": value("a\x7f", refused),
	} {
		hook := &tasks.Hook{Webhook: &tasks.Webhook{Headers: map[string]string{"X-A": test[0]}, AllowedEnvVars: names}}
		got, err := webhook.ResolveHeaders(hook, webhook.HeaderSource{Env: environment(headerVars), Allow: []string{"*"}})
		if test[1] == refused {
			checkRefused(t, name, err)
			continue
		}
		if diff := cmp.Diff(http.Header{"Content-Type": {"application/json"}, "X-A": {test[1]}}, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func checkRefused(t *testing.T, name string, err error) {
	t.Helper()
	var refused *webhook.ConfigurationError
	if !errors.As(err, &refused) {
		t.Errorf("%s: %v, want a configuration error", name, err)
		return
	}
	checkText(t, err.Error())
}

func TestHeaderNames(t *testing.T) {
	t.Parallel()
	source := webhook.HeaderSource{Env: environment(nil), Allow: []string{}}
	resolve := func(names ...string) (http.Header, error) {
		headers := map[string]string{}
		for _, name := range names {
			headers[name] = "v"
		}
		return webhook.ResolveHeaders(&tasks.Hook{Webhook: &tasks.Webhook{Headers: headers}}, source)
	}
	for _, name := range []string{
		"Host", "content-length", "CONNECTION", "Transfer-Encoding", "Trailer", "upgrade", "Proxy-Authorization", "proxy-",
		"Sec-Fetch-Mode", "SEC-x", "UPSTASH-callback", "upstash-", "", "X A", "X:A", "X-Größe", "X\r\nY", "X\x00", "(x)", " X", "X ",
		"Gantry-Delivery-Id", "gantry-task-id", "GANTRY-TOKEN",
	} {
		_, err := resolve(name)
		checkRefused(t, name, err)
	}
	for _, name := range []string{
		"Upgrade-Insecure-Requests", "X-Upstash-Region", "Proxy", "Sec", "Cookie", "TE", "Expect", "Keep-Alive", "X-Host", "Hosts",
		"!#$%&'*+-.^_`|~09az", "Gantry-Other", "webhook-id", "User-Agent", "Authorization",
	} {
		if got, err := resolve(name); err != nil || len(got[name]) != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	_, err := resolve("X-A", "x-a")
	checkRefused(t, "two cases of a name", err)
	got, err := resolve("CONTENT-TYPE")
	if diff := cmp.Diff(http.Header{"CONTENT-TYPE": {"v"}}, got); err != nil || diff != "" {
		t.Errorf("own content type: %v\n%s", err, diff)
	}
}

func TestOperatorsAllowList(t *testing.T) {
	t.Parallel()
	env := environment(map[string]string{"HOOK_A": "1", "OTHER": "2", "AGENT_HOOK_WEBHOOK_TOKEN": secretHeader})
	for name, test := range map[string]struct {
		variable string
		id       string
		allow    []string
		ok       bool
	}{
		"default has HOOK_*":           {variable: "HOOK_A", ok: true},
		"default has nothing else":     {variable: "OTHER"},
		"empty list has nothing":       {variable: "HOOK_A", allow: []string{}},
		"exact name":                   {variable: "OTHER", allow: []string{"OTHER"}, ok: true},
		"name is no prefix":            {variable: "OTHER", allow: []string{"OTH"}},
		"prefix":                       {variable: "OTHER", allow: []string{"OTH*"}, ok: true},
		"everything":                   {variable: "OTHER", allow: []string{"*"}, ok: true},
		"never the environment token":  {variable: "AGENT_HOOK_WEBHOOK_TOKEN", allow: []string{"*"}},
		"not even by name":             {variable: "AGENT_HOOK_WEBHOOK_TOKEN", allow: []string{"AGENT_HOOK_WEBHOOK_TOKEN"}},
		"environment hooks have it":    {variable: "AGENT_HOOK_WEBHOOK_TOKEN", id: tasks.ReservedIDPrefix + "onError", allow: []string{}, ok: true},
		"malformed list fails closed":  {variable: "HOOK_A", allow: []string{"HO*K_A"}},
		"malformed list fails closed2": {variable: "HOOK_A", allow: []string{""}},
	} {
		hook := &tasks.Hook{ID: test.id, Webhook: &tasks.Webhook{
			Headers: map[string]string{"X-A": "${" + test.variable + "}"}, AllowedEnvVars: []string{test.variable},
		}}
		_, err := webhook.ResolveHeaders(hook, webhook.HeaderSource{Env: env, Allow: test.allow})
		if test.ok {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		checkRefused(t, name, err)
	}
}

// Of several faults always the same one is shown.
func TestHeaderErrorIsStable(t *testing.T) {
	t.Parallel()
	hook := &tasks.Hook{Webhook: &tasks.Webhook{Headers: map[string]string{"A": "${X}", "B": "${Y}", "C": "${Z}", "D": "ok"}}}
	for range 50 {
		_, err := webhook.ResolveHeaders(hook, webhook.HeaderSource{Env: environment(nil)})
		if err == nil || err.Error() != `header "A": variable "X" is not available` {
			t.Fatalf("error: %v", err)
		}
	}
}

func FuzzHeaderTemplate(f *testing.F) {
	for _, seed := range []string{"Bearer ${A}", "${A}${B}", "$${A}", "${A", "${${A}}", "a\r\nb", "é", "日", " \t"} {
		f.Add(seed, "v", "w")
	}
	f.Fuzz(func(t *testing.T, template, a, b string) {
		hook := &tasks.Hook{Webhook: &tasks.Webhook{Headers: map[string]string{"X-A": template}, AllowedEnvVars: []string{"A", "B"}}}
		env := environment(map[string]string{"A": a, "B": b, "C": "never-allowed-value"})
		got, err := webhook.ResolveHeaders(hook, webhook.HeaderSource{Env: env, Allow: []string{"*"}})
		if err != nil {
			if len(a) > 8 && !strings.Contains(template, a) && strings.Contains(err.Error(), a) {
				t.Fatalf("error shows a value: %v", err)
			}
			return
		}
		value := got["X-A"][0]
		switch {
		case strings.Contains(value, "${"), !httpguts.ValidHeaderFieldValue(value), value != strings.Trim(value, " \t"):
			t.Fatalf("%q became %q", template, value)
		case !strings.Contains(template, "${") && value != strings.Trim(template, " \t"):
			t.Fatalf("literal %q became %q", template, value)
		case strings.Contains(value, "never-allowed-value") && !strings.Contains(template+a+b, "never-allowed-value"):
			t.Fatalf("%q expanded what it may not", template)
		}
	})
}
