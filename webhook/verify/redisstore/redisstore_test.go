package redisstore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/webhook/signature"
	"github.com/gantry-hooks/gantry/webhook/verify"
	"github.com/gantry-hooks/gantry/webhook/verify/redisstore"
)

const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func newStore(t testing.TB, client redis.UniversalClient) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(redisstore.Config{Client: client})
	if err != nil {
		t.Fatalf("make a store: %v", err)
	}
	return s
}

func TestNeedsAClient(t *testing.T) {
	t.Parallel()
	if _, err := redisstore.New(redisstore.Config{}); err == nil {
		t.Fatalf("a store without a client was made")
	}
}

// step is one call of a store.
type step struct {
	do, id, owner string
	want          verify.State
}

func take(t *testing.T, s verify.Store, steps []step) {
	t.Helper()
	for i, st := range steps {
		var state verify.State
		var err error
		switch st.do {
		case "claim":
			state, err = s.Claim(t.Context(), st.id, st.owner, time.Minute)
		case "done":
			err = s.Done(t.Context(), st.id, st.owner, time.Hour)
		case "release":
			err = s.Release(t.Context(), st.id, st.owner)
		}
		if err != nil || state != st.want {
			t.Fatalf("step %d %+v: %q, %v", i, st, state, err)
		}
	}
}

// TestContract runs the same steps against both stores.
func TestContract(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	for name, s := range map[string]verify.Store{"redis": newStore(t, client), "memory": verify.NewMemory(verify.MemoryConfig{})} {
		t.Run(name, func(t *testing.T) {
			take(t, s, []step{
				{"claim", "m", "a", verify.StateNew},
				{"claim", "m", "a", verify.StateNew}, // the command was repeated
				{"claim", "m", "b", verify.StateInProgress},
				{"claim", "n", "b", verify.StateNew},
				{"release", "m", "b", ""}, // not b's
				{"claim", "m", "b", verify.StateInProgress},
				{"release", "m", "a", ""},
				{"claim", "m", "b", verify.StateNew},
				{"done", "m", "a", ""}, // a was late, and did it all the same
				{"claim", "m", "c", verify.StateDone},
				{"release", "m", "b", ""}, // what is done stays done
				{"claim", "m", "b", verify.StateDone},
				{"release", "x", "a", ""},
				{"claim", "done", "done", verify.StateNew}, // an owner by that name is no state
				{"claim", "done", "b", verify.StateInProgress},
			})
		})
	}
	for id, want := range map[string]time.Duration{"m": time.Hour, "n": time.Minute} {
		left, err := client.PTTL(t.Context(), redisstore.DefaultPrefix+id).Result()
		if err != nil || left <= want/2 || left > want {
			t.Errorf("%s ends in %s (%v), want %s", id, left, err, want)
		}
	}
}

// TestOneOfMany has 50 receivers claim one message.
func TestOneOfMany(t *testing.T) {
	t.Parallel()
	s := newStore(t, servertest.FlushedClient(t))
	found := make(chan verify.State, 50)
	for i := range cap(found) {
		go func() {
			state, err := s.Claim(t.Context(), "m", fmt.Sprint(i), time.Minute)
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			found <- state
		}()
	}
	count := map[verify.State]int{}
	for range cap(found) {
		count[<-found]++
	}
	if count[verify.StateNew] != 1 || count[verify.StateInProgress] != 49 {
		t.Errorf("found %v", count)
	}
}

func guarded(t testing.TB, s verify.Store, lease time.Duration, next http.HandlerFunc) http.Handler {
	t.Helper()
	keys, err := signature.ParseKeys(key)
	if err != nil {
		t.Fatalf("parse keys: %v", err)
	}
	h, err := verify.Handler(next, verify.Config{
		Schemes: []verify.Scheme{verify.StandardWebhooks(keys)}, Store: s, Lease: lease,
	})
	if err != nil {
		t.Fatalf("make the receiver: %v", err)
	}
	return h
}

func signed(t testing.TB, url string) *http.Request {
	t.Helper()
	keys, err := signature.ParseKeys(key)
	if err != nil {
		t.Fatalf("parse keys: %v", err)
	}
	h := keys.Sign("msg_1", time.Now(), []byte(`{}`))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{}`))
	if err != nil {
		t.Fatalf("make a request: %v", err)
	}
	r.Header.Set(signature.HeaderID, h.ID)
	r.Header.Set(signature.HeaderTimestamp, h.Timestamp)
	r.Header.Set(signature.HeaderSignature, h.Signature)
	return r
}

func serve(t testing.TB, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, signed(t, "http://app.test/"))
	return w
}

// TestTwoReceivers doubles a delivery over two processes' stores, 50 times.
func TestTwoReceivers(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	var runs atomic.Int64
	finish := make(chan struct{})
	work := func(http.ResponseWriter, *http.Request) {
		runs.Add(1)
		<-finish
	}
	receivers := []http.Handler{
		guarded(t, newStore(t, client), time.Minute, work), guarded(t, newStore(t, client), time.Minute, work),
	}
	codes := make(chan int, 50)
	for i := range cap(codes) {
		go func() { codes <- serve(t, receivers[i%2]).Code }()
	}
	for range cap(codes) - 1 {
		if code := <-codes; code != http.StatusConflict {
			t.Errorf("status %d", code)
		}
	}
	close(finish)
	if code := <-codes; code != http.StatusOK || runs.Load() != 1 {
		t.Errorf("status %d, %d runs", code, runs.Load())
	}
	if w := serve(t, receivers[1]); w.Code != http.StatusOK || runs.Load() != 1 {
		t.Errorf("afterwards: status %d, %d runs", w.Code, runs.Load())
	}
}

// crashLease is long enough to see that it holds, and short enough to wait for.
const crashLease = 3 * time.Second

// TestCrash kills a process that is working on a message: the message is in
// progress until the lease ends, and then its next delivery runs.
func TestCrash(t *testing.T) {
	t.Parallel()
	client := servertest.FlushedClient(t)
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), asReceiver+"="+servertest.URL(client))
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatalf("read from the receiver: %v", err)
	}
	if err := command.Start(); err != nil {
		t.Fatalf("start the receiver: %v", err)
	}
	lines := bufio.NewScanner(out)
	next := func() string {
		if !lines.Scan() {
			t.Fatalf("the receiver says nothing: %v", lines.Err())
		}
		return lines.Text()
	}
	address := next()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	lost := make(chan error, 1)
	request := signed(t, address)
	go func() {
		response, err := transport.RoundTrip(request)
		if err == nil {
			response.Body.Close()
		}
		lost <- err
	}()
	if line := next(); line != "working" {
		t.Fatalf("the receiver says %q", line)
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatalf("kill the receiver: %v", err)
	}
	_ = command.Wait() // it was killed
	if err := <-lost; err == nil {
		t.Fatalf("the dead receiver has answered")
	}

	runs := 0
	h := guarded(t, newStore(t, client), time.Minute, func(http.ResponseWriter, *http.Request) { runs++ })
	if w := serve(t, h); w.Code != http.StatusConflict || w.Header().Get("Retry-After") == "" {
		t.Fatalf("before the lease ended: status %d", w.Code)
	}
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	code, begun := http.StatusConflict, time.Now()
	for code == http.StatusConflict && time.Since(begun) < 10*crashLease {
		<-ticks.C
		code = serve(t, h).Code
	}
	if code != http.StatusOK || runs != 1 {
		t.Errorf("after the lease: status %d, %d runs", code, runs)
	}
	if w := serve(t, h); w.Code != http.StatusOK || runs != 1 {
		t.Errorf("once more: status %d, %d runs", w.Code, runs)
	}
}

// runReceiver serves one message and never finishes it.
func runReceiver(address string) int {
	options, err := redis.ParseURL(address)
	if err != nil {
		return 1
	}
	store, err := redisstore.New(redisstore.Config{Client: redis.NewClient(options)})
	if err != nil {
		return 1
	}
	keys, err := signature.ParseKeys(key)
	if err != nil {
		return 1
	}
	h, err := verify.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Fprintln(os.Stdout, "working")
		select {}
	}), verify.Config{Schemes: []verify.Scheme{verify.StandardWebhooks(keys)}, Store: store, Lease: crashLease})
	if err != nil {
		return 1
	}
	server := httptest.NewServer(h)
	fmt.Fprintln(os.Stdout, server.URL)
	select {}
}

// TestRedisGoesAway refuses what cannot be claimed, and loses nothing by it.
func TestRedisGoesAway(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	runs := 0
	s := newStore(t, client)
	h := guarded(t, s, time.Minute, func(http.ResponseWriter, *http.Request) { runs++ })
	server.Stop()
	w := serve(t, h)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || runs != 0 {
		t.Errorf("status %d, %d runs", w.Code, runs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for name, err := range map[string]error{"done": s.Done(ctx, "m", "a", time.Hour), "release": s.Release(ctx, "m", "a")} {
		if err == nil || errors.Is(err, redis.Nil) {
			t.Errorf("%s without Redis: %v", name, err)
		}
	}
}
