package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

type controlResponseCase struct {
	common
	HookType tasks.HookType    `json:"hookType"`
	OnError  tasks.ErrorPolicy `json:"onError"`
	// Response or Fault is given. A fault that starts with "cancelled" says when the
	// asker goes away.
	Response       json.RawMessage       `json:"response"`
	Fault          string                `json:"fault"`
	Classification string                `json:"classification"`
	AcceptCodes    []tasks.TransportCode `json:"accept_codes"`
	Expect         verdictExpect         `json:"expect"`
}

// verdictExpect is what a question comes to.
type verdictExpect struct {
	Status tasks.VerdictStatus `json:"status"`
	// Reason is "" when absent, which is what only a block has.
	Reason       string          `json:"reason"`
	ReasonRepeat json.RawMessage `json:"reason_repeat"`
}

// policyHook is the one control of these cases, policyURL its address.
const (
	policyHook = "policy"
	policyURL  = "https://policy.test/hook"
)

// A fault leaves its hook so much time; every other one has the default.
const faultTimeout = "1"

// configurationFaults are those of the hook itself: what they make of its
// webhook.
var configurationFaults = map[string]string{
	"no_base_url":         `"url":"/hook"`,
	"missing_env":         `"url":"` + policyURL + `","headers":{"X-K":"${MISSING}"},"allowedEnvVars":["MISSING"]`,
	"missing_env_var":     `"url":"` + policyURL + `","headers":{"X-K":"${MISSING}"},"allowedEnvVars":["MISSING"]`,
	"unresolvable_header": `"url":"` + policyURL + `","headers":{"X-K":"${MISSING}"},"allowedEnvVars":["MISSING"]`,
	"forbidden_header":    `"url":"` + policyURL + `","headers":{"Host":"x"}`,
}

// cancellations are the moments at which the asker goes away: before it asks, or
// with what the receiver does from then on.
var cancellations = map[string]string{
	"cancelled_before":     "",
	"cancelled_waiting":    `"hang"`,
	"cancelled_headers":    `"hang"`,
	"cancelled_during":     `"hang"`,
	"cancelled_reading":    `"hang_mid_body"`,
	"cancelled_mid_body":   `"hang_mid_body"`,
	"cancelled_then_allow": `{"json":{"decision":"allow"}}`,
	"cancelled_then_deny":  `{"json":{"decision":"deny"}}`,
	"cancelled_then_error": `{"status":500}`,
	"cancelled_then_reset": `"reset"`,
}

func runControlResponse(r *run) {
	var c controlResponseCase
	r.decode(&c)
	if (c.Fault == "") == (c.Response == nil) {
		r.notUnderstood("a case with fault and response", c.Fault)
	}
	q := r.responseQuestion(&c)
	q.ask()
	r.checkClassification(&c, q.verdict)
	r.checkVerdict(c.Expect, q.verdict)
	want := []string{policyHook + ":fetch"}
	if _, wrong := configurationFaults[c.Fault]; wrong || c.Fault == "cancelled_before" {
		want = []string{}
	}
	equal(r, "calls", want, q.site.rec.called())
	if len(q.site.rec.received()) > 1 {
		r.problemf("the control was asked more than once")
	}
	r.checkSafe(q.site.journal, q.secrets())
}

// questionRun is one question with the deployment that answers it.
type questionRun struct {
	*run
	site    *site
	asking  *control.Client
	request control.Request
	// gone is set when the asker goes away before it asks.
	gone bool
	// during is the receiver at whose request the asker goes away; "" means never.
	during  string
	verdict tasks.Verdict
	err     error
}

func (r *run) responseQuestion(c *controlResponseCase) *questionRun {
	q := &questionRun{run: r}
	raw, webhook := c.Response, `"url":"`+policyURL+`"`
	switch {
	case c.Fault == "":
	case configurationFaults[c.Fault] != "":
		webhook = configurationFaults[c.Fault]
	case strings.HasPrefix(c.Fault, "cancelled"):
		answer, known := cancellations[c.Fault]
		if !known {
			r.notUnderstood("fault", c.Fault)
		}
		if q.gone = answer == ""; !q.gone {
			raw, q.during = json.RawMessage(answer), policyHook
		}
	default:
		raw = tasks.AppendString(nil, c.Fault)
		if strings.Contains(c.Fault, "timeout") {
			webhook += `,"timeout":` + faultTimeout
		}
	}
	if c.OnError != "" {
		webhook += `,"onError":` + string(tasks.AppendString(nil, string(c.OnError)))
	}
	q.site = r.site(siteConfig{answers: map[string]answer{policyHook: r.answerOf(raw)}})
	d := r.deployment(q.site, "local", always(nil))
	q.asking = d.controls
	event := r.sampleEvent(c.HookType, "op")
	hooks := json.RawMessage(`[{"id":"` + policyHook + `","type":"` + string(c.HookType) + `","webhook":{"responseHandling":"toolCall",` + webhook + `}}]`)
	if err := d.dispatcher.RegisterRaw(r.t.Context(), "op", hooks, nil); err != nil {
		r.fatalf("register: %v", err)
	}
	q.request = control.Request{Event: event}
	return q
}

// ask asks through the client, as a runtime does.
func (q *questionRun) ask() {
	bounded, stop := context.WithTimeout(q.t.Context(), dispatchTimeout)
	defer stop()
	ctx, cancel := context.WithCancel(bounded)
	defer cancel()
	q.site.rec.arrived = func(receiver string) {
		if receiver == q.during {
			cancel()
		}
	}
	if q.gone {
		cancel()
	}
	q.verdict, q.err = q.asking.Evaluate(ctx, q.request)
	if bounded.Err() != nil {
		q.fatalf("the question was not answered in %s", dispatchTimeout)
	}
}

// checkClassification compares what the one control came to, as the verdict
// tells it.
func (r *run) checkClassification(c *controlResponseCase, v tasks.Verdict) {
	class, code, _ := strings.Cut(c.Classification, ":")
	if class == string(tasks.ControlCancelled) && c.Fault == "cancelled_before" {
		equal(r, "controls asked", 0, len(v.Controls))
		return
	}
	if len(v.Controls) != 1 {
		r.problemf("verdict lists %d controls, want one: %+v", len(v.Controls), v)
		return
	}
	got := v.Controls[0]
	equal(r, "classification", tasks.ControlClass(class), got.Class)
	codes := append([]tasks.TransportCode{tasks.TransportCode(code)}, c.AcceptCodes...)
	if !slices.Contains(codes, got.Code) {
		r.problemf("code %q (%s), want one of %q", got.Code, got.Failure, codes)
	}
	equal(r, "hook of the control", policyHook, got.HookID)
	policy := c.OnError
	if policy == "" {
		policy = tasks.PolicyContinue
	}
	equal(r, "policy of the control", policy, got.OnError)
}

// checkVerdict compares status and reason, and that the rest of the verdict says
// the same.
func (r *run) checkVerdict(want verdictExpect, v tasks.Verdict) {
	equal(r, "status", want.Status, v.Status)
	reason := want.Reason
	if want.ReasonRepeat != nil {
		reason = r.repeated(want.ReasonRepeat)
	}
	if v.Reason != reason {
		r.problemf("reason is %.80q (%d bytes), want %.80q (%d)", v.Reason, len(v.Reason), reason, len(reason))
	}
	if v.Allowed() != (want.Status == tasks.VerdictAllow) {
		r.problemf("permission is %v", v.Allowed())
	}
	equal(r, "outcome", r.outcomeOf(v), v.Outcome)
}

// outcomeOf derives the outcome from status and controls.
func (r *run) outcomeOf(v tasks.Verdict) tasks.VerdictOutcome {
	failed := func(c tasks.ControlResult) bool { return c.Class == tasks.ControlError }
	switch {
	case v.Status == tasks.VerdictCancelled:
		return tasks.OutcomeCancelled
	case v.Status == tasks.VerdictBlocked && slices.ContainsFunc(v.Controls, func(c tasks.ControlResult) bool { return c.Class == tasks.ControlDeny }):
		return tasks.OutcomeDenied
	case v.Status == tasks.VerdictBlocked:
		return tasks.OutcomeErrorClosed
	case len(v.Controls) == 0:
		return tasks.OutcomeNone
	case slices.ContainsFunc(v.Controls, failed):
		return tasks.OutcomeErrorOpen
	}
	return tasks.OutcomeAllowed
}

// repeated reads a text and how often it stands: {"text","count"} under any name
// of the text, or a pair.
func (r *run) repeated(raw json.RawMessage) string {
	var object struct {
		Text   *string `json:"text"`
		UTF8   *string `json:"utf8"`
		Repeat *string `json:"repeat"`
		Count  int     `json:"count"`
	}
	var pair []json.RawMessage
	if json.Unmarshal(raw, &pair) == nil && len(pair) == 2 {
		var text string
		var count int
		if json.Unmarshal(pair[0], &text) == nil && json.Unmarshal(pair[1], &count) == nil {
			return strings.Repeat(text, count)
		}
	}
	r.decodePart(raw, &object)
	for _, text := range []*string{object.Text, object.UTF8, object.Repeat} {
		if text != nil {
			return strings.Repeat(*text, object.Count)
		}
	}
	r.notUnderstood("reason_repeat", string(raw))
	return ""
}

// secrets is what no log may show: what was sent and what was answered.
func (q *questionRun) secrets() []string {
	var secrets []string
	for _, a := range q.site.answers {
		secrets = append(secrets, string(bytes.TrimSpace(a.body)))
	}
	for _, request := range q.site.rec.received() {
		secrets = append(secrets, string(request.body))
	}
	// What is shorter stands in any line.
	return slices.DeleteFunc(secrets, func(s string) bool { return len(s) < 8 })
}
