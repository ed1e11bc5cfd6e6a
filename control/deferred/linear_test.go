package deferred_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/control/deferred/redisdeferred"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

// input is one call at a row: a publication of value, or a look when it is "".
type input struct{ row, value string }

// output is what the call saw: the document of the row. Of a publication whose
// reply was lost nothing is known, and it may take effect at any later time.
type output struct {
	published, unknown bool
	document           string
}

const empty = `{"content":""}`

// register is the deferred result as it should be: empty, and then for ever the
// first value.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byRow := map[string][]porcupine.Operation{}
		for _, op := range history {
			row := op.Input.(input).row
			byRow[row] = append(byRow[row], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byRow {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return empty },
	Step: func(state, in, out any) (bool, any) {
		value, seen := in.(input).value, out.(output)
		switch {
		case value == "":
			return seen.document == state, state
		case state == empty:
			return seen.unknown || seen.published && seen.document == value, value
		default:
			return seen.unknown || !seen.published && seen.document == state, state
		}
	},
}

// history gathers what concurrent callers did.
type history struct {
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (h *history) record(client int, in input, call func() (output, bool)) {
	began := time.Since(h.start).Nanoseconds()
	out, happened := call()
	ended := time.Since(h.start).Nanoseconds()
	if !happened {
		return
	}
	if out.unknown {
		ended = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Call: began, Output: out, Return: ended})
}

// document is what a result becomes under a control that denies every third one.
func document(n int) (content, final string) {
	content = fmt.Sprint(n)
	if n%3 == 0 {
		return content, `{"content":"no ` + content + `","success":false,"error":"hook_denied","state":{"type":"blocked","phase":"afterToolCall","reason":"no ` + content + `"}}`
	}
	return content, `{"content":"` + content + `","success":true}`
}

func judge(ctx context.Context, q control.Request) (tasks.Verdict, error) {
	var n int
	event, err := tasks.DecodeAs[tasks.AfterToolCallEvent](q.Event)
	if err != nil {
		return tasks.Verdict{}, err
	}
	if _, err := fmt.Sscan(event.Result.Content, &n); err != nil {
		return tasks.Verdict{}, err
	}
	v := tasks.Verdict{Status: tasks.VerdictAllow}
	if n%3 == 0 {
		v = tasks.Verdict{Status: tasks.VerdictBlocked, Reason: "no " + event.Result.Content}
	}
	if ctx.Err() != nil {
		v = tasks.Verdict{Status: tasks.VerdictCancelled}
	}
	return v, nil
}

// publish completes a row once, sometimes with a caller that dies on the way.
func publish(ctx context.Context, s *deferred.Service, row string, n int) (output, bool) {
	content, _ := document(n)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if rand.N(5) == 0 {
		defer time.AfterFunc(rand.N(time.Millisecond), cancel).Stop()
	}
	done, err := s.Complete(ctx, deferred.Completion{ID: row, Result: result(content)})
	switch {
	case err != nil:
		return output{unknown: true}, true
	case done.Outcome == deferred.Cancelled:
		return output{}, false
	}
	return output{published: done.Outcome == deferred.Published, document: string(done.Row.Document())}, true
}

func look(ctx context.Context, s *deferred.Service, row string) (output, bool) {
	seen, err := s.Get(ctx, row)
	if err != nil {
		return output{}, false
	}
	return output{document: string(seen.Document())}, true
}

// TestLinearizable lets racing callbacks and readers of several processes work on
// the same rows, while callers die and Redis crashes and comes back.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	const processes, callers, rounds = 3, 8, 60
	var services []*deferred.Service
	for range processes {
		store, err := redisdeferred.Open(t.Context(), redisdeferred.Config{Client: client, Blocking: client})
		check(t, "open store", err)
		s, err := deferred.New(deferred.Config{Store: store, Controls: &controls{say: judge}, Policies: &policies{}})
		check(t, "build service", err)
		t.Cleanup(s.Close)
		services = append(services, s)
	}
	for i := range rounds {
		_, err := services[0].Open(t.Context(), waiting(func(p *deferred.Placeholder) { p.ID = fmt.Sprint(i) }))
		check(t, "open", err)
	}
	h := &history{start: time.Now()}
	var group sync.WaitGroup
	half, back := make(chan struct{}, callers), make(chan struct{})
	for c := range callers {
		group.Go(func() {
			s := services[c%processes]
			for i := range rounds {
				if i == rounds/2 {
					half <- struct{}{}
				}
				row := fmt.Sprint(i)
				_, final := document(c)
				h.record(c, input{row: row}, func() (output, bool) { return look(t.Context(), s, row) })
				h.record(c, input{row, final}, func() (output, bool) {
					out, happened := publish(t.Context(), s, row, c)
					if out.unknown {
						<-back
					}
					return out, happened
				})
				h.record(c, input{row: row}, func() (output, bool) { return look(t.Context(), s, row) })
			}
		})
	}
	<-half
	server.Kill()
	check(t, "restart redis", server.Restart(t.Context()))
	close(back)
	group.Wait()
	// What stands after everything is part of the history.
	for i := range rounds {
		row := fmt.Sprint(i)
		h.record(callers, input{row: row}, func() (output, bool) { return look(t.Context(), services[0], row) })
	}
	unknown, published := 0, 0
	for _, op := range h.ops {
		if op.Output.(output).unknown {
			unknown++
		}
		if op.Output.(output).published {
			published++
		}
	}
	t.Logf("%d calls, %d published, %d without a reply", len(h.ops), published, unknown)
	if published < rounds-callers || unknown == 0 {
		t.Errorf("of %d rows %d were published with a reply, and %d replies were lost", rounds, published, unknown)
	}
	if !porcupine.CheckOperations(register, h.ops) {
		t.Error("history is not linearizable")
	}
}

// TestModelSeesFaults makes sure that the model is not content with everything.
func TestModelSeesFaults(t *testing.T) {
	t.Parallel()
	op := func(from, to int64, in input, out output) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: from, Return: to}
	}
	a, b := input{"r", "a"}, input{"r", "b"}
	for name, ops := range map[string][]porcupine.Operation{
		"two published":    {op(0, 1, a, output{published: true, document: "a"}), op(2, 3, b, output{published: true, document: "b"})},
		"overwritten":      {op(0, 1, a, output{published: true, document: "a"}), op(2, 3, b, output{document: "b"})},
		"seen, then lost":  {op(0, 9, a, output{published: true, document: "a"}), op(1, 2, input{row: "r"}, output{document: "a"}), op(3, 4, input{row: "r"}, output{document: empty})},
		"nobody's":         {op(0, 1, input{row: "r"}, output{document: "c"})},
		"duplicate of air": {op(0, 1, a, output{document: "a"})},
	} {
		if porcupine.CheckOperations(register, ops) {
			t.Errorf("%s: the model is content", name)
		}
	}
	if !porcupine.CheckOperations(register, []porcupine.Operation{
		op(0, math.MaxInt64, a, output{unknown: true}), op(1, 2, b, output{document: "a"}), op(3, 4, input{row: "r"}, output{document: "a"}),
	}) {
		t.Error("the model refuses what is right")
	}
}
