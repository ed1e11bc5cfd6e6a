package redisverdict

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

// The first words of replies.
const (
	wordReused  = "reused"
	wordSettled = "settled"
	wordAsked   = "asked"
	wordUnknown = "unknown"
)

// Post hands a question over to the workers, or joins it when it is there.
func (s *Store) Post(ctx context.Context, p *control.Posting) (control.Standing, error) {
	fallback, err := encodeVerdict(p.Fallback)
	if err != nil {
		return control.Standing{}, err
	}
	rows, err := s.run(
		ctx, s.scripts.ask, p.Name.Shard, questionID(p.Name), p.Digest, max(1, p.Question.Timeout.Milliseconds()), s.keep,
		p.Inbox, fallback, encodeQuestion(p.Question),
	)
	if err != nil {
		return control.Standing{}, err
	}
	if text(rows, 0) == wordReused {
		return control.Standing{}, &control.ReusedError{ID: p.Name.ID}
	}
	return readStanding(rows)
}

// Look reads how a question stands and lets inbox hear of its verdict.
func (s *Store) Look(ctx context.Context, n control.Name, inbox string) (control.Standing, error) {
	rows, err := s.run(ctx, s.scripts.look, n.Shard, questionID(n), inbox, s.keep)
	if err != nil {
		return control.Standing{}, err
	}
	standing, err := readStanding(rows)
	if err == nil && standing.Verdict == nil {
		// A fallback that cannot be read says nothing about the question.
		fallback, _ := decodeVerdict(text(rows, 2), 0)
		standing.Type = fallback.Type
	}
	standing.Digest = text(rows, 3)
	return standing, err
}

func readStanding(rows []any) (control.Standing, error) {
	switch word := text(rows, 0); word {
	case wordSettled:
		v, err := decodeVerdict(text(rows, 2), number(rows, 1))
		return control.Standing{Verdict: &v, Type: v.Type}, err
	case wordAsked:
		return control.Standing{Left: time.Duration(number(rows, 1)) * time.Millisecond}, nil
	case wordUnknown:
		return control.Standing{}, control.ErrNotFound
	default:
		return control.Standing{}, fmt.Errorf("read standing: unexpected %q", word)
	}
}

// Settle writes a verdict unless there is one.
func (s *Store) Settle(ctx context.Context, st *control.Settlement) (control.Settled, error) {
	verdict := ""
	if st.Verdict != nil {
		var err error
		if verdict, err = encodeVerdict(st.Verdict); err != nil {
			return control.Settled{}, err
		}
	}
	rows, err := s.run(
		ctx, s.scripts.settle, st.Name.Shard, questionID(st.Name), st.Writer, verdict, s.keep,
		string(st.Source), st.Digest,
	)
	if err != nil {
		return control.Settled{}, err
	}
	fate := control.Fate(text(rows, 0))
	switch fate {
	case control.FateWon, control.FateStood, control.FateLate:
	case wordReused:
		return control.Settled{}, &control.ReusedError{ID: st.Name.ID}
	default:
		return control.Settled{}, control.ErrNotFound
	}
	v, err := decodeVerdict(text(rows, 2), number(rows, 1))
	return control.Settled{Verdict: v, Fate: fate}, err
}

func encodeVerdict(v *tasks.Verdict) (string, error) {
	if v == nil {
		return "", fmt.Errorf("encode verdict: none given")
	}
	doc := *v
	// When it was settled is the register's to say.
	doc.SettledAt = 0
	raw, err := json.Marshal(&doc)
	if err != nil {
		return "", fmt.Errorf("encode verdict: %w", err)
	}
	return string(raw), nil
}

// decodeVerdict refuses what is no verdict: a text that somebody wrote by hand
// must not pass for one.
func decodeVerdict(raw string, at int64) (tasks.Verdict, error) {
	var v tasks.Verdict
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return tasks.Verdict{}, fmt.Errorf("read verdict: %w", err)
	}
	switch v.Status {
	case tasks.VerdictAllow, tasks.VerdictBlocked, tasks.VerdictCancelled:
	default:
		return tasks.Verdict{}, fmt.Errorf("read verdict: status %q is not known", v.Status)
	}
	if v.Version != tasks.WireVersion {
		return tasks.Verdict{}, fmt.Errorf("read verdict: version %d is not supported", v.Version)
	}
	v.SettledAt = at
	return v, nil
}
