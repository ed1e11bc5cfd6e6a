package redislane_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/lanetest"
)

func realOne(t *testing.T) *store { return realStore(t, lanetest.Options{}).(*store) }

// An entry that was pushed by hand used to shift the numbers, so that every
// later event of the operation looked attempted as soon as it was appended.
func TestEntryPushedByHandKeepsNumbersRight(t *testing.T) {
	t.Parallel()
	s := realOne(t)
	key := prefix + "lane:" + tasks.OperationHash("op")
	s.add(t, "op", item("a"))
	check(t, "push", s.client.RPush(t.Context(), key, "\xff{").Err())
	rows, err := s.Append(t.Context(), "op", []lane.Item{item("b")})
	check(t, "append", err)
	same(t, "number", rows[0].Sequence, int64(3))
	c := s.claimOne(t, "op")
	same(t, "entries", docs(c), "doc a, \xff{, doc b")
	bury := lane.Action{Verb: lane.Bury, Sequence: 2, DeadID: "poison", Outcome: &lane.Outcome{}}
	s.do(t, step(c, 0, action(lane.Pop, 1, "a", ""), bury, action(lane.Pop, 2, "", "")))
	status, err := s.Status(t.Context(), "op", "b", lane.Waiter{})
	check(t, "status", err)
	same(t, "status", status, lane.Status{Known: true, Sequence: 3})
	s.do(t, step(c, 1, action(lane.Pop, 3, "b", "")))
	rows, err = s.Append(t.Context(), "op", []lane.Item{waitingItem("d")})
	check(t, "append", err)
	same(t, "status", rows[0].Status, lane.Status{Known: true, Sequence: 4})
}

// A lane that somebody made by hand is drained and can be used afterwards.
func TestLaneMadeByHand(t *testing.T) {
	t.Parallel()
	s := realOne(t)
	op := tasks.OperationHash("op")
	check(t, "push", s.client.RPush(t.Context(), prefix+"lane:"+op, "null", `"text"`).Err())
	check(t, "push", s.client.RPush(t.Context(), prefix+"ready", op).Err())
	claims, err := s.Claim(t.Context(), 0, 5, 5)
	check(t, "claim", err)
	same(t, "entries", docs(claims[0]), `null, "text"`)
	s.do(t, step(claims[0], 5, action(lane.Pop, 1, "", ""), action(lane.Pop, 2, "", "")))
	rows, err := s.Append(t.Context(), "op", []lane.Item{item("a")})
	check(t, "append", err)
	same(t, "number", rows[0].Sequence, int64(3))
	same(t, "entries", docs(s.claimOne(t, "op")), "doc a")
	info, err := s.Lane(t.Context(), "op")
	check(t, "inspect", err)
	same(t, "operation", info.OperationID, "op")
}

// Parked entries whose number Go and Lua read differently could never be settled.
func TestParkedEntriesMadeByHand(t *testing.T) {
	t.Parallel()
	s := realOne(t)
	s.add(t, "op", item("a"))
	c := s.claimOne(t, "op")
	s.do(t, step(c, 5, action(lane.Park, 1, "a", "h1"), action(lane.Pop, 1, "a", "")))
	q := c.Queue
	q.Hook = "h1"
	odd := []string{"", ":", "::", "x", "-5:1:y", "+5:1:y", "1e3:1:y", "99999999999999999999:1:y", "1:99999999999999999999:y", "7::y", " 7:1:y", "7:1", "0:0:"}
	for _, entry := range odd {
		check(t, "push", s.client.RPush(t.Context(), prefix+"parked:"+queueID(q), entry).Err())
	}
	s.MakeDue(t, q)
	s.swept(t)
	c = s.claimOne(t, "op/h1")
	same(t, "entries", len(c.Entries), len(odd)+1)
	p := s.do(t, step(c, 1, action(lane.Delivered, 1, "a", "h1")))
	for i, entry := range odd {
		e := p.Entries[0]
		same(t, "number of "+entry, e.Sequence, int64(0))
		bury := lane.Action{Verb: lane.Bury, Sequence: 0, DeadID: fmt.Sprint("poison", i), Outcome: &lane.Outcome{}}
		p = s.do(t, step(c, 1, bury))
		letter, err := s.DeadLetter(t.Context(), fmt.Sprint("0.poison", i))
		check(t, "read letter", err)
		if string(letter.Poison) != entry && entry != "0:0:" {
			t.Errorf("poison is %q, want %q", letter.Poison, entry)
		}
	}
	same(t, "released", p.Released, true)
	counts, err := s.Counts(t.Context(), 0)
	check(t, "counts", err)
	same(t, "counts", counts, lane.Counts{Dead: int64(len(odd))})
}

func TestGarbageInReadyAndDue(t *testing.T) {
	t.Parallel()
	s := realOne(t)
	unknown := tasks.OperationHash("unknown")
	garbage := []string{
		"", "x", "{", strings.Repeat("y", 21), unknown, unknown + ":", unknown + ":h", unknown + "|", unknown + "|id",
		strings.Repeat("z", 40), "\x00\xff", unknown[:21] + "\xff",
	}
	for i, g := range garbage {
		check(t, "push", s.client.RPush(t.Context(), prefix+"ready", g).Err())
		check(t, "add", s.client.ZAdd(t.Context(), prefix+"due", redis.Z{Score: float64(i), Member: g}).Err())
		if g != "" {
			check(t, "push", s.client.RPush(t.Context(), prefix+"lane:"+strings.Repeat("z", 40), "entry").Err())
		}
	}
	s.add(t, "op", item("a"), delayedItem("b"))
	s.MakeDelayedDue(t, "op", "b")
	_, err := s.Lanes(t.Context(), 100)
	check(t, "list lanes", err)
	s.swept(t)
	c := s.claimOne(t, "op")
	same(t, "entries", docs(c), "doc a, doc b")
	s.do(t, step(c, 5, action(lane.Pop, 1, "a", ""), action(lane.Pop, 2, "b", "")))
	counts, err := s.Counts(t.Context(), 0)
	check(t, "counts", err)
	same(t, "counts", counts, lane.Counts{})
}

// A parked queue whose list vanished used to block its hook for ever.
func TestVanishedParkedListUnblocksItsHook(t *testing.T) {
	t.Parallel()
	for _, ready := range []bool{false, true} {
		s := realOne(t)
		s.add(t, "op", item("a"))
		c := s.claimOne(t, "op")
		s.do(t, step(c, 5, action(lane.Park, 1, "a", "h1"), action(lane.Pop, 1, "a", "")))
		q := c.Queue
		q.Hook = "h1"
		s.MakeDue(t, q)
		if ready {
			s.swept(t)
		}
		check(t, "delete", s.client.Del(t.Context(), prefix+"parked:"+queueID(q)).Err())
		s.swept(t)
		same(t, "claims", len(s.claimAll(t)), 0)
		s.add(t, "op", item("b"))
		same(t, "parked", len(s.claimOne(t, "op").Parked), 0)
	}
}

// Redis may lose its data under running workers: their tokens must not come again.
func TestTokensGoOnAfterFlush(t *testing.T) {
	t.Parallel()
	s := realOne(t)
	s.add(t, "op", item("a"))
	old := s.claimOne(t, "op")
	check(t, "flush", s.client.FlushDB(t.Context()).Err())
	s.add(t, "op", item("a"))
	c := s.claimOne(t, "op")
	if c.Token == old.Token {
		t.Fatalf("token %d came again", c.Token)
	}
	_, err := s.Progress(t.Context(), step(old, 0, action(lane.Pop, 1, "a", "")))
	if !errors.Is(err, lane.ErrLeaseLost) {
		t.Fatalf("step from before the flush: error is %v, want ErrLeaseLost", err)
	}
}

// broken gives keys a wrong type until the returned function is called.
func (s *store) broken(t *testing.T, pattern string) (repair func()) {
	t.Helper()
	keys := []string{prefix + pattern}
	if strings.Contains(pattern, "*") {
		keys = s.client.Keys(t.Context(), prefix+pattern).Val()
	}
	kept := map[string]bool{}
	for _, key := range keys {
		kept[key] = s.client.Rename(t.Context(), key, "kept:"+key).Err() == nil
		check(t, "break", s.client.SAdd(t.Context(), key, "of another type").Err())
		if s.client.Type(t.Context(), "kept:"+key).Val() == "set" {
			check(t, "break", s.client.Set(t.Context(), key, "x", 0).Err())
		}
	}
	return func() {
		t.Helper()
		for key, had := range kept {
			check(t, "repair", s.client.Del(t.Context(), key).Err())
			if had {
				check(t, "repair", s.client.Rename(t.Context(), "kept:"+key, key).Err())
			}
		}
	}
}

func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, lane.ErrUnavailable) {
		t.Fatalf("%s: error is %v, want ErrUnavailable or none", what, err)
	}
}

// After the repair the same append must complete, once.
func TestAppendWithKeysOfWrongType(t *testing.T) {
	t.Parallel()
	op := tasks.OperationHash("op")
	for _, key := range []string{"state:" + op, "lane:" + op, "seen:" + op + ":*", "delayed:" + op, "hooks:" + op, "waiters:" + op, "ready", "due", "wake", "blocked"} {
		t.Run(strings.TrimSuffix(key, op), func(t *testing.T) {
			t.Parallel()
			s := realOne(t)
			s.add(t, "op", item("first"))
			s.do(t, step(s.claimOne(t, "op"), 1, action(lane.Pop, 1, "first", "")))
			items := []lane.Item{delayedItem("z"), waitingItem("a"), item("b")}
			repair := s.broken(t, key)
			_, err := s.Append(t.Context(), "op", items)
			unavailable(t, "append", err)
			if strings.Contains(key, op) {
				s.add(t, "healthy", item("x"))
			}
			repair()
			s.add(t, "op", items...)
			s.MakeDelayedDue(t, "op", "z")
			s.swept(t)
			same(t, "entries", docs(s.claimAll(t)["op"]), "doc a, doc b, doc z")
			same(t, "claims again", len(s.claimAll(t)), 0)
		})
	}
}

// After the repair the same step must complete, once.
func TestProgressWithKeysOfWrongType(t *testing.T) {
	t.Parallel()
	op := tasks.OperationHash("op")
	for _, key := range []string{
		"lane:" + op, "parked:" + op + ":h1", "park:" + op + ":h1", "outcome:" + op + ":a", "waiters:" + op, "inbox:" + inbox,
		"dead", "dead:a.h2", "due", "blocked", "ready", "wake",
	} {
		t.Run(strings.ReplaceAll(key, op, "op"), func(t *testing.T) {
			t.Parallel()
			s := realOne(t)
			s.add(t, "op", waitingItem("a"), waitingItem("b"), item("c"))
			s.add(t, "healthy", item("x"))
			claims := s.claimAll(t)
			st := step(claims["op"], 0, action(lane.Park, 1, "a", "h1"), action(lane.Bury, 1, "a", "h2"), action(lane.Pop, 1, "a", ""),
				action(lane.Delivered, 2, "b", "h2"), action(lane.Pop, 2, "b", ""))
			st.Release = true
			repair := s.broken(t, key)
			_, err := s.Progress(t.Context(), st)
			unavailable(t, "progress", err)
			if strings.Contains(key, op) {
				s.do(t, step(claims["healthy"], 0, action(lane.Delivered, 1, "x", "h1")))
			}
			repair()
			if _, err = s.Progress(t.Context(), st); err != nil && !errors.Is(err, lane.ErrLeaseLost) {
				t.Fatalf("repeated step: %v", err)
			}
			info, err := s.Lane(t.Context(), "op")
			check(t, "inspect", err)
			same(t, "lane", []int64{info.Waiting, info.Next, int64(len(info.Parked)), info.Parked[0].Waiting}, []int64{1, 4, 1, 1})
			page, err := s.Dead(t.Context(), lane.DeadFilter{})
			check(t, "list", err)
			same(t, "letters", len(page.Letters), 1)
			same(t, "entries", docs(s.claimOne(t, "op")), "doc c")
		})
	}
}

// A broken queue must not keep the others from being swept and claimed, and
// must come back by itself once it is repaired.
func TestClaimAndSweepWithKeysOfWrongType(t *testing.T) {
	t.Parallel()
	op := tasks.OperationHash("op")
	for _, key := range []string{"lane:" + op, "state:" + op, "delayed:" + op, "tokens", "due", "ready", "wake"} {
		t.Run(strings.TrimSuffix(key, op), func(t *testing.T) {
			t.Parallel()
			s := realOne(t)
			s.add(t, "op", item("a"), delayedItem("b"))
			s.add(t, "healthy", item("x"))
			s.MakeDelayedDue(t, "op", "b")
			repair := s.broken(t, key)
			_, err := s.Sweep(t.Context(), 0, 100)
			unavailable(t, "sweep", err)
			claims, err := s.Claim(t.Context(), 0, 10, 10)
			unavailable(t, "claim", err)
			if strings.Contains(key, op) && len(claims) == 0 {
				t.Fatalf("the healthy lane was not claimed: %v", err)
			}
			for _, c := range claims {
				s.ExpireLease(t, c.Queue)
			}
			repair()
			for _, due := range s.client.ZRange(t.Context(), prefix+"due", 0, -1).Val() {
				s.makeDue(t, due)
			}
			s.swept(t)
			claimed := s.claimAll(t)
			same(t, "entries", docs(claimed["op"]), "doc a, doc b")
			same(t, "healthy", docs(claimed["healthy"]), "doc x")
		})
	}
}

// A due time that comes too early, of a queue that is held or ready already,
// must change nothing.
func TestEarlyLookLeavesQueuesAlone(t *testing.T) {
	t.Parallel()
	s := realOne(t)
	s.add(t, "held", item("a"))
	held := s.claimOne(t, "held")
	s.MakeDue(t, held.Queue)
	s.add(t, "ready", item("b"))
	ready := s.QueueOf("ready").Operation
	check(t, "add", s.client.ZAdd(t.Context(), prefix+"due", redis.Z{Score: 1, Member: ready}).Err())
	got := s.swept(t)
	same(t, "swept", []int{got.Ready, got.Expired, got.Waiting}, []int{0, 0, 1})
	if got.Next <= 0 {
		t.Fatalf("the lease of the held queue is due in %v", got.Next)
	}
	s.claimOne(t, "ready")
	s.do(t, step(held, 5, action(lane.Pop, 1, "a", "")))
}

// A queue that says ready and stands on no list was lost by somebody's hand.
func TestReadyQueueThatIsOnNoList(t *testing.T) {
	t.Parallel()
	s := realOne(t)
	s.add(t, "op", item("a"))
	check(t, "delete", s.client.Del(t.Context(), prefix+"ready").Err())
	check(t, "add", s.client.ZAdd(t.Context(), prefix+"due", redis.Z{Score: 1, Member: s.QueueOf("op").Operation}).Err())
	same(t, "ready", s.swept(t).Ready, 1)
	same(t, "entries", docs(s.claimOne(t, "op")), "doc a")
}
