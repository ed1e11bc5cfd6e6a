package enrich_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// kilobyteEvent is an afterStep event of about 1 KiB, in the key order of a
// runtime that does not sort.
var kilobyteEvent = json.RawMessage(fmt.Sprintf(`{"agentId":"ag-1","operationId":"op-0123456789","userId":"u-ada","topicId":"t-1",`+
	`"stepIndex":4,"stepType":"call_llm","shouldContinue":true,"content":%q,"stepCost":0.00123,`+
	`"executionTimeMs":1834,"elapsedMs":9120,"totalTokens":18234,"metadata":{"k":[1,2,3],"deep":{"a":null}},`+
	`"toolsCalling":[{"identifier":"mail","apiName":"send"}]}`, strings.Repeat("lorem ipsum dolor ", 38)))

func BenchmarkBuild(b *testing.B) {
	directory := fixedDirectory("ada@corp.test")
	for _, c := range []struct {
		name      string
		event     json.RawMessage
		directory enrich.Directory
		webhook   tasks.Webhook
	}{
		{name: "plain", event: kilobyteEvent},
		{name: "sorted", event: sortedEvent(b, kilobyteEvent)},
		{name: "email", event: kilobyteEvent, directory: directory},
		{name: "projected", event: kilobyteEvent, webhook: tasks.Webhook{EventFields: []string{"content", "stepIndex"}}},
		{name: "body", event: kilobyteEvent, webhook: tasks.Webhook{Body: json.RawMessage(`{"source":"gantry","stepIndex":null}`)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			builder, err := enrich.New(enrich.Config{Directory: c.directory})
			if err != nil {
				b.Fatal(err)
			}
			d := webhook.Delivery{Hook: &tasks.Hook{ID: "h1", Webhook: &c.webhook}, Type: tasks.AfterStep, Event: c.event}
			b.SetBytes(int64(len(c.event)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := builder.Build(b.Context(), d); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSplit is the share of BenchmarkBuild that reads the event.
func BenchmarkSplit(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tasks.SplitObject(kilobyteEvent); err != nil {
			b.Fatal(err)
		}
	}
}

func sortedEvent(b *testing.B, raw json.RawMessage) json.RawMessage {
	b.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		b.Fatal(err)
	}
	sorted, err := json.Marshal(members)
	if err != nil {
		b.Fatal(err)
	}
	return sorted
}

type fixedDirectory string

func (d fixedDirectory) Email(context.Context, string) (string, bool, error) {
	return string(d), true, nil
}
