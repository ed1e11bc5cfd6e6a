package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// problemType is the media type of RFC 9457.
const problemType = "application/problem+json"

// maxFaults bounds the faults that one document lists.
const maxFaults = 50

// Problem is an error as callers read it, an RFC 9457 problem document of the
// type about:blank. Callers branch on Code. The zero value is invalid.
type Problem struct {
	Title  string       `json:"title" doc:"Text of the HTTP status."`
	Status int          `json:"status" doc:"HTTP status."`
	Code   tasks.Reason `json:"code" doc:"Stable code to branch on; docs/http-api.md lists all of them."`
	Detail string       `json:"detail" doc:"What is wrong, for people."`
	// Faults say where the input is wrong, in its order.
	Faults []Fault `json:"errors,omitempty" doc:"Where the input is wrong and what would be right."`
	// EventIDs are set when the events may be stored or not.
	EventIDs  []string `json:"eventIds,omitempty" doc:"Ids to repeat the request with when the events may or may not be stored."`
	RequestID string   `json:"requestId,omitempty" doc:"Names the request in the log."`

	header http.Header
}

// Fault is one place of an input that is wrong.
type Fault struct {
	Path    string       `json:"path" doc:"Place in the body, such as events[3].event.stepIndex; query.NAME or path.NAME for parameters."`
	Code    tasks.Reason `json:"code" doc:"Rule that is broken."`
	Message string       `json:"message" doc:"What is wrong."`
	Fix     string       `json:"fix,omitempty" doc:"What would be right."`
}

// Error is the detail with its code.
func (p *Problem) Error() string { return p.Detail + " (" + string(p.Code) + ")" }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders are the headers that belong to the problem.
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType is that of problem documents.
func (p *Problem) ContentType(string) string { return problemType }

// newProblem builds a problem of a code.
func newProblem(code tasks.Reason, detail string) *Problem {
	status := statusOf(code)
	title := http.StatusText(status)
	if title == "" {
		title = "Client Closed Request"
	}
	return &Problem{Title: title, Status: status, Code: code, Detail: detail}
}

// newFault builds a problem of one wrong place.
func newFault(fault Fault) *Problem {
	return faultProblem([]Fault{fault})
}

// faultProblem builds a problem of at least one fault; the first gives the code.
func faultProblem(faults []Fault) *Problem {
	detail := faults[0].Message
	if faults[0].Path != "" {
		detail = faults[0].Path + ": " + detail
	}
	if more := len(faults) - 1; more > 0 {
		detail = fmt.Sprintf("%s (and %d more)", detail, more)
	}
	p := newProblem(faults[0].Code, detail)
	p.Faults = faults[:min(len(faults), maxFaults)]
	return p
}

// with adds a header.
func (p *Problem) with(name, value string) *Problem {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
	return p
}

// faultOf reads a refusal of package tasks.
func faultOf(e *tasks.InvalidError) Fault {
	return Fault{Path: e.Path, Code: e.Code, Message: e.Message, Fix: e.Fix}
}

// invalidBodyError is a body with one or more wrong places.
type invalidBodyError struct {
	faults []*tasks.InvalidError
}

// Error is that of the first place.
func (e *invalidBodyError) Error() string { return e.faults[0].Error() }

// Unwrap gives each place.
func (e *invalidBodyError) Unwrap() []error {
	all := make([]error, len(e.faults))
	for i, fault := range e.faults {
		all[i] = fault
	}
	return all
}

// problemOf translates an error of the parts below on purpose: what is not
// known here becomes internal, and its text is for the log only.
func problemOf(err error) *Problem {
	var (
		problem     *Problem
		body        *invalidBodyError
		invalid     *tasks.InvalidError
		reused      *lane.ReusedError
		unavailable *producer.UnavailableError
	)
	switch {
	case errors.As(err, &problem):
		own := *problem
		return &own
	case errors.As(err, &body):
		faults := make([]Fault, len(body.faults))
		for i, fault := range body.faults {
			faults[i] = faultOf(fault)
		}
		return known(faultProblem(faults))
	case errors.As(err, &reused):
		return newFault(Fault{
			Path: "id", Code: CodeIDReused, Message: reused.Error(), Fix: "use a new id for a new event",
		})
	case errors.As(err, &invalid):
		return known(newFault(faultOf(invalid)))
	case errors.Is(err, producer.ErrClosed):
		return newProblem(CodeShuttingDown, "the server is shutting down; repeat the request").with("Retry-After", "1")
	case errors.As(err, &unavailable):
		p := unavailableProblem("the store did not answer; the events may be stored or not: repeat the request with these ids")
		p.EventIDs = unavailable.EventIDs
		return p
	}
	return storeProblem(err)
}

// storeProblem translates what the store says.
func storeProblem(err error) *Problem {
	switch {
	case errors.Is(err, lane.ErrNotFound):
		return newProblem(CodeNotFound, "there is no such thing, or no longer")
	case errors.Is(err, context.Canceled):
		return newProblem(CodeClientClosed, "the caller went away")
	case errors.Is(err, lane.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return unavailableProblem("the store did not answer in time; repeating the request is safe")
	}
	return newProblem(CodeInternal, "something went wrong that is not the caller's fault; the log names the request")
}

// unavailableProblem asks the caller to come again.
func unavailableProblem(detail string) *Problem {
	return newProblem(CodeUnavailable, detail).with("Retry-After", "1")
}

// known keeps a refusal of package tasks a refusal when the table does not know
// its code yet.
func known(p *Problem) *Problem {
	if _, ok := statuses[p.Code]; !ok {
		p.Status, p.Title = http.StatusUnprocessableEntity, http.StatusText(http.StatusUnprocessableEntity)
	}
	return p
}

// write sends p outside of the API's operations.
func (p *Problem) write(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(p) // the caller may be gone
}

// translate turns an error document of the framework into a Problem: it finds
// fault with parameters only, and its other texts are not shown.
func translate(ctx huma.Context, _ string, value any) (any, error) {
	model, ok := value.(*huma.ErrorModel)
	if !ok {
		return value, nil
	}
	p := newProblem(CodeInternal, "something went wrong that is not the caller's fault; the log names the request")
	if model.Status < http.StatusInternalServerError {
		faults := make([]Fault, 0, len(model.Errors))
		for _, e := range model.Errors {
			faults = append(faults, Fault{
				Path: e.Location, Code: CodeInvalidQuery, Message: strings.TrimSpace(e.Message),
				Fix: "see /openapi.json for the parameters of this route",
			})
		}
		p = newProblem(CodeInvalidQuery, "a parameter is invalid")
		if len(faults) > 0 {
			p = faultProblem(faults)
		}
	}
	p.RequestID = exchangeOf(ctx.Context()).id
	return p, nil
}
