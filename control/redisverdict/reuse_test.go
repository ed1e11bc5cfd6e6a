package redisverdict_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/control/redisverdict"
	"github.com/gantry-hooks/gantry/tasks"
)

// A worker that answers about what Redis lost must not answer what was asked
// under the same id afterwards.
func TestVerdictAboutAnotherContentIsRefused(t *testing.T) {
	t.Parallel()
	eachStore(t, redisverdict.Config{}, func(t *testing.T, s *store) {
		first := s.question("q1", time.Minute)
		s.post(t, first)
		old := s.claimOne(t)
		same(t, "digest", old.Digest, first.Digest)
		check(t, "lose everything", s.client.FlushDB(t.Context()).Err())
		second := s.question("q1", time.Minute)
		second.Digest = "another"
		s.post(t, second)
		for what, st := range map[string]*control.Settlement{
			"worker": {
				Name: old.Name, Verdict: verdict("q1", tasks.VerdictAllow, ""), Writer: old.Token, Source: tasks.ByWorker, Digest: old.Digest,
			},
			"asker": s.own(first, verdict("q1", tasks.VerdictAllow, "")),
		} {
			_, err := s.Settle(t.Context(), st)
			isReused(t, what, err)
		}
		standing, err := s.Look(t.Context(), second.Name, "")
		check(t, "look", err)
		same(t, "digest", standing.Digest, "another")
		same(t, "verdict", standing.Verdict, (*tasks.Verdict)(nil))
		reason, _ := s.settle(t, s.answer(s.claimOne(t), "no"))
		same(t, "reason", reason, "no")
		_, err = s.Settle(t.Context(), s.own(first, verdict("q1", tasks.VerdictAllow, "")))
		isReused(t, "asker, after the verdict", err)
	})
}

func isReused(t *testing.T, what string, err error) {
	t.Helper()
	if _, ok := errors.AsType[*control.ReusedError](err); !ok {
		t.Errorf("%s: error is %v, want a ReusedError", what, err)
	}
}
