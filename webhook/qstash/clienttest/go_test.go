package clienttest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	official "github.com/upstash/qstash-go"
	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const query = "?a=1&b=%2F"

// delivery is a request that the official receiver has checked.
type delivery struct {
	Path, Body, Retried, MessageID string
	Header                         http.Header
}

// stand is a server with its official client, and an endpoint that verifies.
type stand struct {
	*testing.T
	server     *compat.Server
	client     *official.Client
	endpoint   string
	deliveries chan delivery
	status     chan int
}

func newStand(t *testing.T) *stand {
	t.Helper()
	server, err := compat.New(compat.Config{
		Token: qstash.DevToken, Keys: compat.Keys{Current: qstash.DevCurrentKey, Next: qstash.DevNextKey}, Speed: 1e6,
	})
	if err != nil {
		t.Fatalf("make the server: %v", err)
	}
	api := httptest.NewServer(server)
	s := &stand{T: t, server: server, deliveries: make(chan delivery, 100), status: make(chan int, 100)}
	endpoint := httptest.NewServer(http.HandlerFunc(s.receive))
	s.endpoint = endpoint.URL
	transport := &http.Transport{}
	s.client = official.NewClientWith(official.Options{Url: api.URL, Token: qstash.DevToken, Client: &http.Client{Transport: transport}})
	t.Cleanup(func() {
		server.Close()
		transport.CloseIdleConnections()
		api.CloseClientConnections() // the client leaves bodies open
		api.Close()
		endpoint.Close()
	})
	return s
}

// receive verifies a delivery and answers with the next status, or 200.
func (s *stand) receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.Errorf("read the body: %v", err)
	}
	err = official.NewReceiver(qstash.DevCurrentKey, qstash.DevNextKey).Verify(official.VerifyOptions{
		Signature: r.Header.Get("Upstash-Signature"), Url: s.endpoint + r.RequestURI, Body: string(body),
	})
	if err != nil {
		s.Errorf("the receiver refuses %s: %v", r.RequestURI, err)
	}
	code := http.StatusOK
	select {
	case code = <-s.status:
	default:
	}
	if code == 489 {
		w.Header().Set("Upstash-NonRetryable-Error", "true")
	}
	w.WriteHeader(code)
	s.deliveries <- delivery{r.RequestURI, string(body), r.Header.Get("Upstash-Retried"), r.Header.Get("Upstash-Message-Id"), r.Header}
}

func (s *stand) settle() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	if err := s.server.Settle(ctx); err != nil {
		s.Fatalf("wait for the messages: %v", err)
	}
}

// check fails on an error of the client.
func (s *stand) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("call: %v", err)
	}
}

func TestPublish(t *testing.T) {
	s := newStand(t)
	accepted, err := s.client.PublishJSON(official.PublishJSONOptions{
		Url: s.endpoint + "/hook" + query, Body: map[string]any{"n": 1}, Headers: map[string]string{"X-Own": "yes"},
		Retries: official.RetryCount(0), Timeout: "5s", Method: http.MethodPut,
	})
	s.check(err)
	got := <-s.deliveries
	if got.Path != "/hook"+query || got.Body != `{"n":1}` || got.MessageID != accepted.MessageId || got.Header.Get("X-Own") != "yes" ||
		got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("delivered %+v", got)
	}
	first, err := s.client.Publish(official.PublishOptions{Url: s.endpoint + "/", Body: "x", DeduplicationId: "d"})
	s.check(err)
	second, err := s.client.Publish(official.PublishOptions{Url: s.endpoint + "/", Body: "x", DeduplicationId: "d"})
	s.check(err)
	if !second.Deduplicated || second.MessageId != first.MessageId {
		t.Errorf("the duplicate is %+v", second)
	}
	if _, err = s.client.Publish(official.PublishOptions{Url: "nowhere.test/x"}); err == nil || !strings.Contains(err.Error(), "invalid scheme") {
		t.Errorf("no scheme: %v", err)
	}
	s.settle()
}

func TestBatch(t *testing.T) {
	s := newStand(t)
	results, err := s.client.BatchJSON([]official.BatchJSONOptions{
		{Url: s.endpoint + "/1" + query, Body: map[string]any{"i": 1}},
		{Url: "ftp://nowhere.test", Body: map[string]any{}},
		{Url: s.endpoint + "/3", Body: map[string]any{"i": 3}, Queue: "q", Retries: official.RetryCount(0)},
	})
	s.check(err)
	s.settle()
	if len(results) != 3 || results[0][0].MessageId == "" || results[1][0].MessageId != "" || results[2][0].MessageId == "" {
		t.Fatalf("results %+v", results)
	}
	got := map[string]string{}
	for range 2 {
		d := <-s.deliveries
		got[d.MessageID] = d.Path + " " + d.Body
	}
	want := map[string]string{results[0][0].MessageId: "/1" + query + ` {"i":1}`, results[2][0].MessageId: `/3 {"i":3}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the deliveries differ (-want +got):\n%s", diff)
	}
}

func TestQueue(t *testing.T) {
	s := newStand(t)
	queues := s.client.Queues()
	s.check(queues.Upsert(official.Queue{Name: "q", Parallelism: 1, IsPaused: true}))
	for i := range 3 {
		_, err := s.client.Enqueue(official.EnqueueOptions{Queue: "q", PublishOptions: official.PublishOptions{
			Url: s.endpoint + "/q" + query, Body: strconv.Itoa(i),
		}})
		s.check(err)
	}
	queue, err := queues.Get("q")
	s.check(err)
	if queue.Name != "q" || queue.Parallelism != 1 || !queue.IsPaused || queue.Lag != 3 {
		t.Errorf("queue %+v", queue)
	}
	s.status <- 500
	s.status <- 500
	s.check(queues.Resume("q"))
	s.settle()
	order := ""
	for range 5 {
		d := <-s.deliveries
		order += d.Body + "/" + d.Retried + " "
	}
	if order != "0/0 0/1 0/2 1/0 2/0 " {
		t.Errorf("order %s", order)
	}
	s.check(queues.Pause("q"))
	list, err := queues.List()
	s.check(err)
	if len(list) != 1 || !list[0].IsPaused {
		t.Errorf("queues %+v", list)
	}
	s.check(queues.Delete("q"))
	if list, err = queues.List(); err != nil || len(list) != 0 {
		t.Errorf("queues %+v, %v", list, err)
	}
}

func TestDLQ(t *testing.T) {
	s := newStand(t)
	var ids []string
	for range 3 {
		s.status <- 489
		accepted, err := s.client.Publish(official.PublishOptions{Url: s.endpoint + "/", Body: "x"})
		s.check(err)
		s.settle()
		ids = append(ids, accepted.MessageId)
	}
	entries, cursor, err := s.client.Dlq().List(official.ListDlqOptions{Count: 2, Filter: official.DlqFilter{ResponseStatus: 489}})
	s.check(err)
	if len(entries) != 2 || cursor == "" || entries[0].MessageId != ids[0] || entries[0].ResponseStatus != 489 {
		t.Fatalf("entries %+v, then %q", entries, cursor)
	}
	entry, err := s.client.Dlq().Get(entries[0].DlqId)
	s.check(err)
	if diff := cmp.Diff(entries[0], entry); diff != "" {
		t.Errorf("the entry differs (-want +got):\n%s", diff)
	}
	s.check(s.client.Dlq().Delete(entries[0].DlqId))
	if deleted, err := s.client.Dlq().DeleteMany([]string{entries[1].DlqId, "none"}); err != nil || deleted != 1 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	// The client sends a bulk deletion for an empty id; the server does not obey.
	if err := s.client.Dlq().Delete(""); err == nil {
		t.Errorf("an empty id is taken")
	}
	entries, _, err = s.client.Dlq().List(official.ListDlqOptions{})
	s.check(err)
	if len(entries) != 1 {
		t.Errorf("left %+v", entries)
	}
}

func TestMessagesAndEvents(t *testing.T) {
	s := newStand(t)
	var ids []string
	for range 4 {
		accepted, err := s.client.Publish(official.PublishOptions{Url: s.endpoint + "/", Body: "x", NotBefore: "4000000000"})
		s.check(err)
		ids = append(ids, accepted.MessageId)
	}
	message, err := s.client.Messages().Get(ids[0])
	s.check(err)
	if message.Url != s.endpoint+"/" || message.Body != "x" || message.MaxRetries != 3 || message.NotBefore != 4_000_000_000_000 {
		t.Errorf("message %+v", message)
	}
	s.check(s.client.Messages().Cancel(ids[0]))
	if n, err := s.client.Messages().CancelMany([]string{ids[1], ids[2]}); err != nil || n != 2 {
		t.Errorf("cancelled %d, %v", n, err)
	}
	// The client sends a bulk cancellation for an empty id; the server does not obey.
	if err := s.client.Messages().Cancel(""); err == nil {
		t.Errorf("an empty id is taken")
	}
	if n, err := s.client.Messages().CancelAll(); err != nil || n != 1 {
		t.Errorf("cancelled %d of all, %v", n, err)
	}
	events, _, err := s.client.Events().List(official.ListEventsOptions{Filter: official.EventFilter{MessageId: ids[0]}})
	s.check(err)
	var states []official.EventState
	for _, e := range events {
		states = append(states, e.State)
	}
	if diff := cmp.Diff([]official.EventState{official.Canceled, official.CancelRequested, official.Created}, states); diff != "" {
		t.Errorf("the states differ (-want +got):\n%s", diff)
	}
}

func TestURLGroup(t *testing.T) {
	s := newStand(t)
	groups := s.client.UrlGroups()
	s.check(groups.UpsertEndpoints("g", []official.Endpoint{{Url: s.endpoint + "/1", Name: "one"}, {Url: s.endpoint + "/2"}}))
	results, err := groups.Publish(official.PublishUrlGroupOptions{UrlGroup: "g", Body: "x"})
	s.check(err)
	s.settle()
	if len(results) != 2 || len(s.deliveries) != 2 {
		t.Errorf("results %+v, %d deliveries", results, len(s.deliveries))
	}
	s.check(groups.RemoveEndpoints("g", []official.Endpoint{{Name: "one"}}))
	group, err := groups.Get("g")
	s.check(err)
	if diff := cmp.Diff([]official.Endpoint{{Url: s.endpoint + "/2"}}, group.Endpoints); diff != "" {
		t.Errorf("the endpoints differ (-want +got):\n%s", diff)
	}
	s.check(groups.Delete("g"))
	if list, err := groups.List(); err != nil || len(list) != 0 {
		t.Errorf("groups %+v, %v", list, err)
	}
}

// TestKeys rotates: a receiver that has not heard of it yet accepts what its next
// key signs now.
func TestKeys(t *testing.T) {
	s := newStand(t)
	keys, err := s.client.Keys().Get()
	s.check(err)
	if keys != (official.SigningKeys{Current: qstash.DevCurrentKey, Next: qstash.DevNextKey}) {
		t.Errorf("keys %+v", keys)
	}
	rotated, err := s.client.Keys().Rotate()
	s.check(err)
	if rotated.Current != qstash.DevNextKey || rotated.Next == "" {
		t.Errorf("rotated to %+v", rotated)
	}
	_, err = s.client.Publish(official.PublishOptions{Url: s.endpoint + "/", Body: "x"})
	s.check(err)
	<-s.deliveries
	s.settle()
}
