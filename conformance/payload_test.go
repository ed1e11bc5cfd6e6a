package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
)

type payloadCase struct {
	common
	Mode          string             `json:"mode"`
	HookID        string             `json:"hookId"`
	HookType      tasks.HookType     `json:"hookType"`
	Event         json.RawMessage    `json:"event"`
	Webhook       json.RawMessage    `json:"webhook"`
	Emails        map[string]*string `json:"emails"`
	LookupError   bool               `json:"lookup_error"`
	Cancelled     string             `json:"cancelled"`
	Expect        json.RawMessage    `json:"expect"`
	ExpectLookups *[]string          `json:"expect_lookups"`
}

func runPayload(r *run) {
	var c payloadCase
	r.decode(&c)
	if c.Expect == nil {
		r.notUnderstood("case without", "expect")
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	emails := c.directory(cancel)
	switch c.Cancelled {
	case "", "during_lookup":
	case "before":
		cancel()
	default:
		r.notUnderstood("cancelled", c.Cancelled)
	}
	s := r.site(siteConfig{directory: emails})
	var payload json.RawMessage
	switch c.Mode {
	case "notification":
		payload = r.notify(ctx, s, &c)
	case "control":
		payload = r.controlPayload(ctx, s, &c)
	default:
		r.notUnderstood("mode", c.Mode)
	}
	r.checkPayload(&c, payload)
	if c.ExpectLookups != nil {
		equal(r, "lookups", *c.ExpectLookups, emails.asked())
	}
	if c.Mode == "notification" && c.Cancelled == "" {
		r.publishPayload(&c)
	}
}

// publishPayload wants QStash to get what a fetch gets.
func (r *run) publishPayload(c *payloadCase) {
	s := r.site(siteConfig{directory: c.directory(func() {}), env: map[string]string{"QSTASH_TOKEN": qstashToken}})
	webhook := c.Webhook
	if webhook == nil {
		webhook = json.RawMessage(`{}`)
	}
	hook := r.hook(c.HookID, c.HookType, webhook)
	got, code := s.publish(r.t.Context(), &hook, r.withoutFunctions(c.Event))
	if got == nil {
		r.problemf("nothing was published: %s", code)
		return
	}
	r.checkPayload(c, got.body)
}

// directory answers from the case; cancel ends the request during the lookup.
func (c *payloadCase) directory(cancel context.CancelFunc) *directory {
	return &directory{email: func(user string) (string, bool, error) {
		if c.Cancelled == "during_lookup" {
			cancel()
		}
		email := c.Emails[user]
		switch {
		case c.LookupError:
			return "", false, errDirectory
		case email == nil:
			return "", false, nil
		}
		return *email, true, nil
	}}
}

// hook completes the case's webhook to a hook and lets the product read it.
func (r *run) hook(id string, t tasks.HookType, webhook json.RawMessage) tasks.Hook {
	hook := json.RawMessage(`{}`)
	hook = r.withMember(hook, "id", tasks.AppendString(nil, id))
	hook = r.withMember(hook, "type", tasks.AppendString(nil, string(t)))
	if hookMember(webhook, "url") == nil {
		webhook = r.withMember(webhook, "url", json.RawMessage(`"https://rx.test/hook"`))
	}
	hook = r.withMember(hook, "webhook", webhook)
	if strings.HasPrefix(id, tasks.ReservedIDPrefix) {
		return r.environmentHooks([]json.RawMessage{hook})[0]
	}
	hooks, err := tasks.ParseHooks(joinArray([]json.RawMessage{hook}), tasks.ParseOptions{})
	if err != nil {
		r.fatalf("read the hook: %v", err)
	}
	return hooks[0]
}

// notify delivers the event and returns what reached the receiver, nil when
// nothing did.
func (r *run) notify(ctx context.Context, s *site, c *payloadCase) json.RawMessage {
	webhook := c.Webhook
	if webhook == nil {
		webhook = json.RawMessage(`{}`)
	}
	hook := r.hook(c.HookID, c.HookType, webhook)
	result := s.deliver(ctx, &hook, r.withoutFunctions(c.Event))
	got := s.rec.received()
	switch {
	case len(got) == 0 && result.Cancelled:
		return nil
	case len(got) == 1 && result.Delivered:
		return got[0].body
	}
	r.fatalf("the receiver got %d requests, and the result is %+v", len(got), result)
	return nil
}

func (r *run) controlPayload(ctx context.Context, s *site, c *payloadCase) json.RawMessage {
	payload, err := s.payload.BuildControl(ctx, c.HookID, c.HookType, r.withoutFunctions(c.Event))
	switch {
	case err == nil:
		return payload
	case errors.Is(err, context.Canceled):
		return nil
	}
	r.fatalf("build the payload: %v", err)
	return nil
}

func (r *run) checkPayload(c *payloadCase, payload json.RawMessage) {
	switch nothing := string(c.Expect) == "null"; {
	case nothing && payload != nil:
		r.problemf("payload is %s, want none", payload)
	case nothing:
	case payload == nil:
		r.problemf("there is no payload, want %s", c.Expect)
	default:
		r.equalJSON("payload", c.Expect, payload)
	}
}
