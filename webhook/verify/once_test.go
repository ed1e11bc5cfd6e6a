package verify_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gantry-hooks/gantry/webhook/verify"
)

// stored is a receiver of Standard Webhooks with a memory.
func stored(t testing.TB, next http.Handler, told *events, edit func(c *verify.Config)) http.Handler {
	config := all(t)
	config.Store, config.Notify = verify.NewMemory(verify.MemoryConfig{}), told.add
	if edit != nil {
		edit(&config)
	}
	return guarded(t, next, config)
}

func TestOnce(t *testing.T) {
	for name, header := range map[string]http.Header{
		"standard": standard(t, firstKey, "msg_1", `{}`), "body": plain(t, firstKey, "msg_1", `{}`),
		"qstash": message{key: currentKey, url: origin + "/", id: "m", jti: "j", body: `{}`}.header(t),
	} {
		t.Run(name, func(t *testing.T) {
			told, status := &events{}, http.StatusInternalServerError
			e := &endpoint{t: t, answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }}
			h := stored(t, e, told, nil)
			for _, step := range []struct {
				status, want, runs int
				told               string
			}{
				{500, 500, 1, "released"},
				{302, 302, 2, "released"},
				{404, 404, 3, "released"},
				{204, 204, 4, ""},
				{500, 200, 4, "duplicate"},
				{500, 200, 4, "duplicate"},
			} {
				status = step.status
				w := serve(h, post("/", `{}`, header))
				if got := told.take(); w.Code != step.want || e.runs() != step.runs || got != step.told {
					t.Fatalf("status %d, %d runs, told %q; want %+v", w.Code, e.runs(), got, step)
				}
			}
		})
	}
}

// TestOtherMessagesAreNotConfused changes what names a message, and what does not
// although a sender could write it.
func TestOtherMessagesAreNotConfused(t *testing.T) {
	e, told := &endpoint{t: t}, &events{}
	h := stored(t, e, told, nil)
	qm := func(id, jti, body string) http.Header {
		return message{key: currentKey, url: origin + "/", id: id, jti: jti, body: body}.header(t)
	}
	renamed := qm("m1", "j1", `{}`)
	renamed.Set("Upstash-Message-Id", "m9")
	for _, step := range []struct {
		name   string
		body   string
		header http.Header
		runs   int
	}{
		{"first", `{}`, standard(t, firstKey, "msg_1", `{}`), 1},
		{"other id", `{}`, standard(t, firstKey, "msg_2", `{}`), 2},
		{"same id, by the other key", `{}`, standard(t, secondKey, "msg_1", `{}`), 2},
		{"qstash", `{}`, qm("m1", "j1", `{}`), 3},
		{"next attempt: fresh token", `{}`, qm("m1", "j2", `{}`), 3},
		{"copied token under an invented id", `{}`, renamed, 3},
		{"the real message of that id", `{}`, qm("m9", "j3", `{}`), 4},
		{"same id, other body", `{"n":1}`, qm("m1", "j4", `{"n":1}`), 5},
		{"qstash without an id", `{}`, qm("", "j5", `{}`), 6},
		{"the same token", `{}`, qm("", "j5", `{}`), 6},
		{"body without an id", `{}`, plain(t, firstKey, "", `{}`), 7},
		{"once more: nothing to tell it by", `{}`, plain(t, firstKey, "", `{}`), 8},
		{"body with an id", `{}`, plain(t, firstKey, "d", `{}`), 9},
		{"the same id for another body", `{"n":1}`, plain(t, firstKey, "d", `{"n":1}`), 10},
		{"and again", `{"n":1}`, plain(t, firstKey, "d", `{"n":1}`), 10},
	} {
		if w := serve(h, post("/", step.body, step.header)); w.Code != http.StatusOK || e.runs() != step.runs {
			t.Errorf("%s: status %d, %d runs, want %d", step.name, w.Code, e.runs(), step.runs)
		}
	}
}

// TestScope has two endpoints share a store.
func TestScope(t *testing.T) {
	e, told, store := &endpoint{t: t}, &events{}, verify.NewMemory(verify.MemoryConfig{})
	for i, scope := range []string{"a", "b", "a"} {
		h := stored(t, e, told, func(c *verify.Config) { c.Store, c.Scope = store, scope })
		serve(h, post("/", `{}`, standard(t, firstKey, "msg_1", `{}`)))
		if want := min(i+1, 2); e.runs() != want {
			t.Errorf("scope %s: %d runs, want %d", scope, e.runs(), want)
		}
	}
}

// TestDoubledDeliveries sends each of 50 requests at the same time.
func TestDoubledDeliveries(t *testing.T) {
	const doubles = 50
	arrived, finish := make(chan struct{}), make(chan struct{})
	e := &endpoint{t: t, answer: func(http.ResponseWriter, *http.Request) {
		close(arrived) // a second run would panic here
		<-finish
	}}
	told := &events{}
	h := stored(t, e, told, nil)
	codes := make(chan *httptest.ResponseRecorder, doubles)
	for range doubles {
		go func() { codes <- serve(h, post("/", `{}`, standard(t, firstKey, "msg_1", `{}`))) }()
	}
	<-arrived
	for range doubles - 1 {
		if w := <-codes; w.Code != http.StatusConflict || w.Header().Get("Retry-After") != "5" || w.Body.String() != "in progress\n" {
			t.Errorf("status %d, %v", w.Code, w.Header())
		}
	}
	close(finish)
	if w := <-codes; w.Code != http.StatusOK || e.runs() != 1 {
		t.Errorf("status %d, %d runs", w.Code, e.runs())
	}
	if w := serve(h, post("/", `{}`, standard(t, firstKey, "msg_1", `{}`))); w.Code != http.StatusOK || e.runs() != 1 {
		t.Errorf("afterwards: status %d, %d runs", w.Code, e.runs())
	}
}

func TestPanicReleases(t *testing.T) {
	told := &events{}
	e := &endpoint{t: t, answer: func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		panic(http.ErrAbortHandler)
	}}
	h := stored(t, e, told, nil)
	for i := range 2 {
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					t.Errorf("the panic does not reach the server")
				}
			}()
			serve(h, post("/", `{}`, standard(t, firstKey, "msg_1", `{}`)))
		}()
		if e.runs() != i+1 || told.take() != "released" {
			t.Errorf("%d runs after panic %d", e.runs(), i+1)
		}
	}
}

// TestLease has a handler that takes too long: its context ends, and then the
// next delivery runs. What the late one does afterwards harms nobody.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, stuck, late := &events{}, make(chan error, 1), make(chan int)
		first := true
		e := &endpoint{t: t, answer: func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				<-r.Context().Done()
				stuck <- context.Cause(r.Context())
				w.WriteHeader(<-late)
			}
		}}
		h := stored(t, e, told, func(c *verify.Config) { c.Lease = time.Minute })
		send := func() int { return serve(h, post("/", `{}`, standard(t, firstKey, "msg_1", `{}`))).Code }
		begun, ended := time.Now(), make(chan int, 1)
		go func() { ended <- send() }()
		synctest.Wait()
		if code := send(); code != http.StatusConflict {
			t.Errorf("while it runs: status %d", code)
		}
		if err := <-stuck; !errors.Is(err, verify.ErrLeaseEnded) || time.Since(begun) != time.Minute {
			t.Errorf("the context ended after %s: %v", time.Since(begun), err)
		}
		if code := send(); code != http.StatusOK || e.runs() != 2 {
			t.Errorf("after the lease: status %d, %d runs", code, e.runs())
		}
		late <- http.StatusInternalServerError
		<-ended
		if code := send(); code != http.StatusOK || e.runs() != 2 {
			t.Errorf("after the late one: status %d, %d runs", code, e.runs())
		}
	})
}

// TestKeep forgets what was finished long ago.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, e := &events{}, &endpoint{t: t}
		h := stored(t, e, told, nil)
		for i, wait := range []time.Duration{0, verify.DefaultKeep - 1, 1} {
			<-time.After(wait)
			serve(h, post("/", `{}`, standard(t, firstKey, "msg_1", `{}`)))
			if want := 1 + i/2; e.runs() != want {
				t.Errorf("after %s: %d runs, want %d", wait, e.runs(), want)
			}
		}
	})
}

// broken is a store that fails in the ways given.
type broken struct {
	verify.Store
	claim, done error
}

func (b *broken) Claim(ctx context.Context, id, owner string, lease time.Duration) (verify.State, error) {
	state, err := b.Store.Claim(ctx, id, owner, lease)
	if b.claim != nil {
		return "", b.claim // after it took effect, as when an answer is lost
	}
	return state, err
}

func (b *broken) Done(ctx context.Context, id, owner string, keep time.Duration) error {
	if b.done != nil {
		return b.done
	}
	return b.Store.Done(ctx, id, owner, keep)
}

func TestStoreFails(t *testing.T) {
	down := errors.New("down")
	store := &broken{Store: verify.NewMemory(verify.MemoryConfig{}), claim: down}
	told, e := &events{}, &endpoint{t: t}
	h := stored(t, e, told, func(c *verify.Config) { c.Store, c.RetryAfter = store, 1500*time.Millisecond })
	w := serve(h, post("/", `{}`, standard(t, firstKey, "msg_1", `{}`)))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "2" || e.runs() != 0 || told.take() != "store_failed" {
		t.Errorf("status %d, %v, %d runs", w.Code, w.Header(), e.runs())
	}
	store.claim, store.done = nil, down
	// The claim whose answer was lost is given back at once.
	w = serve(h, post("/", `{}`, standard(t, firstKey, "msg_1", `{}`)))
	if w.Code != http.StatusOK || e.runs() != 1 || told.take() != "store_failed" {
		t.Errorf("status %d, %d runs", w.Code, e.runs())
	}
}

// TestTooLarge bounds what is read, whether or not its length is declared.
func TestTooLarge(t *testing.T) {
	config, told := all(t), &events{}
	config.MaxBody, config.Notify = 10, told.add
	e := &endpoint{t: t}
	h := guarded(t, e, config)
	for name, test := range map[string]struct {
		header http.Header
		want   int
		stop   string
	}{
		"standard": {standard(t, firstKey, "m", "12345678901"), http.StatusRequestEntityTooLarge, ""},
		"qstash":   {message{key: currentKey, url: origin + "/", body: "12345678901"}.header(t), 489, "true"},
	} {
		for _, length := range []int64{11, -1} {
			r := post("/", "12345678901", test.header)
			r.ContentLength = length
			w := serve(h, r)
			if w.Code != test.want || w.Header().Get("Upstash-NonRetryable-Error") != test.stop || told.take() != "too_large" {
				t.Errorf("%s, length %d: status %d, %v", name, length, w.Code, w.Header())
			}
		}
	}
	if w := serve(h, post("/", "1234567890", standard(t, firstKey, "m", "1234567890"))); w.Code != http.StatusOK || e.runs() != 1 {
		t.Errorf("as long as the limit: status %d", w.Code)
	}
	broken := post("/", "", standard(t, firstKey, "m", ""))
	broken.Body, broken.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("1"), failing{})), 2
	if w := serve(h, broken); w.Code != http.StatusBadRequest || told.take() != "unreadable" {
		t.Errorf("broken body: status %d", w.Code)
	}
	// Without a signature header no byte is read.
	unread := post("/", "", nil)
	unread.Body = io.NopCloser(failing{})
	if w := serve(h, unread); w.Code != http.StatusUnauthorized {
		t.Errorf("no signature: status %d", w.Code)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestStreaming reads a reply while the handler is still writing it, over a real
// connection.
func TestStreaming(t *testing.T) {
	told, read := &events{}, make(chan struct{})
	e := &endpoint{t: t, answer: func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.WriteString(w, "one")
		flusher, ok := w.(http.Flusher)
		if !ok {
			t.Errorf("no http.Flusher")
			return
		}
		flusher.Flush()
		<-read
		control := http.NewResponseController(w)
		if err := errors.Join(control.SetWriteDeadline(time.Now().Add(time.Minute)), control.Flush()); err != nil {
			t.Errorf("control the reply: %v", err)
		}
		_, _ = io.Copy(w, strings.NewReader("two"))
	}}
	server := httptest.NewServer(stored(t, e, told, nil))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(`{}`))
	if err != nil {
		t.Fatalf("make a request: %v", err)
	}
	request.Header = standard(t, firstKey, "msg_1", `{}`)
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatalf("send: %v", err)
	}
	defer response.Body.Close()
	part := make([]byte, 3)
	if _, err := io.ReadFull(response.Body, part); err != nil || string(part) != "one" {
		t.Fatalf("first part %q, %v", part, err)
	}
	close(read)
	if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != "two" {
		t.Fatalf("rest %q, %v", rest, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	ctx, now := t.Context(), noon
	m := verify.NewMemory(verify.MemoryConfig{MaxEntries: 3, Now: func() time.Time { return now }})
	claim := func(id, owner string, want verify.State, wantErr error) {
		t.Helper()
		if state, err := m.Claim(ctx, id, owner, time.Minute); state != want || !errors.Is(err, wantErr) {
			t.Fatalf("claim %s: %s, %v; want %s, %v", id, state, err, want, wantErr)
		}
	}
	claim("a", "1", verify.StateNew, nil)
	claim("a", "1", verify.StateNew, nil)
	claim("a", "2", verify.StateInProgress, nil)
	claim("b", "1", verify.StateNew, nil)
	claim("c", "1", verify.StateNew, nil)
	claim("d", "1", "", verify.ErrStoreFull)
	if err := errors.Join(m.Done(ctx, "a", "1", time.Hour), m.Done(ctx, "b", "1", time.Hour)); err != nil {
		t.Fatalf("done: %v", err)
	}
	claim("d", "1", verify.StateNew, nil) // a goes
	claim("b", "1", verify.StateDone, nil)
	claim("a", "2", verify.StateNew, nil) // b goes
	if m.Len() != 3 {
		t.Fatalf("%d entries", m.Len())
	}
	for _, owner := range []string{"", "1"} {
		_ = m.Release(ctx, "a", owner)
		claim("a", "3", verify.StateInProgress, nil)
	}
	now = now.Add(time.Minute)
	claim("e", "1", verify.StateNew, nil)
	if m.Len() != 1 {
		t.Fatalf("%d entries after all leases", m.Len())
	}
}

// TestMemoryUnderRace has many claim and finish the same few messages.
func TestMemoryUnderRace(t *testing.T) {
	m := verify.NewMemory(verify.MemoryConfig{MaxEntries: 16})
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := map[string]int{}
	for worker := range 8 {
		wg.Go(func() {
			owner := string(rune('a' + worker))
			for i := range 400 {
				id := string(rune('A' + i%8))
				state, err := m.Claim(t.Context(), id, owner, time.Minute)
				switch {
				case err != nil:
					t.Errorf("claim: %v", err)
				case state == verify.StateNew && i < 200:
					_ = m.Release(t.Context(), id, owner)
				case state == verify.StateNew:
					mu.Lock()
					done[id]++
					mu.Unlock()
					_ = m.Done(t.Context(), id, owner, time.Hour)
				}
			}
		})
	}
	wg.Wait()
	for id, times := range done {
		if times != 1 {
			t.Errorf("%s was done %d times", id, times)
		}
	}
	if len(done) != 8 {
		t.Errorf("%d of 8 were done", len(done))
	}
}
