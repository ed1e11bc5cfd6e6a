package tasks

// ControlInForce is a control that a question must ask.
type ControlInForce struct {
	HookInForce
	// OperationID is the operation whose hook it is; "" for an environment hook.
	OperationID string
	// Err says why the matcher gave no answer. The control then counts as failed
	// with the class configuration, never as one that does not match; nil means
	// that it matches.
	Err error
}

// ControlRound is one operation's part in a selection of controls.
type ControlRound struct {
	OperationID string
	// Hooks are the caller's hooks of the operation, as StoredHooks returns them.
	Hooks []Hook
}

// ControlsInForce selects the controls that must decide about ev
// (docs/behaviour.md §13): of its type, deciding about a tool call, and
// matching; the caller's of each round in order, then the environment's once. A
// caller's hook with a reserved id is dropped. Occurrences are counted over all
// rounds, so that each control of a question has a key of its own.
func ControlsInForce(ev *Event, rounds []ControlRound, env []Hook) []ControlInForce {
	s := controlSelection{selection: selection{event: ev, controls: true}}
	for _, round := range rounds {
		for i := range round.Hooks {
			if !round.Hooks[i].Environment() {
				s.consider(&round.Hooks[i], round.OperationID)
			}
		}
	}
	for i := range env {
		s.consider(&env[i], "")
	}
	return s.list
}

type controlSelection struct {
	selection
	list []ControlInForce
}

// consider keeps one order for hooks that match and hooks whose matcher gave no
// answer: the latter take part in the chain at their place.
func (s *controlSelection) consider(h *Hook, operationID string) {
	matched, failed := len(s.hooks), len(s.failures)
	s.selection.consider(h)
	switch {
	case len(s.hooks) > matched:
		s.list = append(s.list, ControlInForce{HookInForce: s.hooks[matched], OperationID: operationID})
	case len(s.failures) > failed:
		f := s.failures[failed]
		s.list = append(s.list, ControlInForce{HookInForce: f.HookInForce, OperationID: operationID, Err: f.Err})
	}
}

// ErrorPolicy returns what an error of h, a control, means for the tool call:
// never "", and PolicyContinue where nothing is configured.
func (h *Hook) ErrorPolicy() ErrorPolicy {
	if h.Webhook != nil && h.Webhook.OnError == PolicyBlock {
		return PolicyBlock
	}
	return PolicyContinue
}

// StrictestPolicy returns PolicyBlock if one of controls has it, else
// PolicyContinue. It is what decides when nobody answers (docs/behaviour.md §13).
func StrictestPolicy(controls []ControlInForce) ErrorPolicy {
	for i := range controls {
		if controls[i].Hook.ErrorPolicy() == PolicyBlock {
			return PolicyBlock
		}
	}
	return PolicyContinue
}
