// Package servertest gives tests their private servers: one Redis shared by the
// tests of a binary, or one of their own for tests that kill it. A test that
// cannot have its server fails; none is ever skipped.
package servertest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/gantry-hooks/gantry/internal/servers"
)

// startTimeout bounds the start of a server on a loaded machine.
const startTimeout = 60 * time.Second

// databases is the number of tests that may hold a FlushedClient at a time.
const databases = 1024

var shared struct {
	mu    sync.Mutex
	redis *servers.Redis
	err   error
	free  []int
}

// Main runs the tests of a binary, stops the shared server and then fails the
// binary if goroutines are left. Call it from TestMain; it does not return.
// options are for goroutines that may stay.
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	shared.mu.Lock()
	if shared.redis != nil {
		shared.redis.Stop()
	}
	shared.mu.Unlock()
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines are left after the tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// IgnoreServers lets goleak pass over the goroutine that waits for a server,
// for checks within one test while the shared server runs.
func IgnoreServers() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/gantry-hooks/gantry/internal/servers.(*process).run")
}

// Redis returns the server that the tests of this binary share. It is started
// at the first call and stopped by Main, so a package that uses it must have a
// TestMain that calls Main. Do not kill it: see PrivateRedis.
func Redis(t testing.TB) *servers.Redis {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.redis == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
		defer cancel()
		shared.redis, shared.err = servers.StartRedis(ctx, servers.RedisOptions{Databases: databases})
		for n := databases - 1; n >= 0; n-- {
			shared.free = append(shared.free, n)
		}
	}
	if shared.err != nil {
		t.Fatalf("start the shared redis: %v", shared.err)
	}
	return shared.redis
}

// FlushedClient returns a client of the shared server on an empty logical
// database that no other running test uses. It is flushed and closed when t ends.
func FlushedClient(t testing.TB) *redis.Client {
	t.Helper()
	server := Redis(t)
	shared.mu.Lock()
	if len(shared.free) == 0 {
		shared.mu.Unlock()
		t.Fatalf("take a database of the shared redis: all %d are in use", databases)
	}
	last := len(shared.free) - 1
	db := shared.free[last]
	shared.free = shared.free[:last]
	shared.mu.Unlock()

	client := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: db})
	t.Cleanup(func() {
		// The context of a test has ended by the time its cleanups run.
		if err := client.FlushDB(context.WithoutCancel(t.Context())).Err(); err != nil {
			t.Errorf("flush the test's database: %v", err)
		}
		_ = client.Close()
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.free = append(shared.free, db)
	})
	return client
}

// URL returns the redis:// address of client's server and database, for code
// under test that makes its own connections.
func URL(client *redis.Client) string {
	o := client.Options()
	return fmt.Sprintf("redis://%s/%d", o.Addr, o.DB)
}

// PrivateRedis starts a server for t alone, for tests that kill or restart it.
// It is stopped when t ends.
func PrivateRedis(t testing.TB, options servers.RedisOptions) *servers.Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	server, err := servers.StartRedis(ctx, options)
	if err != nil {
		t.Fatalf("start a private redis: %v", err)
	}
	t.Cleanup(server.Stop)
	return server
}

// Postgres starts a PostgreSQL for t alone, stopped when t ends. Making the
// cluster takes a second or two.
func Postgres(t testing.TB) *servers.Postgres {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	server, err := servers.StartPostgres(ctx)
	if err != nil {
		t.Fatalf("start a private postgres: %v", err)
	}
	t.Cleanup(server.Stop)
	return server
}
