package enrich_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

func newBuilder(t testing.TB, config enrich.Config) *enrich.Builder {
	t.Helper()
	b, err := enrich.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func delivery(hookType tasks.HookType, event string, w tasks.Webhook) webhook.Delivery {
	return webhook.Delivery{Hook: &tasks.Hook{ID: "h1", Type: hookType, Webhook: &w}, Type: hookType, Event: json.RawMessage(event)}
}

func TestBuildBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		event  string
		fields []string
		body   string
		want   string
		asked  []string
	}{
		{
			name:  "keys are sorted by their bytes",
			event: `{"é":1,"z":2,"a":3,"A":4,"":5}`,
			want:  `{"":5,"A":4,"a":3,"hookId":"h1","hookType":"onComplete","z":2,"é":1}`,
		},
		{
			name:  "the last duplicate wins, escaped or not",
			event: `{"a":1,"b":2,"\u0061":3,"b":null}`,
			want:  `{"a":3,"b":null,"hookId":"h1","hookType":"onComplete"}`,
		},
		{
			name:  "nested bytes stay as they came",
			event: ` { "n" : 1e400 , "i":12345678901234567890, "o": { "b" :1, "a":[ 1.0 ,-0],"b":2 }, "s":"\u00e9\/<\ud800>" } `,
			want:  `{"hookId":"h1","hookType":"onComplete","i":12345678901234567890,"n":1e400,"o":{ "b" :1, "a":[ 1.0 ,-0],"b":2 },"s":"\u00e9\/<\ud800>"}`,
		},
		{
			name:  "false, zero, empty and null are values",
			event: `{"b":false,"n":0,"s":"","x":null,"a":[],"o":{}}`,
			want:  `{"a":[],"b":false,"hookId":"h1","hookType":"onComplete","n":0,"o":{},"s":"","x":null}`,
		},
		{
			name:  "the hook beats the event and the body beats the hook",
			event: `{"hookId":"event","hookType":"event"}`,
			body:  `{"hookType":"body"}`,
			want:  `{"hookId":"h1","hookType":"body"}`,
		},
		{
			name:   "an empty projection keeps no field",
			event:  `{"a":1,"userId":"u-ada"}`,
			fields: []string{},
			want:   `{"hookId":"h1","hookType":"onComplete"}`,
		},
		{
			name:   "a projection names fields exactly, twice or in vain",
			event:  `{"b":null,"a":1,"A":2,"a":3}`,
			fields: []string{"b", "a", "missing", "a"},
			want:   `{"a":3,"b":null,"hookId":"h1","hookType":"onComplete"}`,
		},
		{
			name:  "the last duplicate of the body wins",
			event: `{"a":1}`,
			body:  `{"b":1,"a":2,"b":3}`,
			want:  `{"a":2,"b":3,"hookId":"h1","hookType":"onComplete"}`,
		},
		{
			name:  "state, mock and foreign emails leave from event and body",
			event: `{"finalState":{},"mock":1,"userEmail":"spoof@evil.test"}`,
			body:  `{"finalState":1,"mock":2,"userEmail":"spoof@evil.test","MOCK":3}`,
			want:  `{"MOCK":3,"hookId":"h1","hookType":"onComplete"}`,
		},
		{
			name:  "an email goes where its key belongs",
			event: `{"zebra":1,"userId":"u-ada","userFoo":2}`,
			want:  `{"hookId":"h1","hookType":"onComplete","userEmail":"ada@corp.test","userFoo":2,"userId":"u-ada","zebra":1}`,
			asked: []string{"u-ada"},
		},
		{
			name:   "a projected email follows the event's user, who stays out",
			event:  `{"userId":"u-ada"}`,
			fields: []string{"userEmail"},
			want:   `{"hookId":"h1","hookType":"onComplete","userEmail":"ada@corp.test"}`,
			asked:  []string{"u-ada"},
		},
		{
			name:   "a body that asks for an email is not a projection that does",
			event:  `{"userId":"u-ada"}`,
			fields: []string{"userId"},
			body:   `{"userEmail":"spoof@evil.test"}`,
			want:   `{"hookId":"h1","hookType":"onComplete","userId":"u-ada"}`,
		},
		{
			name:  "an escaped id is the id",
			event: `{"userId":"u\u002dada"}`,
			want:  `{"hookId":"h1","hookType":"onComplete","userEmail":"ada@corp.test","userId":"u\u002dada"}`,
			asked: []string{"u-ada"},
		},
		{
			name:  "half a surrogate pair is nobody's id",
			event: `{"userId":"\ud800"}`,
			want:  `{"hookId":"h1","hookType":"onComplete","userId":"\ud800"}`,
		},
		{
			name:  "an id of another type is nobody's",
			event: `{"userId":"u-ada"}`,
			body:  `{"userId":["u-ada"]}`,
			want:  `{"hookId":"h1","hookType":"onComplete","userId":["u-ada"]}`,
		},
		{
			name:  "an empty email is an email",
			event: `{"userId":"u-blank"}`,
			want:  `{"hookId":"h1","hookType":"onComplete","userEmail":"","userId":"u-blank"}`,
			asked: []string{"u-blank"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := &directory{answer: corp}
			b := newBuilder(t, enrich.Config{Directory: d})
			w := tasks.Webhook{EventFields: c.fields}
			if c.body != "" {
				w.Body = json.RawMessage(c.body)
			}
			got, err := b.Build(t.Context(), delivery(tasks.OnComplete, c.event, w))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("payload (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.asked, d.taken()); diff != "" {
				t.Errorf("users asked about (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildRedactsSkillRegistrations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, result, want string
	}{
		{
			"args go and data is null", `{"n":1e400,"workRegistration":{"args":{"t":1},"type":"skill","data":{"u":2},"x":[ 1 ]}}`,
			`{"n":1e400,"workRegistration":{"type":"skill","data":null,"x":[ 1 ]}}`,
		},
		{"missing data becomes null", `{"workRegistration":{"type":"skill"}}`, `{"workRegistration":{"type":"skill","data":null}}`},
		{
			"escapes hide nothing", `{"work\u0052egistration":{"\u0061rgs":1,"type":"s\u006bill","dat\u0061":2}}`,
			`{"workRegistration":{"type":"s\u006bill","data":null}}`,
		},
		{
			"duplicates hide nothing", `{"workRegistration":{"args":1},"workRegistration":{"args":1,"data":2,"type":"x","args":3,"type":"skill","data":4},"a":1,"a":2}`,
			`{"workRegistration":{"type":"x","type":"skill","data":null},"a":1,"a":2}`,
		},
		{"the last type counts", `{"workRegistration":{"args":1, "type":"skill","type":"task"}}`, `{"workRegistration":{"args":1, "type":"skill","type":"task"}}`},
		{"tasks stay", `{"workRegistration": {"type":"task","args":1,"data":2} }`, `{"workRegistration": {"type":"task","args":1,"data":2} }`},
		{"case counts", `{"WorkRegistration":{"type":"skill","args":1}}`, `{"WorkRegistration":{"type":"skill","args":1}}`},
		{"nested results stay", `{"state":{"workRegistration":{"type":"skill","args":1}}}`, `{"state":{"workRegistration":{"type":"skill","args":1}}}`},
		{"other shapes stay", `{"workRegistration":["skill"]}`, `{"workRegistration":["skill"]}`},
		{"a result may be text", `"skill"`, `"skill"`},
		{"a result may be null", `null`, `null`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBuilder(t, enrich.Config{})
			event := `{"result":` + c.result + `}`
			input := []byte(event)
			d := delivery(tasks.AfterToolCall, event, tasks.Webhook{})
			d.Event = input
			got, err := b.Build(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			want := `{"hookId":"h1","hookType":"afterToolCall","result":` + c.want + `}`
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("payload (-want +got):\n%s", diff)
			}
			if string(input) != event {
				t.Errorf("the event was changed to %s", input)
			}
			for _, other := range []tasks.HookType{tasks.BeforeToolCall, tasks.OnComplete} {
				got, err := b.Build(t.Context(), delivery(other, event, tasks.Webhook{}))
				if err != nil {
					t.Fatal(err)
				}
				if want := `{"hookId":"h1","hookType":"` + string(other) + `","result":` + c.result + `}`; string(got) != want {
					t.Errorf("payload of %s is redacted: %s", other, got)
				}
			}
		})
	}
}

func TestBuildControlSendsTheWholeEvent(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, enrich.Config{Directory: &directory{answer: corp}})
	event := `{"userId":"u-ada","userEmail":"spoof@evil.test","finalState":1,"result":{"workRegistration":{"type":"skill","args":1,"data":2}}}`
	got, err := b.BuildControl(t.Context(), "g", tasks.AfterToolCall, json.RawMessage(event))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"hookId":"g","hookType":"afterToolCall","result":{"workRegistration":{"type":"skill","args":1,"data":2}},"userEmail":"ada@corp.test","userId":"u-ada"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Fatalf("payload (-want +got):\n%s", diff)
	}
}

func TestBuildRefusesWhatIsNoObject(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, enrich.Config{})
	for _, event := range []string{``, `null`, `[]`, `{"a":1}x`, "{\"a\":\"\xff\"}"} {
		var invalid *tasks.InvalidError
		if got, err := b.Build(t.Context(), delivery(tasks.OnComplete, event, tasks.Webhook{})); !errors.As(err, &invalid) || got != nil {
			t.Errorf("payload of event %q is %s, %v", event, got, err)
		}
		if got, err := b.BuildControl(t.Context(), "g", tasks.BeforeToolCall, json.RawMessage(event)); !errors.As(err, &invalid) || got != nil {
			t.Errorf("control payload of event %q is %s, %v", event, got, err)
		}
	}
	if _, err := b.Build(t.Context(), delivery(tasks.OnComplete, `{}`, tasks.Webhook{Body: json.RawMessage(`[]`)})); err == nil {
		t.Error("a body that is an array was merged")
	}
}

func TestCancelledBuildsGiveNoPayload(t *testing.T) {
	t.Parallel()
	event := `{"userId":"u-ada"}`
	for name, build := range map[string]func(context.Context, *enrich.Builder) ([]byte, error){
		"notification": func(ctx context.Context, b *enrich.Builder) ([]byte, error) {
			return b.Build(ctx, delivery(tasks.OnComplete, event, tasks.Webhook{}))
		},
		"control": func(ctx context.Context, b *enrich.Builder) ([]byte, error) {
			return b.BuildControl(ctx, "g", tasks.BeforeToolCall, json.RawMessage(event))
		},
	} {
		t.Run(name+" during the lookup", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			d := &directory{answer: func(lookup context.Context, userID string) (string, bool, error) {
				cancel()
				if lookup.Err() != nil {
					t.Error("the lookup was cancelled with its waiter")
				}
				return corp(lookup, userID)
			}}
			if got, err := build(ctx, newBuilder(t, enrich.Config{Directory: d})); !errors.Is(err, context.Canceled) || got != nil {
				t.Fatalf("payload %s, %v", got, err)
			}
		})
		t.Run(name+" before", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			d := &directory{answer: corp}
			if got, err := build(ctx, newBuilder(t, enrich.Config{Directory: d})); !errors.Is(err, context.Canceled) || got != nil {
				t.Fatalf("payload %s, %v", got, err)
			}
			if asked := d.taken(); asked != nil {
				t.Fatalf("a cancelled request asked about %v", asked)
			}
		})
	}
}

// FuzzBuild compares payloads with a plain model on maps.
func FuzzBuild(f *testing.F) {
	f.Add(`{"b":1,"a":[1e400],"userEmail":"x","mock":0}`, `{"a":null}`, "a", true)
	f.Add(`{"result":{"workRegistration":{"type":"skill","args":1}}}`, ``, "result", false)
	f.Add(`{"hookId":1,"\u0061":"\ud800"}`, `{"hookType":{}}`, "", true)
	f.Fuzz(func(t *testing.T, event, body, field string, projected bool) {
		b := newBuilder(t, enrich.Config{})
		var w tasks.Webhook
		if projected {
			w.EventFields = []string{field}
		}
		if body != "" {
			w.Body = json.RawMessage(body)
		}
		got, err := b.Build(t.Context(), delivery(tasks.AfterStep, event, w))
		if err != nil {
			return
		}
		if want := model(t, event, w); string(got) != want {
			t.Fatalf("payload is\n%s\nnot\n%s", got, want)
		}
	})
}

func model(t *testing.T, event string, w tasks.Webhook) string {
	t.Helper()
	payload := map[string]json.RawMessage{}
	add := func(raw []byte, keep func(string) bool) {
		members, err := tasks.SplitObject(raw)
		if err != nil {
			t.Fatalf("a payload was built from %s: %v", raw, err)
		}
		for _, m := range members {
			if keep(m.Key) {
				payload[m.Key] = m.Value
			}
		}
	}
	add([]byte(event), func(key string) bool { return w.EventFields == nil || slices.Contains(w.EventFields, key) })
	add([]byte(`{"hookId":"h1","hookType":"afterStep"}`), func(string) bool { return true })
	if w.Body != nil {
		add(w.Body, func(string) bool { return true })
	}
	var members []tasks.Member
	for _, key := range slices.Sorted(maps.Keys(payload)) {
		if key != "finalState" && key != "mock" && key != "userEmail" {
			members = append(members, tasks.Member{Key: key, Value: payload[key]})
		}
	}
	return string(tasks.AppendObject(nil, members))
}
