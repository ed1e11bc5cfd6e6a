package taskdoor_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/worker/taskdoor"
)

const (
	publicURL  = "https://gantry.test/v1/qstash/tasks"
	currentKey = "sig_current"
	nextKey    = "sig_next"
	ownKey     = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// lanes remembers what is appended.
type lanes struct {
	mu    sync.Mutex
	items map[string]lane.Item
	order []string
	err   error
}

func (l *lanes) Append(_ context.Context, operation string, items []lane.Item) ([]lane.Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	key := operation + "/" + items[0].ID
	known, duplicate := l.items[key]
	if duplicate && known.Digest != items[0].Digest {
		return nil, &lane.ReusedError{ID: items[0].ID}
	}
	l.items[key] = items[0]
	if !duplicate {
		l.order = append(l.order, items[0].ID)
	}
	return []lane.Appended{{ID: items[0].ID, Duplicate: duplicate}}, nil
}

// deliverer answers with results by hook id, one after the other.
type deliverer struct {
	mu         sync.Mutex
	results    map[string][]webhook.Result
	deliveries []webhook.Delivery
	do         func(ctx context.Context, d webhook.Delivery)
}

func (d *deliverer) Deliver(ctx context.Context, del webhook.Delivery) webhook.Result {
	d.mu.Lock()
	d.deliveries = append(d.deliveries, del)
	result := webhook.Result{Delivered: true, Status: 200}
	if list := d.results[del.Hook.ID]; len(list) > 0 {
		result, d.results[del.Hook.ID] = list[0], list[1:]
	}
	do := d.do
	d.mu.Unlock()
	if do != nil {
		do(ctx, del)
	}
	return result
}

// made are the deliveries so far, as "hook#task@attempt".
func (d *deliverer) made() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []string{}
	for _, del := range d.deliveries {
		list = append(list, fmt.Sprintf("%s#%s@%d", del.Hook.ID, del.TaskID, del.Attempt))
	}
	return list
}

// bundle is a door with all that stands behind it.
type bundle struct {
	t         *testing.T
	door      *taskdoor.Door
	lanes     *lanes
	deliverer *deliverer
	log       *bytes.Buffer
	env       []tasks.Hook
}

func setup(t *testing.T, edit func(*taskdoor.Config)) *bundle {
	t.Helper()
	keys, err := qstash.ParseKeys(currentKey, nextKey, qstash.Production)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := qstash.NewVerifier(qstash.VerifierConfig{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	own, err := signature.ParseKeys(ownKey)
	if err != nil {
		t.Fatal(err)
	}
	b := &bundle{t: t, lanes: &lanes{items: map[string]lane.Item{}}, deliverer: &deliverer{results: map[string][]webhook.Result{}}, log: &bytes.Buffer{}}
	logger := logrus.New()
	logger.SetOutput(b.log)
	logger.SetFormatter(&logrus.JSONFormatter{})
	config := taskdoor.Config{
		URL: publicURL, Verifier: verifier, Keys: own, Lanes: b.lanes, Deliverer: b.deliverer, Namespace: "ns",
		Claims: taskdoor.NewMemoryClaims(taskdoor.ClaimsConfig{}), Logger: logger, Registerer: prometheus.NewRegistry(),
		EnvironmentHooks: func() ([]tasks.Hook, error) { return b.env, nil },
	}
	if edit != nil {
		edit(&config)
	}
	if b.door, err = taskdoor.New(config); err != nil {
		t.Fatalf("new door: %v", err)
	}
	return b
}

func noLanes(c *taskdoor.Config) { c.Lanes = nil }

// doc is a task document; edit changes the task.
func doc(id string, edit func(*tasks.Task)) []byte {
	task := &tasks.Task{
		ID: id, OperationID: "op", Type: tasks.OnComplete,
		Event: json.RawMessage(`{"agentId":"a","operationId":"op","userId":"u","reason":"done"}`),
	}
	if edit != nil {
		edit(task)
	}
	raw, err := task.Encode()
	if err != nil {
		panic(err)
	}
	return raw
}

func hookOf(id string) tasks.Hook {
	return tasks.Hook{ID: id, Type: tasks.OnComplete, Webhook: &tasks.Webhook{URL: "https://rx.test/" + id}}
}

// of makes a message for hooks with a place in the order; one hook's key makes it
// a message for that hook.
func of(relay tasks.Relay, hooks ...tasks.Hook) func(*tasks.Task) {
	return func(task *tasks.Task) {
		if len(hooks) > 0 {
			raw, err := tasks.EncodeHooks(hooks)
			if err != nil {
				panic(err)
			}
			task.Hooks = raw
		}
		task.SetRelay(relay)
	}
}

// sent is what a test sends: signed by QStash unless edit changes that.
type sent struct {
	body    []byte
	key     string
	url     string
	retried int
	edit    func(*http.Request)
}

func (b *bundle) send(s sent) *http.Response {
	b.t.Helper()
	if s.key == "" {
		s.key = currentKey
	}
	if s.url == "" {
		s.url = publicURL
	}
	sum := sha256.Sum256(s.body)
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": "Upstash", "sub": s.url, "exp": time.Now().Unix() + 300, "nbf": 0, "jti": "jwt", "body": base64.URLEncoding.EncodeToString(sum[:]),
	}).SignedString([]byte(s.key))
	if err != nil {
		b.t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(b.t.Context(), http.MethodPost, "http://attacker.test/elsewhere", bytes.NewReader(s.body))
	req.Header.Set("Upstash-Signature", token)
	req.Header.Set("Upstash-Retried", strconv.Itoa(s.retried))
	if s.edit != nil {
		s.edit(req)
	}
	recorder := httptest.NewRecorder()
	b.door.ServeHTTP(recorder, req)
	return recorder.Result()
}

// want sends and compares the answer: its status, its result and, for those that
// have one, its Retry-After.
func (b *bundle) want(s sent, status int, result string) *http.Response {
	b.t.Helper()
	resp := b.send(s)
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	var said struct{ Result string }
	_ = json.Unmarshal(raw, &said)
	if resp.StatusCode != status || said.Result != result {
		b.t.Fatalf("answer %d %s, want %d %s", resp.StatusCode, raw, status, result)
	}
	if final := resp.Header.Get("Upstash-NonRetryable-Error") == "true"; final != (status == 489) {
		b.t.Errorf("status %d, and non-retryable is %t", status, final)
	}
	if wait := resp.Header.Get("Retry-After"); (wait != "") != (status == 409 || status == 503) || wait == "0" {
		b.t.Errorf("status %d with Retry-After %q", status, wait)
	}
	return resp
}

// own replaces QStash's signature by one of a runtime.
func own(key string, at time.Time) func(*http.Request) {
	return func(req *http.Request) {
		keys, err := signature.ParseKeys(key)
		if err != nil {
			panic(err)
		}
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(body))
		signed := keys.Sign("msg_1", at, body)
		req.Header = http.Header{}
		req.Header.Set("webhook-id", signed.ID)
		req.Header.Set("webhook-timestamp", signed.Timestamp)
		req.Header.Set("webhook-signature", signed.Signature)
	}
}

func TestWhoComesIn(t *testing.T) {
	t.Parallel()
	good := doc("t", nil)
	for name, test := range map[string]struct {
		sent sent
		ok   bool
	}{
		"signed with the current key": {sent: sent{body: good}, ok: true},
		"signed with the next key":    {sent: sent{body: good, key: nextKey}, ok: true},
		"signed with another key":     {sent: sent{body: good, key: "sig_other"}},
		"signed for another endpoint": {sent: sent{body: good, url: "https://gantry.test/v1/other"}},
		// The Host header and what proxies add would have it otherwise.
		"signed for what the request claims to be": {sent: sent{body: good, url: "http://attacker.test/elsewhere", edit: func(r *http.Request) {
			r.Header.Set("X-Forwarded-Host", "attacker.test")
			r.Header.Set("X-Forwarded-Proto", "http")
		}}},
		"body changed": {sent: sent{body: good, edit: func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(string(good) + " ")) }}},
		"no signature": {sent: sent{body: good, edit: func(r *http.Request) { r.Header.Del("Upstash-Signature") }}},
		"signature twice": {sent: sent{body: good, edit: func(r *http.Request) {
			r.Header.Add("Upstash-Signature", r.Header.Get("Upstash-Signature"))
		}}},
		"bearer token":                  {sent: sent{body: good, edit: func(r *http.Request) { r.Header = http.Header{"Authorization": {"Bearer x"}} }}},
		"signed by a runtime":           {sent: sent{body: good, edit: own(ownKey, time.Now())}, ok: true},
		"signed by a stranger":          {sent: sent{body: good, edit: own("whsec_AAAA", time.Now())}},
		"signed by a runtime long ago":  {sent: sent{body: good, edit: own(ownKey, time.Now().Add(-time.Hour))}},
		"signed by a runtime, id twice": {sent: sent{body: good, edit: func(r *http.Request) { own(ownKey, time.Now())(r); r.Header.Add("webhook-id", "x") }}},
		"signed by a runtime and badly by QStash": {sent: sent{body: good, edit: func(r *http.Request) {
			own(ownKey, time.Now())(r)
			r.Header.Set("Upstash-Signature", "a.b.c")
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			if test.ok {
				b.want(test.sent, 200, "stored")
				return
			}
			b.want(test.sent, 401, "unauthorized")
			if len(b.lanes.order) != 0 {
				t.Errorf("appended: %v", b.lanes.order)
			}
			for _, secret := range []string{currentKey, nextKey, ownKey[6:], `"agentId"`} {
				if strings.Contains(b.log.String(), secret) {
					t.Errorf("the log shows %s", secret)
				}
			}
		})
	}
	b := setup(t, func(c *taskdoor.Config) { c.Keys = signature.Keys{} })
	b.want(sent{body: good, edit: own(ownKey, time.Now())}, 401, "unauthorized")
}

// A body that was signed with the next key says that the keys should be replaced,
// once a minute and not for each message.
func TestRotationIsTold(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := setup(t, func(c *taskdoor.Config) { c.Now = func() time.Time { return now } })
	b.want(sent{body: doc("t1", nil)}, 200, "stored")
	if strings.Contains(b.log.String(), "keys_rotated") {
		t.Error("told without a reason")
	}
	for i := range 3 {
		b.want(sent{body: doc(fmt.Sprint("n", i), nil), key: nextKey}, 200, "stored")
	}
	now = now.Add(time.Minute)
	b.want(sent{body: doc("t2", nil), key: nextKey}, 200, "stored")
	if n := strings.Count(b.log.String(), "taskdoor.keys_rotated"); n != 2 {
		t.Errorf("told %d times", n)
	}
}

func TestWhatIsRefusedForGood(t *testing.T) {
	t.Parallel()
	large := doc("t", func(task *tasks.Task) {
		task.Extra = map[string]json.RawMessage{"x": json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)}
	})
	for name, body := range map[string][]byte{
		"empty":               {},
		"no JSON":             []byte("task"),
		"no object":           []byte(`[]`),
		"form":                []byte("v=1&id=t"),
		"not UTF-8":           []byte("{\"v\":1,\"id\":\"\xff\"}"),
		"another version":     bytes.Replace(doc("t", nil), []byte(`"v":1`), []byte(`"v":2`), 1),
		"event lacks a field": doc("t", func(task *tasks.Task) { task.Event = json.RawMessage(`{"operationId":"op"}`) }),
		"event of another": doc("t", func(task *tasks.Task) {
			task.Event = json.RawMessage(`{"agentId":"a","operationId":"op2","userId":"u"}`)
		}),
		"hooks are no hooks": doc("t", func(task *tasks.Task) { task.Hooks = json.RawMessage(`[{"id":"a"}]`) }),
		"place without a stream": doc("t", func(task *tasks.Task) {
			task.Extra = map[string]json.RawMessage{"relay": json.RawMessage(`{"sequence":1}`)}
		}),
		"gzip": []byte("\x1f\x8b\x08\x00"),
	} {
		b := setup(t, nil)
		b.want(sent{body: body}, 489, "malformed")
		if len(b.lanes.order) != 0 {
			t.Errorf("%s: appended", name)
		}
	}
	b := setup(t, func(c *taskdoor.Config) { c.MaxBody = 1000 })
	b.want(sent{body: large}, 489, "too_large")
	b.want(sent{body: large, edit: func(r *http.Request) { r.ContentLength = -1 }}, 489, "too_large")
	// Nothing is known about who sent it, and nothing is parsed.
	b.want(sent{body: large, key: "sig_other"}, 489, "too_large")
	exact := setup(t, func(c *taskdoor.Config) { c.MaxBody = int64(len(large)) })
	exact.want(sent{body: large}, 200, "stored")
	if resp := b.send(sent{body: large, edit: func(r *http.Request) { r.Method = http.MethodGet }}); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %d", resp.StatusCode)
	}
}

func TestTasksJoinTheirLane(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	first := tasks.Relay{Stream: "s", Sequence: 1, Retries: 5}
	second := tasks.Relay{Stream: "s", Sequence: 2, Retries: 5}
	hook := hookOf("a")
	b.want(sent{body: doc("t2", of(second, hook))}, 503, "early")
	b.want(sent{body: doc("t1", of(first, hook))}, 200, "stored")
	b.want(sent{body: doc("t1", of(first, hook)), retried: 1}, 200, "duplicate")
	b.want(sent{body: doc("t2", of(second, hook)), retried: 1}, 200, "stored")
	if diff := cmp.Diff([]string{"t1", "t2"}, b.lanes.order); diff != "" {
		t.Errorf("lane (-want +got):\n%s", diff)
	}
	// What stands in the lane is the task without its way, and it is hers alone.
	task, err := tasks.DecodeTask(b.lanes.items["op/t1"].Doc)
	if err != nil || task.Extra != nil || len(b.deliverer.made()) != 0 {
		t.Errorf("document: %+v, %v; deliveries %v", task, err, b.deliverer.made())
	}
	if item := b.lanes.items["op/t1"]; item.Digest != tasks.ContentDigest(task.Type, task.Event) {
		t.Errorf("digest %s", item.Digest)
	}
	// A process that does not know it, and the lane that does.
	again := setup(t, func(c *taskdoor.Config) { c.Lanes = b.lanes })
	again.want(sent{body: doc("t1", of(first, hook))}, 200, "duplicate")
	again.want(sent{body: doc("t1", func(task *tasks.Task) {
		task.Event = json.RawMessage(`{"agentId":"b","operationId":"op","userId":"u"}`)
		task.SetRelay(tasks.Relay{Hook: ""})
	})}, 200, "duplicate")
	other := setup(t, func(c *taskdoor.Config) { c.Lanes = b.lanes })
	other.want(sent{body: doc("t1", func(task *tasks.Task) {
		task.Event = json.RawMessage(`{"agentId":"b","operationId":"op","userId":"u"}`)
	})}, 489, "malformed")
}

// Order gives way before a message is lost: at its last attempt, or when a
// runtime brings it itself, it passes, and what it overtook is taken late.
func TestOrderGivesWay(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	relay := func(n int64) tasks.Relay { return tasks.Relay{Stream: "s", Sequence: n, Retries: 2} }
	b.want(sent{body: doc("t3", of(relay(3))), retried: 1}, 503, "early")
	b.want(sent{body: doc("t3", of(relay(3))), retried: 2}, 200, "stored")
	b.want(sent{body: doc("t6", of(relay(6))), edit: own(ownKey, time.Now())}, 200, "stored")
	b.want(sent{body: doc("t1", of(relay(1)))}, 200, "stored")
	b.want(sent{body: doc("t7", of(relay(7)))}, 200, "stored")
	if diff := cmp.Diff([]string{"t3", "t6", "t1", "t7"}, b.lanes.order); diff != "" {
		t.Errorf("lane (-want +got):\n%s", diff)
	}
	if late, gap := strings.Count(b.log.String(), `"late":true`), strings.Count(b.log.String(), `"gap":true`); late != 1 || gap != 2 {
		t.Errorf("%d late and %d gaps are told:\n%s", late, gap, b.log)
	}
}

func TestLanesAreAway(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	body := doc("t1", of(tasks.Relay{Stream: "s", Sequence: 1, Retries: 5}))
	b.lanes.err = lane.ErrUnavailable
	b.want(sent{body: body}, 503, "unavailable")
	b.lanes.err = nil
	b.want(sent{body: doc("t2", of(tasks.Relay{Stream: "s", Sequence: 2, Retries: 5}))}, 503, "early")
	b.want(sent{body: body, retried: 1}, 200, "stored")
}

type brokenClaims struct{ taskdoor.Claims }

func (brokenClaims) Claim(context.Context, taskdoor.Ticket) (taskdoor.Grant, error) {
	return taskdoor.Grant{}, errors.New("redis is away")
}

func TestClaimsAreAway(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *taskdoor.Config) { c.Claims = brokenClaims{} })
	b.want(sent{body: doc("t1", nil)}, 503, "unavailable")
	if len(b.lanes.order) != 0 {
		t.Error("appended without a claim")
	}
}

// A body that does not arrive whole is not answered with the 200 of a handler
// that says nothing: QStash would take the message for delivered.
func TestBodyBreaksOff(t *testing.T) {
	b := setup(t, nil)
	request := httptest.NewRequest(http.MethodPost, publicURL, iotest.ErrReader(os.ErrDeadlineExceeded))
	reply := httptest.NewRecorder()
	b.door.ServeHTTP(reply, request)
	if reply.Code != http.StatusServiceUnavailable || reply.Header().Get("Retry-After") == "" {
		t.Errorf("answer %d %v", reply.Code, reply.Header())
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.door.Drain()
	b.door.Drain()
	b.want(sent{body: doc("t1", nil)}, 503, "unavailable")
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	good := func() taskdoor.Config {
		var config taskdoor.Config
		setup(t, func(c *taskdoor.Config) { config = *c })
		config.Registerer = nil
		return config
	}
	for name, edit := range map[string]func(*taskdoor.Config){
		"no URL":         func(c *taskdoor.Config) { c.URL = "" },
		"a path":         func(c *taskdoor.Config) { c.URL = taskdoor.Path },
		"no verifier":    func(c *taskdoor.Config) { c.Verifier = nil },
		"no claims":      func(c *taskdoor.Config) { c.Claims = nil },
		"no logger":      func(c *taskdoor.Config) { c.Logger = nil },
		"nothing behind": func(c *taskdoor.Config) { c.Lanes, c.Deliverer = nil, nil },
		"negative":       func(c *taskdoor.Config) { c.Concurrency = -1 },
		"metrics that are taken": func(c *taskdoor.Config) {
			c.Registerer = prometheus.NewRegistry()
			if _, err := taskdoor.New(*c); err != nil {
				t.Error(err)
			}
		},
	} {
		config := good()
		edit(&config)
		if _, err := taskdoor.New(config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := taskdoor.New(good()); err != nil {
		t.Errorf("good one: %v", err)
	}
}

func FuzzDoor(f *testing.F) {
	hook := hookOf("a")
	f.Add(doc("t", nil))
	f.Add(doc("t", of(tasks.Relay{Stream: "s", Sequence: 3, Hook: tasks.HookKey(&hook, 0), Retries: 1}, hook)))
	f.Add([]byte(`{"v":1,"relay":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		b := setup(t, func(c *taskdoor.Config) { c.Claims = taskdoor.NewMemoryClaims(taskdoor.ClaimsConfig{}) })
		resp := b.send(sent{body: body})
		switch resp.StatusCode {
		case http.StatusOK, http.StatusServiceUnavailable, taskdoor.StatusNonRetryable:
		default:
			t.Fatalf("status %d", resp.StatusCode)
		}
	})
}
