package ingress

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Health says that the server is alive or ready.
type Health struct {
	Status string   `json:"status" enum:"alive,ready"`
	Checks []string `json:"checks,omitempty" doc:"Names of the checks that passed."`
}

type healthInput struct{}

type healthOutput struct {
	Body Health
}

// getHealth says that the process is alive, whatever it depends on.
func (a *API) getHealth(context.Context, *healthInput) (*healthOutput, error) {
	return &healthOutput{Body: Health{Status: "alive"}}, nil
}

// getReady asks all checks at once and names those that fail. The text of an
// error may hold addresses, and is for the log only.
func (a *API) getReady(ctx context.Context, _ *healthInput) (*healthOutput, error) {
	if a.draining.Err() != nil {
		return nil, newProblem(CodeNotReady, "the server is shutting down")
	}
	names := slices.Sorted(maps.Keys(a.config.Checks))
	failures := make([]error, len(names))
	checkCtx, cancel := context.WithTimeout(ctx, a.config.CheckTimeout)
	defer cancel()
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() { failures[i] = a.config.Checks[name](checkCtx) })
	}
	group.Wait()
	var faults []Fault
	for i, err := range failures {
		if err == nil {
			continue
		}
		a.config.Logger.WithFields(logrus.Fields{
			logKeyRequestID: exchangeOf(ctx).id, logKeyCheck: names[i], tasks.LogErr: err,
		}).Warn(logNotReady)
		faults = append(faults, Fault{Path: names[i], Code: CodeNotReady, Message: a.reason(err), Fix: "see the log of this request"})
	}
	if len(faults) > 0 {
		return nil, faultProblem(faults)
	}
	return &healthOutput{Body: Health{Status: "ready", Checks: names}}, nil
}

// reason says without details why a check failed.
func (a *API) reason(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", a.config.CheckTimeout)
	case errors.Is(err, lane.ErrUnavailable):
		return lane.ErrUnavailable.Error()
	}
	return "check failed"
}
