package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/control/deferred/redisdeferred"
	"github.com/gantry-hooks/gantry/tasks"
)

type deferredCase struct {
	common
	Steps []json.RawMessage `json:"steps"`
}

// deferredStep is one step of any kind. Which members a kind may have is checked
// by its own struct.
type deferredStep struct {
	Do string `json:"do"`
}

type openStep struct {
	deferredStep
	Row      string          `json:"row"`
	Content  string          `json:"content"`
	State    json.RawMessage `json:"state"`
	Call     *rawCall        `json:"call"`
	Approved string          `json:"approvedFromOperation"`
}

// rawCall is what is stored of a call. The message that asked for it is the
// parent of the row, and there unless the case says otherwise.
type rawCall struct {
	Identifier         string           `json:"identifier"`
	APIName            string           `json:"apiName"`
	ToolCallID         string           `json:"toolCallId"`
	Arguments          string           `json:"arguments"`
	AssistantMessageID optional[string] `json:"assistantMessageId"`
	ParentMessageID    optional[string] `json:"parentMessageId"`
}

type callerStep struct {
	deferredStep
	Operation string          `json:"operation"`
	Store     string          `json:"store"`
	Hooks     json.RawMessage `json:"hooks"`
}

type environmentStep struct {
	deferredStep
	Hooks []json.RawMessage `json:"hooks"`
}

type operationStep struct {
	deferredStep
	Operation string `json:"operation"`
}

// completion is one callback.
type completion struct {
	Operation     string          `json:"operation"`
	Result        json.RawMessage `json:"result"`
	PreserveUsage bool            `json:"preserveUsage"`
}

type completeStep struct {
	deferredStep
	completion
	Row       string                     `json:"row"`
	Responses map[string]json.RawMessage `json:"responses"`
	// Cancel is "before", "during", or "during:" and a URL.
	Cancel        string          `json:"cancel"`
	ExpectRequest json.RawMessage `json:"expect_request"`
	Expect        struct {
		Outcome string          `json:"outcome"`
		Row     json.RawMessage `json:"row"`
		Called  *[]string       `json:"called"`
	} `json:"expect"`
}

type raceStep struct {
	deferredStep
	Row         string                     `json:"row"`
	Operation   string                     `json:"operation"`
	Completions []completion               `json:"completions"`
	Responses   map[string]json.RawMessage `json:"responses"`
	Expect      struct {
		Outcomes    []string          `json:"outcomes"`
		RowIsOneOf  []json.RawMessage `json:"row_is_one_of"`
		Row         json.RawMessage   `json:"row"`
		Called      *[]string         `json:"called"`
		CalledCount *int              `json:"called_count"`
	} `json:"expect"`
}

func runDeferred(r *run) { r.deferred("local") }

// deferredRun is one case on its way; every step that asks has processes of its
// own, over the same Redis.
type deferredRun struct {
	*run
	mode        string
	store       *redisdeferred.Store
	policies    *policyStore
	environment []tasks.Hook
}

func (r *run) deferred(mode string) {
	var c deferredCase
	r.decode(&c)
	d := &deferredRun{run: r, mode: mode, policies: newPolicyStore()}
	lanes := r.store() // for the lab's clients, and a namespace
	store, err := redisdeferred.Open(r.t.Context(), redisdeferred.Config{
		Client: r.lab.client, Blocking: r.lab.blocking, Namespace: lanes.Namespace(),
	})
	if err != nil {
		r.fatalf("open the store of deferred results: %v", err)
	}
	d.store = store
	for _, raw := range c.Steps {
		d.step(raw)
	}
}

func (d *deferredRun) step(raw json.RawMessage) {
	var kind deferredStep
	if err := json.Unmarshal(raw, &kind); err != nil {
		d.fatalf("step is no object: %v", err)
	}
	switch kind.Do {
	case "open":
		d.open(raw)
	case "set_caller":
		var s callerStep
		d.decodePart(raw, &s)
		d.setCaller(s)
	case "set_env":
		var s environmentStep
		d.decodePart(raw, &s)
		d.environment = d.environmentHooks(s.Hooks)
	case "complete":
		d.complete(raw)
	case "race":
		d.race(raw)
	case "restart_worker":
		// Each step has new processes anyway; what they knew in memory is gone.
		d.decodePart(raw, &deferredStep{})
	case "expire_snapshot":
		var s operationStep
		d.decodePart(raw, &s)
		d.policies.expire(s.Operation)
	default:
		d.notUnderstood("step", kind.Do)
	}
}

func (d *deferredRun) open(raw json.RawMessage) {
	var s openStep
	d.decodePart(raw, &s)
	p := deferred.Placeholder{ID: s.Row, Content: s.Content, State: s.State, ApprovedFrom: s.Approved}
	if s.Call != nil {
		message := "parent of " + s.Row
		for _, given := range []optional[string]{s.Call.AssistantMessageID, s.Call.ParentMessageID} {
			if given.set {
				message = given.value
			}
		}
		p.Call = &deferred.Call{
			ToolCallID: s.Call.ToolCallID, AssistantMessageID: message, Identifier: s.Call.Identifier,
			APIName: s.Call.APIName, Arguments: s.Call.Arguments,
		}
	}
	if _, err := d.service(d.answering(nil)).Open(d.t.Context(), p); err != nil {
		d.fatalf("open: %v", err)
	}
}

func (d *deferredRun) setCaller(s callerStep) {
	if !d.policies.set(s.Operation, s.Store, s.Hooks) {
		d.notUnderstood("store", s.Store)
	}
}

// answering is a site on which the controls of a step answer by their address.
func (d *deferredRun) answering(responses map[string]json.RawMessage) *site {
	cfg := siteConfig{answers: map[string]answer{}, byURL: true}
	for url, raw := range responses {
		cfg.answers[url] = d.answerOf(raw)
	}
	return d.site(cfg)
}

// service is a new process.
func (d *deferredRun) service(s *site) *deferred.Service {
	environment := always(d.environment)
	service, err := deferred.New(deferred.Config{
		Store: d.store, Controls: d.deployment(s, d.mode, environment).controls, Policies: d.policies,
		EnvironmentHooks: environment, Logger: s.journal.logger(),
	})
	if err != nil {
		d.fatalf("build the service of deferred results: %v", err)
	}
	d.t.Cleanup(service.Close)
	return service
}

func (d *deferredRun) complete(raw json.RawMessage) {
	var s completeStep
	d.decodePart(raw, &s)
	site := d.answering(s.Responses)
	service := d.service(site)
	bounded, stop := context.WithTimeout(d.t.Context(), dispatchTimeout)
	defer stop()
	ctx, cancel := context.WithCancel(bounded)
	defer cancel()
	switch url, during := strings.CutPrefix(s.Cancel, "during"); {
	case s.Cancel == "":
	case s.Cancel == "before":
		cancel()
	case during:
		site.rec.arrived = func(receiver string) {
			if url == "" || url == ":"+receiver {
				cancel()
			}
		}
	default:
		d.notUnderstood("cancel", s.Cancel)
	}
	outcome := outcomeOf(ctx, service, s.Row, s.completion)
	if bounded.Err() != nil {
		d.fatalf("the callback was not answered in %s", dispatchTimeout)
	}
	equal(d.run, "outcome", s.Expect.Outcome, outcome)
	d.checkRow(s.Row, s.Expect.Row)
	if s.Expect.Called != nil {
		equal(d.run, "called", append([]string{}, *s.Expect.Called...), asked(site))
	}
	d.checkRequests(site, s.ExpectRequest)
}

// outcomeOf is the outcome of a callback in the words of the format.
func outcomeOf(ctx context.Context, service *deferred.Service, row string, c completion) string {
	done, err := service.Complete(ctx, deferred.Completion{
		ID: row, OperationID: c.Operation, Raw: c.Result, PreserveUsage: c.PreserveUsage,
	})
	if err != nil {
		return "error"
	}
	return string(done.Outcome)
}

// asked are the addresses that were asked, in order.
func asked(s *site) []string {
	called := []string{}
	for _, call := range s.rec.called() {
		called = append(called, strings.TrimSuffix(call, ":fetch"))
	}
	return called
}

// checkRow compares the row as a later reader finds it. An empty content alone
// stands for a placeholder that is still open.
func (d *deferredRun) checkRow(id string, want json.RawMessage) {
	got, known := d.row(id)
	switch {
	case want == nil:
	case string(want) == "null" || !known:
		equal(d.run, "row is there", string(want) != "null", known)
	case d.sameJSON(want, json.RawMessage(`{"content":""}`)):
		equal(d.run, "row is final", false, got.Final)
		equal(d.run, "content", "", got.Content)
	default:
		equal(d.run, "row is final", true, got.Final)
		d.equalJSON("row", want, got.Document())
	}
}

func (d *deferredRun) row(id string) (row deferred.Row, known bool) {
	row, err := d.service(d.answering(nil)).Get(d.t.Context(), id)
	if err != nil && !errors.Is(err, deferred.ErrNotFound) {
		d.fatalf("read the row: %v", err)
	}
	return row, err == nil
}

func (r *run) sameJSON(a, b json.RawMessage) bool {
	x, errA := exact(a)
	y, errB := exact(b)
	if errA != nil || errB != nil {
		r.fatalf("harness cannot read %s or %s", a, b)
	}
	return equalValues(x, y)
}

// checkRequests wants each control request to hold the expected fields.
func (d *deferredRun) checkRequests(s *site, want json.RawMessage) {
	if want == nil {
		return
	}
	fields, err := tasks.SplitObject(want)
	requests := s.rec.received()
	if err != nil || len(requests) == 0 {
		d.problemf("%d control requests to compare with %s (%v)", len(requests), want, err)
	}
	for _, request := range requests {
		for _, field := range fields {
			got := hookMember(request.body, field.Key)
			if got == nil {
				d.problemf("control request lacks %s: %s", field.Key, request.body)
				continue
			}
			d.equalJSON(field.Key+" of the control request", field.Value, got)
		}
	}
}

// race lets callbacks in at once, each in a process of its own.
func (d *deferredRun) race(raw json.RawMessage) {
	var s raceStep
	d.decodePart(raw, &s)
	site := d.answering(s.Responses)
	outcomes := make([]string, len(s.Completions))
	ready := make(chan struct{})
	var group sync.WaitGroup
	for i, c := range s.Completions {
		if c.Operation == "" {
			c.Operation = s.Operation
		}
		service := d.service(site)
		group.Go(func() {
			<-ready
			outcomes[i] = outcomeOf(d.t.Context(), service, s.Row, c)
		})
	}
	close(ready)
	group.Wait()
	slices.Sort(outcomes)
	equal(d.run, "outcomes", slices.Sorted(slices.Values(s.Expect.Outcomes)), outcomes)
	if s.Expect.Row != nil {
		d.checkRow(s.Row, s.Expect.Row)
	}
	if s.Expect.Called != nil {
		equal(d.run, "called", slices.Sorted(slices.Values(*s.Expect.Called)), slices.Sorted(slices.Values(asked(site))))
	}
	if s.Expect.CalledCount != nil {
		equal(d.run, "calls", *s.Expect.CalledCount, len(asked(site)))
	}
	if row, _ := d.row(s.Row); s.Expect.RowIsOneOf != nil {
		d.checkAlternatives(&s)
		if !slices.ContainsFunc(s.Expect.RowIsOneOf, func(want json.RawMessage) bool { return d.sameJSON(want, row.Document()) }) {
			d.problemf("row is %s, want one of %s", row.Document(), s.Expect.RowIsOneOf)
		}
	}
}

// checkAlternatives wants each row that may stand to be one that a callback could
// have published: its result, or a denial.
func (d *deferredRun) checkAlternatives(s *raceStep) {
	for _, want := range s.Expect.RowIsOneOf {
		result, err := tasks.ParseToolResult(want)
		if err == nil && result.Error == tasks.ErrorHookDenied && s.Responses != nil {
			continue
		}
		if !slices.ContainsFunc(s.Completions, func(c completion) bool { return d.sameJSON(want, c.Result) }) {
			d.problemf("no callback can publish %s", want)
		}
	}
}

// policyStore stands for the runtime's store of hooks, and can fail.
type policyStore struct {
	mu                 sync.Mutex
	snapshots, records map[string]json.RawMessage
	failing            map[string]bool
}

func newPolicyStore() *policyStore {
	return &policyStore{snapshots: map[string]json.RawMessage{}, records: map[string]json.RawMessage{}, failing: map[string]bool{}}
}

func (p *policyStore) set(operation, where string, hooks json.RawMessage) (understood bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing[operation] = where == "error"
	delete(p.snapshots, operation)
	delete(p.records, operation)
	for _, part := range strings.Split(where, "+") {
		switch part {
		case "snapshot":
			p.snapshots[operation] = hooks
		case "durable":
			p.records[operation] = hooks
		case "error", "none":
		default:
			return false
		}
	}
	return true
}

func (p *policyStore) expire(operation string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.snapshots, operation)
}

var errPolicies = errors.New("policy store is down")

func (p *policyStore) read(lists map[string]json.RawMessage, operation string) (json.RawMessage, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failing[operation] {
		return nil, false, errPolicies
	}
	hooks, ok := lists[operation]
	return hooks, ok, nil
}

// Snapshot implements deferred.PolicyStore.
func (p *policyStore) Snapshot(_ context.Context, operation string) (json.RawMessage, bool, error) {
	return p.read(p.snapshots, operation)
}

// Durable implements deferred.PolicyStore.
func (p *policyStore) Durable(_ context.Context, operation string) (json.RawMessage, bool, error) {
	return p.read(p.records, operation)
}

// TestDeferredOverRedis runs the cases with their controls asked by workers.
func TestDeferredOverRedis(t *testing.T) {
	lab := newLab(t)
	for _, file := range readCases(t, *casesDir) {
		if file.File != "deferred" {
			continue
		}
		for _, raw := range file.Cases {
			t.Run(caseID(raw), func(t *testing.T) {
				t.Parallel()
				r := &run{t: t, lab: lab, raw: raw}
				r.guard(func() { r.deferred("queue") })
				r.report(t)
			})
		}
	}
}
