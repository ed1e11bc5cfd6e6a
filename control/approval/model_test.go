package approval_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/gantry-hooks/gantry/control/approval"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

// batch is what the model knows: the rows of one operation, all opened pending.
type batch [3]modelRow

type modelRow struct {
	holder, content string
	// published says that something was; withClaim that it was with the claim.
	published, withClaim bool
}

// step is one call: claim, receipt, publish, restore or look, by a request for rows.
type step struct {
	batch, kind, request string
	rows                 string // digits
}

// reply is what the call came to; lost says that nobody knows.
type reply struct {
	lost bool
	text string
}

// apply is the register as it should be. Requests never change their decision here.
func (b batch) apply(s step) (batch, string) {
	var rows []int
	for _, digit := range s.rows {
		rows = append(rows, int(digit-'0'))
	}
	switch s.kind {
	case "look":
		return b, b[rows[0]].text()
	case "restore":
		return b.restore(s, rows)
	case "publish":
		row := &b[rows[0]]
		switch {
		case row.holder == "":
			return b, string(approval.NotClaimed)
		case row.holder != s.request:
			return b, string(approval.AlreadyResolved)
		case row.published:
			return b, string(approval.Idempotent)
		}
		row.content, row.published = "published "+s.request, true
		return b, string(approval.Applied)
	}
	return b.claim(s, rows)
}

func (r modelRow) text() string { return r.holder + "/" + r.content }

func (b batch) claim(s step, rows []int) (batch, string) {
	if len(slices.Compact(slices.Sorted(slices.Values(rows)))) != len(rows) {
		return b, string(approval.DuplicateRow)
	}
	held := 0
	for _, i := range rows {
		switch b[i].holder {
		case s.request:
			held++
		case "":
		default:
			return b, string(approval.AlreadyResolved)
		}
	}
	if held > 0 && held < len(rows) {
		return b, string(approval.PartialClaim)
	}
	outcome := approval.Idempotent
	for _, i := range rows {
		if held == 0 {
			b[i].holder, outcome = s.request, approval.Applied
		}
		if s.kind == "receipt" && !b[i].published {
			b[i].content, b[i].published, b[i].withClaim, outcome = "receipt "+s.request, true, held == 0, approval.Applied
		}
	}
	return b, string(outcome)
}

func (b batch) restore(s step, rows []int) (batch, string) {
	var restored []string
	for _, i := range slices.Compact(slices.Sorted(slices.Values(rows))) {
		if b[i].holder == s.request && (!b[i].published || b[i].withClaim) {
			b[i] = modelRow{}
			restored = append(restored, fmt.Sprint(i))
		}
	}
	return b, strings.Join(restored, " ")
}

// perform does on the register what apply does on the model.
func perform(ctx context.Context, r *approval.Register, s step) (string, error) {
	op, decision := s.batch, approval.Status("decision "+s.request)
	var outcome approval.Outcome
	var err error
	switch s.kind {
	case "look":
		row, err := r.Get(ctx, op, s.rows)
		return row.RequestID + "/" + row.Content, err
	case "restore":
		_, ids, err := r.Restore(ctx, approval.Restoration{OperationID: op, RequestID: s.request, IDs: strings.Split(s.rows, "")})
		return strings.Join(ids, " "), err
	case "publish":
		outcome, err = r.Publish(ctx, approval.Publication{
			OperationID: op, ID: s.rows, RequestID: s.request, Decision: decision, Answer: answer("published " + s.request),
		})
	default:
		c := approval.Claim{OperationID: op, RequestID: s.request, Decision: decision, Receipt: s.kind == "receipt"}
		for _, id := range strings.Split(s.rows, "") {
			c.Members = append(c.Members, approval.Member{ID: id, Answer: answer("receipt " + s.request)})
		}
		outcome, err = r.Claim(ctx, c)
	}
	if code, _ := codeOf(err); code != "" {
		return string(code), nil
	}
	return string(outcome), err
}

func openBatch(ctx context.Context, r *approval.Register, op string) error {
	for i := range (batch{}) {
		row := approval.Row{OperationID: op, ID: fmt.Sprint(i), Status: approval.StatusPending}
		if _, err := r.Open(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

var (
	kinds    = []string{"claim", "claim", "receipt", "publish", "restore", "look"}
	requests = []string{"r1", "r2", "r3"}
)

// TestModel does the same random steps on the register and on the model.
func TestModel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		op := fmt.Sprint("op ", n)
		check(t, "open", openBatch(t.Context(), b.Register, op))
		var model batch
		for i := range rapid.IntRange(1, 30).Draw(rt, "steps") {
			s := step{
				batch: op, kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), request: rapid.SampledFrom(requests).Draw(rt, "request"),
				rows: rapid.StringMatching(`[012]{1,3}`).Draw(rt, "rows"),
			}
			if s.kind == "publish" || s.kind == "look" {
				s.rows = s.rows[:1]
			}
			var want string
			model, want = model.apply(s)
			got, err := perform(t.Context(), b.Register, s)
			if err != nil || got != want {
				rt.Fatalf("step %d %+v: got %q, want %q (%v)", i, s, got, want, err)
			}
		}
		for i := range model {
			got, err := perform(t.Context(), b.Register, step{batch: op, kind: "look", rows: fmt.Sprint(i)})
			if err != nil || got != model[i].text() {
				rt.Fatalf("row %d is %q, want %q (%v)", i, got, model[i].text(), err)
			}
		}
	})
}

var claims = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byBatch := map[string][]porcupine.Operation{}
		for _, op := range history {
			id := op.Input.(step).batch
			byBatch[id] = append(byBatch[id], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byBatch {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return batch{} },
	Step: func(state, in, out any) (bool, any) {
		next, want := state.(batch).apply(in.(step))
		got := out.(reply)
		return got.lost || got.text == want, next
	},
}

// TestLinearizable lets racing claims, publications and restorations work on the
// same batches, while callers die and Redis crashes and comes back.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	const callers, rounds, steps = 5, 40, 5
	r := register(t, client, nil)
	for i := range rounds {
		check(t, "open", openBatch(t.Context(), r, fmt.Sprint("op ", i)))
	}
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	half, back := make(chan struct{}, callers), make(chan struct{})
	call := func(caller int, s step) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if rand.N(10) == 0 {
			defer time.AfterFunc(rand.N(time.Millisecond), cancel).Stop()
		}
		began := time.Since(start).Nanoseconds()
		text, err := perform(ctx, r, s)
		ended := time.Since(start).Nanoseconds()
		if err != nil {
			ended = math.MaxInt64
			if ctx.Err() == nil {
				<-back
			}
		}
		mu.Lock()
		defer mu.Unlock()
		history = append(history, porcupine.Operation{ClientId: caller, Input: s, Output: reply{err != nil, text}, Call: began, Return: ended})
	}
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := range rounds {
				if i == rounds/2 {
					half <- struct{}{}
				}
				for range steps {
					s := step{batch: fmt.Sprint("op ", i), kind: kinds[rand.N(len(kinds))], request: requests[rand.N(len(requests))], rows: "012"[:1+rand.N(3)]}
					if s.kind == "publish" || s.kind == "look" {
						s.rows = "012"[rand.N(3):][:1]
					}
					call(c, s)
				}
			}
		})
	}
	<-half
	server.Kill()
	check(t, "restart redis", server.Restart(t.Context()))
	close(back)
	group.Wait()
	for i := range rounds {
		for row := range (batch{}) {
			call(callers, step{batch: fmt.Sprint("op ", i), kind: "look", rows: fmt.Sprint(row)})
		}
	}
	lost := 0
	for _, op := range history {
		if op.Output.(reply).lost {
			lost++
		}
	}
	t.Logf("%d calls, %d without a reply", len(history), lost)
	if lost == 0 || lost > len(history)/4 {
		t.Errorf("%d of %d replies were lost", lost, len(history))
	}
	if !porcupine.CheckOperations(claims, history) {
		t.Error("history is not linearizable")
	}
}

// TestModelSeesFaults makes sure that the model is not content with everything.
func TestModelSeesFaults(t *testing.T) {
	t.Parallel()
	op := func(at int64, kind, request, rows, out string) porcupine.Operation {
		return porcupine.Operation{Input: step{"op", kind, request, rows}, Output: reply{text: out}, Call: at, Return: at + 1}
	}
	for name, ops := range map[string][]porcupine.Operation{
		"claimed twice":    {op(0, "claim", "r1", "0", "applied"), op(2, "claim", "r2", "0", "applied")},
		"half a batch":     {op(0, "claim", "r1", "0", "applied"), op(2, "claim", "r2", "01", "already_resolved"), op(4, "look", "", "1", "r2/")},
		"published twice":  {op(0, "claim", "r1", "0", "applied"), op(2, "publish", "r1", "0", "applied"), op(4, "publish", "r1", "0", "applied")},
		"restored another": {op(0, "claim", "r1", "0", "applied"), op(2, "restore", "r2", "0", "0")},
	} {
		if porcupine.CheckOperations(claims, ops) {
			t.Errorf("%s: the model is content", name)
		}
	}
}
