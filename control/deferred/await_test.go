package deferred_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/gantry-hooks/gantry/control/deferred"
	"github.com/gantry-hooks/gantry/control/deferred/redisdeferred"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

// watched tells of each look that an inbox goes with.
type watched struct {
	deferred.Store
	looked chan string
}

func (w watched) Read(ctx context.Context, id, inbox string) (deferred.Row, error) {
	row, err := w.Store.Read(ctx, id, inbox)
	if inbox != "" {
		select {
		case w.looked <- id:
		case <-ctx.Done():
		}
	}
	return row, err
}

// soon is less than the time after which a waiter looks by itself.
const soon = 1400 * time.Millisecond

func TestWaitersWakeUp(t *testing.T) {
	t.Parallel()
	const rows, perRow = 40, 5
	b := setup(t, nil)
	blocking := redis.NewClient(&redis.Options{Addr: b.client.Options().Addr, DB: b.client.Options().DB, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = blocking.Close() })
	store, err := redisdeferred.Open(t.Context(), redisdeferred.Config{Client: b.client, Blocking: blocking})
	check(t, "open store", err)
	looked := make(chan string)
	other := b.service(func(cfg *deferred.Config) { cfg.Store = watched{store, looked} })
	done := make(chan error, rows*perRow)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range rows {
		id := fmt.Sprint("row ", i)
		b.open(waiting(func(p *deferred.Placeholder) { p.ID = id }))
		for range perRow {
			go func() {
				row, err := other.Await(ctx, id)
				if err == nil && (!row.Final || string(row.Result) != `{"content":"`+id+`","success":true}`) {
					err = fmt.Errorf("row of %s is %s", id, row.Result)
				}
				done <- err
			}()
		}
	}
	for range rows * perRow {
		<-looked
	}
	go func() { // looks after the wake-up
		for range rows * perRow {
			<-looked
		}
	}()
	over := time.AfterFunc(soon, cancel)
	defer over.Stop()
	for i := range rows {
		id := fmt.Sprint("row ", i)
		b.complete(deferred.Completion{ID: id, Result: result(id)})
	}
	for range rows * perRow {
		check(t, "await", <-done)
	}
	if n := blocking.PoolStats().TotalConns; n != 1 {
		t.Errorf("waiting takes %d connections, want 1", n)
	}
}

func TestFinalRowsNeedNoWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.open(deferred.Placeholder{ID: "row", Content: "text"})
	row, err := b.Await(t.Context(), "row")
	check(t, "await", err)
	same(t, "row", string(row.Document()), `{"content":"text"}`)
}

func TestWaitsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.open(waiting(nil))
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errSource)
	if _, err := b.Await(gone, "row"); !errors.Is(err, deferred.ErrPending) || !errors.Is(err, errSource) {
		t.Errorf("error is %v, want ErrPending and its cause", err)
	}
	if _, err := b.Await(t.Context(), "nobody"); !errors.Is(err, deferred.ErrNotFound) {
		t.Errorf("error is %v, want ErrNotFound", err)
	}
	if _, err := b.Await(t.Context(), ""); err == nil {
		t.Error("a row without a name is awaited")
	}
	looked := make(chan string, 8)
	other := b.service(func(cfg *deferred.Config) { cfg.Store = watched{b.store(), looked} })
	ended := make(chan error)
	go func() {
		_, err := other.Await(context.WithoutCancel(t.Context()), "row")
		ended <- err
	}()
	<-looked
	go other.Close()
	if err := <-ended; !errors.Is(err, deferred.ErrClosed) {
		t.Errorf("error is %v, want ErrClosed", err)
	}
	if _, err := other.Await(t.Context(), "row"); !errors.Is(err, deferred.ErrClosed) {
		t.Errorf("error is %v, want ErrClosed", err)
	}
}

func TestWaitsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisdeferred.Open(t.Context(), redisdeferred.Config{Client: client, Blocking: client})
	check(t, "open store", err)
	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	lost, looked := make(chan string, 64), make(chan string, 64)
	logger.AddHook(tell{lost})
	b := setup(t, func(cfg *deferred.Config) { cfg.Store, cfg.Logger = watched{store, looked}, logger })
	b.open(waiting(nil))
	ended := make(chan error)
	go func() {
		row, err := b.Await(t.Context(), "row")
		if err == nil && !row.Final {
			err = errors.New("row is not final")
		}
		ended <- err
	}()
	<-looked
	server.Kill()
	for message := range lost {
		if message == "deferred.inbox_lost" {
			break
		}
	}
	if _, err := b.Complete(t.Context(), deferred.Completion{ID: "row", Result: result("c")}); !errors.Is(err, deferred.ErrUnavailable) {
		t.Fatalf("error is %v, want ErrUnavailable", err)
	}
	check(t, "restart redis", server.Restart(t.Context()))
	done, err := b.Complete(t.Context(), deferred.Completion{ID: "row", Result: result("c")})
	check(t, "complete", err)
	same(t, "outcome", done.Outcome, deferred.Published)
	check(t, "await", <-ended)
	for _, entry := range hook.AllEntries() {
		if entry.Message == "deferred.published" && entry.Data["task_id"] != "row" {
			t.Errorf("line is %v", entry.Data)
		}
	}
}

// tell passes on what is logged.
type tell struct{ lines chan<- string }

func (tell) Levels() []logrus.Level { return logrus.AllLevels }

func (h tell) Fire(entry *logrus.Entry) error {
	select {
	case h.lines <- entry.Message:
	default:
	}
	return nil
}
