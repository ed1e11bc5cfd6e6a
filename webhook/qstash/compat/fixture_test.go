package compat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token   = "test-token"
	current = "sig_current"
	next    = "sig_next"
	target  = "http://receiver.test/hook?a=1&b=%2F"
)

// received is a request that reached the receiver.
type received struct {
	Method, URL, Body string
	Header            http.Header
	At                time.Time
}

// stand is a compat server with a receiver behind it, within a bubble of
// synctest: time passes only when everybody waits.
type stand struct {
	*testing.T
	server *compat.Server

	mu       sync.Mutex
	requests []received
	attempts []compat.Attempt
	answer   http.HandlerFunc
}

// inBubble runs a test with a stand whose receiver answers 200.
func inBubble(t *testing.T, test func(s *stand)) {
	t.Helper()
	inBubbleWith(t, compat.Config{}, test)
}

func inBubbleWith(t *testing.T, cfg compat.Config, test func(s *stand)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stand{T: t, answer: func(http.ResponseWriter, *http.Request) {}}
		cfg.Token, cfg.Keys, cfg.Egress = token, compat.Keys{Current: current, Next: next}, s
		cfg.OnAttempt = func(a compat.Attempt) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.attempts = append(s.attempts, a)
		}
		server, err := compat.New(cfg)
		if err != nil {
			t.Fatalf("make the server: %v", err)
		}
		s.server = server
		defer server.Close()
		test(s)
	})
}

// Do plays the network: it hands a request to the receiver, whose handler runs on
// when the sender gives up.
func (s *stand) Do(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.requests = append(s.requests, received{req.Method, req.URL.String(), string(body), req.Header.Clone(), time.Now()})
	answer := s.answer
	s.mu.Unlock()
	answered := make(chan *http.Response, 1)
	go func() {
		recorder := httptest.NewRecorder()
		inner := req.Clone(context.WithoutCancel(req.Context()))
		inner.Body = io.NopCloser(bytes.NewReader(body))
		answer(recorder, inner)
		answered <- recorder.Result()
	}()
	select {
	case resp := <-answered:
		return resp, nil
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// answers sets how the receiver answers from now on.
func (s *stand) answers(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// status makes the receiver answer with a status.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// seen returns what has reached the receiver.
func (s *stand) seen() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received{}, s.requests...)
}

// bodies returns the bodies of what has reached the receiver.
func (s *stand) bodies() string {
	var bodies []string
	for _, r := range s.seen() {
		bodies = append(bodies, r.Body)
	}
	return strings.Join(bodies, " ")
}

// settle waits until nothing is pending.
func (s *stand) settle() {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), 30*24*time.Hour)
	defer cancel()
	if err := s.server.Settle(ctx); err != nil {
		s.Fatalf("wait for the messages: %v", err)
	}
	synctest.Wait()
}

// pass lets time pass, and everything that comes with it happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	body   string
}

// call makes a call of the API. Header pairs are name, value.
func (s *stand) call(method, path, body string, headers ...string) reply {
	s.Helper()
	req := httptest.NewRequest(method, "http://qstash.test/", strings.NewReader(body))
	req.RequestURI = path
	if path, query, _ := strings.Cut(path, "?"); !strings.Contains(path, "/publish/") && !strings.Contains(path, "/enqueue/") {
		req.URL.Path, req.URL.RawQuery = path, query
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	s.server.ServeHTTP(recorder, req)
	got := reply{recorder.Code, recorder.Header(), recorder.Body.String()}
	if kind := got.header.Get("Content-Type"); kind != "application/json" && got.status != http.StatusBadGateway {
		s.Errorf("%s %s answers %q: %s", method, path, kind, got.body)
	}
	synctest.Wait()
	return got
}

// into decodes an answer that must have a status.
func (s *stand) into(got reply, status int, v any) {
	s.Helper()
	if got.status != status {
		s.Fatalf("status %d, want %d: %s", got.status, status, got.body)
	}
	if err := json.Unmarshal([]byte(got.body), v); err != nil {
		s.Fatalf("decode %s: %v", got.body, err)
	}
}

// publish publishes to the receiver and returns the message's id.
func (s *stand) publish(body string, headers ...string) string {
	s.Helper()
	return s.id(s.call(http.MethodPost, "/v2/publish/"+target, body, headers...))
}

// enqueue is publish into a queue.
func (s *stand) enqueue(queue, body string, headers ...string) string {
	s.Helper()
	return s.id(s.call(http.MethodPost, "/v2/enqueue/"+queue+"/"+target, body, headers...))
}

func (s *stand) id(got reply) string {
	s.Helper()
	var accepted struct {
		MessageID string `json:"messageId"`
	}
	s.into(got, http.StatusOK, &accepted)
	if accepted.MessageID == "" {
		s.Fatalf("no message id: %s", got.body)
	}
	return accepted.MessageID
}

// refused fails unless a call was refused with a status and a text.
func (s *stand) refused(got reply, status int, text string) {
	s.Helper()
	var body struct {
		Error string `json:"error"`
	}
	s.into(got, status, &body)
	if !strings.Contains(body.Error, text) {
		s.Errorf("error %q, want %q", body.Error, text)
	}
}

// dead is an entry of the DLQ.
type dead struct {
	MessageID      string `json:"messageId"`
	DLQID          string `json:"dlqId"`
	URL            string `json:"url"`
	Body           string `json:"body"`
	BodyBase64     string `json:"bodyBase64"`
	QueueName      string `json:"queueName"`
	ResponseStatus int    `json:"responseStatus"`
	ResponseBody   string `json:"responseBody"`
}

// deadLetters lists the DLQ.
func (s *stand) deadLetters(query string) (entries []dead, cursor string) {
	s.Helper()
	var page struct {
		Messages []dead
		Cursor   string
	}
	s.into(s.call(http.MethodGet, "/v2/dlq"+query, ""), http.StatusOK, &page)
	return page.Messages, page.Cursor
}
