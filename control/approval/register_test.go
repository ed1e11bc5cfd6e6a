package approval_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control/approval"
	"github.com/gantry-hooks/gantry/control/approval/redisapproval"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func check(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// bundle is a register over a real Redis.
type bundle struct {
	*approval.Register
	t      *testing.T
	client *redis.Client
}

func setup(t *testing.T) *bundle {
	t.Helper()
	client := servertest.FlushedClient(t)
	return &bundle{Register: register(t, client, nil), t: t, client: client}
}

func register(t *testing.T, client *redis.Client, registerer prometheus.Registerer) *approval.Register {
	t.Helper()
	store, err := redisapproval.Open(t.Context(), redisapproval.Config{Client: client})
	check(t, "open store", err)
	r, err := approval.New(approval.Config{Store: store, Registerer: registerer})
	check(t, "build register", err)
	return r
}

// open stores pending rows of one batch.
func (b *bundle) open(ids ...string) {
	b.t.Helper()
	for _, id := range ids {
		_, err := b.Open(b.t.Context(), pending(id))
		check(b.t, "open", err)
	}
}

func pending(id string) approval.Row {
	return approval.Row{
		OperationID: "op", ID: id, BatchID: "b", Status: approval.StatusPending,
		Details: json.RawMessage(`{"by":"u"}`), State: json.RawMessage(`{"n": 1.0}`),
	}
}

func (b *bundle) document(id string) string {
	b.t.Helper()
	row, err := b.Get(b.t.Context(), "op", id)
	check(b.t, "get", err)
	return string(row.Document())
}

const untouched = `{"content":"","state":{"n": 1.0},"intervention":{"status":"pending","operationId":"op","batchId":"b","by":"u"}}`

func answer(content string) approval.Answer { return approval.Answer{Content: &content} }

func claim(request string, decision approval.Status, ids ...string) approval.Claim {
	c := approval.Claim{OperationID: "op", RequestID: request, Decision: decision}
	for _, id := range ids {
		c.Members = append(c.Members, approval.Member{ID: id, Answer: answer("private " + id)})
	}
	return c
}

func publication(request, id, content string) approval.Publication {
	return approval.Publication{OperationID: "op", ID: id, RequestID: request, Decision: approval.StatusApproved, Answer: answer(content)}
}

func (b *bundle) claim(c approval.Claim) approval.Outcome {
	b.t.Helper()
	outcome, err := b.Claim(b.t.Context(), c)
	check(b.t, "claim", err)
	return outcome
}

func (b *bundle) publish(p approval.Publication) approval.Outcome {
	b.t.Helper()
	outcome, err := b.Publish(b.t.Context(), p)
	check(b.t, "publish", err)
	return outcome
}

func (b *bundle) restore(request string, ids ...string) (approval.Outcome, []string) {
	b.t.Helper()
	outcome, restored, err := b.Restore(b.t.Context(), approval.Restoration{OperationID: "op", RequestID: request, IDs: ids})
	check(b.t, "restore", err)
	return outcome, restored
}

func codeOf(err error) (code approval.Code, row string) {
	if refused, ok := errors.AsType[*approval.RefusedError](err); ok {
		return refused.Code, refused.RowID
	}
	return "", ""
}

func TestClaimsHideTheAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open("m")
	same(t, "claim", b.claim(claim("r", approval.StatusApproved, "m")), approval.Applied)
	same(t, "claim again", b.claim(claim("r", approval.StatusApproved, "m")), approval.Idempotent)
	const claimed = `"intervention":{"status":"approved","operationId":"op","batchId":"b","resolutionRequestId":"r","by":"u"}}`
	same(t, "row", b.document("m"), `{"content":"","state":{"n": 1.0},`+claimed)
	for _, key := range b.client.Keys(t.Context(), "*:row:*").Val() {
		for field, value := range b.client.HGetAll(t.Context(), key).Val() {
			if strings.Contains(value, "private") {
				t.Errorf("field %s shows the answer", field)
			}
		}
	}
	kept, err := b.Answer(t.Context(), "op", "m", "r")
	check(t, "answer", err)
	same(t, "answer", *kept.Content, "private m")
	for _, request := range []string{"r2", ""} {
		if _, err := b.Answer(t.Context(), "op", "m", request); !errors.Is(err, approval.ErrNotFound) {
			t.Errorf("request %q: error is %v, want ErrNotFound", request, err)
		}
	}
	same(t, "publish", b.publish(publication("r", "m", "checked")), approval.Applied)
	same(t, "row", b.document("m"), `{"content":"checked","state":{"n": 1.0},`+claimed)
	if _, err := b.Answer(t.Context(), "op", "m", "r"); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("error is %v, want ErrNotFound", err)
	}
}

func TestTheFirstPublicationStands(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]approval.Answer{
		"content": answer("first"),
		"denial": func() approval.Answer {
			a, err := approval.AnswerOf(tasks.Denial{Reason: "veto"}.Replace(tasks.ToolResult{Content: "raw"}))
			check(t, "answer", err)
			return a
		}(),
		"empty content": answer(""),
		"state only":    {State: json.RawMessage(`{"a":1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.open("m")
			b.claim(claim("r", approval.StatusApproved, "m"))
			p := publication("r", "m", "")
			p.Answer = approval.Answer{}
			same(t, "nothing to write", b.publish(p), approval.Idempotent)
			p.Answer = first
			same(t, "publish", b.publish(p), approval.Applied)
			stands := b.document("m")
			same(t, "publish again", b.publish(publication("r", "m", "raw answer")), approval.Idempotent)
			same(t, "row", b.document("m"), stands)
			if name == "denial" {
				want := `{"content":"veto","error":"hook_denied","state":{"type":"blocked","phase":"afterToolCall","reason":"veto"},`
				same(t, "start of the row", stands[:len(want)], want)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open("m1", "m2", "m3")
	b.claim(claim("r1", approval.StatusApproved, "m2"))
	try := func(c approval.Claim) error { _, err := b.Claim(t.Context(), c); return err }
	publish := func(p approval.Publication) error { _, err := b.Publish(t.Context(), p); return err }
	for name, test := range map[string]struct {
		call func() error
		code approval.Code
		row  string
	}{
		"unknown row":      {func() error { return try(claim("r1", "approved", "m1", "nobody", "m3")) }, approval.UnknownRow, "nobody"},
		"other operation":  {func() error { c := claim("r1", "approved", "m1"); c.OperationID = "op2"; return try(c) }, approval.UnknownRow, "m1"},
		"doubled row":      {func() error { return try(claim("r1", "approved", "m1", "m3", "m1")) }, approval.DuplicateRow, "m1"},
		"other request":    {func() error { return try(claim("r2", "approved", "m1", "m2")) }, approval.AlreadyResolved, "m2"},
		"other decision":   {func() error { return try(claim("r1", "rejected", "m1", "m2")) }, approval.AlreadyResolved, "m2"},
		"partly claimed":   {func() error { return try(claim("r1", "approved", "m1", "m2", "m3")) }, approval.PartialClaim, "m1"},
		"receipt":          {func() error { c := claim("r2", "rejected", "m1", "m2"); c.Receipt = true; return try(c) }, approval.AlreadyResolved, "m2"},
		"unclaimed":        {func() error { return publish(publication("r1", "m1", "x")) }, approval.NotClaimed, "m1"},
		"another's":        {func() error { return publish(publication("r2", "m2", "x")) }, approval.AlreadyResolved, "m2"},
		"not that":         {func() error { p := publication("r1", "m2", "x"); p.Decision = "rejected"; return publish(p) }, approval.AlreadyResolved, "m2"},
		"publish nobody's": {func() error { return publish(publication("r1", "nobody", "x")) }, approval.UnknownRow, "nobody"},
	} {
		err := test.call()
		code, row := codeOf(err)
		if code != test.code || row != test.row {
			t.Errorf("%s: error is %v, want %s of %s", name, err, test.code, test.row)
		}
		for _, id := range []string{"m1", "m3"} {
			same(t, name+": row "+id, b.document(id), untouched)
		}
	}
	same(t, "empty batch", b.claim(approval.Claim{}), approval.Idempotent)
}

func TestRestoresTheExactRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open("m1", "m2")
	b.claim(claim("r", approval.StatusApproved, "m1", "m2"))
	for _, ids := range [][]string{{"m1"}, {"nobody"}, nil} {
		outcome, restored := b.restore("other", ids...)
		same(t, "outcome", outcome, approval.Skipped)
		same(t, "restored", len(restored), 0)
	}
	b.publish(publication("r", "m2", "done"))
	outcome, restored := b.restore("r", "m1", "m2", "nobody")
	same(t, "outcome", outcome, approval.Applied)
	// The continuation of m2 did start: it has published.
	same(t, "restored", restored, []string{"m1"})
	same(t, "row", b.document("m1"), untouched)
	if _, err := b.Answer(t.Context(), "op", "m1", "r"); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("the answer is still there: %v", err)
	}
	_, err := b.Publish(t.Context(), publication("r", "m1", "late"))
	if code, _ := codeOf(err); code != approval.NotClaimed {
		t.Errorf("error is %v, want %s", err, approval.NotClaimed)
	}
	// What another request claims after that is no longer the first one's.
	b.claim(claim("r2", approval.StatusRejected, "m1"))
	outcome, _ = b.restore("r", "m1")
	same(t, "outcome", outcome, approval.Skipped)
}

func TestReceiptsArePublishedAndTakenBackWithTheirClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.open("m")
	c := claim("r", approval.StatusRejected, "m")
	c.Receipt = true
	same(t, "claim", b.claim(c), approval.Applied)
	same(t, "claim again", b.claim(c), approval.Idempotent)
	same(t, "row", b.document("m"),
		`{"content":"private m","state":{"n": 1.0},"intervention":{"status":"rejected","operationId":"op","batchId":"b","resolutionRequestId":"r","by":"u"}}`)
	b.restore("r", "m")
	same(t, "row", b.document("m"), untouched)
	// A claim that was made before gets its receipt later.
	b.claim(claim("r", approval.StatusRejected, "m"))
	same(t, "claim", b.claim(c), approval.Applied)
	outcome, _ := b.restore("r", "m")
	same(t, "outcome", outcome, approval.Skipped)
}

// Content that was there before is nobody's publication, and stays.
func TestContentThatWasThereStays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	row := pending("m")
	row.Content = "old"
	_, err := b.Open(t.Context(), row)
	check(t, "open", err)
	c := claim("r", approval.StatusApproved, "m")
	c.Receipt = true
	same(t, "claim", b.claim(c), approval.Applied)
	same(t, "publish", b.publish(publication("r", "m", "new")), approval.Idempotent)
	got, err := b.Get(t.Context(), "op", "m")
	check(t, "get", err)
	same(t, "content", got.Content, "old")
	if outcome, _ := b.restore("r", "m"); outcome != approval.Applied {
		t.Errorf("restore is %s", outcome)
	}
}

func TestRowsThatWereOpenedDecided(t *testing.T) {
	t.Parallel()
	b := setup(t)
	row := pending("m")
	row.Status, row.RequestID = approval.StatusApproved, "r"
	_, err := b.Open(t.Context(), row)
	check(t, "open", err)
	same(t, "claim", b.claim(claim("r", approval.StatusApproved, "m")), approval.Idempotent)
	// There is nothing that the row was before.
	outcome, _ := b.restore("r", "m")
	same(t, "outcome", outcome, approval.Skipped)
	same(t, "publish", b.publish(publication("r", "m", "x")), approval.Applied)
}

func TestCallsThatCanNeverSucceed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bad := "\xff"
	row := func(adjust func(r *approval.Row)) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			r := pending("m")
			adjust(&r)
			_, err := b.Open(ctx, r)
			return err
		}
	}
	claiming := func(adjust func(c *approval.Claim)) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			c := claim("r", approval.StatusApproved, "m")
			adjust(&c)
			_, err := b.Claim(ctx, c)
			return err
		}
	}
	for name, call := range map[string]func(ctx context.Context) error{
		"operation":      row(func(r *approval.Row) { r.OperationID = "" }),
		"id":             row(func(r *approval.Row) { r.ID = "\x00" }),
		"status":         row(func(r *approval.Row) { r.Status = "" }),
		"pending by":     row(func(r *approval.Row) { r.RequestID = "r" }),
		"published":      row(func(r *approval.Row) { r.Published = true }),
		"batch":          row(func(r *approval.Row) { r.BatchID = bad }),
		"state":          row(func(r *approval.Row) { r.State = json.RawMessage(`[]`) }),
		"error":          row(func(r *approval.Row) { r.Error = json.RawMessage(`{`) }),
		"details":        row(func(r *approval.Row) { r.Details = json.RawMessage(`1`) }),
		"details' names": row(func(r *approval.Row) { r.Details = json.RawMessage(`{"status":"x"}`) }),
		"claim":          claiming(func(c *approval.Claim) { c.OperationID = "" }),
		"request":        claiming(func(c *approval.Claim) { c.RequestID = "" }),
		"decision":       claiming(func(c *approval.Claim) { c.Decision = approval.StatusPending }),
		"member":         claiming(func(c *approval.Claim) { c.Members[0].ID = "" }),
		"answer":         claiming(func(c *approval.Claim) { c.Members[0].Answer.Content = &bad }),
		"publication": func(ctx context.Context) error {
			_, err := b.Publish(ctx, approval.Publication{OperationID: "op", RequestID: "r", Decision: "x"})
			return err
		},
		"publisher": func(ctx context.Context) error {
			_, err := b.Publish(ctx, approval.Publication{OperationID: "op", ID: "m"})
			return err
		},
		"restoration": func(ctx context.Context) error { _, _, err := b.Restore(ctx, approval.Restoration{}); return err },
		"get":         func(ctx context.Context) error { _, err := b.Get(ctx, "", "m"); return err },
		"private":     func(ctx context.Context) error { _, err := b.Answer(ctx, "op", "", "r"); return err },
	} {
		var invalid *tasks.InvalidError
		if err := call(t.Context()); !errors.As(err, &invalid) {
			t.Errorf("%s: error is %v, want an InvalidError", name, err)
		}
	}
	same(t, "keys", b.client.Keys(t.Context(), "*").Val(), []string{"gantry:approval:shards"})
	if _, err := b.Get(t.Context(), "op", "m"); !errors.Is(err, approval.ErrNotFound) {
		t.Errorf("error is %v, want ErrNotFound", err)
	}
	if _, err := approval.New(approval.Config{}); err == nil {
		t.Error("a register without a store is built")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	registry := prometheus.NewRegistry()
	r := register(t, b.client, registry)
	register(t, b.client, registry) // shares them
	b.open("m")
	_, err := r.Claim(t.Context(), claim("r", approval.StatusApproved, "m"))
	check(t, "claim", err)
	_, err = r.Publish(t.Context(), publication("r2", "m", "x"))
	if code, _ := codeOf(err); code != approval.AlreadyResolved {
		t.Errorf("error is %v", err)
	}
	want := `
# HELP gantry_approval_transitions_total Claims, publications and restorations of approvals, by what became of them.
# TYPE gantry_approval_transitions_total counter
`
	for _, transition := range []string{"claim", "publish", "restore"} {
		for _, outcome := range []string{"applied", "error", "idempotent", "refused", "skipped"} {
			n := "0"
			if transition+outcome == "claimapplied" || transition+outcome == "publishrefused" {
				n = "1"
			}
			want += `gantry_approval_transitions_total{outcome="` + outcome + `",transition="` + transition + `"} ` + n + "\n"
		}
	}
	check(t, "metrics", testutil.CollectAndCompare(registry, strings.NewReader(want), "gantry_approval_transitions_total"))
}
