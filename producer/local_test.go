package producer_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

var errHandler = errors.New("handler said no")

func TestLocalDispatchKeepsOneOrderOfHandlersAndWebhooks(t *testing.T) {
	t.Parallel()
	d := newLocal(t, tasks.Hook{
		ID: tasks.ReservedIDPrefix + "onComplete", Type: tasks.OnComplete, Webhook: &tasks.Webhook{URL: "https://env.test/"},
	})
	register(t, d.Dispatcher, webhookHook("a", ""),
		tasks.Hook{ID: "b", Type: tasks.OnComplete, Handler: d.calls.handler("b", nil)},
		tasks.Hook{ID: "other", Type: tasks.OnError, Handler: d.calls.handler("other", nil)})
	register(t, d.Dispatcher, webhookHook("d", ""),
		tasks.Hook{ID: "e", Type: tasks.OnComplete, Handler: d.calls.handler("e", nil)}, webhookHook("d", ""))

	if err := d.Dispatch(t.Context(), operation, event(t)); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	d.calls.want(t, "a:fetch", "b:handler", "d:fetch", "e:handler", "d:fetch", "server-env-webhook:onComplete:fetch")
	d.logs.want(t)
	ids := map[string]bool{}
	for _, delivery := range d.sender.deliveries {
		ids[delivery.ID] = true
	}
	if len(ids) != 4 {
		t.Fatalf("4 deliveries have %d distinct ids", len(ids))
	}
}

func TestLocalDispatchLogsFailuresAndRaisesOnlyCriticalOnes(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	d.sender.results["w"] = webhook.Result{Class: tasks.ClassHTTP5xx, Status: 500, Message: "status 500"}
	d.sender.results["z"] = d.sender.results["w"]
	d.sender.results["c"] = webhook.Result{Class: tasks.ClassTimeout, Message: "timeout after 1s"}
	dual := webhookHook("dual", tasks.FallbackNone)
	dual.Handler = d.calls.handler("dual", errHandler)
	register(t, d.Dispatcher, dual, webhookHook("w", ""), webhookHook("z", tasks.FallbackNone),
		tasks.Hook{ID: "panics", Type: tasks.OnComplete, Handler: func(context.Context, *tasks.Event) error { panic("boom") }},
		webhookHook("c", tasks.FallbackNone), webhookHook("last", tasks.FallbackNone))

	err := d.Dispatch(t.Context(), operation, event(t), producer.WithID("ev-1"))
	var critical *producer.CriticalHookDeliveryError
	if !errors.As(err, &critical) || !errors.Is(err, producer.ErrCriticalHookDelivery) {
		t.Fatalf("dispatch returned %v, want a critical error", err)
	}
	if got, want := err.Error(), "Critical webhook delivery failed: z"; got != want {
		t.Fatalf("error text %q, want %q", got, want)
	}
	want := []producer.HookFailure{
		{HookID: "z", Class: tasks.ClassHTTP5xx, Status: 500, Attempt: 1, Message: "status 500"},
		{HookID: "c", Class: tasks.ClassTimeout, Attempt: 1, Message: "timeout after 1s"},
	}
	if diff := cmp.Diff(want, critical.Causes); diff != "" {
		t.Fatalf("causes (-want +got):\n%s", diff)
	}
	var cause *producer.HookFailureError
	if !errors.As(critical.Cause, &cause) || cause.HookID != "z" || critical.HookID != "z" || critical.TaskID != "ev-1" {
		t.Fatalf("first cause is %v of hook %q, task %q", critical.Cause, critical.HookID, critical.TaskID)
	}
	if !errors.As(err, &cause) || cause.Status != 500 {
		t.Fatalf("errors.As reached %v", cause)
	}
	d.calls.want(t, "dual:handler", "w:fetch", "z:fetch", "c:fetch", "last:fetch")
	d.logs.want(t, "hook.failed hook_id=dual", "hook.failed hook_id=w class=http_5xx", "hook.failed hook_id=z class=http_5xx",
		"hook.failed hook_id=panics", "hook.failed hook_id=c class=timeout")
}

func TestLocalDispatchLogsAFailedPublishThatAFetchMadeGood(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	d.sender.results["a"] = webhook.Result{Delivered: true, FellBack: true, Publish: "publish failed"}
	register(t, d.Dispatcher, webhookHook("a", ""))
	if err := d.Dispatch(t.Context(), operation, event(t)); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	d.logs.want(t, "hook.publish_failed hook_id=a")
}

func TestLocalDispatchWithoutADelivererIsNeverSilent(t *testing.T) {
	t.Parallel()
	d, err := producer.New(producer.Config{})
	if err != nil {
		t.Fatalf("new dispatcher: %v", err)
	}
	register(t, d, webhookHook("a", tasks.FallbackNone))
	if err := d.Dispatch(t.Context(), operation, event(t)); !errors.Is(err, producer.ErrCriticalHookDelivery) {
		t.Fatalf("dispatch returned %v, want a critical error", err)
	}
}

func TestLocalDispatchTakesTheRegistrationBeforeAPersistedList(t *testing.T) {
	t.Parallel()
	list := webhookHook("stored", "")
	for name, row := range map[string]struct {
		prepare func(t *testing.T, d *local)
		options []producer.EventOption
		want    []string
	}{
		"nothing registered": {
			prepare: func(*testing.T, *local) {},
			options: []producer.EventOption{producer.WithPersisted(persisted(t, list))},
			want:    []string{"stored:fetch"},
		},
		"registered": {
			prepare: func(t *testing.T, d *local) { register(t, d.Dispatcher, webhookHook("mem", "")) },
			options: []producer.EventOption{producer.WithPersisted(persisted(t, list))},
			want:    []string{"mem:fetch"},
		},
		"an empty registration is one": {
			prepare: func(t *testing.T, d *local) { register(t, d.Dispatcher) },
			options: []producer.EventOption{producer.WithPersisted(persisted(t, list))},
		},
		"unregistered": {
			prepare: func(t *testing.T, d *local) {
				register(t, d.Dispatcher, webhookHook("mem", ""))
				if err := d.Unregister(t.Context(), operation); err != nil {
					t.Fatalf("unregister: %v", err)
				}
			},
			options: []producer.EventOption{producer.WithPersisted(persisted(t, list))},
			want:    []string{"stored:fetch"},
		},
		"reserved ids in the list are dropped unread": {
			prepare: func(*testing.T, *local) {},
			options: []producer.EventOption{producer.WithPersisted(json.RawMessage(
				`[{"id":"server-env-webhook:onComplete","type":"nonsense"},{"id":"a","type":"onComplete","webhook":{"url":"/x"}}]`))},
			want: []string{"a:fetch"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newLocal(t)
			row.prepare(t, d)
			if err := d.Dispatch(t.Context(), operation, event(t), row.options...); err != nil {
				t.Fatalf("dispatch: %v", err)
			}
			d.calls.want(t, row.want...)
		})
	}
}

func TestLocalDispatchRefusesAnInvalidPersistedListBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	register(t, d.Dispatcher, webhookHook("mem", ""))
	raw := json.RawMessage(`[{"id":"ok","type":"onComplete","webhook":{"url":"/x"}},{"id":"bad","type":"onComplete"}]`)
	err := d.Dispatch(t.Context(), operation, event(t), producer.WithPersisted(raw))
	var invalid *tasks.InvalidError
	if !errors.As(err, &invalid) || !strings.HasPrefix(invalid.Path, "hooks[1]") {
		t.Fatalf("dispatch returned %v, want an invalid hooks[1]", err)
	}
	d.calls.want(t)
}

func TestABrokenEnvironmentFailsRegistrationAndDispatch(t *testing.T) {
	t.Parallel()
	errEnvironment := errors.New("AGENT_HOOK_WEBHOOK_URL is invalid")
	d, err := producer.New(producer.Config{
		EnvironmentHooks: func() ([]tasks.Hook, error) { return nil, errEnvironment },
	})
	if err != nil {
		t.Fatalf("new dispatcher: %v", err)
	}
	if err := d.Register(t.Context(), operation, nil); !errors.Is(err, errEnvironment) {
		t.Fatalf("register returned %v", err)
	}
	if err := d.Dispatch(t.Context(), operation, event(t)); !errors.Is(err, errEnvironment) {
		t.Fatalf("dispatch returned %v", err)
	}
	if _, err := d.CanDeliver(t.Context(), operation, tasks.OnComplete); !errors.Is(err, errEnvironment) {
		t.Fatalf("can deliver returned %v", err)
	}
}

func TestLocalDispatchStopsWhenTheCallerGivesUp(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	errGone := errors.New("caller left")
	ctx, cancel := context.WithCancelCause(t.Context())
	d.sender.results["a"] = webhook.Result{Class: tasks.ClassReset}
	register(t, d.Dispatcher, webhookHook("a", tasks.FallbackNone),
		tasks.Hook{ID: "b", Type: tasks.OnComplete, Handler: func(context.Context, *tasks.Event) error {
			cancel(errGone)
			return nil
		}}, webhookHook("d", ""))
	err := d.Dispatch(ctx, operation, event(t))
	if !errors.Is(err, errGone) || !errors.Is(err, producer.ErrCriticalHookDelivery) {
		t.Fatalf("dispatch returned %v, want the cause and the critical error", err)
	}
	d.calls.want(t, "a:fetch")
}

func TestHandlersCannotChangeWhatOthersSee(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	ev := event(t)
	ev.FinalState = "state"
	want := string(ev.Raw)
	var seen any
	register(t, d.Dispatcher, tasks.Hook{ID: "a", Type: tasks.OnComplete, Handler: func(_ context.Context, ev *tasks.Event) error {
		seen = ev.FinalState
		clear(ev.Raw)
		ev.OperationID = "other"
		return nil
	}}, webhookHook("b", ""))
	if err := d.Dispatch(t.Context(), operation, ev); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	if got := string(d.sender.deliveries[0].Event); got != want || seen != "state" {
		t.Fatalf("webhook got %s, handler saw final state %v", got, seen)
	}
}

func TestRegisterTakesASnapshotAllOrNothing(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	matcher := "shell/.*"
	hook := tasks.Hook{ID: "a", Type: tasks.BeforeToolCall, Matcher: &matcher, Webhook: &tasks.Webhook{URL: "https://rx.test/a"}}
	register(t, d.Dispatcher, hook, tasks.Hook{ID: tasks.ReservedIDPrefix + "x"})
	matcher, hook.Webhook.URL = "never", "https://elsewhere.test/"

	err := d.Register(t.Context(), operation, []tasks.Hook{webhookHook("b", ""), {ID: "bad", Type: tasks.OnComplete}})
	var invalid *tasks.InvalidError
	if !errors.As(err, &invalid) || invalid.Code != tasks.NoAction {
		t.Fatalf("register returned %v, want %s", err, tasks.NoAction)
	}
	raw := json.RawMessage(`[{"id":"raw","type":"onComplete","handler":"fn","surplus":1}]`)
	if err := d.RegisterRaw(t.Context(), operation, raw, map[string]tasks.Handler{"fn": d.calls.handler("raw", nil)}); err != nil {
		t.Fatalf("register raw: %v", err)
	}
	var ids []string
	for _, hook := range d.Hooks(operation) {
		ids = append(ids, hook.ID)
	}
	if diff := cmp.Diff([]string{"a", "raw"}, ids); diff != "" {
		t.Fatalf("hooks (-want +got):\n%s", diff)
	}
	if !d.HasHooks(operation) || !d.HasHook(operation, "raw") || d.HasHook(operation, "b") || d.HasHooks("elsewhere") {
		t.Fatal("queries disagree with the registration")
	}
	if err := d.Dispatch(t.Context(), operation, toolEvent(t)); err != nil {
		t.Fatalf("dispatch: %v", err)
	}
	d.calls.want(t, "a:fetch")
	if got := d.sender.deliveries[0].Hook.Webhook.URL; got != "https://rx.test/a" {
		t.Fatalf("delivered to %s", got)
	}
}

func TestMatcherWithoutAnAnswerIsAFailedDelivery(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	ev := eventOf(t, tasks.OnToolCallError, `{"apiName":"`+strings.Repeat("a", 64)+`!","identifier":"a","args":{},"assistantMessageId":"m",
		"callIndex":1,"executor":"server","operationId":"op","stepIndex":0,"toolCallId":"c1","error":"e"}`)
	slow := `(a+)+\1$`
	register(t, d.Dispatcher, tasks.Hook{
		ID: "slow", Type: tasks.OnToolCallError, Matcher: &slow,
		Webhook: &tasks.Webhook{URL: "https://rx.test/slow", Fallback: tasks.FallbackNone},
	})
	err := d.Dispatch(t.Context(), operation, ev)
	var cause *producer.HookFailureError
	if !errors.As(err, &cause) || cause.Class != tasks.ClassConfiguration {
		t.Fatalf("dispatch returned %v, want a critical configuration failure", err)
	}
	d.calls.want(t)
	d.logs.want(t, "hook.failed hook_id=slow class=configuration")
}

func TestCallsThatCanNeverSucceedAreRefused(t *testing.T) {
	t.Parallel()
	d := newLocal(t)
	ev := event(t)
	for name, call := range map[string]func() error{
		"no operation":    func() error { return d.Dispatch(t.Context(), "", ev) },
		"other operation": func() error { return d.Dispatch(t.Context(), "else", ev) },
		"nil event":       func() error { return d.Dispatch(t.Context(), operation, nil) },
		"unknown type": func() error {
			return d.Dispatch(t.Context(), operation, &tasks.Event{Type: "onFire", OperationID: operation, Raw: ev.Raw})
		},
		"no raw object": func() error {
			return d.Dispatch(t.Context(), operation, &tasks.Event{Type: tasks.OnComplete, OperationID: operation})
		},
		"delay in local mode":    func() error { return d.Dispatch(t.Context(), operation, ev, producer.WithDelay(1)) },
		"negative delay":         func() error { return d.Dispatch(t.Context(), operation, ev, producer.WithDelay(-1)) },
		"control character":      func() error { return d.Dispatch(t.Context(), operation, ev, producer.WithID("a\n")) },
		"register no operation":  func() error { return d.Register(t.Context(), "", nil) },
		"enqueue in local mode":  func() error { _, err := d.Enqueue(t.Context(), operation, ev); return err },
		"await in local mode":    func() error { _, err := d.Await(t.Context(), operation, "x"); return err },
		"mock of another type":   func() error { _, err := d.DispatchBeforeToolCall(t.Context(), operation, ev); return err },
		"queue without a store":  func() error { _, err := producer.New(producer.Config{Mode: producer.ModeQueue}); return err },
		"unknown mode":           func() error { _, err := producer.New(producer.Config{Mode: "Queue"}); return err },
		"negative await timeout": func() error { _, err := producer.New(producer.Config{AwaitTimeout: -1}); return err },
		"negative batch limit":   func() error { _, err := producer.New(producer.Config{MaxBatch: -1}); return err },
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	d.calls.want(t)
}

func TestCanDeliverInLocalModeCountsEveryHook(t *testing.T) {
	t.Parallel()
	d := newLocal(t, tasks.Hook{
		ID: tasks.ReservedIDPrefix + "onError", Type: tasks.OnError, Webhook: &tasks.Webhook{URL: "https://env.test/"},
	})
	register(t, d.Dispatcher, tasks.Hook{ID: "h", Type: tasks.OnComplete, Handler: d.calls.handler("h", nil)})
	for hookType, want := range map[tasks.HookType]bool{tasks.OnComplete: true, tasks.OnError: true, tasks.AfterStep: false} {
		got, err := d.CanDeliver(t.Context(), operation, hookType)
		if err != nil || got != want {
			t.Errorf("can deliver %s: %v, %v; want %v", hookType, got, err, want)
		}
	}
}
