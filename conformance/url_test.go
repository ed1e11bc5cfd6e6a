package conformance_test

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

type urlCase struct {
	common
	URL     *string           `json:"url"`
	Env     map[string]string `json:"env"`
	Timeout json.RawMessage   `json:"timeout"`
	Expect  struct {
		Fetch        json.RawMessage `json:"fetch"`
		QStash       json.RawMessage `json:"qstash"`
		BypassHeader *bool           `json:"qstash_bypass_header"`
		TimeoutMS    *int64          `json:"timeout_ms"`
	} `json:"expect"`
}

func runURL(r *run) {
	var c urlCase
	r.decode(&c)
	env := environment(c.Env)
	if c.URL == nil && (c.Expect.Fetch != nil || c.Expect.QStash != nil || c.Expect.BypassHeader != nil) {
		r.notUnderstood("case without", "url")
	}
	if c.Expect.Fetch != nil {
		got, err := webhook.ResolveURL(*c.URL, env)
		r.checkURL("url for fetch", c.Expect.Fetch, got, err)
		r.fetchURL(&c)
	}
	if c.Expect.QStash != nil {
		got, err := webhook.ResolveRelayURL(*c.URL, env)
		r.checkURL("url for QStash", c.Expect.QStash, got, err)
	}
	if c.Expect.TimeoutMS != nil {
		r.checkTimeout(&c)
	}
	if c.Expect.QStash != nil || c.Expect.BypassHeader != nil {
		r.publishURL(&c)
	}
}

// wantedURL is a url, or the code of an error.
type wantedURL struct {
	url, code string
}

func (r *run) wantedURL(raw json.RawMessage) (want wantedURL) {
	if json.Unmarshal(raw, &want.url) == nil && want.url != "" {
		return want
	}
	var refused struct {
		Error string `json:"error"`
	}
	r.decodePart(raw, &refused)
	if refused.Error != string(tasks.ClassConfiguration.Code()) {
		r.notUnderstood("error", refused.Error)
	}
	want.code = refused.Error
	return want
}

func (r *run) checkURL(what string, raw json.RawMessage, got string, err error) {
	want := r.wantedURL(raw)
	var refused *webhook.ConfigurationError
	switch {
	case want.code == "":
		equal(r, what, want.url, got)
		if err != nil {
			r.problemf("%s: %v", what, err)
		}
	case err == nil:
		r.problemf("%s is %q, want the error %s", what, got, want.code)
	case !errors.As(err, &refused):
		r.problemf("%s: %v, want the error %s", what, err, want.code)
	}
}

// fetchURL sends for real and looks where the request arrived.
func (r *run) fetchURL(c *urlCase) {
	want := r.wantedURL(c.Expect.Fetch)
	s := r.site(siteConfig{env: c.Env})
	hook := &tasks.Hook{ID: "h", Type: tasks.AfterStep, Webhook: &tasks.Webhook{URL: *c.URL}}
	result := s.deliver(r.t.Context(), hook, []byte(`{"operationId":"op"}`))
	arrived := []string{}
	for _, request := range s.rec.received() {
		arrived = append(arrived, request.url)
	}
	if want.code != "" {
		equal(r, "error of the fetch", want.code, codeOf(result))
		if len(s.rec.called()) > 0 {
			r.problemf("something was sent to %v", arrived)
		}
		return
	}
	expected, _, _ := strings.Cut(want.url, "#")
	equal(r, "url of the request", []string{expected}, arrived)
	if !result.Delivered {
		r.problemf("fetch failed: %+v", result)
	}
}

func (r *run) checkTimeout(c *urlCase) {
	config := json.RawMessage(`{}`)
	if c.Timeout != nil {
		config = r.withMember(config, "timeout", c.Timeout)
	}
	hook := r.hook("h", tasks.AfterStep, config)
	equal(r, "timeout in ms", *c.Expect.TimeoutMS, webhook.Timeout(hook.Webhook).Milliseconds())
}
