package demo

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/cmd/internal/client"
	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/examples"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/worker"
)

// The tests are in the package itself: a demonstration that goes wrong cannot be
// had from outside, and its judgement must be seen to notice. That the real thing
// goes right is tested in cmd/gantry.

func startReceiver(t *testing.T) *Receiver {
	t.Helper()
	r, err := StartReceiver("127.0.0.1:0", Secrets{Token: "tk", SigningKey: "sk"})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { _ = r.Stop(t.Context()) })
	return r
}

// perfect plays a run as it should go, without a system: each delivery arrives
// in order, two attempts are repeated and the one that must be is dead.
func perfect(t *testing.T) *Run {
	t.Helper()
	r, err := NewRun(startReceiver(t), "-x")
	if err != nil {
		t.Fatalf("read the run: %v", err)
	}
	repeat := flakyFailures
	for _, e := range r.events {
		streams, err := r.streams(e)
		if err != nil {
			t.Fatalf("find streams: %v", err)
		}
		for _, s := range streams {
			a := worker.Attempt{Standing: lane.StandingDelivered, Delivery: webhook.Delivery{
				Hook: &tasks.Hook{ID: s.hook}, Type: s.hookType, OperationID: s.operation, TaskID: e.ID,
			}}
			for ; s.hook == "cost-ledger" && repeat > 0; repeat-- {
				parked := a
				parked.Standing = lane.StandingParked
				r.Attempt(parked)
			}
			if s.hook == "old-crm" {
				a.Standing = lane.StandingDead
			} else {
				r.receiver.remember(s, e.ID)
			}
			r.Attempt(a)
		}
	}
	<-r.ended
	for i := range r.questions {
		v := client.Verdict{Status: tasks.VerdictAllow, Outcome: tasks.OutcomeAllowed}
		if i < examples.AgentRunDenied {
			v = client.Verdict{Status: tasks.VerdictBlocked, Outcome: tasks.OutcomeDenied}
		}
		r.verdicts = append(r.verdicts, v)
		r.receiver.decided++
	}
	return r
}

func TestJudgementNoticesWhatWentWrong(t *testing.T) {
	ledger := stream{"run-report-7f3a-x", "cost-ledger", tasks.AfterStep}
	for name, test := range map[string]struct {
		spoil func(*Run)
		want  string
	}{
		"nothing":        {func(*Run) {}, ""},
		"out of order":   {func(r *Run) { a := r.receiver.arrived[ledger]; a[0], a[1] = a[1], a[0] }, "41 of 42 deliveries arrived, in order: false"},
		"one lost":       {func(r *Run) { r.receiver.arrived[ledger] = r.receiver.arrived[ledger][1:] }, "40 of 42 deliveries arrived, in order: false"},
		"none denied":    {func(r *Run) { r.verdicts[0] = r.verdicts[1] }, "3 were allowed and 0 denied"},
		"failed open":    {func(r *Run) { r.verdicts[1].Outcome = tasks.OutcomeErrorOpen }, "1 were allowed and 1 denied"},
		"nobody decided": {func(r *Run) { r.receiver.decided = 0 }, "by 0 answers"},
		"no retry":       {func(r *Run) { r.retries = map[stream]int{} }, "0 attempts were repeated"},
		"one more dead": {func(r *Run) {
			id := r.receiver.arrived[ledger][0]
			r.receiver.arrived[ledger] = r.receiver.arrived[ledger][1:]
			r.dead[delivery{ledger, id}] = true
		}, "2 deliveries are dead"},
		"bad signature": {func(r *Run) { r.receiver.refused++ }, "refused 1 requests"},
	} {
		t.Run(name, func(t *testing.T) {
			r := perfect(t)
			test.spoil(r)
			judgement, err := r.Judge()
			if err != nil {
				t.Fatalf("judge: %v", err)
			}
			err = judgement.Check()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			var out bytes.Buffer
			if err := judgement.Write(&out, screen.Theme{}); err != nil {
				t.Fatalf("write: %v", err)
			}
			if strings.Contains(out.String(), "NO") != strings.Contains(test.want, "false") {
				t.Errorf("the table says\n%s", out.String())
			}
		})
	}
}

func TestReceiverBehavesByPath(t *testing.T) {
	r := startReceiver(t)
	keys, err := signature.ParseKeys("sk")
	if err != nil {
		t.Fatalf("parse key: %v", err)
	}
	body := `{"operationId":"op","hookId":"h","hookType":"afterStep"}`
	signed := keys.Sign("msg_1", time.Now(), []byte(body))
	post := func(path string, header ...string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Address()+path, strings.NewReader(body))
		if err != nil {
			t.Fatalf("build request: %v", err)
		}
		req.Header.Set("Gantry-Task-Id", "e1")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("post: %v", err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	got := []int{
		post("/flaky/x"), post("/flaky/x"), post("/flaky/x"), post("/gone/x"), post("/slow/x"),
		post("/audit"), post("/audit", "Authorization", "Bearer tk"), post("/audit/open"),
		post("/signed/x"), post("/signed/x", signature.HeaderID, signed.ID, signature.HeaderTimestamp, signed.Timestamp,
			signature.HeaderSignature, signed.Signature),
	}
	if diff := cmp.Diff([]int{503, 503, 204, 410, 204, 401, 204, 204, 401, 204}, got); diff != "" {
		t.Fatalf("statuses differ (-want +got):\n%s", diff)
	}
	if seen := r.seen(stream{"op", "h", tasks.AfterStep}); len(seen) != 1 || r.repeated != 4 || r.refused != 2 {
		t.Fatalf("remembers %v, %d repeated, %d refused", seen, r.repeated, r.refused)
	}
}

func TestReceiverTakesTheNextPort(t *testing.T) {
	first := startReceiver(t)
	second, err := StartReceiver(first.Address(), Secrets{SigningKey: "sk"})
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	defer func() { _ = second.Stop(t.Context()) }()
	if first.Address() == second.Address() {
		t.Fatalf("both listen on %s", first.Address())
	}
}

func TestViewSaysWhatAnAttemptCameTo(t *testing.T) {
	var out bytes.Buffer
	view := NewView(&out, screen.Theme{})
	view.now = func() time.Time { return time.Date(2024, 5, 3, 12, 0, 1, 42e6, time.UTC) }
	attempt := func(n int, standing lane.Standing, due time.Duration, result webhook.Result) {
		view.Attempt(worker.Attempt{Standing: standing, DueIn: due, Result: result, Delivery: webhook.Delivery{
			Hook: &tasks.Hook{ID: "a-hook-with-a-long-name"}, Type: tasks.OnComplete, OperationID: "op\x1b", Sequence: 7, Attempt: n,
		}})
	}
	attempt(1, lane.StandingParked, 1500*time.Millisecond, webhook.Result{Class: tasks.ClassHTTP5xx, Status: 503})
	attempt(2, lane.StandingDelivered, 0, webhook.Result{Delivered: true, Status: 204, Elapsed: time.Millisecond})
	attempt(1, lane.StandingDelivered, 0, webhook.Result{Delivered: true, Status: 200, Elapsed: 31 * time.Millisecond})
	attempt(5, lane.StandingDead, 0, webhook.Result{Class: tasks.ClassTimeout})
	attempt(1, lane.StandingDead, 0, webhook.Result{Class: tasks.ClassHTTP4xx, Status: 410, Reason: tasks.ReasonEndpointGone})
	const head = "12:00:01.042  op·               #7     onComplete                → a-hook-with-a…  "
	want := "time          operation         event                            → hook            try  outcome\n" +
		head + "1    http_5xx 503, retry in 1.5 s\n" + head + "2    delivered 204 on attempt 2\n" +
		head + "1    delivered 200 in 31 ms\n" + head + "5    dead: given up after 5 attempts (timeout)\n" +
		head + "1    dead: endpoint_gone (http_4xx 410)\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Fatalf("lines differ (-want +got):\n%s", diff)
	}
}

func TestPolicyDecidesByTheAmount(t *testing.T) {
	r := startReceiver(t)
	for args, want := range map[string]string{
		`{}`: `{"decision":"allow"}`, `{"amount":"100"}`: `{"decision":"allow"}`,
		`{"amount":"100.01"}`: "deny", `{"amount":"all"}`: "deny", `{"amount":"NaN"}`: "deny",
	} {
		resp, err := http.Post("http://"+r.Address()+"/policy/x", "application/json", strings.NewReader(`{"args":`+args+`}`))
		if err != nil {
			t.Fatalf("post: %v", err)
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%s is answered %s (%v), want %s", args, raw, err, want)
		}
	}
}

func TestViewShowsDecisions(t *testing.T) {
	body := func(text string) webhook.ControlReply {
		return webhook.ControlReply{Status: http.StatusOK, Body: []byte(text), Elapsed: 12 * time.Millisecond}
	}
	for want, reply := range map[string]webhook.ControlReply{
		"allowed in 12 ms":            body(`{"decision":"allow"}`),
		"denied in 12 ms: too much·":  body(`{"decision":"deny","reason":"too much\u001b"}`),
		"no objection in 12 ms":       body(`{}`),
		"no answer: invalid_response": body(`{"decision":"denied"}`),
		"no answer: timeout":          {Class: tasks.ClassTimeout},
		"taken back":                  {Cancelled: true},
	} {
		var out bytes.Buffer
		NewView(&out, screen.Theme{}).Asked(webhook.ControlRequest{
			Hook: &tasks.Hook{ID: "limit"}, Type: tasks.BeforeToolCall, OperationID: "run",
		}, reply)
		if !strings.Contains(out.String(), want+"\n") || !strings.Contains(out.String(), "ask    beforeToolCall            → limit") {
			t.Errorf("the view shows %q, want %q", out.String(), want)
		}
	}
}
