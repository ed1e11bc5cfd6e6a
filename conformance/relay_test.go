package conformance_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/webhook/qstash"
)

// relayTimeout is what a publish gets here; a case that lets one hang waits for it
// twice.
const relayTimeout = 2 * time.Second

// relay publishes with the product's adapter, over a connection that ends at a
// receiver which stands for QStash and answers as the case says for this hook.
type relay struct {
	publisher *qstash.Publisher
	receiver  *receiver
}

// Publish implements webhook.Publisher.
func (y *relay) Publish(ctx context.Context, p webhook.Publication) webhook.PublishResult {
	y.receiver.begin("https")
	return y.publisher.Publish(ctx, p)
}

// relay makes the way through QStash for one hook.
func (s *site) relay(hook string) (*relay, error) {
	a, given := s.relayed[hook]
	if !given {
		a = relayTakes()
	}
	rc := newReceiver(hook, a, s.rec)
	rc.road = roadQStash
	client, err := egress.New(egress.Config{Policy: egress.Trusted(), Resolver: rc, DialTCP: rc.dial, RootCAs: trusted().pool()})
	if err != nil {
		return nil, err
	}
	s.r.t.Cleanup(func() { client.Close(); rc.close() })
	publisher, err := qstash.NewPublisher(qstash.PublisherConfig{
		Client: client, Timeout: relayTimeout, Token: func() string { token, _ := s.env("QSTASH_TOKEN"); return token },
	})
	return &relay{publisher: publisher, receiver: rc}, err
}

func relayTakes() answer { return answer{status: http.StatusOK, body: []byte(`{"messageId":"msg_1"}`)} }

// relayAnswer reads what QStash says: as any answer, but a success says that it
// took the message, and trouble with the network that is not told closer keeps
// the message from being sent.
func (r *run) relayAnswer(raw json.RawMessage) answer {
	var name string
	if raw != nil && json.Unmarshal(raw, &name) == nil && strings.HasPrefix(name, "network") {
		return answer{status: http.StatusOK, fault: faultRefused}
	}
	a := r.answerOf(raw)
	if a.status/100 == 2 && a.body == nil && !a.endless {
		a.body = relayTakes().body
	}
	return a
}

// published are the requests that reached QStash.
func (rec *recorder) published() []request {
	var list []request
	for _, got := range rec.all() {
		if got.road == roadQStash {
			list = append(list, got)
		}
	}
	return list
}

// publish delivers through QStash for real and returns the one request that it
// saw, or the code of the failure.
func (s *site) publish(ctx context.Context, hook *tasks.Hook, event []byte) (got *request, code string) {
	relayed := *hook
	w := *hook.Webhook
	w.Delivery, w.Fallback = tasks.DeliverQStash, tasks.FallbackNone
	relayed.Webhook = &w
	result := s.deliver(ctx, &relayed, event)
	list := s.rec.published()
	if calls := s.rec.called(); len(list) > 1 || len(list) == 1 != result.Delivered || len(calls) != len(list) {
		s.r.problemf("publish came to %+v with %d requests and calls %v", result, len(list), calls)
	}
	if len(list) == 0 {
		return nil, codeOf(result)
	}
	return &list[0], ""
}

// destination is where QStash is asked to send a message.
func (r *run) destination(got *request) string {
	destination, found := strings.CutPrefix(got.url, qstash.DefaultURL+"/v2/publish/")
	if !found {
		r.problemf("%s is no publish", got.url)
	}
	return destination
}

const (
	forwardedBypass = "Upstash-Forward-X-Vercel-Protection-Bypass"
	bypassVariable  = "VERCEL_AUTOMATION_BYPASS_SECRET"
)

// publishURL publishes for real and looks at what QStash was asked.
func (r *run) publishURL(c *urlCase) {
	env := map[string]string{"QSTASH_TOKEN": qstashToken}
	for name, value := range c.Env {
		env[name] = value
	}
	s := r.site(siteConfig{env: env})
	hook := &tasks.Hook{ID: "h", Type: tasks.AfterStep, Webhook: &tasks.Webhook{URL: *c.URL}}
	got, code := s.publish(r.t.Context(), hook, []byte(`{"operationId":"op"}`))
	if c.Expect.QStash != nil {
		want := r.wantedURL(c.Expect.QStash)
		if want.code != "" || got == nil {
			equal(r, "error of the publish", want.code, code)
			return
		}
		// A fragment is never sent anywhere.
		destination, _, _ := strings.Cut(want.url, "#")
		equal(r, "destination of the publish", destination, r.destination(got))
	}
	if c.Expect.BypassHeader == nil {
		return
	}
	if got == nil {
		r.problemf("nothing was published: %s", code)
		return
	}
	want := []string(nil)
	if *c.Expect.BypassHeader {
		want = []string{env[bypassVariable]}
	}
	equal(r, "bypass header", want, got.header[forwardedBypass])
}
