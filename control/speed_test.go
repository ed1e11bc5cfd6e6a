package control_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// A question that no control matches is answered here, without the exchange.
func BenchmarkEvaluateWithoutControl(b *testing.B) {
	exchange := &dark{Exchange: newGround(b).store(b)}
	c := asker(b, exchange, func(cfg *control.Config) {
		matcher := "^browser/"
		cfg.Directory = published{{Type: tasks.BeforeToolCall, Control: true, Matcher: &matcher}, {Type: tasks.AfterToolCall, Control: true}}
		cfg.Hooks = hooksOf{"op": list(`{"id":"a","type":"beforeToolCall","matcher":"^files/","webhook":{"url":"https://policy.test/a","responseHandling":"toolCall"}}`,
			`{"id":"b","type":"afterToolCall","webhook":{"url":"https://policy.test/b","responseHandling":"toolCall"}}`,
			`{"id":"c","type":"beforeToolCall","webhook":{"url":"https://policy.test/c"}}`)}
	})
	req := control.Request{Event: toolEvent(b, "op")}
	for b.Loop() {
		if v := evaluate(b, c, req); v.Outcome != tasks.OutcomeNone {
			b.Fatalf("outcome is %s", v.Outcome)
		}
	}
	if n := exchange.posts.Load(); n != 0 {
		b.Fatalf("%d questions were posted", n)
	}
}

// What a control costs beyond the direct call of its endpoint.
func BenchmarkControl(b *testing.B) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"decision":"allow"}`)
	}))
	b.Cleanup(receiver.Close)
	deliverer := deliverer(b)
	evaluator, err := control.NewEvaluator(control.EvaluatorConfig{Asker: deliverer})
	must(b, "make evaluator", err)

	hook := `{"id":"a","type":"beforeToolCall","webhook":{"url":"` + receiver.URL + `","responseHandling":"toolCall"}}`
	req := request(b, hook)
	hooks, err := tasks.StoredHooks(list(hook))
	must(b, "read hook", err)
	g := newGround(b)
	worker(b, g.store(b), evaluator.Evaluate)
	c := asker(b, g.store(b))
	var direct, asked []time.Duration
	for b.Loop() {
		began := time.Now()
		reply := deliverer.Ask(b.Context(), webhook.ControlRequest{Hook: &hooks[0], Type: tasks.BeforeToolCall, Event: req.Event.Raw, ID: "x", QuestionID: "x", OperationID: "op"})
		direct = append(direct, time.Since(began))
		if reply.Status != http.StatusOK {
			b.Fatalf("direct call: %+v", reply)
		}
		began = time.Now()
		v := evaluate(b, c, req)
		asked = append(asked, time.Since(began))
		if v.Outcome != tasks.OutcomeAllowed {
			b.Fatalf("verdict: %+v", v)
		}
	}
	for _, p := range []struct {
		name string
		at   float64
	}{{"p50", .5}, {"p99", .99}} {
		d, a := percentile(direct, p.at), percentile(asked, p.at)
		b.ReportMetric(float64(d.Microseconds()), p.name+"-direct-us")
		b.ReportMetric(float64((a - d).Microseconds()), p.name+"-over-us")
	}
}

func percentile(all []time.Duration, at float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(at*float64(len(all))))]
}
