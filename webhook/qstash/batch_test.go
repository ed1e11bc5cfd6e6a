package qstash_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/qstash"
)

type batchItem struct {
	Destination string            `json:"destination"`
	Headers     map[string]string `json:"headers"`
	Body        string            `json:"body"`
}

func publications(n int, edit func(i int, p *webhook.Publication)) []webhook.Publication {
	pubs := make([]webhook.Publication, n)
	for i := range pubs {
		pubs[i] = webhook.Publication{
			URL: "https://rx.test/tasks", Body: fmt.Appendf(nil, `{"n":"%d \"<é"}`, i), DeliveryID: fmt.Sprintf("id-%d", i),
			Header: http.Header{"X-A": {secretHeader}}, OperationID: "op", Type: tasks.AfterStep,
		}
		if edit != nil {
			edit(i, &pubs[i])
		}
	}
	return pubs
}

// takesAll accepts each item under its own deduplication id.
func takesAll(w http.ResponseWriter, items []batchItem) {
	answers := make([]map[string]any, len(items))
	for i, item := range items {
		answers[i] = map[string]any{"messageId": "m-" + item.Headers["Upstash-Deduplication-Id"]}
	}
	_ = json.NewEncoder(w).Encode(answers)
}

func newBatchService(t *testing.T, answer func(w http.ResponseWriter, items []batchItem)) *service {
	t.Helper()
	var s *service
	s = newService(t, func(w http.ResponseWriter, _ *http.Request) {
		calls := s.seen()
		var items []batchItem
		if err := json.Unmarshal([]byte(calls[len(calls)-1].body), &items); err != nil {
			t.Errorf("body is no batch: %v", err)
		}
		answer(w, items)
	})
	return s
}

func outcomes(results []webhook.PublishResult) []webhook.PublishOutcome {
	list := make([]webhook.PublishOutcome, len(results))
	for i, r := range results {
		list[i] = r.Outcome
	}
	return list
}

func TestPublishBatchRequest(t *testing.T) {
	t.Setenv("QSTASH_URL", "http://127.0.0.1:1/")
	s := newBatchService(t, takesAll)
	p := newPublisher(t, s.URL, func(cfg *qstash.PublisherConfig) { cfg.Backoff.Initial = 1e9 })
	results := p.PublishBatch(t.Context(), publications(2, nil))
	if results[1].MessageID != "m-id-1" || results[1].Status != 200 || results[1].Message != "" {
		t.Errorf("results: %+v", results)
	}
	calls := s.seen()
	if len(calls) != 1 || calls[0].uri != "/v2/batch" || calls[0].header.Get("Authorization") != "Bearer "+apiToken {
		t.Fatalf("calls: %+v", calls)
	}
	var got []batchItem
	if err := json.Unmarshal([]byte(calls[0].body), &got); err != nil {
		t.Fatal(err)
	}
	want := batchItem{Destination: "https://rx.test/tasks", Body: `{"n":"1 \"<é"}`, Headers: map[string]string{
		"Content-Type": "application/json", "Upstash-Method": "POST", "Upstash-Retries": "5", "Upstash-Retry-Delay": "1000",
		"Upstash-Deduplication-Id": "id-1", "Upstash-Label": "gantry,afterStep",
		"Upstash-Flow-Control-Key": "gantry." + tasks.OperationHash("\nop"), "Upstash-Flow-Control-Value": "parallelism=1",
		"Upstash-Forward-X-A": secretHeader,
	}}
	if diff := cmp.Diff(want, got[1]); diff != "" {
		t.Errorf("item (-want +got):\n%s", diff)
	}
}

func TestPublishBatchOutcomes(t *testing.T) {
	t.Parallel()
	const (
		yes, no, fail, not, unknown = webhook.PublishAccepted, webhook.PublishRejected, webhook.PublishFailed, webhook.PublishNotSent, webhook.PublishUnknown
	)
	plainly := func(status int, body string) func(http.ResponseWriter, []batchItem) {
		return func(w http.ResponseWriter, _ []batchItem) { says(status, body)(w, nil) }
	}
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, []batchItem)
		edit   func(i int, p *webhook.Publication)
		want   []webhook.PublishOutcome
	}{
		"all":                   {answer: takesAll, want: []webhook.PublishOutcome{yes, yes, yes}},
		"one refused":           {answer: plainly(200, `[{"messageId":"a"},{"error":"`+secretRemote+`"},{"messageId":"c","deduplicated":true}]`), want: []webhook.PublishOutcome{yes, no, yes}},
		"error as an object":    {answer: plainly(200, `[{"messageId":"a"},{"error":{"x":1}},{"messageId":"c","error":null}]`), want: []webhook.PublishOutcome{yes, no, yes}},
		"one without an id":     {answer: plainly(200, `[{"messageId":"a"},{},[{"messageId":"c"}]]`), want: []webhook.PublishOutcome{yes, fail, fail}},
		"too few answers":       {answer: plainly(200, `[{"messageId":"a"}]`), want: []webhook.PublishOutcome{fail, fail, fail}},
		"no list":               {answer: plainly(200, `{"messageId":"a"}`), want: []webhook.PublishOutcome{fail, fail, fail}},
		"refused as a whole":    {answer: plainly(400, `{"error":"`+secretRemote+`"}`), want: []webhook.PublishOutcome{no, no, no}},
		"throttled":             {answer: plainly(429, ``), want: []webhook.PublishOutcome{webhook.PublishThrottled, webhook.PublishThrottled, webhook.PublishThrottled}},
		"no answer":             {answer: func(http.ResponseWriter, []batchItem) { panic(http.ErrAbortHandler) }, want: []webhook.PublishOutcome{unknown, unknown, unknown}},
		"one cannot be carried": {answer: takesAll, edit: func(i int, p *webhook.Publication) { p.URL = []string{p.URL, "group", p.URL}[i] }, want: []webhook.PublishOutcome{yes, not, yes}},
		"one is no text":        {answer: takesAll, edit: func(i int, p *webhook.Publication) { p.Body = append(p.Body, [][]byte{nil, nil, {0xff}}[i]...) }, want: []webhook.PublishOutcome{yes, yes, not}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBatchService(t, test.answer)
			results := newPublisher(t, s.URL, nil).PublishBatch(t.Context(), publications(3, test.edit))
			if diff := cmp.Diff(test.want, outcomes(results)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			for _, r := range results {
				checkSafe(t, r)
			}
		})
	}
}

// Many messages take several calls; after one that fails nothing more is sent,
// so that no later message comes before an earlier one.
func TestPublishBatchInCalls(t *testing.T) {
	t.Parallel()
	calls := 0
	s := newBatchService(t, func(w http.ResponseWriter, items []batchItem) {
		if calls++; calls == 3 {
			says(503, "")(w, nil)
			return
		}
		takesAll(w, items)
	})
	results := newPublisher(t, s.URL, nil).PublishBatch(t.Context(), publications(350, nil))
	count := map[webhook.PublishOutcome]int{}
	for i, r := range results {
		count[r.Outcome]++
		if i < 200 && r.MessageID != fmt.Sprintf("m-id-%d", i) {
			t.Fatalf("result %d: %+v", i, r)
		}
	}
	want := map[webhook.PublishOutcome]int{webhook.PublishAccepted: 200, webhook.PublishFailed: 100, webhook.PublishNotSent: 50}
	if diff := cmp.Diff(want, count); diff != "" || len(s.seen()) != 3 {
		t.Errorf("%d calls, outcomes (-want +got):\n%s", len(s.seen()), diff)
	}
}

func TestPublishBatchBySize(t *testing.T) {
	t.Parallel()
	s := newBatchService(t, takesAll)
	p := newPublisher(t, s.URL, func(cfg *qstash.PublisherConfig) { cfg.MaxBody = 4 << 20 })
	big := []byte(`"` + strings.Repeat("x", 3<<20) + `"`)
	results := p.PublishBatch(t.Context(), publications(5, func(_ int, p *webhook.Publication) { p.Body = big }))
	for _, r := range results {
		if r.Outcome != webhook.PublishAccepted {
			t.Errorf("result: %+v", r)
		}
	}
	if n := len(s.seen()); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

func TestPublishBatchOfNothing(t *testing.T) {
	t.Parallel()
	s := newBatchService(t, takesAll)
	if got := newPublisher(t, s.URL, nil).PublishBatch(t.Context(), nil); len(got) != 0 {
		t.Errorf("results: %+v", got)
	}
	without := newPublisher(t, s.URL, func(cfg *qstash.PublisherConfig) { cfg.Token = func() string { return "" } })
	got := without.PublishBatch(t.Context(), publications(2, nil))
	if diff := cmp.Diff([]webhook.PublishOutcome{webhook.PublishNotSent, webhook.PublishNotSent}, outcomes(got)); diff != "" || len(s.seen()) != 0 {
		t.Errorf("%d calls, outcomes (-want +got):\n%s", len(s.seen()), diff)
	}
}
