package tasks_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/google/go-cmp/cmp"
)

func sampleTask() *tasks.Task {
	return &tasks.Task{
		ID: "01J0", OperationID: "op-<1>", Type: tasks.OnError,
		Event: json.RawMessage(`{"agentId":"a","operationId":"op-<1>","userId":"u", "n":1e400,"n":12345678901234567890}`),
		Hooks: json.RawMessage(`[{"id":"x"}]`), EnqueuedAt: 1700000000000, Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

func TestTaskRoundTrip(t *testing.T) {
	t.Parallel()
	task := sampleTask()
	task.Extra = map[string]json.RawMessage{"z": json.RawMessage(`1.50`), "a<b": json.RawMessage(`{"k": null}`)}
	raw, err := task.Encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"v":1,"id":"01J0","operationId":"op-<1>","type":"onError","event":` + string(task.Event) +
		`,"hooks":[{"id":"x"}],"enqueuedAt":1700000000000,"trace":"` + task.Trace + `","a<b":{"k": null},"z":1.50}`
	if string(raw) != want {
		t.Fatalf("Encode = %s, want %s", raw, want)
	}
	got, err := tasks.DecodeTask(raw)
	if diff := cmp.Diff(task, got); err != nil || diff != "" {
		t.Fatalf("DecodeTask: %v (-want +got):\n%s", err, diff)
	}
}

func TestTaskWithoutOptionalFields(t *testing.T) {
	t.Parallel()
	got, err := tasks.DecodeTask([]byte(` {"event":{},"type":"onError","operationId":"op","id":"i","v":1} `))
	want := &tasks.Task{ID: "i", OperationID: "op", Type: tasks.OnError, Event: json.RawMessage(`{}`)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("DecodeTask: %v (-want +got):\n%s", err, diff)
	}
}

func TestDecodeTaskRefuses(t *testing.T) {
	t.Parallel()
	document := func(replace, with string) string {
		return strings.Replace(`{"v":1,"id":"i","operationId":"op","type":"onError","event":{},"hooks":[],"enqueuedAt":1,"trace":"t"}`, replace, with, 1)
	}
	for _, row := range []struct {
		why, raw string
		code     tasks.Reason
		path     string
	}{
		{"bytes", "\xff{", tasks.InvalidUTF8, ""},
		{"text", `"text"`, tasks.InvalidTask, ""},
		{"null", `null`, tasks.InvalidTask, ""},
		{"nothing", ``, tasks.InvalidJSON, ""},
		{"a deep array", strings.Repeat("[", 50) + strings.Repeat("]", 50), tasks.InvalidTask, ""},
		{"cut off", document("}", ""), tasks.InvalidJSON, ""},
		{"two documents", document("", "") + "{}", tasks.InvalidJSON, ""},
		{"no version", document(`"v":1,`, ``), tasks.UnsupportedVersion, "v"},
		{"next version", document(`"v":1`, `"v":2`), tasks.UnsupportedVersion, "v"},
		{"version as text", document(`"v":1`, `"v":"1"`), tasks.UnsupportedVersion, "v"},
		{"no id", document(`"id":"i",`, ``), tasks.InvalidTask, "id"},
		{"id in another case", document(`"id"`, `"ID"`), tasks.InvalidTask, "id"},
		{"empty id", document(`"id":"i"`, `"id":""`), tasks.InvalidTaskID, "id"},
		{"long id", document(`"id":"i"`, `"id":"`+strings.Repeat("é", 257)+`"`), tasks.InvalidTaskID, "id"},
		{"control in id", document(`"id":"i"`, `"id":"a\u007f"`), tasks.InvalidTaskID, "id"},
		{"no operation", document(`"operationId":"op",`, ``), tasks.InvalidTask, "operationId"},
		{"empty operation", document(`"op"`, `""`), tasks.InvalidOperationID, "operationId"},
		{"number as operation", document(`"op"`, `1`), tasks.InvalidTask, "operationId"},
		{"unknown type", document(`onError`, `OnError`), tasks.InvalidTask, "type"},
		{"no event", document(`"event":{},`, ``), tasks.InvalidTask, "event"},
		{"event array", document(`"event":{}`, `"event":[]`), tasks.InvalidTask, "event"},
		{"hooks object", document(`"hooks":[]`, `"hooks":{}`), tasks.InvalidTask, "hooks"},
		{"null hooks", document(`"hooks":[]`, `"hooks":null`), tasks.InvalidTask, "hooks"},
		{"time as text", document(`"enqueuedAt":1`, `"enqueuedAt":"1"`), tasks.InvalidTask, "enqueuedAt"},
		{"part of a millisecond", document(`"enqueuedAt":1`, `"enqueuedAt":1.5`), tasks.InvalidTask, "enqueuedAt"},
		{"trace as number", document(`"trace":"t"`, `"trace":1`), tasks.InvalidTask, "trace"},
	} {
		task, err := tasks.DecodeTask([]byte(row.raw))
		if invalid := wantCode(t, err, row.code); invalid.Path != row.path || task != nil {
			t.Errorf("%s: path is %q, want %q; task %v", row.why, invalid.Path, row.path, task)
		}
	}
}

// nested is an event with arrays in it, depth values deep with itself.
func nested(depth int) json.RawMessage {
	event := `{"agentId":"a","operationId":"op","userId":"u","deep":`
	return json.RawMessage(event + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}")
}

// A hook list or an event at the very limit was taken, and then quarantined as
// poison, because the document around it was one deeper: what is taken must be
// readable as a task.
func TestWhatIsTakenFitsIntoADocument(t *testing.T) {
	t.Parallel()
	hooks := func(depth int) []byte {
		body := strings.Repeat(`{"a":`, depth-3) + "1" + strings.Repeat("}", depth-3)
		return []byte(`[{"id":"h","type":"afterStep","webhook":{"url":"/x","body":` + body + `}}]`)
	}
	parsed, err := tasks.ParseHooks(hooks(tasks.MaxNesting-1), tasks.ParseOptions{})
	if err != nil {
		t.Fatalf("hooks at the limit: %v", err)
	}
	list, err := tasks.EncodeHooks(parsed)
	if err != nil {
		t.Fatalf("encode hooks: %v", err)
	}
	event, err := tasks.ParseEvent(tasks.AfterStep, "op", nested(tasks.MaxNesting-1))
	if err != nil {
		t.Fatalf("event at the limit: %v", err)
	}
	task := &tasks.Task{ID: "i", OperationID: "op", Type: tasks.AfterStep, Event: event.Raw, Hooks: list}
	doc, err := task.Encode()
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	if _, err := tasks.DecodeTask(doc); err != nil {
		t.Fatalf("decode what was encoded: %v", err)
	}
	_, err = tasks.ParseHooks(hooks(tasks.MaxNesting), tasks.ParseOptions{})
	wantCode(t, err, tasks.InvalidJSON)
	_, err = tasks.ParseEvent(tasks.AfterStep, "op", nested(tasks.MaxNesting))
	if fault := wantCode(t, err, tasks.InvalidJSON); !strings.Contains(fault.Message, "too deep") || fault.Fix == "" {
		t.Errorf("%v with the fix %q, want the nesting named", fault, fault.Fix)
	}
}

func TestEncodeRefusesWhatDecodeWould(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		why   string
		spoil func(*tasks.Task)
		code  tasks.Reason
	}{
		{"no id", func(t *tasks.Task) { t.ID = "" }, tasks.InvalidTaskID},
		{"a broken operation", func(t *tasks.Task) { t.OperationID = "\xff" }, tasks.InvalidOperationID},
		{"no type", func(t *tasks.Task) { t.Type = "" }, tasks.InvalidTask},
		{"no event", func(t *tasks.Task) { t.Event = nil }, tasks.InvalidTask},
		{"an event with more behind it", func(t *tasks.Task) { t.Event = json.RawMessage(`{},"v":2`) }, tasks.InvalidTask},
		{"hooks that are no array", func(t *tasks.Task) { t.Hooks = json.RawMessage(`{}`) }, tasks.InvalidTask},
		{"an extra field that hides one", func(t *tasks.Task) { t.Extra = map[string]json.RawMessage{"id": json.RawMessage(`1`)} }, tasks.InvalidTask},
		{"an event that is too deep inside a document", func(t *tasks.Task) { t.Event = nested(tasks.MaxNesting) }, tasks.InvalidTask},
		{"hooks that are too deep inside a document", func(t *tasks.Task) {
			t.Hooks = json.RawMessage(strings.Repeat("[", tasks.MaxNesting) + strings.Repeat("]", tasks.MaxNesting))
		}, tasks.InvalidTask},
		{"an extra field that is no JSON", func(t *tasks.Task) { t.Extra = map[string]json.RawMessage{"x": json.RawMessage(`}`)} }, tasks.InvalidTask},
	} {
		task := sampleTask()
		row.spoil(task)
		raw, err := task.Encode()
		if err == nil {
			t.Errorf("%s: encoded as %s", row.why, raw)
			continue
		}
		wantCode(t, err, row.code)
	}
}

func TestLogFieldsHoldNamesOnly(t *testing.T) {
	t.Parallel()
	want := map[string]any{tasks.LogOperationID: "op-<1>", tasks.LogTaskID: "01J0", tasks.LogHookType: "onError"}
	if diff := cmp.Diff(want, sampleTask().LogFields()); diff != "" {
		t.Fatalf("LogFields (-want +got):\n%s", diff)
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	if a, b := tasks.NewID(), tasks.NewID(); len(a) != 26 || a >= b {
		t.Errorf("ids %s and %s do not ascend", a, b)
	}
	if err := tasks.CheckOperationID(strings.Repeat("é", tasks.MaxIDBytes/2)); err != nil {
		t.Errorf("the longest id is refused: %v", err)
	}
	// Fixed values: other languages compute them as well, and stored keys depend on them.
	for _, row := range []struct{ what, got, want string }{
		{"OperationHash", tasks.OperationHash("op-1"), "caDvcZXfSGVD9j8Msd_4Pg"},
		{"ShardOf", strconv.Itoa(tasks.ShardOf("op-1", 16)), "14"},
		{"ContentDigest", tasks.ContentDigest(tasks.OnError, []byte(`{}`)), "zCsEzNIdN5NT"},
		{"DeliveryID", tasks.DeliveryID("gantry", "op-1", "01J0", "k.0"), "msg_n-ld0N5h0qzoGdbq4G3N4bdP"},
		{"HookKey", tasks.HookKey(&tasks.Hook{ID: "a", Type: tasks.OnError}, 2), "phRVh2H_i591EoXD.2"},
	} {
		if row.got != row.want {
			t.Errorf("%s = %q, want %q", row.what, row.got, row.want)
		}
	}
	seen := map[string]string{}
	for _, parts := range [][4]string{
		{"n", "op", "task", "hook"}, {"no", "p", "task", "hook"}, {"n", "optask", "", "hook"}, {"n", "op", "task", "hooks"}, {"m", "op", "task", "hook"},
	} {
		id := tasks.DeliveryID(parts[0], parts[1], parts[2], parts[3])
		if other, twice := seen[id]; twice {
			t.Errorf("%v and %s share the delivery id %s", parts, other, id)
		}
		seen[id] = strings.Join(parts[:], "+")
	}
	if tasks.ContentDigest(tasks.OnError, []byte(`{}`)) == tasks.ContentDigest(tasks.OnComplete, []byte(`{}`)) {
		t.Error("two types share a digest")
	}
}

// FuzzDecodeTask holds that an accepted document survives being written.
func FuzzDecodeTask(f *testing.F) {
	raw, err := sampleTask().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"v":1,"id":"\u0061","operationId":"op","type":"onError","event":{},"x":[],"x":{"y":1}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		task, err := tasks.DecodeTask(raw)
		if err != nil {
			return
		}
		again, err := task.Encode()
		if err != nil {
			t.Fatalf("Encode of %q: %v", raw, err)
		}
		got, err := tasks.DecodeTask(again)
		if diff := cmp.Diff(task, got); err != nil || diff != "" {
			t.Fatalf("written as %s: %v (-want +got):\n%s", again, err, diff)
		}
	})
}
