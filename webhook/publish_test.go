package webhook_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

type publisher struct {
	said webhook.PublishResult
	do   func(ctx context.Context)
	got  []webhook.Publication
}

func (p *publisher) Publish(ctx context.Context, publication webhook.Publication) webhook.PublishResult {
	p.got = append(p.got, publication)
	if p.do != nil {
		p.do(ctx)
	}
	return p.said
}

func qstash(fallback tasks.Fallback) func(*tasks.Webhook) {
	return func(w *tasks.Webhook) {
		w.Delivery, w.Fallback, w.Timeout = tasks.DeliverQStash, fallback, 7
		w.Headers, w.AllowedEnvVars = map[string]string{"X-A": "${HOOK_TOKEN}"}, []string{"HOOK_TOKEN"}
	}
}

func withToken(vars map[string]string) map[string]string {
	vars["QSTASH_TOKEN"], vars["HOOK_TOKEN"] = "qstash-token", secretHeader
	return vars
}

func TestPublishAccepted(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	relay := &publisher{said: webhook.PublishResult{Accepted: true, Status: 201}}
	d := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Publisher = relay
		cfg.Env = environment(withToken(map[string]string{"APP_URL": "https://app.test", "INTERNAL_APP_URL": r.URL}))
	})
	result := d.Deliver(t.Context(), delivery("/hook", qstash("")))
	result.Elapsed = 0
	if diff := cmp.Diff(webhook.Result{Delivered: true, Status: 201}, result); diff != "" {
		t.Fatalf("result differs (-want +got):\n%s", diff)
	}
	want := []webhook.Publication{{
		URL: "https://app.test/hook", Body: delivery("", nil).Event, Timeout: 7 * time.Second, DeliveryID: "msg_1",
		Header: http.Header{"Content-Type": {"application/json"}, "X-A": {secretHeader}},
	}}
	if diff := cmp.Diff(want, relay.got, cmp.Transformer("bytes", func(b []byte) string { return string(b) })); diff != "" {
		t.Fatalf("publication differs (-want +got):\n%s", diff)
	}
	if n := len(r.requests()); n != 0 {
		t.Fatalf("receiver saw %d requests", n)
	}
}

func TestPublishFailures(t *testing.T) {
	t.Parallel()
	const fetchFailed = "Hook HTTP request failed: http_error (HTTP 500)"
	fetched := func(publish string) webhook.Result {
		return webhook.Result{Delivered: true, Status: 200, FellBack: true, Publish: publish}
	}
	for name, test := range map[string]struct {
		fallback tasks.Fallback
		noToken  bool
		none     bool // no publisher at all
		said     webhook.PublishResult
		status   int
		want     webhook.Result
	}{
		"no token":         {noToken: true, want: fetched("QSTASH_TOKEN not available")},
		"no publisher":     {none: true, fallback: tasks.FallbackFetch, want: fetched("QSTASH_TOKEN not available")},
		"answered 503":     {said: webhook.PublishResult{Status: 503}, want: fetched("QStash publish failed (HTTP 503)")},
		"not reached":      {want: fetched("QStash publish failed")},
		"publisher's text": {said: webhook.PublishResult{Message: "daily limit"}, want: fetched("daily limit")},
		"fetch fails as well": {said: webhook.PublishResult{Status: 429}, status: 500, want: webhook.Result{
			Class: tasks.ClassHTTP5xx, Status: 500, Message: fetchFailed, FellBack: true, Publish: "QStash publish failed (HTTP 429)",
		}},
		"no token, no fallback": {noToken: true, fallback: tasks.FallbackNone, want: webhook.Result{
			Class: tasks.ClassConfiguration, Message: "QSTASH_TOKEN not available",
		}},
		"answered, no fallback": {fallback: tasks.FallbackNone, said: webhook.PublishResult{Status: 429, RetryAfter: time.Second}, want: webhook.Result{
			Class: tasks.ClassQStash, Status: 429, RetryAfter: time.Second, Message: "QStash publish failed (HTTP 429)",
		}},
		"not reached, no fallback": {fallback: tasks.FallbackNone, want: webhook.Result{Class: tasks.ClassQStash, Message: "QStash publish failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(max(test.status, 200)) })
			relay := &publisher{said: test.said}
			vars := withToken(map[string]string{})
			if test.noToken {
				vars["QSTASH_TOKEN"] = ""
			}
			d := newDeliverer(t, func(cfg *webhook.Config) {
				cfg.Env = environment(vars)
				if !test.none {
					cfg.Publisher = relay
				}
			})
			got := d.Deliver(t.Context(), delivery(r.URL+"/?q="+secretQuery, qstash(test.fallback)))
			checkSafe(t, got)
			got.Elapsed = 0
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("result differs (-want +got):\n%s", diff)
			}
			fetches := 0
			if test.want.FellBack {
				fetches = 1
			}
			if n := len(r.requests()); n != fetches {
				t.Errorf("receiver saw %d requests, want %d", n, fetches)
			}
		})
	}
}

// What cannot be resolved fails before the relay is asked, and is not fetched.
func TestPublishResolvesFirst(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	for name, edit := range map[string]func(*tasks.Webhook){
		"header": func(w *tasks.Webhook) { w.Headers = map[string]string{"X-A": "${HOOK_GONE}"} },
		"url":    func(w *tasks.Webhook) { w.URL = "/relative-without-base" },
	} {
		relay := &publisher{}
		d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Publisher, cfg.Env = relay, environment(withToken(map[string]string{})) })
		result := d.Deliver(t.Context(), delivery(r.URL, func(w *tasks.Webhook) { qstash("")(w); edit(w) }))
		if result.Class != tasks.ClassConfiguration || result.FellBack || len(relay.got) != 0 {
			t.Errorf("%s: %+v after %d publications", name, result, len(relay.got))
		}
		checkSafe(t, result)
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("receiver saw %d requests", n)
	}
}

// A publish that the caller cancels is not followed by a fetch.
func TestPublishCancelled(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	relay := &publisher{do: func(context.Context) { cancel() }}
	d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Publisher, cfg.Env = relay, environment(withToken(map[string]string{})) })
	if result := d.Deliver(ctx, delivery(r.URL, qstash(""))); !result.Cancelled || result.FellBack {
		t.Errorf("result: %+v", result)
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("receiver saw %d requests", n)
	}
}
