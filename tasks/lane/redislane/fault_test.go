package redislane_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

// A full Redis refuses what is new and lets what is there be finished.
func TestFullRedisFinishesOldWork(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s := open(t, client, redislane.Config{})
	s.add(t, "op", waitingItem("a"), item("b"), delayedItem("c"))
	s.add(t, "other", item("x"))
	full := func(limit string) { check(t, "set limit", client.ConfigSet(t.Context(), "maxmemory", limit).Err()) }
	full("1")

	for range 2 {
		_, err := s.Append(t.Context(), "op", []lane.Item{item("d"), delayedItem("e")})
		if !errors.Is(err, lane.ErrUnavailable) {
			t.Fatalf("append to a full redis: error is %v, want ErrUnavailable", err)
		}
	}
	claims := s.claimAll(t)
	same(t, "entries", docs(claims["op"]), "doc a, doc b")
	s.do(t, step(claims["op"], 5, action(lane.Park, 1, "a", "h1"), action(lane.Pop, 1, "a", "")))
	s.do(t, step(claims["op"], 5, action(lane.Behind, 2, "b", "h1"), action(lane.Bury, 2, "b", "h2"), action(lane.Pop, 2, "b", "")))
	q := claims["op"].Queue
	q.Hook = "h1"
	full("0")
	s.MakeDue(t, q)
	s.ExpireLease(t, claims["other"].Queue)
	s.MakeDelayedDue(t, "op", "c")
	full("1")
	same(t, "made ready", s.swept(t).Ready, 3)
	claims = s.claimAll(t)
	lost, err := s.Extend(t.Context(), 0, []lane.Held{{Queue: q, Token: claims["op/h1"].Token}})
	check(t, "extend", err)
	same(t, "lost", len(lost), 0)
	s.do(t, step(claims["op/h1"], 5, action(lane.Delivered, 1, "a", "h1"), action(lane.Delivered, 2, "b", "h1")))
	same(t, "delayed", docs(claims["op"]), "doc c")
	s.do(t, step(claims["op"], 5, action(lane.Pop, 3, "c", "")))
	_, err = s.Status(t.Context(), "op", "a", lane.Waiter{Inbox: inbox, Mode: lane.WaitFinal})
	check(t, "status", err)
	check(t, "forget", s.Forget(t.Context(), "other"))

	full("0")
	rows, err := s.Append(t.Context(), "op", []lane.Item{item("d")})
	check(t, "append", err)
	same(t, "row", rows, []lane.Appended{{ID: "d", Sequence: 4}})
}

// proxy stands between client and Redis and loses replies on demand.
type proxy struct {
	listener net.Listener
	server   string
	lose     atomic.Bool
	lost     atomic.Int64
	wg       sync.WaitGroup
}

func startProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, "listen", err)
	p := &proxy{listener: l, server: server}
	p.wg.Go(p.accept)
	t.Cleanup(p.wg.Wait)
	t.Cleanup(func() { _ = l.Close() })
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.wg.Go(func() {
			_, _ = io.Copy(server, client)
			_ = server.Close()
		})
		p.wg.Go(func() {
			p.replies(client, server)
			_, _ = client.Close(), server.Close()
		})
	}
}

// replies passes on what Redis says, or breaks the connection in its place.
func (p *proxy) replies(client, server net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil {
			return
		}
		// The first run of a script is answered with NOSCRIPT: losing that loses nothing.
		if !bytes.HasPrefix(buf[:n], []byte("-NOSCRIPT")) && p.lose.CompareAndSwap(true, false) {
			p.lost.Add(1)
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// lossy returns a store whose calls made through again lose their first reply;
// the client sends them again by itself.
func lossy(t *testing.T) (s *store, again func(what string, call func())) {
	t.Helper()
	direct := servertest.FlushedClient(t)
	p := startProxy(t, direct.Options().Addr)
	client := redis.NewClient(&redis.Options{Addr: p.listener.Addr().String(), DB: direct.Options().DB, MaxRetries: 3, PoolSize: 1})
	t.Cleanup(func() { _ = client.Close() })
	s = open(t, client, redislane.Config{})
	return s, func(what string, call func()) {
		t.Helper()
		before := p.lost.Load()
		p.lose.Store(true)
		call()
		if p.lost.Load() == before {
			t.Fatalf("%s: no reply was lost", what)
		}
	}
}

func TestLostRepliesHaveNoSecondEffect(t *testing.T) {
	t.Parallel()
	s, again := lossy(t)
	again("append", func() { s.add(t, "op", item("a"), item("b"), delayedItem("c")) })
	info, err := s.Lane(t.Context(), "op")
	check(t, "inspect", err)
	same(t, "lane", []int64{info.Waiting, info.Delayed, info.Next}, []int64{2, 1, 3})
	c := s.claimOne(t, "op")
	again("park", func() {
		s.do(t, step(c, 5, action(lane.Park, 1, "a", "h1"), action(lane.Bury, 1, "a", "h2"), action(lane.Pop, 1, "a", "")))
	})
	again("behind", func() {
		s.do(t, step(c, 0, action(lane.Behind, 2, "b", "h1"), action(lane.Delivered, 2, "b", "h2"), action(lane.Pop, 2, "b", "")))
	})
	info, err = s.Lane(t.Context(), "op")
	check(t, "inspect", err)
	same(t, "parked", info.Parked[0].Waiting, int64(2))
	page, err := s.Dead(t.Context(), lane.DeadFilter{})
	check(t, "list", err)
	same(t, "letters", len(page.Letters), 1)
	s.MakeDelayedDue(t, "op", "c")
	again("sweep", func() { s.swept(t) })
	info, err = s.Lane(t.Context(), "op")
	check(t, "inspect", err)
	same(t, "waiting", info.Waiting, int64(1))
	again("replay", func() {
		// The repeat finds the letter gone, which is told as such.
		if err := s.Replay(t.Context(), page.Letters[0].ID); !errors.Is(err, lane.ErrNotFound) {
			t.Fatalf("repeated replay: error is %v, want ErrNotFound", err)
		}
	})
	r := s.claimOne(t, "op/h2")
	same(t, "replayed", docs(r), "doc a")
	again("extend", func() {
		lost, err := s.Extend(t.Context(), 0, []lane.Held{{Queue: r.Queue, Token: r.Token}})
		check(t, "extend", err)
		same(t, "lost", len(lost), 0)
	})
}

func TestLostClaimComesBackWithItsLease(t *testing.T) {
	t.Parallel()
	s, again := lossy(t)
	s.add(t, "op", item("a"))
	again("claim", func() { same(t, "claims", len(s.claimAll(t)), 0) })
	s.ExpireLease(t, s.QueueOf("op"))
	same(t, "expired", s.swept(t).Expired, 1)
	same(t, "entries", docs(s.claimOne(t, "op")), "doc a")
}

func TestLostRepliesRegisterHooksOnce(t *testing.T) {
	t.Parallel()
	s, again := lossy(t)
	_, err := s.AddHooks(t.Context(), "op", []byte(`[1]`))
	check(t, "add hooks", err)
	again("add hooks", func() {
		all, err := s.AddHooks(t.Context(), "op", []byte(`[2]`))
		check(t, "add hooks", err)
		same(t, "hooks", string(all), "[1,2]")
	})
}
