package conformance_test

import (
	"encoding/json"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
)

type headersCase struct {
	common
	Headers        json.RawMessage   `json:"headers"`
	AllowedEnvVars json.RawMessage   `json:"allowedEnvVars"`
	Env            map[string]string `json:"env"`
	Expect         struct {
		Headers map[string]string `json:"headers"`
		Error   string            `json:"error"`
	} `json:"expect"`
}

// transportHeaders are those that the transport adds by itself.
var transportHeaders = map[string]bool{
	"accept": true, "accept-encoding": true, "connection": true, "content-length": true, "host": true, "user-agent": true,
	"traceparent": true,
}

func runHeaders(r *run) {
	var c headersCase
	r.decode(&c)
	if (c.Expect.Headers == nil) == (c.Expect.Error == "") {
		r.notUnderstood("expect with", "neither or both of headers and error")
	}
	webhook := json.RawMessage(`{}`)
	if c.Headers != nil {
		webhook = r.withMember(webhook, "headers", c.Headers)
	}
	if c.AllowedEnvVars != nil {
		webhook = r.withMember(webhook, "allowedEnvVars", c.AllowedEnvVars)
	}
	hook := r.hook("h", tasks.AfterStep, webhook)
	r.sendHeaders(&c, &hook)
	r.leakHeaders(&c, hook)
}

func (r *run) sendHeaders(c *headersCase, hook *tasks.Hook) {
	s := r.site(siteConfig{env: c.Env})
	result := s.deliver(r.t.Context(), hook, []byte(`{"operationId":"op"}`))
	sent := s.rec.received()
	if c.Expect.Error != "" {
		equal(r, "error", c.Expect.Error, codeOf(result))
		if len(s.rec.called()) > 0 {
			r.problemf("something was sent: %v", sent)
		}
		return
	}
	if !result.Delivered || len(sent) != 1 {
		r.problemf("the receiver got %d requests, and the result is %+v", len(sent), result)
		return
	}
	got := map[string]string{}
	for name, values := range sent[0].header {
		name = strings.ToLower(name)
		if _, wanted := c.Expect.Headers[name]; !wanted && (transportHeaders[name] || strings.HasPrefix(name, "gantry-")) {
			continue
		}
		got[name] = latin1(strings.Join(values, ", "))
	}
	equal(r, "headers", c.Expect.Headers, got)
}

// latin1 reads the bytes of a header value, one character each.
func latin1(value string) string {
	runes := make([]rune, len(value))
	for i := range len(value) {
		runes[i] = rune(value[i])
	}
	return string(runes)
}

const leakMark = "leak-mark-7391"

// leakHeaders sends again with a mark in every value, and looks for it in
// whatever the product says.
func (r *run) leakHeaders(c *headersCase, hook tasks.Hook) {
	env := map[string]string{}
	for name, value := range c.Env {
		env[name] = value + leakMark
	}
	w := *hook.Webhook
	w.Headers = map[string]string{}
	for name, value := range hook.Webhook.Headers {
		w.Headers[name] = value + leakMark
	}
	hook.Webhook = &w
	s := r.site(siteConfig{env: env})
	result := s.deliver(r.t.Context(), &hook, []byte(`{"operationId":"op"}`))
	if strings.Contains(result.Message+result.Publish, leakMark) {
		r.problemf("the error shows a value: %s", result.Message)
	}
	r.checkSafe(s.journal, []string{leakMark})
}
