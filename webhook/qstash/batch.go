package qstash

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"

	sdk "github.com/upstash/qstash-go"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// The bounds of one call with many messages.
const (
	maxBatch      = 100
	maxBatchBytes = 8 << 20
	// maxBatchAnswer is ample for the answers to so many.
	maxBatchAnswer = 1 << 20
)

// PublishBatch hands over many requests in their order, in as few calls as their
// number and size allow, and returns a result for each. A call of which nothing
// is known, or that QStash did not take, ends the batch: what comes after it was
// not sent, so that nothing overtakes it.
func (p *Publisher) PublishBatch(ctx context.Context, pubs []webhook.Publication) []webhook.PublishResult {
	results := make([]webhook.PublishResult, len(pubs))
	token := p.config.Token()
	if token == "" {
		for i := range results {
			results[i] = notAvailable()
		}
		return results
	}
	for first := 0; first < len(pubs); {
		b := batch{publisher: p, results: results[first:]}
		n := b.gather(pubs[first:])
		broken := b.send(ctx, token)
		if first += n; broken {
			break
		}
	}
	for i := range results {
		if results[i].Outcome == "" {
			results[i].Outcome = webhook.PublishNotSent
		}
	}
	return results
}

// batch is one call with many messages.
type batch struct {
	publisher *Publisher
	results   []webhook.PublishResult
	// body is the document for QStash, and places says whose its items are.
	body   []byte
	places []int
}

// gather takes publications until the call is full, and returns how many. What
// QStash cannot carry is refused by itself.
func (b *batch) gather(pubs []webhook.Publication) int {
	for i := range pubs {
		m, fault := b.publisher.message(&pubs[i])
		if fault == "" && !utf8.Valid(pubs[i].Body) {
			fault = "body is no text"
		}
		if fault != "" {
			b.results[i] = refused(fault)
			continue
		}
		full := len(b.places) == maxBatch || len(b.body)+len(pubs[i].Body) > maxBatchBytes
		if full && len(b.places) > 0 {
			return i
		}
		b.add(&m, pubs[i].Body)
		b.places = append(b.places, i)
	}
	return len(pubs)
}

// add appends one item to the document.
func (b *batch) add(m *message, body []byte) {
	separator := byte(',')
	if len(b.places) == 0 {
		separator = '['
	}
	b.body = append(append(b.body, separator), `{"destination":`...)
	b.body = append(tasks.AppendString(b.body, m.destination), `,"headers":{`...)
	header := m.items()
	for i, name := range slices.Sorted(maps.Keys(header)) {
		if i > 0 {
			b.body = append(b.body, ',')
		}
		b.body = append(tasks.AppendString(b.body, name), ':')
		b.body = tasks.AppendString(b.body, header.Get(name))
	}
	b.body = append(b.body, `},"body":`...)
	b.body = append(tasks.AppendString(b.body, string(body)), '}')
}

// items are the headers of one item, which stand for what the SDK makes of the
// options of a single publish. Keys are canonical.
func (m *message) items() http.Header {
	header := http.Header{}
	m.addTo(header)
	header.Set(headerContentType, m.contentType)
	header.Set(headerMethod, http.MethodPost)
	header.Set(headerRetries, strconv.Itoa(m.retries))
	for name, value := range map[string]string{headerTimeout: m.timeout, headerDelay: m.delay, headerDeduplication: m.deduplication} {
		if value != "" {
			header.Set(name, value)
		}
	}
	canonical := make(http.Header, len(header))
	for name, values := range header {
		canonical[http.CanonicalHeaderKey(name)] = values
	}
	return canonical
}

// send makes the call, if there is anything to send, and spreads the outcome.
func (b *batch) send(ctx context.Context, token string) (broken bool) {
	if len(b.places) == 0 {
		return false
	}
	c := call{
		publisher: b.publisher, path: "/v2/batch", limit: maxBatchAnswer,
		body: append(b.body, ']'), edit: func(http.Header) {},
	}
	ctx, cancel := context.WithTimeout(ctx, b.publisher.config.Timeout)
	defer cancel()
	// The SDK drops what QStash says about a single item, so that the answer is read
	// here.
	_, err := newSDK(token, b.publisher.config.Client, c.transport(ctx)).Batch([]sdk.BatchOptions{{Url: placeholder}})
	result, answered := c.outcome(err)
	items := readItems(c.answer)
	if !answered || len(items) != len(b.places) {
		for _, place := range b.places {
			b.results[place] = withoutID(result)
		}
		return true
	}
	for i, place := range b.places {
		b.results[place] = items[i].result(result)
	}
	return false
}

// item is what QStash says about one message of many.
type item struct {
	MessageID    string          `json:"messageId"`
	Deduplicated bool            `json:"deduplicated"`
	Error        json.RawMessage `json:"error"`
}

// readItems reads an answer; nil when it is none.
func readItems(answer []byte) []item {
	var raw []json.RawMessage
	if json.Unmarshal(answer, &raw) != nil {
		return nil
	}
	items := make([]item, len(raw))
	for i, one := range raw {
		// The answer for a group of destinations is a list; only its absence of an
		// error would make it one of ours.
		if json.Unmarshal(bytes.TrimSpace(one), &items[i]) != nil {
			items[i] = item{}
		}
	}
	return items
}

// result is the result of one message within a whole answer.
func (it item) result(whole webhook.PublishResult) webhook.PublishResult {
	switch {
	case len(it.Error) > 0 && string(it.Error) != "null":
		whole.Outcome, whole.Message = webhook.PublishRejected, messageFailed+" (refused within a batch)"
	case it.MessageID == "":
		return withoutID(whole)
	default:
		whole.Outcome, whole.MessageID, whole.Duplicate = webhook.PublishAccepted, it.MessageID, it.Deduplicated
	}
	return whole
}
