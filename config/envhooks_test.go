package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
)

const (
	hookURL   = "AGENT_HOOK_WEBHOOK_URL=https://gate.corp.test/hook"
	hookToken = "AGENT_HOOK_WEBHOOK_TOKEN=s3cret"
)

func hook(event tasks.HookType, handling tasks.ResponseHandling, onError tasks.ErrorPolicy) tasks.Hook {
	return tasks.Hook{
		ID: "server-env-webhook:" + string(event), Type: event,
		Webhook: &tasks.Webhook{
			URL: "https://gate.corp.test/hook", Delivery: tasks.DeliverFetch,
			OnError: onError, ResponseHandling: handling,
			Headers:        map[string]string{"Authorization": "Bearer ${AGENT_HOOK_WEBHOOK_TOKEN}"},
			AllowedEnvVars: []string{"AGENT_HOOK_WEBHOOK_TOKEN"},
		},
	}
}

func TestEnvironmentHooks(t *testing.T) {
	plain := func(event tasks.HookType) tasks.Hook { return hook(event, tasks.HandleIgnore, tasks.PolicyContinue) }
	for name, test := range map[string]struct {
		lines []string
		want  []tasks.Hook
	}{
		"none": {},
		"without a URL": {
			lines: []string{hookToken, "AGENT_HOOK_WEBHOOK_EVENTS=onError"},
		},
		"spaces and duplicates": {
			lines: []string{hookURL, hookToken, "AGENT_HOOK_WEBHOOK_EVENTS= onError ,,onComplete,onError,"},
			want:  []tasks.Hook{plain(tasks.OnError), plain(tasks.OnComplete)},
		},
		"only the two tool events become controls": {
			lines: []string{
				hookURL, hookToken, "AGENT_HOOK_WEBHOOK_EVENTS=onToolCallError,afterToolCall,beforeToolCall",
				"AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING=toolCall", "AGENT_HOOK_WEBHOOK_ON_ERROR=block",
			},
			want: []tasks.Hook{
				plain(tasks.OnToolCallError),
				hook(tasks.AfterToolCall, tasks.HandleToolCall, tasks.PolicyBlock),
				hook(tasks.BeforeToolCall, tasks.HandleToolCall, tasks.PolicyBlock),
			},
		},
		"a token is not trimmed": {
			lines: []string{hookURL, "AGENT_HOOK_WEBHOOK_TOKEN= x ", "AGENT_HOOK_WEBHOOK_EVENTS=onError"},
			want:  []tasks.Hook{plain(tasks.OnError)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			env, _ := variables(test.lines...)
			got, err := config.EnvironmentHooks(env)
			if err != nil {
				t.Fatalf("environment hooks: %v", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("hooks differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEnvironmentHooksErrors(t *testing.T) {
	const prefix = "AGENT_HOOK_WEBHOOK_"
	complete := []string{hookURL, hookToken, prefix + "EVENTS=beforeToolCall"}
	for name, test := range map[string]struct {
		lines []string
		want  []string
	}{
		"URL alone":            {[]string{hookURL}, []string{"TOKEN", "EVENTS"}},
		"empty URL":            {[]string{prefix + "URL=", hookToken, complete[2]}, []string{"URL"}},
		"URL with credentials": {[]string{prefix + "URL=https://u:s3cret@h/", hookToken, complete[2]}, []string{"URL"}},
		"URL with a space":     {[]string{prefix + "URL= https://h/", hookToken, complete[2]}, []string{"URL"}},
		"empty token":          {[]string{hookURL, prefix + "TOKEN=", complete[2]}, []string{"TOKEN"}},
		"blank token":          {[]string{hookURL, prefix + "TOKEN= \t", complete[2]}, []string{"TOKEN"}},
		"empty token, no URL":  {[]string{prefix + "TOKEN="}, []string{"TOKEN"}},
		"empty events":         {[]string{prefix + "EVENTS="}, []string{"EVENTS"}},
		"only commas":          {[]string{hookURL, hookToken, prefix + "EVENTS= , "}, []string{"EVENTS"}},
		"unknown event":        {[]string{hookURL, hookToken, prefix + "EVENTS=onError,s3cret"}, []string{"EVENTS"}},
		"case of an event":     {[]string{prefix + "EVENTS=OnError"}, []string{"EVENTS"}},
		"empty handling":       {append(complete, prefix+"RESPONSE_HANDLING="), []string{"RESPONSE_HANDLING"}},
		"old handling":         {append(complete, prefix+"RESPONSE_HANDLING=toolResult"), []string{"RESPONSE_HANDLING"}},
		"toolCall without an event for it": {
			[]string{prefix + "RESPONSE_HANDLING=toolCall", prefix + "EVENTS=onToolCallError"}, []string{"RESPONSE_HANDLING"},
		},
		"empty policy":           {append(complete, prefix+"ON_ERROR="), []string{"ON_ERROR"}},
		"unknown policy":         {append(complete, prefix+"ON_ERROR=deny"), []string{"ON_ERROR"}},
		"block without toolCall": {append(complete, prefix+"ON_ERROR=block"), []string{"ON_ERROR"}},
		"all at once": {
			[]string{
				prefix + "URL=ftp://s3cret", prefix + "TOKEN=", prefix + "EVENTS=s3cret",
				prefix + "RESPONSE_HANDLING=s3cret", prefix + "ON_ERROR=s3cret",
			},
			[]string{"URL", "TOKEN", "EVENTS", "RESPONSE_HANDLING", "ON_ERROR"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			env, _ := variables(test.lines...)
			hooks, err := config.EnvironmentHooks(env)
			invalid, ok := errors.AsType[*config.EnvironmentHooksError](err)
			if !ok || !errors.Is(err, config.ErrEnvironmentHooks) || hooks != nil {
				t.Fatalf("got %v and error %v", hooks, err)
			}
			var want []string
			for _, name := range test.want {
				want = append(want, prefix+name)
			}
			if diff := cmp.Diff(want, invalid.Variables); diff != "" {
				t.Fatalf("variables differ (-want +got):\n%s", diff)
			}
			for _, variable := range want {
				if !strings.Contains(err.Error(), variable) {
					t.Errorf("the message does not name %s: %v", variable, err)
				}
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Fatalf("the message shows a value: %v", err)
			}
		})
	}
}

func TestCachedEnvironmentHooksSeesEveryChange(t *testing.T) {
	values := map[string]string{}
	hooks := config.CachedEnvironmentHooks(func(name string) (string, bool) { v, ok := values[name]; return v, ok })
	expect := func(step string, wantHooks int, wantErr bool) []tasks.Hook {
		t.Helper()
		got, err := hooks()
		if len(got) != wantHooks || (err != nil) != wantErr {
			t.Fatalf("%s: %d hooks, error %v", step, len(got), err)
		}
		return got
	}
	expect("unset", 0, false)
	values[config.VarWebhookURL] = "/in"
	expect("incomplete", 0, true)
	expect("still incomplete", 0, true)
	values[config.VarWebhookToken], values[config.VarWebhookEvents] = "t", "onError,onComplete"
	first := expect("complete", 2, false)
	if again := expect("unchanged", 2, false); &again[0] != &first[0] {
		t.Fatalf("built the hooks again without a change")
	}
	_ = append(first, tasks.Hook{ID: "mine"})
	values[config.VarWebhookEvents] = "onError"
	expect("fewer events", 1, false)
	values[config.VarWebhookOnError] = ""
	expect("empty is not unset", 0, true)
	delete(values, config.VarWebhookOnError)
	delete(values, config.VarWebhookURL)
	expect("no URL", 0, false)
}

func BenchmarkCachedEnvironmentHooks(b *testing.B) {
	env, _ := variables(hookURL, hookToken, "AGENT_HOOK_WEBHOOK_EVENTS=onError,beforeToolCall")
	hooks := config.CachedEnvironmentHooks(env)
	b.ReportAllocs()
	for b.Loop() {
		if got, err := hooks(); err != nil || len(got) != 2 {
			b.Fatalf("%d hooks, %v", len(got), err)
		}
	}
}
