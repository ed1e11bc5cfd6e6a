package redisverdict_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/tasks"
)

func TestQuestionArrivesAsItWasAsked(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		p := s.question("q1", time.Minute)
		standing := s.post(t, p)
		same(t, "standing", standing, control.Standing{Left: time.Minute})
		c := s.claimOne(t)
		check(t, "read question", c.Fault)
		same(t, "question", c.Question, *p.Question)
		same(t, "attempt", c.Attempt, 1)
		same(t, "name", c.Name, p.Name)
		if c.Left < 50*time.Second || c.Left > time.Minute {
			t.Errorf("left is %v, want about a minute", c.Left)
		}
		same(t, "claims of a taken question", len(s.claim(t, 5)), 0)
	})
}

func TestFirstWriteWins(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		p := s.question("q1", time.Minute)
		s.post(t, p)
		c := s.claimOne(t)
		first := s.answer(c, "first")
		for range 2 {
			// A reply may be lost, and the same verdict is written again.
			reason, fate := s.settle(t, first)
			same(t, "reason", reason, "first")
			same(t, "fate", fate, control.FateWon)
		}
		reason, fate := s.settle(t, s.own(p, verdict("q1", tasks.VerdictCancelled, "second")))
		same(t, "reason", reason, "first")
		same(t, "fate", fate, control.FateStood)
		standing := s.post(t, p)
		same(t, "reason", standing.Verdict.Reason, "first")
		standing, err := s.Look(t.Context(), p.Name, "")
		check(t, "look", err)
		same(t, "reason", standing.Verdict.Reason, "first")
		if standing.Verdict.SettledAt == 0 {
			t.Error("the verdict does not say when it was settled")
		}
		same(t, "notices", len(s.heard(t)), 1)
	})
}

func TestVerdictIsHeard(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		for _, id := range []string{"a", "b", "an id: with\u00a0all {sorts}"} {
			s.post(t, s.question(id, time.Minute))
		}
		for _, c := range s.claim(t, 9) {
			s.settle(t, s.answer(c, "no "+c.Name.ID))
		}
		got := map[string]string{}
		for len(got) < 3 {
			notices, err := s.Hear(t.Context(), 0, "inbox")
			check(t, "hear", err)
			for _, n := range notices {
				same(t, "name", n.Name, s.Name(operation, n.Name.ID))
				got[n.Name.ID] = n.Verdict.Reason
			}
		}
		same(t, "heard", got, map[string]string{"a": "no a", "b": "no b", "an id: with\u00a0all {sorts}": "no an id: with\u00a0all {sorts}"})
	})
}

func TestHearIsRoused(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		check(t, "rouse", s.Rouse(t.Context(), 0, "inbox"))
		began := time.Now()
		notices, err := s.Hear(t.Context(), 0, "inbox")
		check(t, "hear", err)
		same(t, "notices", len(notices), 0)
		if took := time.Since(began); took > time.Second {
			t.Errorf("hear took %v", took)
		}
	})
}

func TestSameIDIsJoinedOrRefused(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		p := s.question("q1", time.Minute)
		s.post(t, p)
		again := s.question("q1", time.Second)
		again.Inbox = "other"
		standing := s.post(t, again)
		if standing.Left < 50*time.Second {
			t.Errorf("left is %v, want that of the first asking", standing.Left)
		}
		again.Digest = "another"
		_, err := s.Post(t.Context(), again)
		if reused, ok := errors.AsType[*control.ReusedError](err); !ok || reused.ID != "q1" {
			t.Fatalf("error is %v, want a ReusedError of q1", err)
		}
		same(t, "offered", len(s.claim(t, 5)), 1)
		s.settle(t, s.own(p, verdict("q1", tasks.VerdictCancelled, "")))
		same(t, "own notices", len(s.heard(t)), 0)
		same(t, "other's notices", s.client.LLen(t.Context(), prefix+"inbox:other").Val(), int64(1))
	})
}

func TestDeadlineGivesTheFallback(t *testing.T) {
	t.Parallel()
	const timeout = 40 * time.Millisecond
	for name, look := range map[string]func(t *testing.T, s *store, p *control.Posting, c control.Claim) string{
		"look": func(t *testing.T, s *store, p *control.Posting, _ control.Claim) string {
			standing, err := s.Look(t.Context(), p.Name, "")
			check(t, "look", err)
			return standing.Verdict.Reason
		},
		"ask again": func(t *testing.T, s *store, p *control.Posting, _ control.Claim) string {
			return s.post(t, p).Verdict.Reason
		},
		"late verdict": func(t *testing.T, s *store, _ *control.Posting, c control.Claim) string {
			reason, fate := s.settle(t, s.answer(c, "late"))
			same(t, "fate", fate, control.FateLate)
			_, fate = s.settle(t, s.answer(c, "late"))
			same(t, "fate of the second try", fate, control.FateStood)
			return reason
		},
		"asker": func(t *testing.T, s *store, p *control.Posting, _ control.Claim) string {
			reason, fate := s.settle(t, s.own(p, p.Fallback))
			same(t, "fate", fate, control.FateWon)
			return reason
		},
		"sweep": func(t *testing.T, s *store, p *control.Posting, _ control.Claim) string {
			check(t, "end lease", s.client.ZAdd(t.Context(), prefix+"held", member(1, p)).Err())
			swept, err := s.Sweep(t.Context(), 0)
			check(t, "sweep", err)
			same(t, "offered again", swept.Again, 0)
			standing, err := s.Look(t.Context(), p.Name, "")
			check(t, "look", err)
			return standing.Verdict.Reason
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
				p := s.question("q1", timeout)
				s.post(t, p)
				c := s.claimOne(t)
				wait(t, timeout+5*time.Millisecond)
				same(t, "reason", look(t, s, p, c), "fallback")
				standing, err := s.Look(t.Context(), p.Name, "")
				check(t, "look", err)
				same(t, "reason that stands", standing.Verdict.Reason, "fallback")
			})
		})
	}
}

func TestOldQuestionIsNotTaken(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		p := s.question("q1", 20*time.Millisecond)
		s.post(t, p)
		s.post(t, s.question("q2", time.Minute))
		wait(t, 25*time.Millisecond)
		claims := s.claim(t, 5)
		same(t, "claims", len(claims), 1)
		same(t, "question", claims[0].Name.ID, "q2")
		same(t, "notices", len(s.heard(t)), 1)
	})
}

func TestRefusalAppliesTheFallbackAtOnce(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		s.post(t, s.question("q1", time.Minute))
		c := s.claimOne(t)
		reason, fate := s.settle(t, &control.Settlement{Name: c.Name, Writer: c.Token, Source: tasks.ByWorker})
		same(t, "reason", reason, "fallback")
		same(t, "fate", fate, control.FateWon)
		same(t, "notices", len(s.heard(t)), 1)
	})
}

func TestUnknownQuestion(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		p := s.question("q1", time.Minute)
		_, err := s.Look(t.Context(), p.Name, "inbox")
		is(t, err, control.ErrNotFound)
		_, err = s.Settle(t.Context(), &control.Settlement{
			Name: p.Name, Verdict: verdict("q1", tasks.VerdictAllow, ""), Writer: "w", Source: tasks.ByWorker, Digest: p.Digest,
		})
		is(t, err, control.ErrNotFound)
		same(t, "keys", s.keys(t), []string{})
	})
}

// An asker that gave up before its question arrived must find its own verdict
// when it arrives after all.
func TestVerdictBeforeItsQuestion(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		p := s.question("q1", time.Minute)
		reason, fate := s.settle(t, s.own(p, p.Fallback))
		same(t, "reason", reason, "fallback")
		same(t, "fate", fate, control.FateWon)
		standing := s.post(t, p)
		same(t, "reason", standing.Verdict.Reason, "fallback")
		same(t, "offered", len(s.claim(t, 5)), 0)
		p.Digest = "another"
		if _, err := s.Post(t.Context(), p); err == nil {
			t.Error("another content got the verdict of the first")
		}
	})
}

func TestTakeover(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{Lease: 100 * time.Millisecond}, func(t *testing.T, s *store) {
		p := s.question("q1", time.Minute)
		s.post(t, p)
		first := s.claimOne(t)
		swept, err := s.Sweep(t.Context(), 0)
		check(t, "sweep", err)
		same(t, "offered again within the lease", swept, control.Swept{})
		ended, err := s.Renew(t.Context(), 0, []control.Held{first.Held})
		check(t, "renew", err)
		same(t, "ended", len(ended), 0)
		wait(t, 105*time.Millisecond)
		swept, err = s.Sweep(t.Context(), 0)
		check(t, "sweep", err)
		same(t, "swept", swept, control.Swept{Again: 1, Waiting: 1})
		second := s.claimOne(t)
		same(t, "attempt", second.Attempt, 2)
		ended, err = s.Renew(t.Context(), 0, []control.Held{first.Held, second.Held})
		check(t, "renew", err)
		same(t, "ended", ended, []control.Held{first.Held})
		check(t, "release", s.Release(t.Context(), 0, []control.Held{first.Held}))
		same(t, "given back by a stranger", len(s.claim(t, 5)), 0)
		// Whoever answers first has asked the controls all the same.
		reason, fate := s.settle(t, s.answer(first, "first"))
		same(t, "reason", reason, "first")
		same(t, "fate", fate, control.FateWon)
		_, fate = s.settle(t, s.answer(second, "second"))
		same(t, "fate", fate, control.FateStood)
	})
}

func TestQuestionThatEndsItsWorkersIsGivenUp(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		p := s.question("q1", time.Minute)
		s.post(t, p)
		for attempt := 1; ; attempt++ {
			same(t, "attempt", s.claimOne(t).Attempt, attempt)
			check(t, "end lease", s.client.ZAdd(t.Context(), prefix+"held", member(1, p)).Err())
			swept, err := s.Sweep(t.Context(), 0)
			check(t, "sweep", err)
			if swept.GivenUp == 1 {
				same(t, "attempts", attempt, 5)
				break
			}
		}
		standing, err := s.Look(t.Context(), p.Name, "")
		check(t, "look", err)
		same(t, "reason", standing.Verdict.Reason, "fallback")
		same(t, "notices", len(s.heard(t)), 1)
	})
}

func TestReleaseOffersAtOnce(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		s.post(t, s.question("q1", time.Minute))
		s.post(t, s.question("q2", time.Minute))
		c := s.claimOne(t)
		check(t, "release", s.Release(t.Context(), 0, []control.Held{c.Held}))
		claims := s.claim(t, 5)
		same(t, "claims", len(claims), 2)
		same(t, "first", claims[0].Name.ID, "q1")
		same(t, "attempt", claims[0].Attempt, 1)
		s.settle(t, s.answer(claims[0], "x"))
		check(t, "release a settled one", s.Release(t.Context(), 0, []control.Held{claims[0].Held}))
		same(t, "claims", len(s.claim(t, 5)), 0)
	})
}

func TestSettledQuestionEndsAtItsWorker(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		p := s.question("q1", time.Minute)
		s.post(t, p)
		s.post(t, s.question("q2", 30*time.Millisecond))
		claims := s.claim(t, 2)
		s.settle(t, s.own(p, verdict("q1", tasks.VerdictCancelled, "")))
		wait(t, 35*time.Millisecond)
		ended, err := s.Renew(t.Context(), 0, []control.Held{claims[0].Held, claims[1].Held})
		check(t, "renew", err)
		same(t, "ended", len(ended), 2)
	})
}

func TestClaimWaits(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		began := time.Now()
		claims, err := s.Claim(t.Context(), 0, 4, 100*time.Millisecond)
		check(t, "claim", err)
		same(t, "claims", len(claims), 0)
		if took := time.Since(began); took < 90*time.Millisecond || took > time.Second {
			t.Errorf("an empty claim took %v, want 100ms", took)
		}
		got := make(chan []control.Claim)
		go func() {
			claims, err := s.Claim(within(t, 10*time.Second), 0, 4, 5*time.Second)
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			got <- claims
		}()
		s.post(t, s.question("q1", time.Minute))
		same(t, "claims", len(<-got), 1)
	})
}

func TestWrittenByHandDoesNoHarm(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		ctx := t.Context()
		hash := tasks.OperationHash(operation)
		check(t, "push", s.client.RPush(ctx, prefix+"asks", "nonsense", "", hash+":wrong", hash+":bare", hash+":odd").Err())
		check(t, "set", s.client.Set(ctx, prefix+"q:"+hash+":wrong", "text", 0).Err())
		check(t, "set", s.client.HSet(ctx, prefix+"q:"+hash+":bare", "st", "w").Err())
		check(t, "set", s.client.HSet(ctx, prefix+"q:"+hash+":odd", "st", "w", "dl", "9999999999999", "doc", "5:x", "fb", "junk").Err())
		s.post(t, s.question("q1", time.Minute))
		claims := s.claim(t, 9)
		same(t, "claims", len(claims), 2)
		same(t, "odd", claims[0].Name.ID, "odd")
		if claims[0].Fault == nil {
			t.Error("a question with a damaged document was read")
		}
		_, err := s.Settle(ctx, &control.Settlement{Name: claims[0].Name, Writer: "w", Source: tasks.ByWorker})
		if err == nil || errors.Is(err, control.ErrUnavailable) {
			t.Errorf("settling with a damaged fallback: error is %v", err)
		}
		same(t, "question", claims[1].Name.ID, "q1")
		check(t, "push", s.client.ZAdd(ctx, prefix+"held", member(1, &control.Posting{Name: s.Name(operation, "wrong")})).Err())
		_, err = s.Sweep(ctx, 0)
		check(t, "sweep", err)
		check(t, "push", s.client.RPush(ctx, prefix+"inbox:inbox", "x", "x\n1\n{}", hash+":q\n1\n{\"status\":\"allow\"}").Err())
		notices, err := s.Hear(ctx, 0, "inbox")
		check(t, "hear", err)
		same(t, "notices", len(notices), 0)
	})
}

func TestNoVerdictIsReadFromNonsense(t *testing.T) {
	t.Parallel()
	s := open(t, servertestClient(t), redisverdict.Config{})
	for _, doc := range []string{"", "{}", "null", `"allow"`, `{"v":1,"status":"allowed"}`, `{"v":2,"status":"allow"}`, `{"status":"allow"}`, `{"v":1,"status":true}`} {
		name := s.Name(operation, "q")
		check(t, "set", s.client.Set(t.Context(), prefix+"v:"+name.Operation+":q", "1 w d\n"+doc, 0).Err())
		if standing, err := s.Look(t.Context(), name, ""); err == nil {
			t.Errorf("%q is read as %+v", doc, *standing.Verdict)
		}
	}
}

// Large questions are handed over a few at a time, in order.
func TestLargeQuestions(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		for i := range 6 {
			p := s.question(fmt.Sprint(i), time.Minute)
			p.Question.Event = []byte(`{"x":"` + strings.Repeat("x", 400_000) + `"}`)
			s.post(t, p)
		}
		var order []string
		for len(order) < 6 {
			claims := s.claim(t, 6)
			same(t, "claims at a time", len(claims), 3)
			for _, c := range claims {
				order = append(order, c.Name.ID)
			}
		}
		same(t, "order", order, []string{"0", "1", "2", "3", "4", "5"})
	})
}

// A full Redis refuses new questions and lets those that are there be answered.
func TestFullRedisAnswers(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	s := open(t, connect(t, server.Addr(), 0), redisverdict.Config{Lease: 100 * time.Millisecond})
	s.post(t, s.question("q1", time.Minute))
	check(t, "set limit", s.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := s.Post(t.Context(), s.question("q2", time.Minute))
	is(t, err, control.ErrUnavailable)
	first := s.claimOne(t)
	ended, err := s.Renew(t.Context(), 0, []control.Held{first.Held})
	check(t, "renew", err)
	same(t, "ended", len(ended), 0)
	wait(t, 110*time.Millisecond)
	_, err = s.Sweep(t.Context(), 0)
	check(t, "sweep", err)
	second := s.claimOne(t)
	check(t, "release", s.Release(t.Context(), 0, []control.Held{second.Held}))
	reason, fate := s.settle(t, s.answer(s.claimOne(t), "answer"))
	same(t, "reason", reason, "answer")
	same(t, "fate", fate, control.FateWon)
	notices, err := s.Hear(t.Context(), 0, "inbox")
	check(t, "hear", err)
	same(t, "notices", len(notices), 1)
}

// Where the control role is off everywhere, askers alone must keep Redis clean.
func TestQuestionsWithoutWorkersLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		for i := range 50 {
			p := s.question(fmt.Sprint("q", i), time.Minute)
			s.post(t, p)
			s.settle(t, s.own(p, p.Fallback))
		}
		if n := s.client.LLen(t.Context(), prefix+"asks").Val(); n > 2 {
			t.Errorf("%d questions are listed that are over", n)
		}
	})
}

// What is over must not hold up the shard when somebody takes questions at last.
func TestClaimsLookAtABoundedNumberOfQuestions(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		s.post(t, s.question("first", time.Minute))
		over := make([]any, 3000)
		for i := range over {
			over[i] = fmt.Sprint(s.Name(operation, "").Operation, ":", i)
		}
		check(t, "list", s.client.RPush(t.Context(), prefix+"asks", over...).Err())
		s.post(t, s.question("last", time.Minute))
		same(t, "claimed", s.claimOne(t).Name.ID, "first")
		check(t, "forget wake-ups", s.client.Del(t.Context(), prefix+"wake").Err())
		same(t, "claims", len(s.claim(t, 5)), 0)
		for range 3 {
			// Each claim is woken by the one before.
			claims, err := s.Claim(t.Context(), 0, 5, time.Minute)
			check(t, "claim", err)
			if len(claims) == 1 {
				same(t, "claimed", claims[0].Name.ID, "last")
				return
			}
		}
		t.Fatal("the last question was not claimed")
	})
}
