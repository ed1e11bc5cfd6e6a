package taskdoor_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/worker/taskdoor"
)

// forHook is a message for one hook, which it brings along.
func forHook(id string, sequence int64, hook tasks.Hook) []byte {
	return doc(id, of(tasks.Relay{Stream: "s", Sequence: sequence, Hook: tasks.HookKey(&hook, 0), Retries: 3}, hook))
}

var (
	fails    = webhook.Result{Class: tasks.ClassHTTP5xx, Status: 500, Message: "Hook HTTP request failed: http_error (HTTP 500)"}
	busy     = webhook.Result{Class: tasks.ClassHTTP429, Status: 429, RetryAfter: 90 * time.Second, Message: "Hook HTTP request failed: http_error (HTTP 429)"}
	finished = webhook.Result{Class: tasks.ClassHTTP4xx, Status: 410, Final: true, Reason: tasks.ReasonEndpointGone, Message: "Hook HTTP request failed: http_error (HTTP 410)"}
)

func TestDeliversOneHook(t *testing.T) {
	t.Parallel()
	// With lanes as well: what is for one hook never joins a lane.
	for name, edit := range map[string]func(*taskdoor.Config){"without lanes": noLanes, "with lanes": nil} {
		b := setup(t, edit)
		hook := hookOf("a")
		body := doc("t1", func(task *tasks.Task) {
			of(tasks.Relay{Stream: "s", Sequence: 1, Hook: tasks.HookKey(&hook, 1), Retries: 3}, hook)(task)
			task.Trace = "00-a-b-01"
		})
		b.want(sent{body: body}, 200, "delivered")
		b.want(sent{body: body, retried: 1}, 200, "duplicate")
		if len(b.lanes.order) != 0 || len(b.deliverer.deliveries) != 1 {
			t.Fatalf("%s: lane %v, deliveries %v", name, b.lanes.order, b.deliverer.made())
		}
		got := b.deliverer.deliveries[0]
		want := webhook.Delivery{
			Hook: got.Hook, Type: tasks.OnComplete, Event: json.RawMessage(`{"agentId":"a","operationId":"op","userId":"u","reason":"done"}`),
			// The second of its kind, although it travels alone.
			ID: tasks.DeliveryID("ns", "op", "t1", tasks.HookKey(&hook, 1)), TaskID: "t1", OperationID: "op",
			Sequence: 1, Attempt: 1, Queued: true, Trace: "00-a-b-01",
		}
		if diff := cmp.Diff(want, got); diff != "" || got.Hook.ID != "a" {
			t.Errorf("%s: delivery (-want +got):\n%s", name, diff)
		}
	}
}

// A failing hook holds up its own later events and nobody else's, and each is
// delivered once.
func TestFailingHookKeepsItsOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, noLanes)
	a, c := hookOf("a"), hookOf("c")
	b.deliverer.results["a"] = []webhook.Result{fails, busy}
	b.want(sent{body: forHook("t1", 1, a)}, 500, "failed")
	b.want(sent{body: forHook("t1", 1, c)}, 200, "delivered")
	b.want(sent{body: forHook("t2", 2, a)}, 503, "early")
	b.want(sent{body: forHook("t2", 2, c)}, 200, "delivered")
	if wait := b.want(sent{body: forHook("t1", 1, a), retried: 1}, 503, "failed").Header.Get("Retry-After"); wait != "90" {
		t.Errorf("Retry-After %s", wait)
	}
	if wait := b.want(sent{body: forHook("t2", 2, a), retried: 1}, 503, "early").Header.Get("Retry-After"); wait != "91" {
		t.Errorf("the next one waits %s s for what is due in 90", wait)
	}
	b.want(sent{body: forHook("t1", 1, a), retried: 2}, 200, "delivered")
	b.want(sent{body: forHook("t2", 2, a), retried: 2}, 200, "delivered")
	want := []string{"a#t1@1", "c#t1@1", "c#t2@1", "a#t1@2", "a#t1@3", "a#t2@3"}
	if diff := cmp.Diff(want, b.deliverer.made()); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}

// A delivery that is given up lets the next one pass, whoever gave it up.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result  webhook.Result
		retried int
		direct  bool
		status  int
		says    string
	}{
		"the last attempt fails":       {result: fails, retried: 3, status: 500, says: "failed"},
		"the endpoint is gone":         {result: finished, status: 489, says: "given_up"},
		"a runtime brought it itself":  {result: fails, direct: true, status: 500, says: "failed"},
		"the last attempt is too soon": {result: busy, retried: 3, status: 503, says: "failed"},
	} {
		b := setup(t, noLanes)
		a := hookOf("a")
		b.deliverer.results["a"] = []webhook.Result{test.result}
		s := sent{body: forHook("t1", 1, a), retried: test.retried}
		if test.direct {
			s.edit = own(ownKey, time.Now())
		}
		b.want(s, test.status, test.says)
		b.want(sent{body: forHook("t2", 2, a)}, 200, "delivered")
		// An operator who sends it again from the dead letters gets it delivered.
		b.want(sent{body: forHook("t1", 1, a)}, 200, "delivered")
		if n := len(b.deliverer.made()); n != 3 {
			t.Errorf("%s: %d deliveries", name, n)
		}
	}
}

func TestEnvironmentHookByName(t *testing.T) {
	t.Parallel()
	b := setup(t, noLanes)
	env := hookOf(tasks.ReservedIDPrefix + "onComplete")
	b.env = []tasks.Hook{env}
	relay := tasks.Relay{Stream: "s", Sequence: 1, Hook: tasks.HookKey(&env, 0), Retries: 3}
	b.want(sent{body: doc("t1", of(relay))}, 200, "delivered")
	b.env = nil
	relay.Sequence = 2
	b.want(sent{body: doc("t2", of(relay))}, 200, "hook_removed")
	// A message about a caller's hook reaches no other.
	b.env = []tasks.Hook{env}
	b.want(sent{body: forHook("t3", 1, hookOf("a"))}, 200, "delivered")
	if diff := cmp.Diff([]string{env.ID + "#t1@1", "a#t3@1"}, b.deliverer.made()); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}

// A whole task is delivered at once where there are no lanes, and a repetition
// repeats only what failed.
func TestDeliversWholeTasks(t *testing.T) {
	t.Parallel()
	b := setup(t, noLanes)
	env := hookOf(tasks.ReservedIDPrefix + "onComplete")
	b.env = []tasks.Hook{env}
	b.deliverer.results["a"] = []webhook.Result{finished}
	b.deliverer.results["b"] = []webhook.Result{fails}
	body := doc("t1", of(tasks.Relay{Stream: "s", Sequence: 1, Retries: 3}, hookOf("a"), hookOf("b"), hookOf("b")))
	b.want(sent{body: body}, 500, "failed")
	b.want(sent{body: body, retried: 1}, 200, "delivered")
	b.want(sent{body: body, retried: 2}, 200, "duplicate")
	want := []string{"a#t1@1", "b#t1@1", "b#t1@1", env.ID + "#t1@1", "b#t1@2"}
	if diff := cmp.Diff(want, b.deliverer.made()); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
	b.deliverer.results["a"] = []webhook.Result{finished}
	b.want(sent{body: doc("t2", of(tasks.Relay{}, hookOf("a")))}, 489, "given_up")
	b.env = nil
	b.want(sent{body: doc("t3", of(tasks.Relay{}))}, 200, "hook_removed")
}

// A matcher without an answer fails its own hook only.
func TestMatcherWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, noLanes)
	slow, quick := hookOf("slow"), hookOf("quick")
	pattern := `^(?=(a+)+$)(a+)+$`
	slow.Type, quick.Type, slow.Matcher = tasks.OnToolCallError, tasks.OnToolCallError, &pattern
	toolEvent := func(task *tasks.Task) {
		task.Type = tasks.OnToolCallError
		task.Event = json.RawMessage(`{"apiName":"run","identifier":"` + strings.Repeat("a", 60) + `","args":{},"assistantMessageId":"m",
			"callIndex":1,"executor":"server","operationId":"op","stepIndex":0,"toolCallId":"c1","error":"boom"}`)
	}
	body := func(relay tasks.Relay, hooks ...tasks.Hook) []byte {
		return doc("t", func(task *tasks.Task) { toolEvent(task); of(relay, hooks...)(task) })
	}
	b.want(sent{body: body(tasks.Relay{Hook: tasks.HookKey(&slow, 0)}, slow)}, 489, "given_up")
	b.want(sent{body: body(tasks.Relay{}, slow, quick)}, 489, "given_up")
	if diff := cmp.Diff([]string{"quick#t@1"}, b.deliverer.made()); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}

func TestUnsettledPublishIsPassedOn(t *testing.T) {
	t.Parallel()
	b := setup(t, noLanes)
	a := hookOf("a")
	a.Webhook.Delivery = tasks.DeliverQStash
	b.deliverer.results["a"] = []webhook.Result{{Class: tasks.ClassQStash, Message: "unknown"}, fails}
	b.want(sent{body: forHook("t1", 1, a)}, 500, "failed")
	b.want(sent{body: forHook("t1", 1, a), retried: 1}, 500, "failed")
	b.want(sent{body: forHook("t1", 1, a), retried: 2}, 200, "delivered")
	for i, d := range b.deliverer.deliveries {
		if want := i > 0; d.Unsettled != want {
			t.Errorf("attempt %d: unsettled %t", i+1, d.Unsettled)
		}
	}
}

// Two of the same message at once: one works, the other is told to come again,
// and never that all is well.
func TestTheSameMessageTwiceAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, noLanes)
	inside, goOn := make(chan struct{}), make(chan struct{})
	b.deliverer.do = func(context.Context, webhook.Delivery) { close(inside); <-goOn }
	body, done := forHook("t1", 1, hookOf("a")), make(chan *http.Response)
	go func() { done <- b.send(sent{body: body}) }()
	<-inside
	b.want(sent{body: body}, 409, "busy")
	close(goOn)
	if resp := <-done; resp.StatusCode != http.StatusOK {
		t.Errorf("the first: %d", resp.StatusCode)
	}
	b.want(sent{body: body}, 200, "duplicate")
}

// QStash hangs up when its timeout is over. The delivery is finished all the
// same, so that the next attempt finds it done and does not repeat it.
func TestTheSenderHangsUp(t *testing.T) {
	t.Parallel()
	b := setup(t, noLanes)
	ctx, cancel := context.WithCancel(t.Context())
	b.deliverer.do = func(work context.Context, _ webhook.Delivery) {
		cancel()
		if work.Err() != nil {
			t.Error("the delivery was cut off")
		}
	}
	body := forHook("t1", 1, hookOf("a"))
	b.send(sent{body: body, edit: func(r *http.Request) { *r = *r.WithContext(ctx) }})
	b.want(sent{body: body, retried: 1}, 200, "duplicate")
}

// When all places are taken a message waits a moment and is then sent away; its
// place in the order stays free for it.
func TestAllPlacesAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *taskdoor.Config) { noLanes(c); c.Concurrency = 1 })
		goOn := make(chan struct{})
		b.deliverer.do = func(_ context.Context, d webhook.Delivery) {
			if d.TaskID == "t1" {
				<-goOn
			}
		}
		done := make(chan *http.Response)
		go func() { done <- b.send(sent{body: forHook("t1", 1, hookOf("a"))}) }()
		synctest.Wait()
		b.want(sent{body: forHook("t1", 1, hookOf("c"))}, 503, "unavailable")
		b.want(sent{body: forHook("t2", 2, hookOf("c"))}, 503, "early")
		close(goOn)
		<-done
		b.want(sent{body: forHook("t1", 1, hookOf("c")), retried: 1}, 200, "delivered")
	})
}

func TestNobodyDelivers(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *taskdoor.Config) { c.Deliverer = nil })
	b.want(sent{body: forHook("t1", 1, hookOf("a"))}, 503, "unavailable")
	b.want(sent{body: doc("t1", nil)}, 200, "stored")
}
