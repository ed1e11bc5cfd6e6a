package verify_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
	"github.com/gantry-hooks/gantry/webhook/verify"
)

// TestBehindQStash lets a server that imitates QStash, and knows nothing of this
// package, deliver with its faults: duplicates, attempts side by side, answers
// that are not seen, signatures that do not count.
func TestBehindQStash(t *testing.T) {
	const refused = "401 401 401 401"
	for name, test := range map[string]struct {
		faults   []compat.Fault
		statuses string // of the handler, in order; then 200
		runs     int
		attempts string
		told     string
	}{
		"plain":                {runs: 1, attempts: "200"},
		"fails twice":          {statuses: "500 503", runs: 3, attempts: "500 503 200", told: "released released"},
		"can never succeed":    {statuses: "489", runs: 1, attempts: "489", told: "released"},
		"fails for ever":       {statuses: "500 500 500 500", runs: 4, attempts: "500 500 500 500", told: "released released released released"},
		"delivered twice":      {faults: []compat.Fault{{Kind: compat.FaultDuplicate, Times: 1}}, runs: 1, attempts: "200", told: "duplicate"},
		"signed with next":     {faults: []compat.Fault{{Kind: compat.FaultSignNext, Times: 1}}, runs: 1, attempts: "200", told: "rotation_due"},
		"hash without padding": {faults: []compat.Fault{{Kind: compat.FaultUnpaddedHash, Times: 1}}, runs: 1, attempts: "200"},
		"unknown key":          {faults: []compat.Fault{{Kind: compat.FaultUnknownKey}}, attempts: refused, told: told4("unknown_key")},
		"expired":              {faults: []compat.Fault{{Kind: compat.FaultExpired}}, attempts: refused, told: told4("expired")},
		"not yet valid":        {faults: []compat.Fault{{Kind: compat.FaultFutureNBF}}, attempts: refused, told: told4("not_yet_valid")},
		"for another URL":      {faults: []compat.Fault{{Kind: compat.FaultWrongSubject}}, attempts: refused, told: told4("wrong_url")},
		"unknown key for once": {faults: []compat.Fault{{Kind: compat.FaultUnknownKey, Times: 1}}, runs: 1, attempts: "401 200", told: "refused:unknown_key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRelay(t, test.statuses)
			if err := s.server.Inject(test.faults...); err != nil {
				t.Fatalf("inject: %v", err)
			}
			s.publish(`{"b":1, "a":2}`)
			if diff := cmp.Diff([]any{test.runs, test.attempts, test.told}, []any{s.endpoint.runs(), s.attempts(), s.told.take()}); diff != "" {
				t.Errorf("runs, attempts and events differ (-want +got):\n%s", diff)
			}
		})
	}
}

func told4(reason string) string {
	one := "refused:" + reason
	return strings.Join([]string{one, one, one, one}, " ")
}

// TestSideBySide has QStash make each attempt twice at the same time.
func TestSideBySide(t *testing.T) {
	s := newRelay(t, "")
	if err := s.server.Inject(compat.Fault{Kind: compat.FaultConcurrent}); err != nil {
		t.Fatalf("inject: %v", err)
	}
	for range 10 {
		s.publish(`{}`)
	}
	if s.endpoint.runs() != 10 {
		t.Errorf("%d runs of 10 messages: %s", s.endpoint.runs(), s.attempts())
	}
}

// relay is an imitated QStash in front of a receiver.
type relay struct {
	*testing.T
	server   *compat.Server
	endpoint *endpoint
	told     *events
	url      string

	mu       sync.Mutex
	statuses []string
	made     []string
}

func newRelay(t *testing.T, statuses string) *relay {
	s := &relay{T: t, told: &events{}, statuses: strings.Fields(statuses)}
	s.endpoint = &endpoint{t: t, answer: func(w http.ResponseWriter, _ *http.Request) {
		if status := s.next(); status == "489" {
			w.Header().Set("Upstash-NonRetryable-Error", "true")
			w.WriteHeader(489)
		} else if status != "" {
			w.WriteHeader(map[string]int{"500": 500, "503": 503}[status])
		}
	}}
	var guard atomic.Pointer[http.Handler]
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*guard.Load()).ServeHTTP(w, r) }))
	s.url = receiver.URL + "/in?a=1&b=%2F"
	scheme := verify.QStash(verify.QStashConfig{Keys: qstashKeys(t, currentKey, nextKey), BaseURL: receiver.URL})
	h := guarded(t, s.endpoint, verify.Config{
		Schemes: []verify.Scheme{scheme}, Store: verify.NewMemory(verify.MemoryConfig{}), Notify: s.told.add,
	})
	guard.Store(&h)
	server, err := compat.New(compat.Config{
		Token: qstash.DevToken, Keys: compat.Keys{Current: currentKey, Next: nextKey}, Speed: 1e7,
		OnAttempt: func(a compat.Attempt) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.made = append(s.made, strconv.Itoa(a.Status))
		},
	})
	if err != nil {
		t.Fatalf("imitate QStash: %v", err)
	}
	s.server = server
	t.Cleanup(func() {
		server.Close()
		receiver.Close()
	})
	return s
}

func (s *relay) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.statuses) == 0 {
		return ""
	}
	first := s.statuses[0]
	s.statuses = s.statuses[1:]
	return first
}

// publish hands a message over and waits until it is settled.
func (s *relay) publish(body string) {
	s.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v2/publish/"+s.url, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+qstash.DevToken)
	if w := serve(s.server, r); w.Code > 299 {
		s.Fatalf("publish: status %d, %s", w.Code, w.Body)
	}
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	if err := s.server.Settle(ctx); err != nil {
		s.Fatalf("wait for the message: %v", err)
	}
}

func (s *relay) attempts() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.made, " ")
}
