package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

type emailCase struct {
	common
	Steps []json.RawMessage `json:"steps"`
}

type emailStep struct {
	AtS float64 `json:"at_s"`
	// FillUsers resolves so many users of whom nobody heard before.
	FillUsers       int                        `json:"fill_users"`
	User            string                     `json:"user"`
	Directory       map[string]*string         `json:"directory"`
	LookupError     bool                       `json:"lookup_error"`
	CancelledBefore bool                       `json:"cancelled_before"`
	Concurrent      int                        `json:"concurrent"`
	CancelWaiter    *int                       `json:"cancel_waiter"`
	ExpectEmail     optional[string]           `json:"expect_email"`
	ExpectLookup    *bool                      `json:"expect_lookup"`
	ExpectLookups   *int                       `json:"expect_lookups"`
	ExpectEmails    *[]optional[expectedEmail] `json:"expect_emails"`
}

// expectedEmail is an email, or the mark of a waiter that was cancelled.
type expectedEmail struct {
	email     string
	cancelled bool
}

func (e *expectedEmail) UnmarshalJSON(raw []byte) error {
	if json.Unmarshal(raw, &e.email) == nil {
		return nil
	}
	var mark struct {
		Cancelled bool `json:"cancelled"`
	}
	err := json.Unmarshal(raw, &mark)
	if err == nil && !mark.Cancelled {
		err = fmt.Errorf("%s is neither an email nor cancelled", raw)
	}
	e.cancelled = mark.Cancelled
	return err
}

func runEmailCache(r *run) {
	var c emailCase
	r.decode(&c)
	if len(c.Steps) == 0 {
		r.notUnderstood("case without", "steps")
	}
	// In a bubble the harness can tell that every waiter waits.
	synctest.Test(r.t, func(t *testing.T) {
		outer := r.t
		r.t = t
		defer func() { r.t = outer }()
		r.guard(func() { r.emailSteps(&c) })
	})
}

// emailRun is one payload builder under a clock and a directory of the case's.
type emailRun struct {
	*run
	site   *site
	emails *directory

	mu    sync.Mutex
	now   time.Time
	known map[string]*string
	fails bool
	// gate holds lookups back while it is open for waiting; nil lets them through.
	gate   chan struct{}
	filled int
}

func (r *run) emailSteps(c *emailCase) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := &emailRun{run: r, now: start, known: map[string]*string{"ghost": nil}}
	e.emails = &directory{email: e.lookup}
	e.site = r.site(siteConfig{directory: e.emails, now: e.clock})
	for i, raw := range c.Steps {
		var step emailStep
		r.decodePart(raw, &step)
		e.mu.Lock()
		e.now, e.fails = start.Add(time.Duration(step.AtS*float64(time.Second))), step.LookupError
		for user, email := range step.Directory {
			e.known[user] = email
		}
		e.mu.Unlock()
		before := len(e.emails.asked())
		e.step(i, &step)
		synctest.Wait()
		asked := len(e.emails.asked()) - before
		if step.ExpectLookup != nil {
			equal(r, fmt.Sprintf("step %d: the directory is asked", i), *step.ExpectLookup, asked > 0)
		}
		if step.ExpectLookups != nil {
			equal(r, fmt.Sprintf("step %d: lookups", i), *step.ExpectLookups, asked)
		}
	}
}

func (e *emailRun) clock() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

func (e *emailRun) lookup(user string) (string, bool, error) {
	e.mu.Lock()
	gate, fails := e.gate, e.fails
	email, known := e.known[user]
	e.mu.Unlock()
	if gate != nil {
		<-gate
	}
	switch {
	case fails:
		return "", false, errDirectory
	case !known:
		return user + "@x.test", true, nil
	case email == nil:
		return "", false, nil
	}
	return *email, true, nil
}

// resolved is what one request came to; no email is nil.
type resolved struct {
	Email     *string
	Cancelled bool
}

// resolve builds a payload for a user and reads the email in it.
func (e *emailRun) resolve(ctx context.Context, user string) (resolved, error) {
	event := tasks.AppendObject(nil, []tasks.Member{{Key: "userId", Value: tasks.AppendString(nil, user)}})
	hook := &tasks.Hook{ID: "h", Type: tasks.AfterStep, Webhook: &tasks.Webhook{URL: "https://rx.test/"}}
	payload, err := e.site.payload.Build(ctx, webhook.Delivery{Hook: hook, Type: hook.Type, Event: event})
	if errors.Is(err, context.Canceled) {
		return resolved{Cancelled: true}, nil
	}
	if err != nil {
		return resolved{}, err
	}
	var got struct {
		Email *string `json:"userEmail"`
	}
	if err := json.Unmarshal(payload, &got); err != nil {
		return resolved{}, err
	}
	return resolved{Email: got.Email}, nil
}

func (e *emailRun) step(i int, step *emailStep) {
	switch {
	case step.FillUsers > 0:
		for range step.FillUsers {
			e.filled++
			if _, err := e.resolve(e.t.Context(), fmt.Sprintf("fill-%d", e.filled)); err != nil {
				e.fatalf("step %d: %v", i, err)
			}
		}
	case step.Concurrent > 0:
		e.concurrent(i, step)
	case step.User != "":
		e.single(i, step)
	default:
		e.notUnderstood("step", i)
	}
}

func (e *emailRun) single(i int, step *emailStep) {
	ctx, cancel := context.WithCancel(e.t.Context())
	defer cancel()
	if step.CancelledBefore {
		cancel()
	}
	got, err := e.resolve(ctx, step.User)
	if err != nil {
		e.fatalf("step %d: %v", i, err)
	}
	equal(e.run, fmt.Sprintf("step %d: cancelled", i), step.CancelledBefore, got.Cancelled)
	if step.ExpectEmail.set {
		want := resolved{Cancelled: step.CancelledBefore}
		if !step.ExpectEmail.null {
			want.Email = &step.ExpectEmail.value
		}
		equal(e.run, fmt.Sprintf("step %d", i), want, got)
	}
}

// concurrent lets several requests wait for one lookup, cancels one of them if
// asked to, and then lets the lookup end.
func (e *emailRun) concurrent(i int, step *emailStep) {
	gate := make(chan struct{})
	e.mu.Lock()
	e.gate = gate
	e.mu.Unlock()
	got, errs := make([]resolved, step.Concurrent), make([]error, step.Concurrent)
	cancels := make([]context.CancelFunc, step.Concurrent)
	var running sync.WaitGroup
	for n := range step.Concurrent {
		ctx, cancel := context.WithCancel(e.t.Context())
		defer cancel()
		cancels[n] = cancel
		running.Go(func() { got[n], errs[n] = e.resolve(ctx, step.User) })
	}
	synctest.Wait()
	if n := step.CancelWaiter; n != nil {
		if *n < 0 || *n >= step.Concurrent {
			e.notUnderstood("cancel_waiter", *n)
		}
		cancels[*n]()
		synctest.Wait()
	}
	e.mu.Lock()
	e.gate = nil
	e.mu.Unlock()
	close(gate)
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		e.fatalf("step %d: %v", i, err)
	}
	e.checkConcurrent(i, step, got)
}

func (e *emailRun) checkConcurrent(i int, step *emailStep, got []resolved) {
	if step.ExpectEmails == nil {
		return
	}
	want := []resolved{}
	for _, expected := range *step.ExpectEmails {
		one := resolved{Cancelled: expected.value.cancelled}
		if !expected.null && !one.Cancelled {
			one.Email = &expected.value.email
		}
		want = append(want, one)
	}
	equal(e.run, fmt.Sprintf("step %d: emails", i), want, got)
}
