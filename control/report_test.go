package control_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

// deliverer makes the product's own way to ask a control over HTTP.
func deliverer(t testing.TB) *webhook.Deliverer {
	t.Helper()
	client, err := egress.New(egress.Config{Policy: egress.Trusted()})
	must(t, "make client", err)
	t.Cleanup(client.Close)
	payloads, err := enrich.New(enrich.Config{})
	must(t, "make builder", err)
	d, err := webhook.New(webhook.Config{
		Env: func(string) (string, bool) { return "", false }, Callers: client, Operator: client, Payloads: payloads, UserAgent: "Gantry/test",
	})
	must(t, "make deliverer", err)
	return d
}

// receiver is a control that misbehaves as its path says.
func receiver(t testing.TB) string {
	t.Helper()
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/timeout", "/late":
			// The answer comes when nobody waits for it any more.
			select {
			case <-r.Context().Done():
			case <-stop:
			}
			_, _ = io.WriteString(w, `{"decision":"allow"}`)
		case "/500":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"decision":"allow"}`)
		case "/word":
			_, _ = io.WriteString(w, `{"decision":"denied"}`)
		case "/truncated":
			w.Header().Set("Content-Length", "200")
			_, _ = io.WriteString(w, `{"decision":"all`)
		case "/large":
			_, _ = io.WriteString(w, `{"decision":"allow","x":"`+strings.Repeat("x", 2<<20)+`"}`)
		case "/deny":
			_, _ = io.WriteString(w, `{"decision":"deny","reason":"no"}`)
		}
	}))
	t.Cleanup(func() {
		close(stop)
		server.Close()
	})
	return server.URL
}

// nobody returns an address where nobody listens.
func nobody(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, "listen", err)
	must(t, "close", l.Close())
	return "http://" + l.Addr().String()
}

// scene is the ground on which one row of the table plays.
type scene struct {
	asker, worker control.Exchange
	ground        *ground
	// act breaks something once the worker has the question; nil breaks nothing.
	act func()
}

func plainScene(t *testing.T) *scene {
	g := newGround(t)
	return &scene{asker: g.store(t), worker: g.store(t), ground: g}
}

// TestEveryFaultEndsInThePolicy is the table of what may go wrong between a
// question and its verdict: there is exactly one, by the deadline, and it is what
// the policy says.
func TestEveryFaultEndsInThePolicy(t *testing.T) {
	t.Parallel()
	base := receiver(t)
	failed := map[tasks.ErrorPolicy]brief{
		tasks.PolicyContinue: {Status: tasks.VerdictAllow, Outcome: tasks.OutcomeErrorOpen, By: tasks.ByWorker},
		tasks.PolicyBlock:    {Status: tasks.VerdictBlocked, Outcome: tasks.OutcomeErrorClosed, By: tasks.ByWorker, Reason: tasks.ReasonControlError},
	}
	silent := map[tasks.ErrorPolicy]brief{tasks.PolicyContinue: briefOpen, tasks.PolicyBlock: briefClosed}
	denied := brief{Status: tasks.VerdictBlocked, Outcome: tasks.OutcomeDenied, By: tasks.ByWorker, Reason: "no"}
	for name, test := range map[string]struct {
		url, extra string
		scene      func(t *testing.T) *scene
		want       map[tasks.ErrorPolicy]brief
		code       tasks.TransportCode
		unsettled  bool
	}{
		"timeout":              {base + "/timeout", `,"timeout":0.2`, plainScene, failed, tasks.CodeTimeout, false},
		"500":                  {base + "/500", "", plainScene, failed, tasks.CodeHTTPError, false},
		"unknown verdict word": {base + "/word", "", plainScene, failed, tasks.CodeInvalidResponse, false},
		"truncated JSON":       {base + "/truncated", "", plainScene, failed, tasks.CodeNetworkError, false},
		"2 MB body":            {base + "/large", "", plainScene, failed, tasks.CodeResponseTooLarge, false},
		"refused":              {nobody(t), "", plainScene, failed, tasks.CodeNetworkError, false},
		"redis gone":           {base + "/timeout", "", goneScene, silent, "", true},
		"worker killed":        {base + "/timeout", "", killedScene, silent, "", false},
		"late reply":           {base + "/late", "", plainScene, failed, tasks.CodeTimeout, false},
		"duplicate reply":      {base + "/deny", "", doubledScene, map[tasks.ErrorPolicy]brief{tasks.PolicyContinue: denied, tasks.PolicyBlock: denied}, "", false},
	} {
		for policy, want := range test.want {
			t.Run(name+"/"+string(policy), func(t *testing.T) {
				t.Parallel()
				want.Unsettled = test.unsettled
				s := test.scene(t)
				hook := `{"id":"a","type":"beforeToolCall","webhook":{"url":"` + test.url + `","responseHandling":"toolCall","onError":"` + string(policy) + `"` + test.extra + `}}`
				v := s.play(t, named(request(t, hook), "q1"))
				equal(t, "verdict", briefly(v), want)
				if test.code != "" && (len(v.Controls) != 1 || v.Controls[0].Code != test.code) {
					t.Errorf("controls are %+v, want the code %s", v.Controls, test.code)
				}
			})
		}
	}
}

// play asks, checks that the verdict comes in time and stays, and returns it.
func (s *scene) play(t *testing.T, req control.Request) tasks.Verdict {
	t.Helper()
	e, err := control.NewEvaluator(control.EvaluatorConfig{Asker: deliverer(t)})
	must(t, "make evaluator", err)
	taken := make(chan struct{}, 8)
	w := worker(t, s.worker, func(ctx context.Context, q tasks.Question) (tasks.Verdict, error) {
		taken <- struct{}{}
		return e.Evaluate(ctx, q)
	})
	c := asker(t, s.asker)
	const timeout, slack = 1500 * time.Millisecond, 300 * time.Millisecond
	req.Timeout = timeout
	began := time.Now()
	got := asking(t, c, t.Context(), req)
	if s.act != nil {
		receive(t, "the question", taken)
		s.act()
	}
	v := receive(t, "the verdict", got)
	if took := time.Since(began); took > timeout+slack {
		t.Errorf("the verdict took %v, its deadline is %v", took, timeout)
	}
	if v.Unsettled {
		return v
	}
	// Whatever still comes is dropped: the worker ends, and the verdict stands.
	must(t, "stop", w.Stop(t.Context()))
	equal(t, "the verdict that stands", evaluate(t, asker(t, s.ground.store(t)), req), v)
	for _, key := range s.ground.connect(t, "looker", 1).Keys(t.Context(), "*").Val() {
		if ttl := s.ground.connect(t, "looker", 1).PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > redisverdict.DefaultKeep+timeout {
			t.Errorf("key %s lives for %v", key, ttl)
		}
	}
	return v
}

func goneScene(t *testing.T) *scene {
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	g := &ground{addr: server.Addr()}
	return &scene{asker: g.store(t), worker: g.store(t), ground: g, act: server.Kill}
}

func killedScene(t *testing.T) *scene {
	s := plainScene(t)
	doomed := &dark{Exchange: s.worker}
	s.worker, s.act = doomed, func() { doomed.off.Store(true) }
	return s
}

func doubledScene(t *testing.T) *scene {
	s := plainScene(t)
	s.asker = &echo{Exchange: s.asker}
	return s
}
