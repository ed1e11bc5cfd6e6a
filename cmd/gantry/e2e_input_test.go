package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

// fault is one place of a problem document.
type fault struct{ Path, Code, Message, Fix string }

// faults reads those of an answer.
func (r reply) faults(t *testing.T) []fault {
	t.Helper()
	var problem struct {
		Code   string
		Errors []fault
	}
	if err := json.Unmarshal([]byte(r.raw), &problem); err != nil || problem.Code == "" {
		t.Fatalf("no problem document: %v, %s", err, r.raw)
	}
	return problem.Errors
}

// webhookWith is a list of one hook with these members of its webhook.
func webhookWith(members string) string {
	return `[{"id":"h","type":"afterStep","webhook":{` + members + `}}]`
}

// Whatever is wrong with hooks or events is refused at the door with a code, the
// path of the field and what would be right, and nothing is stored, neither of
// it nor of what came with it.
func TestBadInputIsRefusedWhole(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.hook(t, "op", "http://127.0.0.1:1/", "", "")
	const good = `{"id":"good","type":"afterStep","event":{"agentId":"a","userId":"u"}}`
	const hooks, events = "/hooks", "/events"
	deep := strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001)
	rows := []struct {
		to, body   string
		status     int
		code, path string
	}{
		{hooks, webhookWith(`"url":"/\t/evil.test"`), 422, "invalid_url", "hooks[0].webhook.url"},
		{hooks, webhookWith(`"url":"https:foo"`), 422, "invalid_url", "hooks[0].webhook.url"},
		{hooks, webhookWith(`"url":"/a\\b"`), 422, "invalid_url", "hooks[0].webhook.url"},
		{hooks, webhookWith(`"url":"https://user:password@x.test/"`), 422, "invalid_url", "hooks[0].webhook.url"},
		{hooks, webhookWith(`"url":"https://x.test","timeout":1e400`), 422, "invalid_timeout", "hooks[0].webhook.timeout"},
		{hooks, webhookWith(`"url":"https://x.test","timeout":-1`), 422, "invalid_timeout", "hooks[0].webhook.timeout"},
		{hooks, webhookWith(`"url":"https://x.test","timeout":NaN`), 400, "invalid_json", ""},
		{hooks, webhookWith(`"url":"https://x.test","url":5`), 422, "invalid_url", "hooks[0].webhook.url"},
		{hooks, webhookWith(`"url":"https://x.test","headers":{"X":1}`), 422, "invalid_headers", "hooks[0].webhook.headers.X"},
		{hooks, webhookWith(`"url":"https://x.test","Timeout":1`), 422, "unknown_field", "hooks[0].webhook.Timeout"},
		{hooks, `[{"id":"h","type":"beforeToolCall","matcher":"(","webhook":{"url":"/"}}]`, 422, "invalid_matcher", "hooks[0].matcher"},
		{hooks, `[{"id":"h","type":"afterStep","webhook":{"url":"/"}},{"id":"h","type":"AfterStep","webhook":{"url":"/"}}]`, 422, "unknown_type", "hooks[1].type"},
		{hooks, deep, 400, "invalid_json", ""},
		{events, `{"type":"afterStep","event":` + deep + `}`, 400, "invalid_json", ""},
		{events, "[" + good + `,{"type":"afterStep","event":{"agentId":"a","userId":5}}]`, 422, "invalid_field", "events[1].event.userId"},
		{events, "[" + good + `,{"type":"afterStep","event":{"agentId":"a"}}]`, 422, "missing_field", "events[1].event.userId"},
		{events, "[" + good + `,{"type":"afterStep","event":{"agentId":"a","userId":"u","operationId":"other"}}]`, 422, "operation_mismatch", "events[1].event.operationId"},
		{events, "[" + good + `,{"type":"nope","event":{}}]`, 422, "unknown_type", "events[1].type"},
		{events, "[" + good + `,{"id":"a\nb","type":"afterStep","event":{"agentId":"a","userId":"u"}}]`, 422, "invalid_task_id", "events[1].id"},
		{events, "[" + good + `,"text"]`, 422, "invalid_event", "events[1]"},
		{events, "\xff{", 400, "invalid_utf8", ""},
		{events, "null", 422, "invalid_request", ""},
	}
	before := s.keys(t)
	for _, row := range rows {
		for _, op := range []string{"op", "unknown"} {
			r := s.call(t, http.MethodPost, operation(op)+row.to, row.body)
			found := r.faults(t)
			if r.status != row.status || len(found) != 1 || found[0].Code != row.code || found[0].Path != row.path || found[0].Fix == "" {
				t.Errorf("%s with %.100s = %d %.300s\nwant %d, %s at %q and a fix", row.to, row.body, r.status, r.raw, row.status, row.code, row.path)
			}
		}
	}
	if diff := cmp.Diff(before, s.keys(t)); diff != "" {
		t.Errorf("keys in Redis (-before +after):\n%s", diff)
	}
	r := s.call(t, http.MethodGet, operation("op")+"/events/good", "")
	if r.status != http.StatusNotFound {
		t.Errorf("a member of a refused batch is known: %d %s", r.status, r.raw)
	}
}

// A body over the limit is answered with the limit.
func TestOversizedBodyNamesTheLimit(t *testing.T) {
	t.Parallel()
	s := newSystem(t, "GANTRY_MAX_BODY=10KiB")
	before := s.keys(t)
	for _, path := range []string{"/hooks", "/events"} {
		r := s.call(t, http.MethodPost, operation("op")+path, "["+strings.Repeat(" ", 10<<10)+"]")
		if r.status != http.StatusRequestEntityTooLarge || r.body["code"] != "body_too_large" || !strings.Contains(r.raw, "10240 bytes") {
			t.Errorf("%s = %d %s", path, r.status, r.raw)
		}
	}
	if diff := cmp.Diff(before, s.keys(t)); diff != "" {
		t.Errorf("keys in Redis (-before +after):\n%s", diff)
	}
}

// An event of an operation that nobody registered is taken, because environment
// hooks may exist, and costs nothing when none matches.
func TestEventOfNobodyCostsNothing(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	before := s.keys(t)
	r := s.must(t, http.MethodPost, operation("nobody")+"/events?await=5s", stepEvents(1, 50))
	if strings.Count(r.raw, `"skipped":true`) != 50 {
		t.Errorf("receipts: %.300s", r.raw)
	}
	if diff := cmp.Diff(before, s.keys(t)); diff != "" {
		t.Errorf("keys in Redis (-before +after):\n%s", diff)
	}
}

// Fifty requests with one id at the same time are one delivery. The id with
// other content is refused, and with it the batch in which it stands.
func TestOneIDIsOneDelivery(t *testing.T) {
	t.Parallel()
	s, r := newSystem(t), startedReceiver(t, nil)
	s.hook(t, "op", r.URL, "", "")
	var callers sync.WaitGroup
	replies := make([]reply, 50)
	for n := range replies {
		callers.Go(func() {
			var err error
			if replies[n], err = s.try(t, http.MethodPost, operation("op")+"/events?await=30s&awaitMode=final", stepEvents(1, 1)); err != nil {
				t.Errorf("call %d: %v", n, err)
			}
		})
	}
	callers.Wait()
	fresh := 0
	for n, r := range replies {
		if r.status != http.StatusOK || !strings.Contains(r.raw, `"sequence":1`) {
			t.Errorf("call %d = %d %s", n, r.status, r.raw)
		}
		if strings.Contains(r.raw, `"duplicate":false`) {
			fresh++
		}
	}
	if n := len(r.seen()); n != 1 || fresh != 1 {
		t.Errorf("%d deliveries and %d receipts of a new event, want one each", n, fresh)
	}
	before := s.keys(t)
	other := `{"id":"e1","type":"afterStep","event":{"agentId":"other","userId":"u"}}`
	batch := `[{"id":"e2","type":"afterStep","event":{"agentId":"a","userId":"u","stepIndex":2}},` + other + `]`
	for _, body := range []string{other, batch} {
		if r := s.call(t, http.MethodPost, operation("op")+"/events", body); r.status != http.StatusConflict || r.body["code"] != "id_reused" {
			t.Errorf("reused id = %d %s", r.status, r.raw)
		}
	}
	if diff := cmp.Diff(before, s.keys(t)); diff != "" {
		t.Errorf("keys in Redis (-before +after):\n%s", diff)
	}
	if failures := s.outcomes(t, "op", 2); len(failures) != 0 {
		t.Errorf("not delivered: %v", failures)
	}
	if diff := cmp.Diff([]int{1, 2}, stepsOf(r.seen(), "op")); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// Ids are text: any script, slashes, braces, dots, and the longest.
func TestIDsOfAnyScript(t *testing.T) {
	t.Parallel()
	s, r := newSystem(t), startedReceiver(t, nil)
	for _, id := range []string{
		"a/b", "a//b", "..", ".", "%2F", "é", "日本語", "𐀀\U0010ffff", "\U000e0001", "a b", "{0}:lane", "a|b", "*", "?x=1", "#", `"`, `\`,
		"\u2028", "\ufeff", "\ufffe", "\u202e", strings.Repeat("é", 256), ":replay", "null",
	} {
		path := strings.ReplaceAll(operation(id), ".", "%2E")
		name, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		s.must(t, http.MethodPut, path+"/hooks", fmt.Sprintf(`[{"id":%s,"type":"afterStep","webhook":{"url":%q}}]`, name, r.URL))
		answer := s.must(t, http.MethodPost, path+"/events?await=30s&awaitMode=final",
			fmt.Sprintf(`{"id":%s,"type":"afterStep","event":{"agentId":"a","userId":"u"}}`, name))
		if answer.status != http.StatusOK || answer.body["operationId"] != id {
			t.Errorf("operation %q = %d %s", id, answer.status, answer.raw)
		}
		visits := r.seen()
		if got := visits[len(visits)-1].op; got != id {
			t.Errorf("the receiver saw operation %q, want %q", got, id)
		}
	}
}

// poisons are bytes that are no task.
var poisons = []string{"\xff{", `"text"`, "null", strings.Repeat("[", 50) + strings.Repeat("]", 50)}

// Bytes that are no task are put into the queue by every door: HTTP refuses them,
// those that come through asynq or by hand are quarantined once with a reason,
// and the lanes flow, also after a restart.
func TestPoisonIsPutAsideWhereverItComesIn(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s := startSystem(t, client, systemEnv(server.URL()))
	release := make(chan struct{})
	r := startedReceiver(t, func(w http.ResponseWriter, v visit) {
		if v.op == "op" && v.step == 1 {
			<-release
		}
		w.WriteHeader(http.StatusNoContent)
	})
	s.hook(t, "op", r.URL, "", "")
	s.hook(t, "other", r.URL, "", "")
	s.send(t, "op", 1, 1)
	r.until(t, "the first event", atLeast(1))
	door := asynq.NewClientFromRedisClient(client)
	by := map[string]bool{}
	for i, raw := range poisons {
		if answer := s.call(t, http.MethodPost, operation("op")+"/events", raw); answer.status/100 != 4 {
			t.Errorf("%q over HTTP = %d %s", raw, answer.status, answer.raw)
		}
		if err := client.RPush(t.Context(), "gantry:{0}:lane:"+tasks.OperationHash("op"), raw).Err(); err != nil {
			t.Fatalf("push by hand: %v", err)
		}
		if _, err := door.Enqueue(asynq.NewTask(tasks.TypeHookDispatch, []byte(raw+strings.Repeat(" ", i+1))), asynq.Queue("gantry")); err != nil {
			t.Fatalf("enqueue: %v", err)
		}
		by[raw], by[raw+strings.Repeat(" ", i+1)] = true, true
	}
	s.send(t, "op", 2, 3)
	close(release)
	s.send(t, "other", 1, 3)
	visits := r.until(t, "the events beside the poison", atLeast(6))
	if diff := cmp.Diff([]int{1, 2, 3}, stepsOf(visits, "op")); diff != "" {
		t.Errorf("the poisoned lane (-want +got):\n%s", diff)
	}
	quarantined := func() int { return int(s.must(t, http.MethodGet, "/v1/dead-letters", "").body["total"].(float64)) }
	eventually(t, "the quarantine", func() bool { return quarantined() == len(by) })
	letters, ok := s.must(t, http.MethodGet, "/v1/dead-letters?limit=100", "").body["deadLetters"].([]any)
	if !ok || len(letters) != len(by) {
		t.Fatalf("%d dead letters, want %d", len(letters), len(by))
	}
	for _, l := range letters {
		letter, _ := l.(map[string]any)
		outcome, _ := letter["outcome"].(map[string]any)
		if outcome["reason"] != "poison" {
			t.Errorf("letter %v, want the reason poison", letter)
		}
	}
	again := launch(t, s.env, "worker")
	again.log.await(t, "worker.started", 1)
	s.send(t, "op", 4, 4)
	r.until(t, "an event after a restart", atLeast(7))
	if n := quarantined(); n != len(by) {
		t.Errorf("%d dead letters after a restart, want %d", n, len(by))
	}
	inspector := asynq.NewInspectorFromRedisClient(client)
	if info, err := inspector.GetQueueInfo("gantry"); err != nil || info.Size != 0 || info.Archived != 0 {
		t.Errorf("asynq's queue is %+v, %v; want it empty", info, err)
	}
}

// Settings that cannot work are refused at the start, with their names.
func TestBadSettingsAreRefusedAtStart(t *testing.T) {
	t.Parallel()
	for setting, name := range map[string]string{
		"GANTRY_LANE_LEASE=2s":                  "lane.lease",
		"GANTRY_WORKER_CONCURRENCY=0":           "worker.concurrency",
		"GANTRY_RETRY_FACTOR=NaN":               "retry.factor",
		"GANTRY_RETRY_JITTER=+Inf":              "retry.jitter",
		"GANTRY_EGRESS_ALLOW=::ffff:10.0.0.0/8": "webhook.egress_allow",
		"GANTRY_MAX_BODY=-1":                    "api.max_body",
		"GANTRY_LAEN_LEASE=4s":                  "GANTRY_LANE_LEASE",
		"AGENT_HOOK_WEBHOOK_EVENTS=nope":        "AGENT_HOOK_WEBHOOK_EVENTS",
	} {
		variable, value, _ := strings.Cut(setting, "=")
		env := map[string]string{"REDIS_URL": "redis://127.0.0.1:1", "GANTRY_TOKENS": "operator:tk", variable: value}
		got := invoke(t, env, "worker")
		if got.code == exitOK || !strings.Contains(got.err, name) {
			t.Errorf("%s = code %d, %s", setting, got.code, got.err)
		}
	}
}
