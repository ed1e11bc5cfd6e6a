package tasks_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/tasks"
)

// kilobyte is a task document of about 1.2 kB.
func kilobyte(b *testing.B) []byte {
	b.Helper()
	task := sampleTask()
	task.Event = json.RawMessage(`{"agentId":"agent-7","operationId":"op-<1>","userId":"user-1","stepIndex":12,"stepType":"call_llm","content":"` +
		strings.Repeat("lorem ipsum dolor ", 45) + `","totalTokens":12345,"totalCost":0.0123}`)
	raw, err := task.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	return raw
}

func BenchmarkDecodeTask(b *testing.B) {
	raw := kilobyte(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tasks.DecodeTask(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeTask(b *testing.B) {
	task, err := tasks.DecodeTask(kilobyte(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := task.Encode(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSplitObject(b *testing.B) {
	raw := kilobyte(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tasks.SplitObject(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseEvent(b *testing.B) {
	task, err := tasks.DecodeTask(kilobyte(b))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tasks.ParseEvent(tasks.AfterStep, "op-<1>", task.Event); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStoredHooksHit(b *testing.B) {
	b.ReportAllocs()
	raw := []byte(fullHook)
	for b.Loop() {
		if _, err := tasks.StoredHooks(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInForce(b *testing.B) {
	webhook := &tasks.Webhook{URL: "/x"}
	for name, matcher := range map[string]*string{"no matcher": nil, "linear": ptr("^mail/(send|draft)$"), "look-ahead": ptr("^mail/(?!delete)")} {
		b.Run(name, func(b *testing.B) {
			ev := toolEvent(b, "mail", "send")
			hooks := []tasks.Hook{{ID: "audit", Type: tasks.BeforeToolCall, Matcher: matcher, Webhook: webhook}}
			b.ReportAllocs()
			for b.Loop() {
				if got, _ := tasks.InForce(ev, hooks, nil); len(got) != 1 {
					b.Fatal("hook is not in force")
				}
			}
		})
	}
}
