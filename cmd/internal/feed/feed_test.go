package feed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
	"github.com/gantry-hooks/gantry/cmd/internal/feed"
	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

func read(t *testing.T, run, text string) ([]feed.Event, []error) {
	t.Helper()
	events, faults, err := feed.ReadEvents(feed.Source{Name: "f", Reader: strings.NewReader(text), Run: run})
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return events, faults
}

const (
	call  = `{"type":"beforeCallAgent","event":{"operationId":"one","agentId":"a","instruction":"i"}}`
	other = `{"type":"beforeCallAgent","operationId":"two","event":{"agentId":"a","instruction":"i"},"delay":"5s","id":"mine"}`
)

func TestIDsFollowFromContent(t *testing.T) {
	ids := func(run, text string) (ids []string) {
		events, faults := read(t, run, text)
		if len(faults) > 0 {
			t.Fatalf("faults: %v", faults)
		}
		for _, e := range events {
			ids = append(ids, e.ID)
		}
		return ids
	}
	first := ids("", call+"\n"+call+"\n\n"+other+"\n")
	if len(first) != 3 || first[0] == first[1] || first[2] != "mine" {
		t.Fatalf("ids are %v", first)
	}
	// Other lines before an event do not change its id.
	if diff := cmp.Diff(first[:2], ids("", other+"\n"+call+"\n"+call)[1:]); diff != "" {
		t.Errorf("ids changed (-first +second):\n%s", diff)
	}
	if again := ids("again", call); again[0] == first[0] {
		t.Errorf("another run has the same id")
	}
}

func TestDocumentsKeepTheEvent(t *testing.T) {
	events, _ := read(t, "", other)
	want := `{"id":"mine","type":"beforeCallAgent","event":{"operationId":"two","agentId":"a","instruction":"i"},"delay":"5s"}`
	got := string(events[0].Document)
	if got != want && got != strings.Replace(want, `{"operationId":"two","agentId":"a","instruction":"i"}`, `{"agentId":"a","instruction":"i","operationId":"two"}`, 1) {
		t.Fatalf("document is %s", got)
	}
}

func TestBadLinesAreNamed(t *testing.T) {
	events, faults := read(t, "", strings.Join([]string{
		call, `{`, `[]`, `{"type":"beforeCallAgent"}`, `{"type":"nope","event":{}}`, `{"type":"afterStep","event":{"operationId":"o"}}`,
		`{"type":"beforeCallAgent","even":1,"event":{}}`, `{"type":"beforeCallAgent","id":7,"event":{}}`, call,
	}, "\n"))
	if len(events) != 2 {
		t.Errorf("%d lines are right, want 2", len(events))
	}
	var got []string
	for _, fault := range faults {
		var at *config.FileError
		var invalid *tasks.InvalidError
		if !errors.As(fault, &at) || !errors.As(fault, &invalid) {
			t.Fatalf("a fault is %v", fault)
		}
		got = append(got, fmt.Sprintf("%s:%d %s %s", at.File, at.Line, invalid.Code, invalid.Path))
	}
	want := []string{
		"f:2 invalid_json ", "f:3 not_object ", "f:4 missing_field event", "f:5 unknown_type type", "f:6 missing_field event.agentId",
		"f:7 unknown_field even", "f:8 invalid_field id",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("faults differ (-want +got):\n%s", diff)
	}
}

func TestLongLine(t *testing.T) {
	_, _, err := feed.ReadEvents(feed.Source{Name: "f", Reader: strings.NewReader(call + "\n" + strings.Repeat("x", 17<<20))})
	if err == nil || !strings.HasPrefix(err.Error(), "f:2: is longer") {
		t.Fatalf("got %v", err)
	}
}

func TestBatchesKeepTheOrderOfEachOperation(t *testing.T) {
	var text strings.Builder
	const events = 2500
	for n := range events {
		fmt.Fprintf(&text, `{"type":"beforeCallAgent","id":"%d","event":{"operationId":"op-%d","agentId":"a","instruction":"%s"}}`+"\n",
			n, n%3, strings.Repeat("x", n%7*300))
	}
	all, _ := read(t, "", text.String())
	next, total := map[string]int{"op-0": 0, "op-1": 1, "op-2": 2}, 0
	for _, batch := range feed.Batches(all) {
		size := 0
		for _, e := range batch.Events {
			if e.ID != fmt.Sprint(next[batch.OperationID]) || e.OperationID != batch.OperationID {
				t.Fatalf("event %s of %s follows, want %d", e.ID, batch.OperationID, next[batch.OperationID])
			}
			next[batch.OperationID] += 3
			total++
			size += len(e.Document)
		}
		if len(batch.Events) > 200 || size > 600<<10 {
			t.Fatalf("a batch has %d events and %d bytes", len(batch.Events), size)
		}
	}
	if total != events {
		t.Fatalf("%d events are in batches, want %d", total, events)
	}
}

func TestReadHooks(t *testing.T) {
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatalf("write: %v", err)
		}
		return path
	}
	const hook = `{"id":"a","type":"afterStep","webhook":{"url":"https://h.example/"}}`
	for name, test := range map[string]struct {
		path  string
		ops   []string
		count int
		fault string
	}{
		"list":        {write("h.json", `[`+hook+`,`+hook+`]`), nil, 2, ""},
		"hooks":       {write("h.json", `{"hooks":[`+hook+`]}`), nil, 1, ""},
		"operations":  {write("h.json", `{"operations":{"b":[`+hook+`],"a":[]}}`), []string{"a", "b"}, 1, ""},
		"yaml":        {write("h.yaml", "operations:\n  b: ["+hook+"]\n"), []string{"b"}, 1, ""},
		"other key":   {write("h.json", `{"operations":{},"hooks":[]}`), nil, 0, "beside operations"},
		"yaml, other": {write("h.yaml", "operations: {b: []}\nmore: 1\n"), nil, 0, "beside operations"},
		"no object":   {write("h.json", `{"operations":[]}`), nil, 0, "operations is no object"},
		"twice":       {write("h.json", `{"operations":{"a":[],"a":[]}}`), nil, 0, `"a" twice`},
		"bad hook":    {write("h.json", `{"operations":{"a":[{"id":1}]}}`), nil, 0, "operations.a.hooks[0]"},
		"bad name":    {write("h.json", `{"operations":{"":[]}}`), nil, 0, "id is empty"},
		"missing":     {filepath.Join(t.TempDir(), "none"), nil, 0, "read hooks file"},
	} {
		t.Run(name, func(t *testing.T) {
			hooks, err := feed.ReadHooks(test.path)
			if test.fault != "" {
				if err == nil || !strings.Contains(err.Error(), test.fault) {
					t.Fatalf("got %v, want %q", err, test.fault)
				}
				return
			}
			if err != nil {
				t.Fatalf("read: %v", err)
			}
			if diff := cmp.Diff(test.ops, hooks.Operations()); diff != "" || hooks.Count() != test.count {
				t.Fatalf("%d hooks; operations (-want +got):\n%s", hooks.Count(), diff)
			}
			if _, ok := hooks.For("zzz"); ok != (test.ops == nil) {
				t.Errorf("an operation that the file does not name has hooks: %t", ok)
			}
		})
	}
}

// fakeAPI answers with statuses, one after the other.
type fakeAPI struct {
	receipts []client.Receipt
	statuses []client.EventStatus
	waits    []client.Wait
}

func (f *fakeAPI) PutHooks(context.Context, string, json.RawMessage) error { return nil }

func (f *fakeAPI) PostEvents(context.Context, string, []json.RawMessage) ([]client.Receipt, error) {
	return f.receipts, nil
}

func (f *fakeAPI) Event(_ context.Context, _, _ string, wait client.Wait) (client.EventStatus, error) {
	f.waits = append(f.waits, wait)
	next := f.statuses[0]
	if len(f.statuses) > 1 {
		f.statuses = f.statuses[1:]
	}
	return next, nil
}

func TestSendCounts(t *testing.T) {
	events, _ := read(t, "", call+"\n"+call+"\n"+call)
	api := &fakeAPI{receipts: []client.Receipt{{ID: "x", Sequence: 1}, {ID: "y", Duplicate: true}, {Skipped: true}}}
	var totals feed.Totals
	pending, err := feed.Send(t.Context(), api, feed.Batches(events)[0], &totals)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	if diff := cmp.Diff(feed.Totals{Sent: 3, Duplicates: 1, Skipped: 1}, totals); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]feed.Pending{{OperationID: "one", ID: "x"}, {OperationID: "one", ID: "y"}}, pending); diff != "" {
		t.Errorf("pending (-want +got):\n%s", diff)
	}
}

func TestAwait(t *testing.T) {
	dead := []client.Outcome{{HookID: "h", Standing: lane.StandingDead}}
	api := &fakeAPI{statuses: []client.EventStatus{{}, {Settled: true, Outcomes: dead}}}
	got, err := feed.Await(t.Context(), api, feed.Pending{}, feed.Until{Mode: lane.WaitFinal, Deadline: time.Now().Add(time.Hour)})
	if diff := cmp.Diff(dead, got); err != nil || diff != "" {
		t.Errorf("%v; outcomes (-want +got):\n%s", err, diff)
	}
	if len(api.waits) != 2 || api.waits[0].Mode != lane.WaitFinal || api.waits[0].For > time.Minute {
		t.Errorf("waited %v", api.waits)
	}
	api = &fakeAPI{statuses: []client.EventStatus{{}}}
	if _, err := feed.Await(t.Context(), api, feed.Pending{}, feed.Until{Mode: lane.WaitFirst}); !errors.Is(err, feed.ErrUnsettled) {
		t.Errorf("the end of the time gives %v", err)
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add(call + "\n" + other)
	f.Add(`{"type":"afterStep","event":{"operationId":"\ud800"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		events, _, err := feed.ReadEvents(feed.Source{Name: "f", Reader: strings.NewReader(text)})
		if err != nil {
			return
		}
		for _, e := range events {
			if tasks.CheckTaskID(e.ID) != nil || tasks.CheckOperationID(e.OperationID) != nil || tasks.CheckJSON(e.Document) != nil {
				t.Fatalf("an event of %q is not what the API takes: %+v", text, e)
			}
		}
	})
}
