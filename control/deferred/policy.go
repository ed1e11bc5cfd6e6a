package deferred

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/gantry-hooks/gantry/tasks"
)

// round is one operation whose caller hooks are asked.
type round struct {
	operationID string
	// hooks is never nil: an operation without hooks has an empty array.
	hooks  json.RawMessage
	parsed []tasks.Hook
	// known says that somebody had a snapshot or a record, with or without a list.
	known bool
}

// rounds reads the policies of the operations to ask: the one that the approval
// recorded, then the callback's parent; the same one once.
func (s *Service) rounds(ctx context.Context, row *Row, parent string) ([]round, error) {
	rounds := make([]round, 0, 2)
	for _, id := range []string{row.ApprovedFrom, parent} {
		if id == "" || len(rounds) > 0 && rounds[0].operationID == id {
			continue
		}
		r, err := s.policy(ctx, id)
		if err == nil && !r.known && row.Recorded[id] != nil {
			r.hooks = row.Recorded[id]
			r.parsed, err = tasks.StoredHooks(r.hooks)
		}
		if err != nil {
			return nil, fmt.Errorf("read policy of operation %q: %w", id, err)
		}
		rounds = append(rounds, r)
	}
	return rounds, nil
}

// record returns the result controls that the operations of a placeholder have
// now. Most have none.
func (s *Service) record(ctx context.Context, p Placeholder) (map[string]json.RawMessage, error) {
	rounds, err := s.rounds(ctx, &Row{Placeholder: p}, p.OperationID)
	if err != nil {
		return nil, err
	}
	var recorded map[string]json.RawMessage
	for _, r := range rounds {
		var controls []tasks.Hook
		for i := range r.parsed {
			if !r.parsed[i].Environment() && resultControl(&r.parsed[i]) {
				controls = append(controls, r.parsed[i])
			}
		}
		if controls == nil {
			continue
		}
		if recorded == nil {
			recorded = map[string]json.RawMessage{}
		}
		if recorded[r.operationID], err = tasks.EncodeHooks(controls); err != nil {
			return nil, fmt.Errorf("record policy of operation %q: %w", r.operationID, err)
		}
	}
	return recorded, nil
}

// policy reads the live snapshot of an operation, or its record.
func (s *Service) policy(ctx context.Context, operationID string) (round, error) {
	hooks, known, err := s.config.Policies.Snapshot(ctx, operationID)
	if err != nil {
		return round{}, fmt.Errorf("read snapshot: %w", err)
	}
	if !known {
		if hooks, known, err = s.config.Policies.Durable(ctx, operationID); err != nil {
			return round{}, fmt.Errorf("read record: %w", err)
		}
	}
	if trimmed := bytes.TrimSpace(hooks); !known || len(trimmed) == 0 || string(trimmed) == "null" {
		return round{operationID: operationID, hooks: json.RawMessage(`[]`), known: known}, nil
	}
	parsed, err := tasks.StoredHooks(hooks)
	if err != nil {
		return round{}, err
	}
	return round{operationID: operationID, hooks: hooks, parsed: parsed, known: true}, nil
}

// configured reports whether any result control is in force, whatever tools it
// matches.
func (s *Service) configured(ctx context.Context, rounds []round) (bool, error) {
	for _, r := range rounds {
		for i := range r.parsed {
			if !r.parsed[i].Environment() && resultControl(&r.parsed[i]) {
				return true, nil
			}
		}
	}
	environment, err := s.config.EnvironmentHooks()
	if err != nil {
		return false, fmt.Errorf("read environment hooks: %w", err)
	}
	for i := range environment {
		if resultControl(&environment[i]) {
			return true, nil
		}
	}
	return s.workersConfigured(ctx)
}

func resultControl(h *tasks.Hook) bool { return h.Type == tasks.AfterToolCall && h.Control() }

func (s *Service) workersConfigured(ctx context.Context) (bool, error) {
	if s.config.Directory == nil {
		return false, nil
	}
	workers, err := s.config.Directory.Workers(ctx)
	if err != nil {
		return false, fmt.Errorf("list workers: %w", err)
	}
	known := false
	for _, w := range workers {
		known = known || !w.Silent
		for _, h := range w.Hooks {
			if h.Type == tasks.AfterToolCall && h.Control {
				return true, nil
			}
		}
	}
	if !known {
		return false, ErrEnvironmentUnknown
	}
	return false, nil
}
