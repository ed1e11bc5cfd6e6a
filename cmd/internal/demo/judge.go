package demo

import (
	"fmt"
	"io"
	"slices"

	"github.com/gantry-hooks/gantry/cmd/internal/screen"
	"github.com/gantry-hooks/gantry/examples"
	"github.com/gantry-hooks/gantry/tasks"
)

// Line is what became of one hook id of one operation.
type Line struct {
	Operation, Hook string
	// Expected are the deliveries that the files ask for, Delivered those that the
	// receiver took, Retried the attempts that failed and were repeated, Dead the
	// deliveries that were given up.
	Expected, Delivered, Retried, Dead int
	// InOrder says that each hook type's events arrived in the order of the file.
	InOrder bool
}

// Judgement is what became of a run.
type Judgement struct {
	Lines []Line
	// Repeated counts events that arrived a second time, Refused requests without
	// the right token or signature.
	Repeated, Refused int
	// Asked are the questions, Allowed and Denied what they came to, Decided the
	// requests that the policy answered.
	Asked, Allowed, Denied, Decided int
}

// Judge compares what the receiver saw with the files.
func (r *Run) Judge() (Judgement, error) {
	expected := map[stream][]string{}
	var order []stream
	for _, e := range r.events {
		streams, err := r.streams(e)
		if err != nil {
			return Judgement{}, err
		}
		for _, s := range streams {
			if expected[s] == nil {
				order = append(order, s)
			}
			expected[s] = append(expected[s], e.ID)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var j Judgement
	for _, s := range order {
		j.add(r.judge(s, expected[s]))
	}
	slices.SortStableFunc(j.Lines, func(a, b Line) int {
		return slices.Compare([]string{a.Operation}, []string{b.Operation})
	})
	r.receiver.mu.Lock()
	defer r.receiver.mu.Unlock()
	j.Repeated, j.Refused, j.Decided = r.receiver.repeated, r.receiver.refused, r.receiver.decided
	j.Asked = len(r.questions)
	for _, v := range r.verdicts {
		switch {
		case v.Status == tasks.VerdictAllow && v.Outcome == tasks.OutcomeAllowed:
			j.Allowed++
		case v.Status == tasks.VerdictBlocked && v.Outcome == tasks.OutcomeDenied:
			j.Denied++
		}
	}
	return j, nil
}

// judge looks at one stream: what arrived must be what was asked for, in that
// order, apart from what is dead.
func (r *Run) judge(s stream, expected []string) Line {
	line := Line{Operation: s.operation, Hook: s.hook, Expected: len(expected), Retried: r.retries[s]}
	var alive []string
	for _, id := range expected {
		if r.dead[delivery{s, id}] {
			line.Dead++
			continue
		}
		alive = append(alive, id)
	}
	arrived := r.receiver.seen(s)
	line.Delivered, line.InOrder = len(arrived), slices.Equal(arrived, alive)
	return line
}

// add merges the types of one hook id.
func (j *Judgement) add(line Line) {
	for i := range j.Lines {
		l := &j.Lines[i]
		if l.Operation == line.Operation && l.Hook == line.Hook {
			l.Expected += line.Expected
			l.Delivered += line.Delivered
			l.Retried += line.Retried
			l.Dead += line.Dead
			l.InOrder = l.InOrder && line.InOrder
			return
		}
	}
	j.Lines = append(j.Lines, line)
}

// Totals adds the lines up; InOrder is that of all.
func (j Judgement) Totals() Line {
	total := Line{InOrder: true}
	for _, l := range j.Lines {
		total.Expected += l.Expected
		total.Delivered += l.Delivered
		total.Retried += l.Retried
		total.Dead += l.Dead
		total.InOrder = total.InOrder && l.InOrder
	}
	return total
}

// Check says what is not as promised, or nil. The run asks for one dead letter,
// at the endpoint that is gone, for the retries of its flaky endpoint, and for a
// policy that denies one tool call and allows the others.
func (j Judgement) Check() error {
	total := j.Totals()
	switch {
	case !total.InOrder || total.Delivered+total.Dead != total.Expected:
		return fmt.Errorf("%d of %d deliveries arrived, in order: %t", total.Delivered, total.Expected, total.InOrder)
	case total.Dead != examples.AgentRunDead:
		return fmt.Errorf("%d deliveries are dead, want %d", total.Dead, examples.AgentRunDead)
	case total.Retried != flakyFailures:
		return fmt.Errorf("%d attempts were repeated, want %d", total.Retried, flakyFailures)
	case j.Denied != examples.AgentRunDenied || j.Allowed+j.Denied != j.Asked || j.Decided != j.Asked:
		return fmt.Errorf("of %d tool calls %d were allowed and %d denied, by %d answers; want %d denied",
			j.Asked, j.Allowed, j.Denied, j.Decided, examples.AgentRunDenied)
	case j.Refused != 0:
		return fmt.Errorf("the receiver refused %d requests for their token or signature", j.Refused)
	}
	return nil
}

// Write writes the judgement as a table.
func (j Judgement) Write(w io.Writer, theme screen.Theme) error {
	table := screen.NewTable(theme, "operation", "hook", "delivered", "in order", "retried", "dead")
	for _, l := range j.Lines {
		table.Row(screen.Text(l.Operation), screen.Text(l.Hook),
			screen.Text(fmt.Sprintf("%d of %d", l.Delivered, l.Expected)), verdict(l.InOrder),
			count(l.Retried, screen.Yellow), count(l.Dead, screen.Red))
	}
	return table.Write(w)
}

func verdict(ok bool) screen.Cell {
	if ok {
		return screen.Cell{Text: "yes", Style: screen.Green}
	}
	return screen.Cell{Text: "NO", Style: screen.Red}
}

func count(n int, style screen.Style) screen.Cell {
	if n == 0 {
		return screen.Cell{}
	}
	return screen.Cell{Text: fmt.Sprint(n), Style: style}
}
