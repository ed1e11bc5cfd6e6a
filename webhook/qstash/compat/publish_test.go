package compat_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
)

// message is a message as the API shows it.
type message struct {
	MessageID  string      `json:"messageId"`
	URL        string      `json:"url"`
	Method     string      `json:"method"`
	Header     http.Header `json:"header"`
	QueueName  string      `json:"queueName"`
	TopicName  string      `json:"topicName"`
	MaxRetries int         `json:"maxRetries"`
	Labels     []string    `json:"labels"`
	NotBefore  int64       `json:"notBefore"`
	CreatedAt  int64       `json:"createdAt"`
}

func (s *stand) message(id string) (m message) {
	s.Helper()
	s.into(s.call(http.MethodGet, "/v2/messages/"+id, ""), http.StatusOK, &m)
	return m
}

// TestDestinations publishes and looks at what was kept.
func TestDestinations(t *testing.T) {
	for name, test := range map[string]struct{ path, url, queue string }{
		"plain":                    {"/v2/publish/http://h.test/p", "http://h.test/p", ""},
		"https, no path":           {"/v2/publish/https://h.test", "https://h.test", ""},
		"upper-case scheme":        {"/v2/publish/HTTPS://H.test/P", "HTTPS://H.test/P", ""},
		"query":                    {"/v2/publish/http://h.test/p?a=1&b=%2F", "http://h.test/p?a=1&b=%2F", ""},
		"escapes stay":             {"/v2/publish/http://h.test/a%2Fb%20c/%C3%A9?x=%41+b", "http://h.test/a%2Fb%20c/%C3%A9?x=%41+b", ""},
		"double slashes stay":      {"/v2/publish/http://h.test//a//b/", "http://h.test//a//b/", ""},
		"dots stay":                {"/v2/publish/http://h.test/a/../b/./c", "http://h.test/a/../b/./c", ""},
		"an empty query stays":     {"/v2/publish/http://h.test/p?", "http://h.test/p?", ""},
		"several question marks":   {"/v2/publish/http://h.test/p?a=?&b", "http://h.test/p?a=?&b", ""},
		"options leave":            {"/v2/publish/http://h.test/p?a=1&upstash-retries=7&b=2", "http://h.test/p?a=1&b=2", ""},
		"options in any case":      {"/v2/publish/http://h.test/p?UpStash-Retries=7", "http://h.test/p", ""},
		"escaped option names":     {"/v2/publish/http://h.test/p?upstash%2Dretries=7&c", "http://h.test/p?c", ""},
		"the token leaves":         {"/v2/publish/http://h.test/p?qstash_token=" + token + "&a", "http://h.test/p?a", ""},
		"encoded as a whole":       {"/v2/publish/https%3A%2F%2Fh.test%2Fp%3Fa%3D1", "https://h.test/p?a=1", ""},
		"encoded, lower case":      {"/v2/publish/http%3a%2f%2fh.test%2fp", "http://h.test/p", ""},
		"encoded, query after":     {"/v2/publish/http%3A%2F%2Fh.test%2Fp?a=1", "http://h.test/p?a=1", ""},
		"encoded, two queries":     {"/v2/publish/http%3A%2F%2Fh.test%2Fp%3Fa=1?b=2", "http://h.test/p?a=1&b=2", ""},
		"a URL in the destination": {"/v2/publish/http://h.test/?to=http://k.test/", "http://h.test/?to=http://k.test/", ""},
		"absolute form":            {"http://qstash.test/v2/publish/http://h.test/p?a=1", "http://h.test/p?a=1", ""},
		"queue":                    {"/v2/enqueue/q.1-a_b/http://h.test/p?a=1&b=%2F", "http://h.test/p?a=1&b=%2F", "q.1-a_b"},
		"queue, encoded":           {"/v2/enqueue/q/http%3A%2F%2Fh.test%2Fp", "http://h.test/p", "q"},
		"user and port":            {"/v2/publish/http://u:p@h.test:8080/p", "http://u:p@h.test:8080/p", ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stand) {
				m := s.message(s.id(s.call(http.MethodPost, test.path, "x", "Upstash-Delay", "1h")))
				if m.URL != test.url || m.QueueName != test.queue {
					t.Errorf("kept %q in queue %q, want %q in %q", m.URL, m.QueueName, test.url, test.queue)
				}
				if strings.Contains(strings.ToLower(test.path), "retries=7") != (m.MaxRetries == 7) {
					t.Errorf("%d retries", m.MaxRetries)
				}
			})
		})
	}
}

func TestOptions(t *testing.T) {
	inBubble(t, func(s *stand) {
		start := time.Now()
		id := s.id(s.call(http.MethodPost, "/v2/publish/http://h.test/?upstash-retries=9&upstash-delay=60s&upstash-forward-x-query=q", "x",
			"Upstash-Retries", "2", "Upstash-Label", "a, b,,", "Upstash-Method", "DELETE", "Upstash-Header-Forward", "true", "X-Mine", "m"))
		want := message{
			MessageID: id, URL: "http://h.test/", Method: "DELETE", MaxRetries: 2, Labels: []string{"a", "b"},
			Header:    http.Header{"X-Mine": {"m"}, "X-Query": {"q"}},
			CreatedAt: start.UnixMilli(), NotBefore: start.Add(time.Minute).UnixMilli(),
		}
		if diff := cmp.Diff(want, s.message(id)); diff != "" {
			t.Errorf("the message differs (-want +got):\n%s", diff)
		}
	})
}

func TestRefusals(t *testing.T) {
	const publish = "/v2/publish/"
	long := "1" + strings.Repeat("+1", 300)
	deep := strings.Repeat("(", 60) + "1" + strings.Repeat(")", 60)
	for name, test := range map[string]struct {
		path    string
		headers []string
		status  int
		text    string
	}{
		"scheme":                {publish + "ftp://h.test/", nil, 400, "endpoint has invalid scheme, add http:// or https://"},
		"no scheme":             {publish + "h.test/path", nil, 400, "endpoint has invalid scheme, add http:// or https://"},
		"no host":               {publish + "http:///x", nil, 400, "no host"},
		"bad host":              {publish + "http://[::1/x", nil, 400, "invalid destination url"},
		"bad escape":            {publish + "http%3A%2F%2Fh.test%2", nil, 400, "invalid destination url"},
		"no destination":        {publish, nil, 400, "invalid scheme"},
		"not UTF-8":             {publish + "http://h.test/\xff", nil, 400, "not UTF-8"},
		"no such group":         {publish + "group", nil, 404, "no URL group"},
		"an API of theirs":      {publish + "api/llm", nil, 400, "invalid scheme"},
		"queue name":            {"/v2/enqueue/a b/http://h.test/", nil, 400, "queue name"},
		"no queue name":         {"/v2/enqueue//http://h.test/", nil, 400, "queue name"},
		"colon":                 {publish + target, []string{"Upstash-Deduplication-Id", "a:b"}, 400, "DeduplicationId cannot contain ':'"},
		"retries":               {publish + target, []string{"Upstash-Retries", "-1"}, 400, "Upstash-Retries"},
		"many retries":          {publish + target, []string{"Upstash-Retries", "1000"}, 400, "Upstash-Retries"},
		"retries as a word":     {publish + target, []string{"Upstash-Retries", "many"}, 400, "Upstash-Retries"},
		"method":                {publish + target, []string{"Upstash-Method", "TRACE"}, 400, "method"},
		"delay":                 {publish + target, []string{"Upstash-Delay", "10"}, 400, "Upstash-Delay"},
		"delay, no number":      {publish + target, []string{"Upstash-Delay", "s"}, 400, "Upstash-Delay"},
		"delay, unit":           {publish + target, []string{"Upstash-Delay", "1w"}, 400, "Upstash-Delay"},
		"delay, too long":       {publish + target, []string{"Upstash-Delay", "99999d"}, 400, "Upstash-Delay"},
		"delay, long sum":       {publish + target, []string{"Upstash-Delay", "366d366d"}, 400, "Upstash-Delay"},
		"delay, overflow":       {publish + target, []string{"Upstash-Delay", "99999999999999999999s"}, 400, "Upstash-Delay"},
		"timeout":               {publish + target, []string{"Upstash-Timeout", "soon"}, 400, "Upstash-Timeout"},
		"not before":            {publish + target, []string{"Upstash-Not-Before", "tomorrow"}, 400, "Upstash-Not-Before"},
		"not before, too late":  {publish + target, []string{"Upstash-Not-Before", "9999999999999999"}, 400, "Upstash-Not-Before"},
		"callback":              {publish + target, []string{"Upstash-Callback", "h.test"}, 400, "Upstash-Callback"},
		"failure callback":      {publish + target, []string{"Upstash-Failure-Callback", "h.test"}, 400, "Upstash-Failure-Callback"},
		"option of a callback":  {publish + target, []string{"Upstash-Callback", target, "Upstash-Callback-Retries", "x"}, 400, "Retries"},
		"flow key alone":        {publish + target, []string{"Upstash-Flow-Control-Key", "k"}, 400, "go together"},
		"flow value alone":      {publish + target, []string{"Upstash-Flow-Control-Value", "rate=1"}, 400, "go together"},
		"flow of nothing":       {publish + target, []string{"Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "period=1s"}, 400, "needs"},
		"flow, unknown":         {publish + target, []string{"Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "speed=1"}, 400, "speed"},
		"flow, zero":            {publish + target, []string{"Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "rate=0"}, 400, "rate"},
		"flow, period":          {publish + target, []string{"Upstash-Flow-Control-Key", "k", "Upstash-Flow-Control-Value", "rate=1,period=0s"}, 400, "period"},
		"expression":            {publish + target, []string{"Upstash-Retry-Delay", "1 +"}, 400, "ends too early"},
		"expression, rest":      {publish + target, []string{"Upstash-Retry-Delay", "1 2"}, 400, "unexpected"},
		"expression, character": {publish + target, []string{"Upstash-Retry-Delay", "$"}, 400, "unexpected"},
		"expression, open":      {publish + target, []string{"Upstash-Retry-Delay", "(1"}, 400, "not closed"},
		"expression, name":      {publish + target, []string{"Upstash-Retry-Delay", "sin(1)"}, 400, "unknown name"},
		"expression, variable":  {publish + target, []string{"Upstash-Retry-Delay", "attempt"}, 400, "unknown name"},
		"expression, no values": {publish + target, []string{"Upstash-Retry-Delay", "abs 1"}, 400, "parentheses"},
		"expression, few":       {publish + target, []string{"Upstash-Retry-Delay", "pow(1)"}, 400, "wrong number"},
		"expression, many":      {publish + target, []string{"Upstash-Retry-Delay", "abs(1, 2)"}, 400, "wrong number"},
		"expression, number":    {publish + target, []string{"Upstash-Retry-Delay", "1.2.3"}, 400, "no number"},
		"expression, list":      {publish + target, []string{"Upstash-Retry-Delay", "(1, 2)"}, 400, "wrong number"},
		"expression, long":      {publish + target, []string{"Upstash-Retry-Delay", long}, 400, "longer than"},
		"expression, deep":      {publish + target, []string{"Upstash-Retry-Delay", deep}, 400, "deeper than"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *stand) {
				s.refused(s.call(http.MethodPost, test.path, "x", test.headers...), test.status, test.text)
				s.settle()
				if got := len(s.seen()); got != 0 {
					t.Errorf("%d requests of a refused message", got)
				}
			})
		})
	}
}

// TestUnknownCalls says what answers to everything that is no endpoint.
func TestUnknownCalls(t *testing.T) {
	for call, want := range map[string]int{
		"GET /":                           404,
		"GET /v2":                         404,
		"GET /v3/keys":                    404,
		"GET /v2/nothing":                 404,
		"GET /v2/keys/other":              404,
		"POST /v2/batch/x":                404,
		"GET //v2/keys":                   404,
		"POST //v2/publish/http://h.test": 404,
		"GET /v2/queues/q/pause/x":        404,
		"POST /v2/queues/q/stop":          404,
		"GET /v2/messages/a/b":            404,
		"GET /v2/dlq/a/b":                 404,
		"POST /v2/dlq/retry/a/b":          404,
		"GET /v2/topics/a/b":              404,
		"GET /v2/flowControl/a/b":         404,
		"GET /v2/publish/http://h.test/":  405,
		"GET /v2/batch":                   405,
		"POST /v2/events":                 405,
		"DELETE /v2/keys":                 405,
		"GET /v2/keys/rotate":             405,
		"GET /v2/rotate":                  405,
		"GET /v2/messages":                405,
		"PUT /v2/messages/a":              405,
		"PUT /v2/queues":                  405,
		"PUT /v2/queues/q":                405,
		"GET /v2/queues/q/pause":          405,
		"POST /v2/dlq":                    405,
		"PUT /v2/dlq/a":                   405,
		"GET /v2/dlq/retry":               405,
		"POST /v2/topics":                 405,
		"PUT /v2/topics/a":                405,
		"GET /v2/topics/a/endpoints":      405,
		"PUT /_faults":                    405,
		"GET /v2/schedules":               501,
		"POST /v2/flowControl/k/pause":    501,
		"GET /v2/messages/":               400,
		"DELETE /v2/messages/":            400,
		"GET /v2/dlq/":                    400,
		"DELETE /v2/dlq/":                 400,
		"POST /v2/dlq/retry/":             400,
		"GET /v2/queues/":                 400,
		"DELETE /v2/topics/":              400,
		"GET /v2/messages/msg_none":       404,
		"DELETE /v2/messages/msg_none":    404,
		"GET /v2/dlq/1-0":                 404,
		"DELETE /v2/dlq/1-0":              404,
		"POST /v2/dlq/retry/1-0":          404,
		"GET /v2/queues/none":             404,
		"POST /v2/queues/none/pause":      404,
		"GET /v2/topics/none":             404,
		"DELETE /v2/topics/none":          404,
		"GET /v2/flowControl/none":        404,
	} {
		t.Run(call, func(t *testing.T) {
			inBubble(t, func(s *stand) {
				method, path, _ := strings.Cut(call, " ")
				s.refused(s.call(method, path, ""), want, "")
			})
		})
	}
}

func TestToken(t *testing.T) {
	inBubble(t, func(s *stand) {
		for name, authorization := range map[string]string{
			"wrong": "Bearer other", "none": "", "another scheme": "Basic " + token, "empty": "Bearer ", "longer": "Bearer " + token + "x",
		} {
			for _, path := range []string{"/v2/publish/" + target, "/v2/keys", "/_faults", "/nothing"} {
				got := s.call(http.MethodPost, path, "x", "Authorization", authorization)
				if want := "{\"error\":\"unable to authenticate: invalid token\"}\n"; got.status != 401 || got.body != want {
					t.Errorf("%s token at %s: status %d, body %s", name, path, got.status, got.body)
				}
			}
		}
		got := s.call(http.MethodGet, "/v2/keys?qstash_token="+token, "", "Authorization", "")
		if got.status != http.StatusOK {
			t.Errorf("the token as a parameter: status %d", got.status)
		}
		got = s.call(http.MethodPost, "/v2/publish/"+target+"&qstash_token=other", "x", "Authorization", "")
		if got.status != http.StatusUnauthorized {
			t.Errorf("a wrong token as a parameter: status %d", got.status)
		}
	})
}

func TestBodyLimit(t *testing.T) {
	inBubbleWith(t, compat.Config{MaxBodyBytes: 64}, func(s *stand) {
		s.publish(strings.Repeat("x", 64))
		s.refused(s.call(http.MethodPost, "/v2/publish/"+target, strings.Repeat("x", 65)), 413, "larger than 64")
		item := func(n int) string { return `{"destination":"http://h.test/","body":"` + strings.Repeat("x", n) + `"}` }
		var results []map[string]string
		s.into(s.call(http.MethodPost, "/v2/batch", "["+item(64)+","+item(65)+"]"), 200, &results)
		if results[0]["messageId"] == "" || !strings.Contains(results[1]["error"], "larger than 64") {
			t.Errorf("results %v", results)
		}
		s.refused(s.call(http.MethodPost, "/v2/batch", strings.Repeat(" ", 6401)), 413, "larger")
	})
}

func TestBatch(t *testing.T) {
	inBubble(t, func(s *stand) {
		s.call(http.MethodPost, "/v2/topics/both/endpoints", `{"endpoints":[{"url":"http://a.test/"},{"url":"http://b.test/","name":"b"}]}`)
		var results []json.RawMessage
		s.into(s.call(http.MethodPost, "/v2/batch", `[
			{"destination":"http://h.test/1?b=%2F","headers":{"uPsTaSh-retries":"7","content-type":"text/one","UPSTASH-FORWARD-x-a":"1"},"body":"one","queue":""},
			{"destination":"ftp://h.test/","body":"two"},
			{"destination":"http://h.test/3","headers":{"Upstash-Forward-X-B":["2","3"]},"body":"three","queue":"q"},
			{"destination":5},
			{"destination":"both","body":"five"},
			{"destination":"http://h.test/6","headers":{"upstash-deduplication-id":"a:b"}},
			{"destination":"http://h.test/7","headers":{"upstash-deduplication-id":"same"}},
			{"destination":"http://h.test/8","headers":{"upstash-deduplication-id":"same"}}
		]`), 200, &results)
		s.settle()
		if len(results) != 8 {
			t.Fatalf("%d results, want 8", len(results))
		}
		for i, want := range []string{
			`{"messageId":"msg_`, `{"error":"invalid destination url: endpoint has invalid scheme`, `{"messageId":"msg_`,
			`{"error":"invalid item`, `[{"messageId":"msg_`, `{"error":"DeduplicationId cannot`, `{"messageId":"msg_`, `{"messageId":"msg_`,
		} {
			if got := string(results[i]); !strings.HasPrefix(got, want) {
				t.Errorf("result %d is %s, want %s…", i, got, want)
			}
		}
		if !strings.Contains(string(results[7]), `"deduplicated":true`) {
			t.Errorf("the duplicate is not told: %s", results[7])
		}
		got := map[string]string{}
		for _, r := range s.seen() {
			got[r.URL] = strings.Join([]string{r.Body, r.Header.Get("Content-Type"), r.Header.Get("X-A"), strings.Join(r.Header["X-B"], "+"), r.Header.Get("Upstash-Topic-Name")}, "|")
		}
		want := map[string]string{
			"http://h.test/1?b=%2F": "one|text/one|1||", "http://h.test/3": "three|||2+3|", "http://a.test/": "five||||both",
			"http://b.test/": "five||||both", "http://h.test/7": "||||",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the requests differ (-want +got):\n%s", diff)
		}
		s.refused(s.call(http.MethodPost, "/v2/batch", `{"destination":"http://h.test/"}`), 400, "invalid batch")
		s.into(s.call(http.MethodPost, "/v2/batch", `[]`), 200, &results)
	})
}

func TestDeduplication(t *testing.T) {
	inBubble(t, func(s *stand) {
		again := func(body string, headers ...string) (id string, duplicate bool) {
			t.Helper()
			got := s.call(http.MethodPost, "/v2/publish/"+target, body, headers...)
			var accepted struct {
				MessageID    string
				Deduplicated bool
			}
			s.into(reply{status: 0, body: got.body}, 0, &accepted)
			if want := map[bool]int{true: 202, false: 200}[accepted.Deduplicated]; got.status != want {
				t.Errorf("status %d, want %d", got.status, want)
			}
			return accepted.MessageID, accepted.Deduplicated
		}
		first, _ := again("x", "Upstash-Deduplication-Id", "one")
		pass(10*time.Minute - time.Second)
		if id, duplicate := again("other", "Upstash-Deduplication-Id", "one"); !duplicate || id != first {
			t.Errorf("within the window: %s, %t, want %s", id, duplicate, first)
		}
		if _, duplicate := again("x", "Upstash-Deduplication-Id", "two"); duplicate {
			t.Errorf("another id is a duplicate")
		}
		pass(2 * time.Second)
		if id, duplicate := again("x", "Upstash-Deduplication-Id", "one"); duplicate || id == first {
			t.Errorf("after the window: %s, %t", id, duplicate)
		}

		content := []string{"Upstash-Content-Based-Deduplication", "true", "Upstash-Forward-X-A", "1", "Content-Type", "text/plain"}
		first, _ = again("same", content...)
		if id, duplicate := again("same", append(content, "Upstash-Retries", "9")...); !duplicate || id != first {
			t.Errorf("the same content is new")
		}
		for name, changed := range map[string][]string{
			"body":   append([]string{"other"}, content...),
			"header": append([]string{"same"}, append(content, "Upstash-Forward-X-A", "2")...),
			"type":   append([]string{"same"}, append(content, "Content-Type", "text/other")...),
		} {
			if _, duplicate := again(changed[0], changed[1:]...); duplicate {
				t.Errorf("another %s is a duplicate", name)
			}
		}
		s.settle()
		if got := len(s.seen()); got != 7 {
			t.Errorf("%d deliveries, want 7", got)
		}
	})
}

func TestURLGroup(t *testing.T) {
	inBubble(t, func(s *stand) {
		add := func(body string) { s.into(s.call(http.MethodPost, "/v2/topics/g/endpoints", body), 200, &struct{}{}) }
		add(`{"endpoints":[{"url":"http://a.test/","name":"a"},{"url":"http://b.test/"}]}`)
		add(`{"endpoints":[{"url":"http://a2.test/","name":"a"},{"url":"http://c.test/"}]}`)
		s.refused(s.call(http.MethodPost, "/v2/topics/g/endpoints", `{"endpoints":[{"url":"a.test"}]}`), 400, "scheme")
		var results []struct{ MessageID, URL string }
		s.into(s.call(http.MethodPost, "/v2/publish/g", "x", "Upstash-Deduplication-Id", "d"), 200, &results)
		s.into(s.call(http.MethodPost, "/v2/publish/g", "x", "Upstash-Deduplication-Id", "d"), 202, &results)
		s.into(s.call(http.MethodPost, "/v2/enqueue/q/g", "y"), 200, &results)
		s.settle()
		var urls []string
		for _, r := range results {
			urls = append(urls, r.URL)
		}
		if diff := cmp.Diff([]string{"http://b.test/", "http://a2.test/", "http://c.test/"}, urls); diff != "" {
			t.Errorf("the endpoints differ (-want +got):\n%s", diff)
		}
		if got := len(s.seen()); got != 6 {
			t.Errorf("%d deliveries, want 6", got)
		}
		if got := s.seen()[0].Header.Get("Upstash-Topic-Name"); got != "g" {
			t.Errorf("topic name %q", got)
		}
		remove := s.call(http.MethodDelete, "/v2/topics/g/endpoints", `{"endpoints":[{"name":"a"},{"url":"http://b.test/"},{"url":"http://c.test/"}]}`)
		s.into(remove, 200, &struct{}{})
		s.refused(s.call(http.MethodPost, "/v2/publish/g", "x"), 400, "no endpoints")
		s.refused(s.call(http.MethodDelete, "/v2/topics/none/endpoints", `{"endpoints":[]}`), 404, "none")
		s.refused(s.call(http.MethodPost, "/v2/topics/g/endpoints", `?`), 400, "invalid body")
		var group struct {
			Name      string
			Endpoints []any
		}
		s.into(s.call(http.MethodGet, "/v2/topics/g", ""), 200, &group)
		var groups []struct{ Name string }
		s.into(s.call(http.MethodGet, "/v2/topics", ""), 200, &groups)
		if group.Name != "g" || len(group.Endpoints) != 0 || len(groups) != 1 {
			t.Errorf("group %+v of %+v", group, groups)
		}
		s.into(s.call(http.MethodDelete, "/v2/topics/g", ""), 200, &struct{}{})
		s.refused(s.call(http.MethodPost, "/v2/publish/g", "x"), 404, "no URL group")
	})
}

// FuzzDestination publishes to anything: the server never fails, and keeps a URL
// that has nothing of QStash's own in it byte for byte.
func FuzzDestination(f *testing.F) {
	for _, seed := range []string{
		"http://h.test/a?b=%2F&c", "https%3A%2F%2Fh.test%2F", "http://h.test/?upstash-retries=1&qstash_token=x", "?", "%zz", "group", "http://h.test/??&&",
		"http://h.test/\x8a\xfb",
	} {
		f.Add(seed)
	}
	server := fuzzServer(f)
	f.Fuzz(func(t *testing.T, destination string) {
		id, code := publishWith(t, server, "/v2/publish/"+destination, http.Header{"Upstash-Delay": {"300d"}})
		if code >= 500 {
			t.Fatalf("status %d", code)
		}
		if id == "" {
			return
		}
		defer authorized(server, http.MethodDelete, "/v2/messages/"+id, "")
		var kept message
		if err := json.Unmarshal(authorized(server, http.MethodGet, "/v2/messages/"+id, "").Body.Bytes(), &kept); err != nil {
			t.Fatalf("decode: %v", err)
		}
		lower := strings.ToLower(destination)
		own := strings.Contains(lower, "upstash") || strings.Contains(lower, "qstash") || strings.Contains(lower, "%")
		if !own && kept.URL != destination {
			t.Errorf("kept %q of %q", kept.URL, destination)
		}
	})
}

// FuzzRetryDelay retries after anything: the server never fails, and what it
// takes leads to the second attempt.
func FuzzRetryDelay(f *testing.F) {
	for _, seed := range []string{"1000", "pow(2, retried) * 1000", "min(max(1,2),3)/0", "((1))", "-+-1", "sqrt(-1)", "exp(exp(exp(9)))", "1..2"} {
		f.Add(seed)
	}
	var attempts atomic.Int32
	server, err := compat.New(compat.Config{
		Token: token, Keys: compat.Keys{Current: current, Next: next}, Egress: failing{}, Speed: 1e18,
		OnAttempt: func(compat.Attempt) { attempts.Add(1) },
	})
	if err != nil {
		f.Fatalf("make the server: %v", err)
	}
	f.Cleanup(server.Close)
	f.Fuzz(func(t *testing.T, expression string) {
		attempts.Store(0)
		id, code := publishWith(t, server, "/v2/publish/http://h.test/", http.Header{
			"Upstash-Retry-Delay": {expression}, "Upstash-Retries": {"1"},
		})
		if code != 200 && code != 400 {
			t.Fatalf("status %d", code)
		}
		if err := server.Settle(t.Context()); err != nil {
			t.Fatalf("wait for the message: %v", err)
		}
		if got := attempts.Load(); (id != "") != (got == 2) {
			t.Errorf("%d attempts of message %q", got, id)
		}
	})
}

// failing is a network behind which every receiver fails.
type failing struct{}

func (failing) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusInternalServerError, Body: http.NoBody}, nil
}

func fuzzServer(f *testing.F) *compat.Server {
	server, err := compat.New(compat.Config{Token: token, Keys: compat.Keys{Current: current, Next: next}})
	if err != nil {
		f.Fatalf("make the server: %v", err)
	}
	f.Cleanup(server.Close)
	return server
}

// publishWith publishes; the id is "" if it was refused.
func publishWith(t *testing.T, server http.Handler, path string, header http.Header) (id string, code int) {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
	req.RequestURI = path
	req.Header = header
	req.Header.Set("Authorization", "Bearer "+token)
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, req)
	var accepted struct{ MessageID string }
	if recorder.Code == http.StatusOK {
		if err := json.Unmarshal(recorder.Body.Bytes(), &accepted); err != nil || accepted.MessageID == "" {
			t.Fatalf("answer %q: %v", recorder.Body, err)
		}
	}
	return accepted.MessageID, recorder.Code
}

func authorized(server http.Handler, method, path, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+token)
	recorder := httptest.NewRecorder()
	server.ServeHTTP(recorder, req)
	return recorder
}
