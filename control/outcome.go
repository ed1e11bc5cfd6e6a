package control

import "github.com/gantry-hooks/gantry/tasks"

// noControl is the verdict when nobody has to be asked.
func noControl(q *tasks.Question) tasks.Verdict {
	v := newVerdict(q.ID, q.Type)
	v.Status, v.Outcome = tasks.VerdictAllow, tasks.OutcomeNone
	return v
}

// unanswered is the verdict when nobody answers: what the policy says.
func unanswered(q *tasks.Question, policy tasks.ErrorPolicy) tasks.Verdict {
	v := newVerdict(q.ID, q.Type)
	if policy == tasks.PolicyContinue {
		v.Status, v.Outcome = tasks.VerdictAllow, tasks.OutcomeUnansweredOpen
		return v
	}
	v.Status, v.Outcome, v.Reason = tasks.VerdictBlocked, tasks.OutcomeUnansweredClosed, tasks.ReasonControlError
	return v
}

// cancelled is the verdict when the asker goes away.
func cancelled(id string, phase tasks.HookType) tasks.Verdict {
	v := newVerdict(id, phase)
	v.Status, v.Outcome = tasks.VerdictCancelled, tasks.OutcomeCancelled
	return v
}

func newVerdict(id string, phase tasks.HookType) tasks.Verdict {
	return tasks.Verdict{
		Version: tasks.WireVersion, ID: id, Type: phase, Controls: []tasks.ControlResult{}, By: tasks.ByAsker,
	}
}
