package webhook_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

const limit = webhook.MaxReplyBytes

// question asks a control at url with a secret header; edit changes its webhook.
func question(url string, edit func(*tasks.Webhook)) webhook.ControlRequest {
	w := &tasks.Webhook{
		URL: url, ResponseHandling: tasks.HandleToolCall,
		Headers: map[string]string{"X-API-key": "Bearer ${HOOK_TOKEN}"}, AllowedEnvVars: []string{"HOOK_TOKEN"},
	}
	if edit != nil {
		edit(w)
	}
	return webhook.ControlRequest{
		Hook: &tasks.Hook{ID: "h1", Type: tasks.BeforeToolCall, Webhook: w}, Type: tasks.BeforeToolCall,
		Event: json.RawMessage(`{"content":"` + secretEvent + `"}`), ID: "msg_1", QuestionID: "question1", OperationID: "op1",
		Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func within(seconds float64) func(*tasks.Webhook) {
	return func(w *tasks.Webhook) { w.Timeout = seconds }
}

// checkReply compares all but the time.
func checkReply(t *testing.T, want, got webhook.ControlReply) {
	t.Helper()
	checkText(t, got.Message)
	if got.Elapsed < 0 {
		t.Errorf("elapsed %v", got.Elapsed)
	}
	got.Elapsed = 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reply differs (-want +got):\n%s", diff)
	}
}

func refused(class tasks.FailureClass, status int, message string) webhook.ControlReply {
	return webhook.ControlReply{Class: class, Status: status, Message: "Hook HTTP request failed: " + message}
}

// A control is asked with the very request of a notification.
func TestAskSendsWhatDeliverSends(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"decision":"deny"}`) })
	now := time.Unix(1700000000, 0)
	d := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Now = func() time.Time { return now }
		cfg.Env = environment(map[string]string{"HOOK_TOKEN": secretHeader, "HOOK_KEY": secretKey, "APP_URL": r.URL})
	})
	ask := question("/a?b=c", nil)
	ask.Hook.Options = &tasks.HookOptions{SigningKeyEnv: "HOOK_KEY"}
	checkReply(t, webhook.ControlReply{Status: 200, Body: []byte(`{"decision":"deny"}`)}, d.Ask(t.Context(), ask))
	notification := *ask.Hook.Webhook
	notification.ResponseHandling = ""
	result := d.Deliver(t.Context(), webhook.Delivery{
		Hook: &tasks.Hook{ID: "h1", Type: ask.Type, Webhook: &notification, Options: ask.Hook.Options}, Type: ask.Type,
		Event: ask.Event, ID: ask.ID, TaskID: ask.QuestionID, OperationID: ask.OperationID, Attempt: 1, Trace: ask.Trace,
	})
	if !result.Delivered {
		t.Fatalf("deliver: %+v", result)
	}
	seen := r.requests()
	want, got := seen[1], seen[0]
	want.header["Gantry-Question-Id"], want.header["Accept-Encoding"] = want.header["Gantry-Task-Id"], []string{"gzip"}
	delete(want.header, "Gantry-Task-Id")
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(received{})); diff != "" {
		t.Fatalf("request differs (-want +got):\n%s", diff)
	}
	if len(got.header["Webhook-Signature"]) != 1 || got.header.Get("X-Api-Key") != "Bearer "+secretHeader {
		t.Errorf("headers: %v", got.header)
	}
}

func TestAskKeepsTheHooksOwnEncoding(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	checkReply(t, webhook.ControlReply{Status: 200, Body: []byte{}}, newDeliverer(t, nil).Ask(t.Context(), question(r.URL, func(w *tasks.Webhook) {
		w.Headers = map[string]string{"accept-encoding": "identity"}
	})))
	if got := r.only(t).header["Accept-Encoding"]; !cmp.Equal(got, []string{"identity"}) {
		t.Errorf("Accept-Encoding: %q", got)
	}
}

func TestAskRefusesBeforeSending(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	configured := func(detail string) webhook.ControlReply {
		return refused(tasks.ClassConfiguration, 0, "configuration ("+detail+")")
	}
	for name, test := range map[string]struct {
		ask  webhook.ControlRequest
		want webhook.ControlReply
	}{
		"no hook":      {webhook.ControlRequest{}, configured("hook has no webhook")},
		"no webhook":   {webhook.ControlRequest{Hook: &tasks.Hook{}}, configured("hook has no webhook")},
		"notification": {question(r.URL, func(w *tasks.Webhook) { w.ResponseHandling = tasks.HandleIgnore }), configured("hook is a notification")},
		"qstash":       {question(r.URL, func(w *tasks.Webhook) { w.Delivery = tasks.DeliverQStash }), configured("a control cannot be queued")},
		"no base":      {question("/x", nil), configured("url is a path, but neither INTERNAL_APP_URL nor APP_URL is set")},
		"variable": {
			question(r.URL, func(w *tasks.Webhook) { w.Headers = map[string]string{"A": "${HOOK_NONE}"} }),
			configured(`header "A": variable "HOOK_NONE" is not available`),
		},
		"own header": {
			question(r.URL, func(w *tasks.Webhook) { w.Headers = map[string]string{"gantry-Question-id": "x"} }),
			configured(`header "gantry-Question-id": set by Gantry`),
		},
		"address": {
			question(strings.Replace(r.URL, "127.0.0.1", "127.1", 1), nil),
			refused(tasks.ClassEgressDenied, 0, "configuration (egress denied: host_spelling)"),
		},
	} {
		d := newDeliverer(t, func(cfg *webhook.Config) {
			if name == "address" {
				cfg.Callers = newEgress(t, egress.Public())
			}
		})
		t.Run(name, func(t *testing.T) { checkReply(t, test.want, d.Ask(t.Context(), test.ask)) })
	}
	if result := newDeliverer(t, nil).Deliver(t.Context(), delivery(r.URL, func(w *tasks.Webhook) { w.ResponseHandling = tasks.HandleToolCall })); result.Class != tasks.ClassConfiguration {
		t.Errorf("a control was delivered: %+v", result)
	}
	broken := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Payloads = payloads{build: func(context.Context, webhook.Delivery) ([]byte, error) { return nil, errors.New(secretEvent) }}
	})
	checkReply(t, configured("payload cannot be built"), broken.Ask(t.Context(), question(r.URL, nil)))
	if n := len(r.requests()); n != 0 {
		t.Errorf("receiver saw %d requests", n)
	}
}

func zipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// sized is a whole reply with a declared length; head may add lines.
func sized(head, body string) string {
	return "HTTP/1.1 200 OK\r\n" + head + "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// chunked is a whole reply without a declared length.
func chunked(head, body string) string {
	return "HTTP/1.1 200 OK\r\n" + head + "Transfer-Encoding: chunked\r\n\r\n" + strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n0\r\n\r\n"
}

const gzipHead = "Content-Encoding: gzip\r\n"

// What follows a reply's head; each server hangs afterwards, so that a reply
// that is refused late ends in a timeout.
func TestAskReadsBodies(t *testing.T) {
	t.Parallel()
	full, over := strings.Repeat("x", limit), strings.Repeat("x", limit+1)
	whole := func(body string) webhook.ControlReply { return webhook.ControlReply{Status: 200, Body: []byte(body)} }
	large := refused(tasks.ClassResponseTooLarge, 200, "response_too_large")
	encoding := refused(tasks.ClassInvalidResponse, 200, "invalid_response (unknown content encoding)")
	broken := refused(tasks.ClassInvalidResponse, 200, "invalid_response (broken content encoding)")
	for name, test := range map[string]struct {
		reply string
		want  webhook.ControlReply
	}{
		"empty":                     {sized("", ""), whole("")},
		"exactly the limit":         {sized("", full), whole(full)},
		"one more":                  {sized("", over), large},
		"one more declared":         {"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n", large},
		"the limit in chunks":       {chunked("", full), whole(full)},
		"one more in chunks":        {chunked("", over), large},
		"more to come":              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n" + over, large},
		"gzip":                      {sized(gzipHead, zipped(t, `{"decision":"deny"}`)), whole(`{"decision":"deny"}`)},
		"x-gzip in chunks":          {chunked("Content-Encoding: X-GZip\r\n", zipped(t, "x")), whole("x")},
		"gzip of nothing":           {sized(gzipHead, zipped(t, "")), whole("")},
		"nothing as gzip":           {sized(gzipHead, ""), whole("")},
		"gzip up to the limit":      {sized(gzipHead, zipped(t, full)), whole(full)},
		"gzip beyond the limit":     {sized(gzipHead, zipped(t, over)), large},
		"two members":               {sized(gzipHead, zipped(t, "a")+zipped(t, "b")), whole("ab")},
		"text behind gzip":          {sized(gzipHead, zipped(t, "a")+"{}"), broken},
		"gzip that is none":         {sized(gzipHead, `{"decision":"allow"}`), broken},
		"half of a gzip":            {sized(gzipHead, zipped(t, `{"decision":"allow"}`)[:20]), broken},
		"endless members":           {sized(gzipHead, strings.Repeat(zipped(t, ""), 50000)), large},
		"identity":                  {sized("Content-Encoding: identity\r\n", "x"), whole("x")},
		"identity and gzip":         {sized("Content-Encoding: identity, gzip\r\n", zipped(t, "x")), whole("x")},
		"no encoding":               {sized("Content-Encoding:\r\n", "x"), whole("x")},
		"unknown encoding":          {sized("Content-Encoding: br\r\n", `{"decision":"allow"}`), encoding},
		"encoded twice":             {sized("Content-Encoding: gzip\r\n"+gzipHead, zipped(t, zipped(t, "x"))), encoding},
		"text in another charset":   {sized("Content-Type: text/plain; charset=latin1\r\n", "\xe9"), whole("\xe9")},
		"204":                       {"HTTP/1.1 204 No Content\r\n\r\n", webhook.ControlReply{Status: 204}},
		"204 with a body":           {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", webhook.ControlReply{Status: 204}},
		"205 with a body":           {"HTTP/1.1 205 Reset\r\nContent-Length: 19\r\n\r\n{\"decision\":\"deny\"}", webhook.ControlReply{Status: 205}},
		"205 with too much":         {"HTTP/1.1 205 Reset\r\nContent-Length: 1000000\r\n\r\n", webhook.ControlReply{Status: 205}},
		"205 that goes on":          {"HTTP/1.1 205 Reset\r\nContent-Length: 50\r\n\r\n{", webhook.ControlReply{Status: 205}},
		"a failure that says allow": {strings.Replace(sized("", `{"decision":"allow"}`), "200 OK", "500 X", 1), refused(tasks.ClassHTTP5xx, 500, "http_error (HTTP 500)")},
		"a redirect":                {strings.Replace(sized("Location: http://127.0.0.1:1/\r\n", `{"decision":"allow"}`), "200 OK", "307 X", 1), refused(tasks.ClassHTTP3xx, 307, "network_error (HTTP 307)")},
		"no redirect":               {strings.Replace(sized("", ""), "200 OK", "304 X", 1), refused(tasks.ClassHTTP4xx, 304, "http_error (HTTP 304)")},
		"other protocol":            {"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", refused(tasks.ClassReset, 101, "network_error (HTTP 101)")},
		"a flood of hints":          {strings.Repeat("HTTP/1.1 103 X\r\nLink: </x>\r\n\r\n", 10000), refused(tasks.ClassReset, 0, "network_error (reset)")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveRaw(t, saying(test.reply, hang))
			checkReply(t, test.want, newDeliverer(t, nil).Ask(t.Context(), question(url+"/?q="+secretQuery, within(20))))
		})
	}
}

// A reply that is cut is no reply, however complete its JSON looks.
func TestAskBrokenReplies(t *testing.T) {
	t.Parallel()
	const deny = `{"decision":"deny"}`
	for name, test := range map[string]struct {
		reply  string
		status int
		end    func(net.Conn)
	}{
		"closes without a reply": {"", 0, nil},
		"resets":                 {"", 0, reset},
		"is not HTTP":            {secretRemote + "\r\n\r\n", 0, nil},
		"breaks off in the head": {"HTTP/1.1 200 OK\r\nX-A: 1\r\n", 0, nil},
		"truncated":              {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n" + deny, 200, nil},
		"truncated at the limit": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n" + strings.Repeat(" ", limit), 200, nil},
		"truncated chunk":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n13\r\n" + deny, 200, nil},
		"missing last chunk":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n13\r\n" + deny + "\r\n", 200, nil},
		"no chunk at all":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + deny, 200, nil},
		"reset in the body":      {"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n" + deny, 200, reset},
		"truncated gzip":         {"HTTP/1.1 200 OK\r\n" + gzipHead + "Content-Length: 900\r\n\r\n" + zipped(t, deny), 200, nil},
		"gzip cut in its head":   {"HTTP/1.1 200 OK\r\n" + gzipHead + "Content-Length: 900\r\n\r\n\x1f\x8b", 200, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serveRaw(t, saying(test.reply, test.end))
			checkReply(t, refused(tasks.ClassReset, test.status, "network_error (reset)"), newDeliverer(t, nil).Ask(t.Context(), question(url, within(20))))
		})
	}
}
