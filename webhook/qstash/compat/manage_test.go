package compat_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestQueueIsFIFO blocks a queue with one bad message for its whole budget, while
// another queue and a plain publish go on.
func TestQueueIsFIFO(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.answers(func(w http.ResponseWriter, _ *http.Request) {
			if last := s.seen(); last[len(last)-1].Body == "bad" {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		s.enqueue("q", "1")
		s.enqueue("q", "bad", "Upstash-Retry-Delay", "60000")
		s.enqueue("q", "2")
		s.enqueue("other", "o")
		s.publish("p")
		pass(179 * time.Second)
		if got := s.bodies(); got != "1 bad o p bad bad" {
			t.Errorf("before the last retry: %s", got)
		}
		s.settle()
		if got := s.bodies(); got != "1 bad o p bad bad bad 2" {
			t.Errorf("in the end: %s", got)
		}
		if entries, _ := s.deadLetters("?queueName=q"); len(entries) != 1 || entries[0].QueueName != "q" {
			t.Errorf("dead letters %+v", entries)
		}
	})
}

// TestQueueWaitsForCallbacks holds the place of a message until its callbacks are
// settled.
func TestQueueWaitsForCallbacks(t *testing.T) {
	inBubble(t, func(s *stand) {
		release := make(chan struct{})
		s.answers(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/callback" {
				<-release
			}
		})
		s.enqueue("q", "1", "Upstash-Callback", "http://receiver.test/callback")
		s.enqueue("q", "2")
		if got := len(s.seen()); got != 2 || s.seen()[1].Body == "2" {
			t.Fatalf("%d requests before the callback is settled", got)
		}
		close(release)
		s.settle()
		if got := s.seen(); len(got) != 3 || got[2].Body != "2" {
			t.Errorf("%d requests, want 3", len(got))
		}
	})
}

func TestQueueParallelism(t *testing.T) {
	inBubble(t, func(s *stand) {
		release := make(chan struct{})
		s.answers(func(http.ResponseWriter, *http.Request) { <-release })
		s.into(s.call(http.MethodPost, "/v2/queues", `{"queueName":"q","parallelism":2}`), 200, &struct{}{})
		for _, body := range []string{"1", "2", "3", "4"} {
			s.enqueue("q", body)
		}
		if got := len(s.seen()); got != 2 {
			t.Fatalf("%d requests at a time, want 2", got)
		}
		s.into(s.call(http.MethodPost, "/v2/queues", `{"queueName":"q","parallelism":3}`), 200, &struct{}{})
		if got := len(s.seen()); got != 3 {
			t.Fatalf("%d requests at a time, want 3", got)
		}
		close(release)
		s.settle()
		if got := len(s.seen()); got != 4 {
			t.Errorf("%d requests, want 4", got)
		}
	})
}

func TestQueues(t *testing.T) {
	type queue struct {
		Name        string
		Parallelism int
		Paused      bool
		Lag         int
	}
	inBubble(t, func(s *stand) {
		get := func(name string) (q queue) {
			t.Helper()
			s.into(s.call(http.MethodGet, "/v2/queues/"+name, ""), 200, &q)
			return q
		}
		ok := func(method, path, body string) { t.Helper(); s.into(s.call(method, path, body), 200, &struct{}{}) }
		ok(http.MethodPost, "/v2/queues", `{"queueName":"a","parallelism":1,"paused":true}`)
		s.enqueue("a", "1")
		s.enqueue("b", "2")
		if diff := cmp.Diff(queue{"a", 1, true, 1}, get("a")); diff != "" {
			t.Errorf("the paused queue differs (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(queue{"b", 1, false, 0}, get("b")); diff != "" {
			t.Errorf("the queue made by its first message differs (-want +got):\n%s", diff)
		}
		ok(http.MethodPost, "/v2/queues", `{"queueName":"a","parallelism":4}`)
		ok(http.MethodPost, "/v2/queues/b/pause", "")
		var list []queue
		s.into(s.call(http.MethodGet, "/v2/queues", ""), 200, &list)
		if diff := cmp.Diff([]queue{{"a", 4, true, 1}, {"b", 1, true, 0}}, list); diff != "" {
			t.Errorf("the list differs (-want +got):\n%s", diff)
		}
		if got := s.bodies(); got != "2" {
			t.Errorf("delivered %q while a is paused", got)
		}
		ok(http.MethodPost, "/v2/queues/a/resume", "")
		if got := s.bodies(); got != "2 1" {
			t.Errorf("delivered %q after a is resumed", got)
		}
		s.enqueue("b", "3")
		ok(http.MethodDelete, "/v2/queues/b", "")
		s.settle()
		s.refused(s.call(http.MethodGet, "/v2/queues/b", ""), 404, "no queue")
		if got := s.bodies(); got != "2 1" {
			t.Errorf("delivered %q after b is deleted", got)
		}
		for _, body := range []string{`{"queueName":"a/b"}`, `{"queueName":""}`, `{"queueName":"a","parallelism":-1}`, `{"queueName":5}`, ``} {
			s.refused(s.call(http.MethodPost, "/v2/queues", body), 400, "invalid")
		}
	})
}

// TestPauseDuringRetries pauses a queue whose head waits for its retry.
func TestPauseDuringRetries(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.answers(status(500))
		s.enqueue("q", "x", "Upstash-Retry-Delay", "60000")
		s.call(http.MethodPost, "/v2/queues/q/pause", "")
		pass(time.Hour)
		if got := len(s.seen()); got != 1 {
			t.Fatalf("%d requests while the queue is paused, want 1", got)
		}
		s.call(http.MethodPost, "/v2/queues/q/resume", "")
		s.settle()
		if got := len(s.seen()); got != 4 {
			t.Errorf("%d requests, want 4", got)
		}
	})
}

func TestCancel(t *testing.T) {
	inBubble(t, func(s *stand) {
		release := make(chan struct{})
		s.answers(func(w http.ResponseWriter, _ *http.Request) { <-release; w.WriteHeader(http.StatusInternalServerError) })
		cancel := func(path, body string) int {
			t.Helper()
			var got map[string]int
			s.into(s.call(http.MethodDelete, path, body), 200, &got)
			return got["cancelled"]
		}
		active := s.enqueue("q", "active")
		s.enqueue("q", "behind")
		delayed := s.publish("delayed", "Upstash-Delay", "1h", "Upstash-Label", "a,b")
		other := s.publish("other", "Upstash-Delay", "1h", "Upstash-Label", "b")
		third := s.publish("third", "Upstash-Delay", "1h")
		if got := cancel("/v2/messages/"+delayed, ""); got != 1 {
			t.Errorf("cancelled %d, want 1", got)
		}
		s.refused(s.call(http.MethodGet, "/v2/messages/"+delayed, ""), 404, "no pending message")
		for body, text := range map[string]string{`{"messageIds":[]}`: "empty", `{"messageIds":[""]}`: "empty", `{"ids":["x"]}`: "unknown field", `[]`: "invalid"} {
			s.refused(s.call(http.MethodDelete, "/v2/messages", body), 400, text)
		}
		for query, text := range map[string]string{"messageIds=": "empty", "lable=a": "unknown filter", "fromDate=x": "fromDate"} {
			s.refused(s.call(http.MethodDelete, "/v2/messages?"+query, ""), 400, text)
		}
		if got := cancel("/v2/messages?label=a", ""); got != 0 {
			t.Errorf("cancelled %d of a label that is gone", got)
		}
		if got := cancel("/v2/messages", `{"messageIds":["`+other+`","none"]}`); got != 1 {
			t.Errorf("cancelled %d by a body, want 1", got)
		}
		if got := cancel("/v2/messages?messageIds="+third+"&messageIds="+active, ""); got != 2 {
			t.Errorf("cancelled %d by a query, want 2", got)
		}
		if got := cancel("/v2/messages/"+active, ""); got != 0 {
			t.Errorf("cancelled %d again", got)
		}
		close(release)
		synctest.Wait()
		if got := s.bodies(); got != "active behind" {
			t.Errorf("delivered %q: a cancelled message is not retried, and lets the next one go", got)
		}
		if got := s.attempts[0].Outcome; got != "cancelled" {
			t.Errorf("the attempt that ran came to %q", got)
		}
		if got := cancel("/v2/messages", ""); got != 1 {
			t.Errorf("cancelled %d of all, want 1", got)
		}
		s.settle()
		if entries, _ := s.deadLetters(""); len(entries) != 0 {
			t.Errorf("a cancelled message is dead: %+v", entries)
		}
	})
}

// TestCancelAllBeginsNothing cancels a queue and a full flow at once: the end of
// one message must not begin the next.
func TestCancelAllBeginsNothing(t *testing.T) {
	inBubble(t, func(s *stand) {
		release := make(chan struct{})
		s.answers(func(http.ResponseWriter, *http.Request) { <-release })
		flow := []string{"Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "parallelism=1"}
		for range 5 {
			s.enqueue("q", "queued", "Upstash-Delay", "1h")
			s.publish("flowing", flow...)
		}
		var got map[string]int
		s.into(s.call(http.MethodDelete, "/v2/messages", ""), 200, &got)
		close(release)
		s.settle()
		if got["cancelled"] != 10 || s.bodies() != "flowing" {
			t.Errorf("cancelled %d, delivered %q", got["cancelled"], s.bodies())
		}
	})
}

func TestFlowControl(t *testing.T) {
	inBubble(t, func(s *stand) {
		release := make(chan struct{})
		s.answers(func(http.ResponseWriter, *http.Request) { <-release })
		flow := []string{"Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "parallelism=2, rate=10, period=1m"}
		for range 5 {
			s.publish("x", flow...)
		}
		s.publish("free")
		if got := s.bodies(); got != "x x free" {
			t.Fatalf("under way: %q", got)
		}
		var got struct{ WaitListSize, ParallelismMax, ParallelismCount, RateMax, RateCount, RatePeriod int }
		s.into(s.call(http.MethodGet, "/v2/flowControl/k", ""), 200, &got)
		want := got
		want.WaitListSize, want.ParallelismMax, want.ParallelismCount, want.RateMax, want.RateCount, want.RatePeriod = 3, 2, 2, 10, 2, 60
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the flow differs (-want +got):\n%s", diff)
		}
		var all []any
		s.into(s.call(http.MethodGet, "/v2/flowControl", ""), 200, &all)
		if len(all) != 1 {
			t.Errorf("%d flow-control keys, want 1", len(all))
		}
		close(release)
		s.settle()
		if got := len(s.seen()); got != 6 {
			t.Errorf("%d deliveries, want 6", got)
		}
	})
}

// TestRate lets so many begin within each period.
func TestRate(t *testing.T) {
	inBubble(t, func(s *stand) {
		start := time.Now()
		for range 7 {
			s.publish("x", "Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "rate=3, period=10s")
		}
		s.settle()
		var at []float64
		for _, r := range s.seen() {
			at = append(at, r.At.Sub(start).Seconds())
		}
		if diff := cmp.Diff([]float64{0, 0, 0, 10, 10, 10, 20}, at); diff != "" {
			t.Errorf("the times differ (-want +got):\n%s", diff)
		}
	})
}

// fill makes n dead letters, a second apart.
func (s *stand) fill(n int) {
	s.Helper()
	s.answers(status(503))
	for i := range n {
		s.publish(strconv.Itoa(i), "Upstash-Retries", "0")
		pass(time.Second)
	}
	s.answers(status(200))
}

func TestDLQ(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.fill(5)
		page, cursor := s.deadLetters("?count=2")
		rest, end := s.deadLetters("?count=3&cursor=" + cursor)
		if len(page) != 2 || page[1].Body != "1" || len(rest) != 3 || rest[2].Body != "4" || end != "" {
			t.Fatalf("pages %+v and %+v, then %q", page, rest, end)
		}
		for query, want := range map[string]int{
			"?responseStatus=503": 5, "?responseStatus=500": 0, "?responseStatus=500&responseStatus=503": 5,
			"?messageId=" + page[0].MessageID: 1, "?dlqIds=" + page[0].DLQID + "&dlqIds=" + rest[0].DLQID: 2,
			"?url=http%3A%2F%2Freceiver.test%2Fhook%3Fa%3D1%26b%3D%252F": 5, "?url=http%3A%2F%2Fother.test": 0,
			"?fromDate=946684802000": 3, "?fromDate=946684802000&toDate=946684803000": 2, "?label=x": 0, "?callerIp=192.0.2.1": 5,
		} {
			if got, _ := s.deadLetters(query); len(got) != want {
				t.Errorf("%s finds %d, want %d", query, len(got), want)
			}
		}
		for query, text := range map[string]string{"count=0": "count", "count=x": "count", "stauts=1": "unknown filter", "label=": "empty"} {
			s.refused(s.call(http.MethodGet, "/v2/dlq?"+query, ""), 400, text)
		}
		var one dead
		s.into(s.call(http.MethodGet, "/v2/dlq/"+page[1].DLQID, ""), 200, &one)
		if diff := cmp.Diff(page[1], one); diff != "" {
			t.Errorf("the entry differs (-want +got):\n%s", diff)
		}
		s.into(s.call(http.MethodDelete, "/v2/dlq/"+page[1].DLQID, ""), 200, &struct{}{})
		s.refused(s.call(http.MethodGet, "/v2/dlq/"+page[1].DLQID, ""), 404, page[1].DLQID)

		deleted := func(query, body string) (n int, cursor string) {
			t.Helper()
			var got struct {
				Deleted int
				Cursor  string
			}
			s.into(s.call(http.MethodDelete, "/v2/dlq"+query, body), 200, &got)
			return got.Deleted, got.Cursor
		}
		for body, text := range map[string]string{`{"dlqIds":[]}`: "empty", `{"dlqIds":[""]}`: "empty", `{"messageIds":["x"]}`: "unknown field"} {
			s.refused(s.call(http.MethodDelete, "/v2/dlq", body), 400, text)
		}
		s.refused(s.call(http.MethodDelete, "/v2/dlq?dlqIds=", ""), 400, "empty")
		if n, _ := deleted("", `{"dlqIds":["`+page[0].DLQID+`","none"]}`); n != 1 {
			t.Errorf("deleted %d by a body, want 1", n)
		}
		if n, next := deleted("?count=2", ""); n != 2 || next == "" {
			t.Errorf("deleted %d and goes on at %q", n, next)
		} else if n, next = deleted("?count=2&cursor="+next, ""); n != 1 || next != "" {
			t.Errorf("deleted %d of the rest and goes on at %q", n, next)
		}
	})
}

func TestDLQRetry(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.fill(6)
		entries, _ := s.deadLetters("")
		type answer struct {
			MessageID string
			Cursor    string
			Responses []struct{ MessageID string }
		}
		retry := func(path string, headers ...string) (a answer) {
			t.Helper()
			s.into(s.call(http.MethodPost, "/v2/dlq/retry"+path, "", headers...), 201, &a)
			s.settle()
			return a
		}
		if a := retry("/" + entries[0].DLQID); a.MessageID == "" || a.MessageID == entries[0].MessageID {
			t.Errorf("the retried message has id %q", a.MessageID)
		}
		if a := retry("?dlqIds=" + entries[2].DLQID + "&dlqIds=" + entries[1].DLQID); len(a.Responses) != 2 {
			t.Errorf("retried %d, want 2", len(a.Responses))
		}
		s.refused(s.call(http.MethodPost, "/v2/dlq/retry?dlqIds=", ""), 400, "empty")
		s.refused(s.call(http.MethodPost, "/v2/dlq/retry?count=2", "", "Upstash-Retries", "x"), 400, "Retries")
		if left, _ := s.deadLetters(""); len(left) != 3 || left[0].Body != "3" {
			t.Fatalf("left %+v", left)
		}
		s.answers(status(500))
		first := retry("?count=2", "Upstash-Retries", "1", "Upstash-Forward-X-New", "1")
		if len(first.Responses) != 2 || first.Cursor == "" {
			t.Errorf("retried %+v, want 2 and a cursor", first)
		}
		requests := s.seen()
		last := requests[len(requests)-1]
		if got := slices.Sorted(strings.SplitSeq(s.bodies(), " ")); strings.Join(got, "") != "0011223334445" || last.Header.Get("X-New") != "1" || last.Header.Get("Upstash-Retried") != "1" {
			t.Errorf("delivered %v, the last with %v", got, last.Header)
		}
		if left, _ := s.deadLetters(""); len(left) != 3 || left[0].Body != "5" {
			t.Errorf("left %+v", left)
		}
	})
}

// TestDLQRetryKeepsTheMessage retries what has a queue, a delay and a
// deduplication id: it goes back into the queue, at once, and is no duplicate.
func TestDLQRetryKeepsTheMessage(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.answers(status(500))
		s.enqueue("q", "x", "Upstash-Retries", "0", "Upstash-Delay", "60s", "Upstash-Deduplication-Id", "d", "Content-Type", "text/x")
		s.settle()
		s.answers(status(200))
		start := time.Now()
		s.call(http.MethodPost, "/v2/dlq/retry", "")
		s.settle()
		got := s.seen()[1]
		if got.At != start || got.Header.Get("Content-Type") != "text/x" || s.attempts[1].Queue != "q" {
			t.Errorf("delivered %+v", got)
		}
	})
}

func TestDeadLettersExpire(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.fill(1)
		pass(3*24*time.Hour - 2*time.Second)
		if entries, _ := s.deadLetters(""); len(entries) != 1 {
			t.Errorf("%d dead letters before the retention is over", len(entries))
		}
		pass(2 * time.Second)
		if entries, _ := s.deadLetters(""); len(entries) != 0 {
			t.Errorf("%d dead letters after the retention", len(entries))
		}
	})
}

func TestEvents(t *testing.T) {
	inBubble(t, func(s *stand) {
		states := func(path, field string) (list []string, cursor string) {
			t.Helper()
			var page map[string]any
			s.into(s.call(http.MethodGet, path, ""), 200, &page)
			events, ok := page[field].([]any)
			if !ok {
				t.Fatalf("%s has no %s: %v", path, field, page)
			}
			for _, e := range events {
				list = append(list, e.(map[string]any)["state"].(string))
			}
			slices.Reverse(list)
			cursor, _ = page["cursor"].(string)
			return list, cursor
		}
		s.answers(status(500))
		id := s.publish("x", "Upstash-Retries", "1", "Upstash-Label", "l")
		s.settle()
		s.answers(status(200))
		s.publish("y")
		pending := s.publish("z", "Upstash-Delay", "1h")
		gone := s.publish("z", "Upstash-Delay", "1h")
		s.call(http.MethodDelete, "/v2/messages/"+gone, "")
		for query, want := range map[string]string{
			"?messageId=" + id:                               "CREATED ACTIVE ERROR RETRY ACTIVE ERROR FAILED",
			"?messageIds=" + id + "&state=RETRY":             "RETRY",
			"?label=l&state=FAILED":                          "FAILED",
			"?state=DELIVERED":                               "DELIVERED",
			"?state=CANCELLED":                               "CANCELED",
			"?messageId=" + gone:                             "CREATED CANCEL_REQUESTED CANCELED",
			"?state=IN_PROGRESS":                             "CREATED",
			"?messageId=" + pending:                          "CREATED",
			"?host=receiver.test&path=%2Fhook&state=CREATED": "CREATED CREATED CREATED CREATED",
			"?host=other.test":                               "",
		} {
			if got, _ := states("/v2/events"+query, "events"); strings.Join(got, " ") != want {
				t.Errorf("%s finds %v, want %s", query, got, want)
			}
		}
		newest, cursor := states("/v2/logs?count=10", "logs")
		oldest, end := states("/v2/logs?count=10&cursor="+cursor, "logs")
		if len(newest) != 10 || len(oldest) != 4 || oldest[0] != "CREATED" || end != "" {
			t.Errorf("pages of %d and %d, then %q", len(newest), len(oldest), end)
		}
		for _, query := range []string{"?cursor=x", "?count=-1", "?sate=x"} {
			s.refused(s.call(http.MethodGet, "/v2/events"+query, ""), 400, "")
		}
	})
}

func TestKeys(t *testing.T) {
	inBubble(t, func(s *stand) {
		type keys struct{ Current, Next string }
		call := func(method, path string) (k keys) {
			t.Helper()
			s.into(s.call(method, path, ""), 200, &k)
			return k
		}
		if got := call(http.MethodGet, "/v2/keys"); got != (keys{current, next}) {
			t.Errorf("keys %+v", got)
		}
		first := call(http.MethodPost, "/v2/keys/rotate")
		if first.Current != next || first.Next == current || !strings.HasPrefix(first.Next, "sig_") {
			t.Errorf("rotated to %+v", first)
		}
		second := call(http.MethodPost, "/v2/rotate")
		if second.Current != first.Next || call(http.MethodGet, "/v2/keys") != second {
			t.Errorf("rotated from %+v to %+v", first, second)
		}
	})
}

// TestBounds fills what is bounded.
func TestBounds(t *testing.T) {
	inBubble(t, func(s *stand) {
		for i := range 1100 {
			s.publish("x", "Upstash-Flow-Control-Key", "k"+strconv.Itoa(i), "Upstash-Flow-Control-Value", "parallelism=1")
		}
		s.settle()
		var flows []any
		s.into(s.call(http.MethodGet, "/v2/flowControl", ""), 200, &flows)
		if len(flows) != 1100 {
			t.Errorf("%d flow-control keys within their period, want 1100", len(flows))
		}
		pass(time.Second)
		s.publish("x", "Upstash-Flow-Control-Key", "last", "Upstash-Flow-Control-Value", "parallelism=1")
		s.into(s.call(http.MethodGet, "/v2/flowControl", ""), 200, &flows)
		if len(flows) != 1 {
			t.Errorf("%d flow-control keys are kept", len(flows))
		}
		item := `{"destination":"http://h.test/","queue":"%","headers":{"Upstash-Delay":"1h"}},`
		batch := func(n int) (refused int) {
			var items strings.Builder
			for i := range n {
				items.WriteString(strings.Replace(item, "%", "q"+strconv.Itoa(i), 1))
			}
			var results []map[string]string
			s.into(s.call(http.MethodPost, "/v2/batch", "["+strings.TrimSuffix(items.String(), ",")+"]"), 200, &results)
			for _, r := range results {
				if r["error"] != "" {
					refused++
				}
			}
			return refused
		}
		if got := batch(10_001); got != 1 {
			t.Errorf("%d refused beyond 10,000 pending messages, want 1", got)
		}
		s.refused(s.call(http.MethodPost, "/v2/publish/"+target, "x"), 503, "pending")
		var cancelled map[string]int
		s.into(s.call(http.MethodDelete, "/v2/messages", ""), 200, &cancelled)
		s.refused(s.call(http.MethodPost, "/v2/enqueue/one-more/"+target, "x"), 412, "queues")
		s.refused(s.call(http.MethodPost, "/v2/queues", `{"queueName":"one-more"}`), 412, "queues")
		var page map[string]any
		s.into(s.call(http.MethodGet, "/v2/events?count=5000", ""), 200, &page)
		if got := page["events"].([]any); len(got) != 1000 {
			t.Errorf("a page of %d events", len(got))
		}
	})
}

// TestBinaryBodies shows bodies that no JSON text can hold.
func TestBinaryBodies(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.answers(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("\xfe"))
		})
		s.publish("\xff", "Upstash-Retries", "0", "Upstash-Callback", "http://h.test/a", "Upstash-Failure-Callback", "http://h.test/b")
		s.settle()
		var page struct {
			Messages []struct {
				Body, BodyBase64, ResponseBody, ResponseBodyBase64, Callback, FailureCallback string
			}
		}
		s.into(s.call(http.MethodGet, "/v2/dlq", ""), 200, &page)
		for _, m := range page.Messages {
			if m.Callback == "" {
				continue // a callback that failed is dead, too
			}
			if m.BodyBase64 != "/w==" || m.Body != "" || m.ResponseBodyBase64 != "/g==" || m.ResponseBody != "" || m.FailureCallback == "" {
				t.Errorf("dead letter %+v", m)
			}
			return
		}
		t.Errorf("no dead letter of the message: %+v", page)
	})
}
