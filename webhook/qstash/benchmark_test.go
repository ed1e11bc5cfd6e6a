package qstash_test

import (
	"bufio"
	"bytes"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/upstash/qstash-go"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
	"github.com/gantry-hooks/gantry/webhook/qstash"
)

// bench is one publish, by the SDK alone and through the adapter, with as much
// asked for as the SDK knows. Both use the same kind of connection.
type bench struct {
	sdk, adapter func() error
}

// acceptAll answers every request with the same bytes, and does little else: what
// the server does would count for both and hide a difference.
func acceptAll(b testing.TB) (url string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answerAll(conn)
		}
	}()
	return "http://" + l.Addr().String()
}

func answerAll(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n" + `{"messageId":"msg_7"}`
	reply, r := []byte(answer), bufio.NewReaderSize(conn, 16<<10)
	for {
		length := 0
		for {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) == 2 {
				break
			}
			if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
				length = 0
				for _, digit := range bytes.TrimSpace(value) {
					length = 10*length + int(digit-'0')
				}
			}
		}
		if _, err := r.Discard(length); err != nil {
			return
		}
		if _, err := conn.Write(reply); err != nil {
			return
		}
	}
}

func newBench(b testing.TB) bench {
	url := acceptAll(b)
	body := []byte(`{"content":"` + strings.Repeat("x", 2048) + `"}`)
	client, err := egress.New(egress.Config{Policy: egress.Trusted()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	theirs := sdk.NewClientWith(sdk.Options{Url: url, Token: apiToken, Client: client.HTTPClient()})
	ours := newPublisher(b, url, func(cfg *qstash.PublisherConfig) {
		cfg.Client, cfg.Backoff = client, qstash.Backoff{Initial: 5 * time.Second, Factor: 3, Max: time.Hour}
	})
	pub := webhook.Publication{
		URL: "https://rx.test/hook", Body: body, Timeout: 30 * time.Second, DeliveryID: "msg_1", OperationID: "op", Type: tasks.OnComplete,
		Header: http.Header{
			"Content-Type": {"application/json"}, "Authorization": {"Bearer x"}, "Gantry-Delivery-Id": {"msg_1"}, "Gantry-Task-Id": {"t"},
			"Gantry-Hook-Id": {"h"}, "Gantry-Attempt": {"1"}, "Gantry-Sequence": {"1"},
		},
	}
	headers := map[string]string{}
	for name, values := range pub.Header {
		if name != "Content-Type" {
			headers[name] = values[0]
		}
	}
	return bench{
		sdk: func() error {
			_, err := theirs.Publish(sdk.PublishOptions{
				Url: pub.URL, Body: string(body), ContentType: "application/json", Method: "POST", Headers: headers,
				Retries: sdk.RetryCount(5), Timeout: "30s", DeduplicationId: pub.DeliveryID,
			})
			return err
		},
		adapter: func() error {
			if r := ours.Publish(b.Context(), pub); r.Outcome != webhook.PublishAccepted {
				return errOutcome(r.Outcome)
			}
			return nil
		},
	}
}

type errOutcome webhook.PublishOutcome

func (e errOutcome) Error() string { return "outcome is " + string(e) }

func run(b *testing.B, publish func() error) {
	b.ReportAllocs()
	for b.Loop() {
		if err := publish(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	both := newBench(b)
	b.Run("sdk", func(b *testing.B) { run(b, both.sdk) })
	b.Run("adapter", func(b *testing.B) { run(b, both.adapter) })
}

// BenchmarkPublishRatio alternates between the two, so that the machine's other
// work hits both alike, and reports how the adapter compares.
func BenchmarkPublishRatio(b *testing.B) {
	both := newBench(b)
	var theirs, ours time.Duration
	for b.Loop() {
		start := time.Now()
		if err := both.sdk(); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		if err := both.adapter(); err != nil {
			b.Fatal(err)
		}
		theirs, ours = theirs+middle.Sub(start), ours+time.Since(middle)
	}
	b.ReportMetric(ours.Seconds()/theirs.Seconds(), "time-ratio")
}

// The adapter allocates little more than the SDK by itself: the share is exact
// enough to be a test, unlike that of time.
func TestPublishAllocations(t *testing.T) {
	both := newBench(t)
	count := func(publish func() error) float64 {
		return testing.AllocsPerRun(200, func() {
			if err := publish(); err != nil {
				t.Fatal(err)
			}
		})
	}
	theirs, ours := count(both.sdk), count(both.adapter)
	if ratio := ours / theirs; ratio > 1.2 {
		t.Errorf("%v allocations against the SDK's %v: %s times as many", ours, theirs, strconv.FormatFloat(ratio, 'f', 2, 64))
	}
}
