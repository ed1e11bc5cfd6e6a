package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

func TestRequest(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	del := delivery(r.URL+"/hook?q=1", nil)
	del.Sequence, del.Token, del.Attempt = 17, 3, 2
	del.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	result := newDeliverer(t, nil).Deliver(t.Context(), del)
	if !result.Delivered || result.Status != http.StatusOK || result.Message != "" || result.Elapsed <= 0 {
		t.Fatalf("result: %+v", result)
	}
	want := received{target: "/hook?q=1", body: string(del.Event), header: http.Header{
		"Content-Length": {"34"}, "Content-Type": {"application/json"}, "User-Agent": {"Gantry/test"}, "X-Api-Key": {"Bearer " + secretHeader},
		"Gantry-Delivery-Id": {"msg_1"}, "Gantry-Task-Id": {"task1"}, "Gantry-Hook-Id": {"h1"}, "Gantry-Attempt": {"2"},
		"Gantry-Sequence": {"17"}, "Gantry-Token": {"3"}, "Traceparent": {del.Trace},
	}}
	if diff := cmp.Diff(want, r.only(t), cmp.AllowUnexported(received{})); diff != "" {
		t.Fatalf("request differs (-want +got):\n%s", diff)
	}
}

func TestLocalModeSendsNoLanePosition(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	newDeliverer(t, nil).Deliver(t.Context(), delivery(r.URL, nil))
	header := r.only(t).header
	for _, name := range []string{"Gantry-Sequence", "Gantry-Token", "Traceparent", "Webhook-Signature", "Idempotency-Key"} {
		if _, there := header[name]; there {
			t.Errorf("%s was sent", name)
		}
	}
}

// Ids are a caller's own text: whatever they hold, they arrive and can be read back.
func TestIDsAreMadeSafe(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	del := delivery(r.URL, nil)
	del.Hook.ID, del.TaskID, del.Trace = "a b\r\nX-Evil: 1 日", " 100% ", "x\r\ny"
	if result := newDeliverer(t, nil).Deliver(t.Context(), del); !result.Delivered {
		t.Fatalf("result: %+v", result)
	}
	header := r.only(t).header
	want := []string{"a%20b%0D%0AX-Evil:%201%20%E6%97%A5", "%20100%25%20", "", ""}
	got := []string{header.Get("Gantry-Hook-Id"), header.Get("Gantry-Task-Id"), header.Get("Traceparent"), header.Get("X-Evil")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("headers differ (-want +got):\n%s", diff)
	}
}

func TestConfiguredHeadersOverGantrys(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	del := delivery(r.URL, func(w *tasks.Webhook) {
		w.Headers = map[string]string{
			"user-agent": "mine é", "TraceParent": "own", "content-type": "application/cloudevents+json", "idempotency-key": "k", "X-Latin": "ÿ",
		}
	})
	del.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if result := newDeliverer(t, nil).Deliver(t.Context(), del); !result.Delivered {
		t.Fatalf("result: %+v", result)
	}
	header := r.only(t).header
	got := map[string][]string{}
	for _, name := range []string{"User-Agent", "Traceparent", "Content-Type", "Idempotency-Key", "X-Latin"} {
		got[name] = header[name]
	}
	want := map[string][]string{
		"User-Agent": {"mine \xe9"}, "Traceparent": {"own"}, "Content-Type": {"application/cloudevents+json"}, "Idempotency-Key": {"k"}, "X-Latin": {"\xff"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("headers differ (-want +got):\n%s", diff)
	}
}

// S1: what is signed is what is sent, for bytes that a re-encoding would change.
func TestSignedBytesAreSentBytes(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	now := time.Now()
	d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Now = func() time.Time { return now } })
	official, err := standardwebhooks.NewWebhook(secretKey)
	if err != nil {
		t.Fatalf("official verifier: %v", err)
	}
	keys, err := signature.ParseKeys(secretKey)
	if err != nil {
		t.Fatalf("parse keys: %v", err)
	}
	bodies := []string{
		`{"b":1, "a":2}`, `{"n":12345678901234567890}`, `{"n":1e400}`, "{\"s\":\"<&\u2028\"}", `{"a":1,"a":2}`, `{}`, ``, strings.Repeat(`{"x":1}`, 10000),
	}
	for i, body := range bodies {
		del := delivery(r.URL, nil)
		del.Event = json.RawMessage(body)
		del.Hook.Options = &tasks.HookOptions{SigningKeyEnv: "HOOK_KEY"}
		if result := d.Deliver(t.Context(), del); !result.Delivered {
			t.Fatalf("result: %+v", result)
		}
		got := r.requests()[i]
		if got.body != body {
			t.Errorf("sent %q, want %q", got.body, body)
		}
		if err := official.Verify([]byte(got.body), got.header); err != nil {
			t.Errorf("official verifier: %q: %v", body, err)
		}
		if err := errors.Join(keys.Verify(got.header, []byte(got.body), now), keys.VerifyBody(got.header, []byte(got.body))); err != nil {
			t.Errorf("verify %q: %v", body, err)
		}
	}
}

// S1: a retry keeps its id and changes its timestamp.
func TestRetryKeepsIDAndChangesTimestamp(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	now := time.Unix(1700000000, 0)
	d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Now = func() time.Time { return now } })
	del := delivery(r.URL, nil)
	del.Hook.Options = &tasks.HookOptions{SigningKeyEnv: "HOOK_KEY"}
	var got []string
	for range 2 {
		d.Deliver(t.Context(), del)
		now = now.Add(time.Minute)
	}
	for _, request := range r.requests() {
		got = append(got, request.header.Get(signature.HeaderID), request.header.Get(signature.HeaderTimestamp))
	}
	if diff := cmp.Diff([]string{"msg_1", "1700000000", "msg_1", "1700000060"}, got); diff != "" {
		t.Fatalf("headers differ (-want +got):\n%s", diff)
	}
}

// A hook that asks for signatures is never sent without them.
func TestSigningKeyFailures(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	vars := map[string]string{"HOOK_TOKEN": secretHeader, "HOOK_EMPTY": " ", "HOOK_BAD": "whsec_" + secretHeader + "%", "OTHER": secretKey, "AGENT_HOOK_WEBHOOK_TOKEN": secretKey}
	for name, test := range map[string]struct {
		variable string
		allow    []string
		headers  map[string]string
	}{
		"unset":                 {variable: "HOOK_GONE"},
		"empty":                 {variable: "HOOK_EMPTY"},
		"malformed":             {variable: "HOOK_BAD"},
		"not allowed":           {variable: "OTHER"},
		"the environment token": {variable: "AGENT_HOOK_WEBHOOK_TOKEN", allow: []string{"*"}},
		"own webhook-id":        {variable: "OTHER", allow: []string{"*"}, headers: map[string]string{"Webhook-Id": "x"}},
		"own body signature":    {variable: "OTHER", allow: []string{"*"}, headers: map[string]string{"x-webhook-signature": "x"}},
	} {
		d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Env, cfg.HeaderEnv = environment(vars), test.allow })
		del := delivery(r.URL, func(w *tasks.Webhook) { w.Headers = test.headers })
		del.Hook.Options = &tasks.HookOptions{SigningKeyEnv: test.variable}
		result := d.Deliver(t.Context(), del)
		if result.Class != tasks.ClassConfiguration {
			t.Errorf("%s: %+v", name, result)
		}
		checkSafe(t, result)
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("receiver saw %d requests", n)
	}
}

func TestStatusClasses(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	fail := func(class tasks.FailureClass, message string) webhook.Result {
		return webhook.Result{Class: class, Message: "Hook HTTP request failed: " + message}
	}
	after := func(r webhook.Result, d time.Duration) webhook.Result { r.RetryAfter = d; return r }
	final := func(r webhook.Result, reason tasks.DeliveryReason) webhook.Result {
		r.Final, r.Reason = true, reason
		return r
	}
	ok := webhook.Result{Delivered: true}
	for name, test := range map[string]struct {
		status int
		header map[string]string
		want   webhook.Result
	}{
		"200": {status: 200, want: ok}, "201": {status: 201, want: ok}, "204": {status: 204, want: ok}, "299": {status: 299, want: ok},
		"300":                {status: 300, want: fail(tasks.ClassHTTP4xx, "http_error (HTTP 300)")},
		"301":                {status: 301, want: fail(tasks.ClassHTTP3xx, "network_error (HTTP 301)")},
		"304":                {status: 304, want: fail(tasks.ClassHTTP4xx, "http_error (HTTP 304)")},
		"308":                {status: 308, want: fail(tasks.ClassHTTP3xx, "network_error (HTTP 308)")},
		"399":                {status: 399, want: fail(tasks.ClassHTTP4xx, "http_error (HTTP 399)")},
		"400":                {status: 400, want: fail(tasks.ClassHTTP4xx, "http_error (HTTP 400)")},
		"499":                {status: 499, want: fail(tasks.ClassHTTP4xx, "http_error (HTTP 499)")},
		"410 is final":       {status: 410, want: final(fail(tasks.ClassHTTP4xx, "http_error (HTTP 410)"), tasks.ReasonEndpointGone)},
		"429":                {status: 429, want: fail(tasks.ClassHTTP429, "http_error (HTTP 429)")},
		"500":                {status: 500, want: fail(tasks.ClassHTTP5xx, "http_error (HTTP 500)")},
		"999":                {status: 999, want: fail(tasks.ClassHTTP5xx, "http_error (HTTP 999)")},
		"no retry":           {status: 500, header: map[string]string{"Gantry-No-Retry": "true"}, want: final(fail(tasks.ClassHTTP5xx, "http_error (HTTP 500)"), tasks.ReasonNoRetry)},
		"no retry is a word": {status: 500, header: map[string]string{"Gantry-No-Retry": "false"}, want: fail(tasks.ClassHTTP5xx, "http_error (HTTP 500)")},
		"no retry, success":  {status: 200, header: map[string]string{"Gantry-No-Retry": "true"}, want: ok},
		"429 in seconds":     {status: 429, header: map[string]string{"Retry-After": "7"}, want: after(fail(tasks.ClassHTTP429, "http_error (HTTP 429)"), 7*time.Second)},
		"503 by date":        {status: 503, header: map[string]string{"Retry-After": "Fri, 02 Jan 2026 03:05:05 GMT"}, want: after(fail(tasks.ClassHTTP5xx, "http_error (HTTP 503)"), time.Minute)},
		"503 in the past":    {status: 503, header: map[string]string{"Retry-After": "Fri, 02 Jan 2026 03:00:00 GMT"}, want: fail(tasks.ClassHTTP5xx, "http_error (HTTP 503)")},
		"503 for ever":       {status: 503, header: map[string]string{"Retry-After": "18446744073709551615"}, want: after(fail(tasks.ClassHTTP5xx, "http_error (HTTP 503)"), 24*time.Hour)},
		"503 next year":      {status: 503, header: map[string]string{"Retry-After": "Sat, 02 Jan 2027 03:00:00 GMT"}, want: after(fail(tasks.ClassHTTP5xx, "http_error (HTTP 503)"), 24*time.Hour)},
		"503 nonsense":       {status: 503, header: map[string]string{"Retry-After": "-5"}, want: fail(tasks.ClassHTTP5xx, "http_error (HTTP 503)")},
		"500 asks in vain":   {status: 500, header: map[string]string{"Retry-After": "7"}, want: fail(tasks.ClassHTTP5xx, "http_error (HTTP 500)")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range test.header {
					w.Header().Set(k, v)
				}
				w.Header().Set("X-Remote", secretRemote)
				w.WriteHeader(test.status)
				if test.status != http.StatusNoContent && test.status != http.StatusNotModified {
					_, _ = w.Write([]byte(secretRemote))
				}
			})
			registry := prometheus.NewRegistry()
			d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Now, cfg.Registerer = func() time.Time { return now }, registry })
			got := d.Deliver(t.Context(), delivery(r.URL+"/?q="+secretQuery, nil))
			checkSafe(t, got)
			got.Elapsed = 0
			test.want.Status = test.status
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatalf("result differs (-want +got):\n%s", diff)
			}
			r.only(t)
			label := string(test.want.Class)
			if label == "" {
				label = "delivered"
			}
			counts := zeroCounts()
			counts[label]++
			if diff := cmp.Diff(counts, counted(t, registry)); diff != "" {
				t.Errorf("counts differ (-want +got):\n%s", diff)
			}
		})
	}
}

// counted returns the attempts counted under each label.
func counted(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "gantry_webhook_attempts_total" {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return got
}

// zeroCounts are the labels as they start.
func zeroCounts() map[string]float64 {
	counts := map[string]float64{"delivered": 0, "cancelled": 0}
	for _, class := range tasks.FailureClasses() {
		counts[string(class)] = 0
	}
	return counts
}

func TestMetricsStartAtZero(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	newDeliverer(t, func(cfg *webhook.Config) { cfg.Registerer = registry })
	if diff := cmp.Diff(zeroCounts(), counted(t, registry)); diff != "" {
		t.Fatalf("counts differ (-want +got):\n%s", diff)
	}
	if _, err := webhook.New(webhook.Config{Env: environment(nil), Payloads: payloads{}, Registerer: registry}); err == nil {
		t.Fatal("the same metrics were registered twice")
	}
}

func TestNewRefusesBadConfig(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]webhook.Config{
		"no environment": {Payloads: payloads{}}, "no payloads": {Env: environment(nil)},
		"bad pattern":    {Env: environment(nil), Payloads: payloads{}, HeaderEnv: []string{"A*B"}},
		"empty pattern":  {Env: environment(nil), Payloads: payloads{}, HeaderEnv: []string{""}},
		"bad user agent": {Env: environment(nil), Payloads: payloads{}, UserAgent: "a\nb"},
	} {
		if _, err := webhook.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPayloadFailures(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	broken := errors.New("event " + secretEvent)
	d := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Payloads = payloads{build: func(context.Context, webhook.Delivery) ([]byte, error) { return nil, broken }}
	})
	result := d.Deliver(t.Context(), delivery(r.URL, nil))
	if result.Class != tasks.ClassConfiguration || len(r.requests()) != 0 {
		t.Fatalf("result: %+v", result)
	}
	checkSafe(t, result)
}

func TestControlsAndEmptyHooksAreRefused(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	control := delivery(r.URL, func(w *tasks.Webhook) { w.ResponseHandling = tasks.HandleToolCall })
	for name, del := range map[string]webhook.Delivery{"control": control, "no webhook": {Hook: &tasks.Hook{}}, "no hook": {}} {
		result := newDeliverer(t, nil).Deliver(t.Context(), del)
		if result.Class != tasks.ClassConfiguration || !bytes.Contains([]byte(result.Message), []byte("hook")) {
			t.Errorf("%s: %+v", name, result)
		}
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("receiver saw %d requests", n)
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	hang := make(chan struct{})
	defer close(hang)
	silent := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-hang:
		case <-req.Context().Done():
		}
	})
	cancelled, stop := context.WithCancel(t.Context())
	stop()
	if got := newDeliverer(t, nil).Deliver(cancelled, delivery(r.URL, nil)); !got.Cancelled || got.Class != "" {
		t.Errorf("before: %+v", got)
	}
	during, stop := context.WithCancel(t.Context())
	d := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Payloads = payloads{build: func(_ context.Context, del webhook.Delivery) ([]byte, error) { stop(); return del.Event, nil }}
	})
	if got := d.Deliver(during, delivery(r.URL, nil)); !got.Cancelled || got.Class != "" {
		t.Errorf("during the payload: %+v", got)
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("receiver saw %d requests", n)
	}
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if got := newDeliverer(t, nil).Deliver(short, delivery(silent.URL, nil)); !got.Cancelled || got.Class != "" {
		t.Errorf("while waiting, by the caller's deadline: %+v", got)
	}
}
