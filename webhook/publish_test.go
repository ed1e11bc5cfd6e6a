package webhook_test

import (
	"context"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

// publisher is a relay that says one thing after the other, and then nothing.
type publisher struct {
	said []webhook.PublishResult
	do   func(ctx context.Context)
	got  []webhook.Publication
}

func (p *publisher) Publish(ctx context.Context, publication webhook.Publication) webhook.PublishResult {
	p.got = append(p.got, publication)
	if p.do != nil {
		p.do(ctx)
	}
	if len(p.got) > len(p.said) {
		return webhook.PublishResult{}
	}
	return p.said[len(p.got)-1]
}

func qstash(fallback tasks.Fallback) func(*tasks.Webhook) {
	return func(w *tasks.Webhook) {
		w.Delivery, w.Fallback, w.Timeout = tasks.DeliverQStash, fallback, 7
		w.Headers, w.AllowedEnvVars = map[string]string{"X-A": "${HOOK_TOKEN}"}, []string{"HOOK_TOKEN"}
	}
}

// queued is an attempt at a delivery that stands in a lane.
func queued(url string, edit func(*tasks.Webhook)) webhook.Delivery {
	del := delivery(url, edit)
	del.Sequence, del.Token, del.Queued = 4, 9, true
	return del
}

func TestPublishAccepted(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	relay := &publisher{said: []webhook.PublishResult{{Outcome: webhook.PublishAccepted, Status: 201}}}
	d := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Publisher = relay
		cfg.Env = environment(map[string]string{"APP_URL": "https://app.test", "INTERNAL_APP_URL": r.URL, "HOOK_TOKEN": "s\u00e9cret"})
	})
	del := queued("/hook", qstash(""))
	del.Hook.Options = &tasks.HookOptions{Retry: &tasks.RetryOptions{Attempts: 3}}
	result := d.Deliver(t.Context(), del)
	result.Elapsed = 0
	if diff := cmp.Diff(webhook.Result{Delivered: true, Status: 201}, result); diff != "" {
		t.Fatalf("result differs (-want +got):\n%s", diff)
	}
	want := []webhook.Publication{{
		URL: "https://app.test/hook", Body: del.Event, Timeout: 7 * time.Second, DeliveryID: "msg_1", OperationID: "op1",
		Type: tasks.OnComplete, Retry: del.Hook.Options.Retry,
		Header: http.Header{
			"Content-Type": {"application/json"}, "X-A": {"s\xe9cret"}, "Gantry-Attempt": {"1"}, "Gantry-Delivery-Id": {"msg_1"},
			"Gantry-Hook-Id": {"h1"}, "Gantry-Task-Id": {"task1"}, "Gantry-Sequence": {"4"}, "Gantry-Token": {"9"},
		},
	}}
	if diff := cmp.Diff(want, relay.got, cmp.Transformer("bytes", func(b []byte) string { return string(b) })); diff != "" {
		t.Fatalf("publication differs (-want +got):\n%s", diff)
	}
	if n := len(r.requests()); n != 0 {
		t.Fatalf("receiver saw %d requests", n)
	}
}

// A hook that asks for signatures has them in the hands of a relay as well.
func TestPublishSigned(t *testing.T) {
	t.Parallel()
	relay := &publisher{said: []webhook.PublishResult{{Outcome: webhook.PublishAccepted}}}
	d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Publisher = relay })
	del := delivery("https://rx.test/", qstash(""))
	del.Hook.Options = &tasks.HookOptions{SigningKeyEnv: "HOOK_KEY"}
	if result := d.Deliver(t.Context(), del); !result.Delivered {
		t.Fatalf("result: %+v", result)
	}
	header := relay.got[0].Header
	signing, err := signature.ParseKeys(secretKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := signing.Verify(spelled(header), relay.got[0].Body, time.Now()); err != nil {
		t.Errorf("verify: %v", err)
	}
	del.Hook.Options.SigningKeyEnv = "HOOK_GONE"
	if result := d.Deliver(t.Context(), del); result.Class != tasks.ClassConfiguration || len(relay.got) != 1 {
		t.Errorf("without its key: %+v after %d publications", result, len(relay.got))
	}
}

// spelled is header with the names that net/http looks for.
func spelled(header http.Header) http.Header {
	canonical := http.Header{}
	for name, values := range header {
		canonical[http.CanonicalHeaderKey(name)] = values
	}
	return canonical
}

var (
	accepted = webhook.PublishResult{Outcome: webhook.PublishAccepted, Status: 200}
	unknown  = webhook.PublishResult{Outcome: webhook.PublishUnknown}
	rejected = webhook.PublishResult{Outcome: webhook.PublishRejected, Status: 400}
	failed   = webhook.PublishResult{Outcome: webhook.PublishFailed, Status: 503}
)

func TestPublishFailures(t *testing.T) {
	t.Parallel()
	const fetchFailed = "Hook HTTP request failed: http_error (HTTP 500)"
	fetched := func(publish string) webhook.Result {
		return webhook.Result{Delivered: true, Status: 200, FellBack: true, Publish: publish}
	}
	failure := func(message string) webhook.Result { return webhook.Result{Class: tasks.ClassQStash, Message: message} }
	withStatus := func(status int, r webhook.Result) webhook.Result { r.Status = status; return r }
	const plain = "QStash publish failed"
	for name, test := range map[string]struct {
		fallback tasks.Fallback
		noRelay  bool
		queued   bool
		// unsettled says that an earlier attempt's publish came to nothing known.
		unsettled bool
		said      []webhook.PublishResult
		status    int
		want      webhook.Result
	}{
		"no relay": {noRelay: true, want: fetched("QSTASH_TOKEN not available")},
		"not sent": {
			fallback: tasks.FallbackFetch, want: fetched("QSTASH_TOKEN not available"),
			said: []webhook.PublishResult{{Outcome: webhook.PublishNotSent, Class: tasks.ClassConfiguration, Message: "QSTASH_TOKEN not available"}},
		},
		"not sent, queued": {queued: true, said: []webhook.PublishResult{{Outcome: webhook.PublishNotSent}}, want: fetched(plain)},
		"rejected":         {said: []webhook.PublishResult{rejected}, want: fetched(plain + " (HTTP 400)")},
		"rejected, queued": {queued: true, said: []webhook.PublishResult{rejected}, want: fetched(plain + " (HTTP 400)")},
		"throttled, queued": {
			queued: true, want: fetched(plain + " (HTTP 429)"),
			said: []webhook.PublishResult{{Outcome: webhook.PublishThrottled, Status: 429, RetryAfter: time.Hour}},
		},
		"failed, queued":   {queued: true, said: []webhook.PublishResult{failed}, want: fetched(plain + " (HTTP 503)")},
		"publisher's text": {said: []webhook.PublishResult{{Outcome: webhook.PublishThrottled, Message: "daily limit"}}, want: fetched("daily limit")},
		"fetch fails as well": {
			said: []webhook.PublishResult{failed}, status: 500, want: webhook.Result{
				Class: tasks.ClassHTTP5xx, Status: 500, Message: fetchFailed, FellBack: true, Publish: plain + " (HTTP 503)",
			},
		},
		"unknown, then accepted":         {said: []webhook.PublishResult{unknown, accepted}, want: webhook.Result{Delivered: true, Status: 200}},
		"unknown, then accepted, queued": {queued: true, said: []webhook.PublishResult{unknown, accepted}, want: webhook.Result{Delivered: true, Status: 200}},
		"unknown twice":                  {said: []webhook.PublishResult{unknown, unknown}, want: fetched(plain)},
		"unknown twice, queued":          {queued: true, said: []webhook.PublishResult{unknown, unknown}, want: failure(plain)},
		"unknown, then failed":           {said: []webhook.PublishResult{unknown, failed}, want: fetched(plain + " (HTTP 503)")},
		"unknown, then failed, queued":   {queued: true, said: []webhook.PublishResult{unknown, failed}, want: withStatus(503, failure(plain+" (HTTP 503)"))},
		"unknown, then rejected, queued": {queued: true, said: []webhook.PublishResult{unknown, rejected}, want: withStatus(400, failure(plain+" (HTTP 400)"))},
		"unknown, none":                  {fallback: tasks.FallbackNone, said: []webhook.PublishResult{unknown, unknown}, want: failure(plain)},
		"no word about the outcome":      {queued: true, said: []webhook.PublishResult{{}, {}}, want: failure(plain)},
		"failed after an unknown attempt": {
			queued: true, unsettled: true, said: []webhook.PublishResult{failed}, want: withStatus(503, failure(plain+" (HTTP 503)")),
		},
		"no relay after an unknown attempt": {
			queued: true, unsettled: true, noRelay: true, want: webhook.Result{Class: tasks.ClassQStash, Message: "QSTASH_TOKEN not available"},
		},
		"accepted after an unknown attempt": {queued: true, unsettled: true, said: []webhook.PublishResult{accepted}, want: webhook.Result{Delivered: true, Status: 200}},
		"no relay, no fallback": {noRelay: true, fallback: tasks.FallbackNone, want: webhook.Result{
			Class: tasks.ClassConfiguration, Message: "QSTASH_TOKEN not available",
		}},
		"answered, no fallback": {
			fallback: tasks.FallbackNone, said: []webhook.PublishResult{{Outcome: webhook.PublishThrottled, Status: 429, RetryAfter: time.Second}},
			want: webhook.Result{Class: tasks.ClassQStash, Status: 429, RetryAfter: time.Second, Message: plain + " (HTTP 429)"},
		},
		"not sent, no fallback": {fallback: tasks.FallbackNone, said: []webhook.PublishResult{{Outcome: webhook.PublishNotSent}}, want: failure(plain)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(max(test.status, 200)) })
			relay := &publisher{said: test.said}
			d := newDeliverer(t, func(cfg *webhook.Config) {
				if !test.noRelay {
					cfg.Publisher = relay
				}
			})
			del := delivery(r.URL+"/?q="+secretQuery, qstash(test.fallback))
			if test.queued {
				del = queued(r.URL+"/?q="+secretQuery, qstash(test.fallback))
			}
			del.Unsettled = test.unsettled
			got := d.Deliver(t.Context(), del)
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
			if n := len(relay.got); n != len(test.said) {
				t.Errorf("relay saw %d publications, want %d", n, len(test.said))
			}
			if len(relay.got) == 2 && !cmp.Equal(relay.got[0], relay.got[1]) {
				t.Errorf("second publication differs: %s", cmp.Diff(relay.got[0], relay.got[1]))
			}
		})
	}
}

// The secret that opens the deployment's own protection goes to its own origins
// and to nobody else.
func TestPublishBypass(t *testing.T) {
	t.Parallel()
	const secret = "bypass-secret"
	for name, test := range map[string]struct {
		url  string
		vars map[string]string
		want []string
	}{
		"own, relative":         {url: "/x", vars: map[string]string{"APP_URL": "https://app.test/base"}, want: []string{secret}},
		"own, written out":      {url: "https://APP.test:443/x", vars: map[string]string{"APP_URL": "https://app.test"}, want: []string{secret}},
		"internal":              {url: "http://127.0.0.1:3210/x", vars: map[string]string{"INTERNAL_APP_URL": "http://127.0.0.1:3210/", "APP_URL": "https://app.test"}, want: []string{secret}},
		"another host":          {url: "https://rx.test/x", vars: map[string]string{"APP_URL": "https://app.test"}},
		"subdomain":             {url: "https://a.app.test/x", vars: map[string]string{"APP_URL": "https://app.test"}},
		"own name as user":      {url: "https://app.test.evil.test/x", vars: map[string]string{"APP_URL": "https://app.test"}},
		"another scheme":        {url: "http://app.test/x", vars: map[string]string{"APP_URL": "https://app.test"}},
		"another port":          {url: "https://app.test:8443/x", vars: map[string]string{"APP_URL": "https://app.test"}},
		"no own address":        {url: "https://app.test/x", vars: map[string]string{}},
		"own address is no URL": {url: "https://app.test/x", vars: map[string]string{"APP_URL": "app.test"}},
		"no secret":             {url: "https://app.test/x", vars: map[string]string{"APP_URL": "https://app.test", "VERCEL_AUTOMATION_BYPASS_SECRET": ""}},
	} {
		relay := &publisher{said: []webhook.PublishResult{accepted}}
		vars := map[string]string{"VERCEL_AUTOMATION_BYPASS_SECRET": secret}
		maps.Copy(vars, test.vars)
		d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Publisher, cfg.Env = relay, environment(vars) })
		if result := d.Deliver(t.Context(), delivery(test.url, func(w *tasks.Webhook) {
			w.Delivery, w.Headers = tasks.DeliverQStash, nil
		})); !result.Delivered {
			t.Errorf("%s: %+v", name, result)
			continue
		}
		if diff := cmp.Diff(test.want, spelled(relay.got[0].Header).Values("X-Vercel-Protection-Bypass")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A secret that cannot stand in a header stops the delivery instead of going out
// half.
func TestPublishBypassUnusable(t *testing.T) {
	t.Parallel()
	relay := &publisher{}
	d := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Publisher = relay
		cfg.Env = environment(map[string]string{"APP_URL": "https://app.test", "VERCEL_AUTOMATION_BYPASS_SECRET": secretHeader + "\x00"})
	})
	result := d.Deliver(t.Context(), delivery("/x", func(w *tasks.Webhook) { w.Delivery, w.Headers = tasks.DeliverQStash, nil }))
	if result.Class != tasks.ClassConfiguration || len(relay.got) != 0 || result.FellBack {
		t.Errorf("result: %+v after %d publications", result, len(relay.got))
	}
	checkSafe(t, result)
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
		d := newDeliverer(t, func(cfg *webhook.Config) {
			cfg.Publisher, cfg.Env = relay, environment(map[string]string{"HOOK_TOKEN": secretHeader})
		})
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
	d := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Publisher, cfg.Env = relay, environment(map[string]string{"HOOK_TOKEN": secretHeader})
	})
	if result := d.Deliver(ctx, delivery(r.URL, qstash(""))); !result.Cancelled || result.FellBack {
		t.Errorf("result: %+v", result)
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("receiver saw %d requests", n)
	}
}
