package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/approval"
	"github.com/gantry-hooks/gantry/control/approval/redisapproval"
	"github.com/gantry-hooks/gantry/tasks"
)

type approvalCase struct {
	common
	Row    *rawApproval           `json:"row"`
	Calls  []approvalCall         `json:"calls"`
	Rows   map[string]rawApproval `json:"rows"`
	Batch  *approvalBatch         `json:"batch"`
	Expect approvalExpect         `json:"expect"`
}

// rawApproval is a row as the format shows it.
type rawApproval struct {
	Content      string          `json:"content"`
	Error        json.RawMessage `json:"error"`
	State        json.RawMessage `json:"state"`
	Intervention json.RawMessage `json:"intervention"`
}

// offered is the answer that a call offers.
type offered struct {
	Content       *string         `json:"content"`
	PluginState   json.RawMessage `json:"pluginState"`
	PluginError   json.RawMessage `json:"pluginError"`
	PublishResult bool            `json:"publishResult"`
}

func (o offered) answer() approval.Answer {
	return approval.Answer{Content: o.Content, State: o.PluginState, Error: o.PluginError}
}

type approvalCall struct {
	offered
	RequestID string          `json:"resolutionRequestId"`
	Status    approval.Status `json:"status"`
	Restore   bool            `json:"restore"`
	Claimed   string          `json:"claimedResolutionRequestId"`
	// ControlPending says that the result control is being asked about the answer.
	ControlPending bool           `json:"control_pending"`
	Expect         approvalExpect `json:"expect"`
}

type approvalBatch struct {
	offered
	Members   []string        `json:"members"`
	RequestID string          `json:"resolutionRequestId"`
	Status    approval.Status `json:"status"`
}

type approvalExpect struct {
	Outcome        string                     `json:"outcome"`
	Row            json.RawMessage            `json:"row"`
	Rows           map[string]json.RawMessage `json:"rows"`
	Unchanged      []string                   `json:"unchanged"`
	MustNotContain strs                       `json:"row_must_not_contain"`
}

// approvalRun is one case over a register of its own.
type approvalRun struct {
	*run
	register  *approval.Register
	operation string
	// request is the last one that claimed, for the private answer.
	request string
}

// onlyRow is the row of cases that have one.
const onlyRow = "message"

func runApproval(r *run) {
	var c approvalCase
	r.decode(&c)
	a := &approvalRun{run: r, operation: "op"}
	lanes := r.store() // for the lab's clients, and a namespace
	store, err := redisapproval.Open(r.t.Context(), redisapproval.Config{Client: r.lab.client, Namespace: lanes.Namespace()})
	if err != nil {
		r.fatalf("open the store of approvals: %v", err)
	}
	if a.register, err = approval.New(approval.Config{Store: store}); err != nil {
		r.fatalf("build the register of approvals: %v", err)
	}
	switch {
	case c.Row != nil && c.Batch == nil:
		a.open(onlyRow, *c.Row)
		for i := range c.Calls {
			a.call(&c.Calls[i])
		}
	case c.Batch != nil && c.Row == nil && c.Calls == nil:
		for id, row := range c.Rows {
			a.open(id, row)
		}
		a.batch(c.Batch, c.Expect)
	default:
		r.notUnderstood("a case with row and batch", c.ID)
	}
}

// open stores a row as the format shows it; what the product has no field for
// goes into its details.
func (a *approvalRun) open(id string, raw rawApproval) {
	row := approval.Row{ID: id, Content: raw.Content, Error: raw.Error, State: raw.State}
	members, err := tasks.SplitObject(raw.Intervention)
	if err != nil {
		a.fatalf("harness does not understand the intervention: %v", err)
	}
	var details []tasks.Member
	var status string
	fields := map[string]*string{
		"status": &status, "operationId": &row.OperationID, "batchId": &row.BatchID, "resolutionRequestId": &row.RequestID,
	}
	for _, m := range members {
		if field := fields[m.Key]; field == nil {
			details = append(details, m)
		} else if err := json.Unmarshal(m.Value, field); err != nil {
			a.fatalf("harness does not understand %s: %v", m.Key, err)
		}
	}
	row.Status, a.operation = approval.Status(status), row.OperationID
	if details != nil {
		row.Details = tasks.AppendObject(nil, details)
	}
	if _, err := a.register.Open(a.t.Context(), row); err != nil {
		a.fatalf("open: %v", err)
	}
}

func (a *approvalRun) document(id string) json.RawMessage {
	row, err := a.register.Get(a.t.Context(), a.operation, id)
	if err != nil {
		a.fatalf("read row %s: %v", id, err)
	}
	return row.Document()
}

func (a *approvalRun) call(c *approvalCall) {
	before := a.document(onlyRow)
	switch {
	case c.ControlPending:
		a.pending(before, c.Expect.MustNotContain)
		a.checkOutcome(c.Expect.Outcome, "held", nil)
	case c.Restore:
		outcome, _, err := a.register.Restore(a.t.Context(), approval.Restoration{
			OperationID: a.operation, IDs: []string{onlyRow}, RequestID: c.Claimed,
		})
		a.checkOutcome(c.Expect.Outcome, string(outcome), err)
	default:
		outcome, err := a.resolve(c)
		a.checkOutcome(c.Expect.Outcome, string(outcome), err)
	}
	after := a.document(onlyRow)
	if c.Expect.Row != nil {
		a.checkRow(onlyRow, c.Expect.Row, before)
	}
	for _, text := range c.Expect.MustNotContain {
		if bytes.Contains(after, []byte(text)) {
			a.problemf("row contains %q: %s", text, after)
		}
	}
}

// resolve claims, and publishes if it is asked to: with the claim, or into a row
// that is claimed already.
func (a *approvalRun) resolve(c *approvalCall) (approval.Outcome, error) {
	row, err := a.register.Get(a.t.Context(), a.operation, onlyRow)
	if err != nil {
		a.fatalf("read the row: %v", err)
	}
	if c.PublishResult && row.Status != approval.StatusPending {
		return a.register.Publish(a.t.Context(), approval.Publication{
			OperationID: a.operation, ID: onlyRow, RequestID: c.RequestID, Decision: c.Status, Answer: c.answer(),
		})
	}
	a.request = c.RequestID
	return a.register.Claim(a.t.Context(), approval.Claim{
		OperationID: a.operation, RequestID: c.RequestID, Decision: c.Status, Receipt: c.PublishResult,
		Members: []approval.Member{{ID: onlyRow, Answer: c.answer()}},
	})
}

func (a *approvalRun) batch(b *approvalBatch, expect approvalExpect) {
	before := map[string]json.RawMessage{}
	for _, id := range slices.Concat(expect.Unchanged, sortedKeys(expect.Rows)) {
		before[id] = a.document(id)
	}
	claim := approval.Claim{OperationID: a.operation, RequestID: b.RequestID, Decision: b.Status, Receipt: b.PublishResult}
	for _, id := range b.Members {
		claim.Members = append(claim.Members, approval.Member{ID: id, Answer: b.answer()})
	}
	outcome, err := a.register.Claim(a.t.Context(), claim)
	a.checkOutcome(expect.Outcome, string(outcome), err)
	for _, id := range expect.Unchanged {
		a.equalJSON("row "+id, before[id], a.document(id))
	}
	for id, want := range expect.Rows {
		a.checkRow(id, want, before[id])
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// checkRow compares the fields that are shown, and wants the others to be as they
// were.
func (a *approvalRun) checkRow(id string, want, before json.RawMessage) {
	after := a.document(id)
	shown, err := tasks.SplitObject(want)
	if err != nil {
		a.fatalf("harness does not understand the row: %v", err)
	}
	for _, m := range shown {
		got := hookMember(after, m.Key)
		if got == nil {
			a.problemf("row lacks %s: %s", m.Key, after)
			continue
		}
		a.equalJSON(m.Key+" of the row", m.Value, got)
	}
	for _, key := range []string{"content", "error", "state", "intervention"} {
		was, is := hookMember(before, key), hookMember(after, key)
		if hookMember(want, key) == nil && !bytes.Equal(was, is) {
			a.problemf("%s of the row changed from %s to %s", key, was, is)
		}
	}
}

// refusals are the product's codes for those of the format.
var refusals = map[string]approval.Code{
	"already_resolved": approval.AlreadyResolved, "conflict": approval.AlreadyResolved,
	"partial_claim": approval.PartialClaim, "partially_claimed": approval.PartialClaim,
	"unknown_row": approval.UnknownRow, "unknown_member": approval.UnknownRow, "not_found": approval.UnknownRow,
	"row_not_found": approval.UnknownRow, "missing_row": approval.UnknownRow, "message_not_found": approval.UnknownRow, "unknown": approval.UnknownRow,
	"duplicate_row": approval.DuplicateRow, "duplicate_member": approval.DuplicateRow, "duplicate": approval.DuplicateRow,
	"not_claimed": approval.NotClaimed, "unclaimed": approval.NotClaimed,
}

func (a *approvalRun) checkOutcome(want, got string, err error) {
	code, refused := strings.CutPrefix(want, "error:")
	switch {
	case refused && refusals[code] == "":
		a.notUnderstood("code", code)
	case refused:
		var refusal *approval.RefusedError
		if !errors.As(err, &refusal) {
			a.problemf("outcome is %q (%v), want %s", got, err, want)
			return
		}
		equal(a.run, "code", refusals[code], refusal.Code)
	case err != nil:
		a.problemf("outcome is the error %v, want %s", err, want)
	case want == "restored":
		equal(a.run, "outcome", string(approval.Applied), got)
	default:
		equal(a.run, "outcome", want, got)
	}
}

// pending asks a result control about the private answer, and looks at the row
// while the control has it in its hands. secrets are parts of the answer.
func (a *approvalRun) pending(before json.RawMessage, secrets []string) {
	kept, err := a.register.Answer(a.t.Context(), a.operation, onlyRow, a.request)
	if err != nil || kept.Content == nil {
		a.fatalf("read the private answer: %v", err)
	}
	for _, secret := range secrets {
		if !strings.Contains(*kept.Content, secret) {
			a.problemf("the private answer does not hold %q", secret)
		}
	}
	const hook = "result"
	s := a.site(siteConfig{answers: map[string]answer{hook: {status: 200, fault: faultHang}}})
	d := a.deployment(s, "local", always(nil))
	ctx, cancel := context.WithCancel(a.t.Context())
	defer cancel()
	arrived := make(chan struct{})
	s.rec.arrived = func(string) { close(arrived) }
	event := a.withMember(a.sampleEvent(tasks.AfterToolCall, a.operation).Raw, "result",
		slices.Concat([]byte(`{"success":true,"content":`), tasks.AppendString(nil, *kept.Content), []byte(`}`)))
	verdicts := make(chan tasks.Verdict, 1)
	go func() {
		v, err := d.controls.Evaluate(ctx, control.Request{Event: a.event(tasks.AfterToolCall, event), Chain: []control.OperationHooks{{
			OperationID: a.operation,
			Hooks:       json.RawMessage(`[{"id":"` + hook + `","type":"afterToolCall","webhook":{"url":"https://rx.test/","responseHandling":"toolCall","onError":"block"}}]`),
		}}})
		if err != nil {
			v.Reason = err.Error()
		}
		verdicts <- v
	}()
	select {
	case <-arrived:
	case v := <-verdicts:
		a.fatalf("the control was not asked: %+v", v)
	}
	a.equalJSON("row while the control is asked", before, a.document(onlyRow))
	if requests := s.rec.received(); len(requests) != 1 || !bytes.Contains(requests[0].body, []byte(*kept.Content)) {
		a.problemf("the control does not see the answer: %d requests", len(requests))
	}
	select {
	case v := <-verdicts:
		a.problemf("the control has answered: %+v", v)
	default:
	}
	cancel()
	equal(a.run, "verdict of who went away", tasks.VerdictCancelled, (<-verdicts).Status)
}
