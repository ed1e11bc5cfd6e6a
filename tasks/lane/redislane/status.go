package redislane

import (
	"encoding/json"
	"sort"
	"strconv"
	"strings"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// standings maps the letter in front of a stored outcome, which the scripts
// read, to the standing that it means.
var standings = map[byte]lane.Standing{
	'p': lane.StandingParked,
	'w': lane.StandingWaiting,
	'x': lane.StandingDead,
	'k': lane.StandingDiscarded,
}

func readStatus(rows []any) lane.Status {
	st := lane.Status{Known: text(rows, 0) == "1", Attempted: text(rows, 1) == "1", Sequence: number(rows, 2)}
	for i := 3; i+1 < len(rows); i += 2 {
		if o, ok := parseOutcome(text(rows, i+1)); ok {
			st.Outcomes = append(st.Outcomes, o)
		}
	}
	sort.SliceStable(st.Outcomes, func(i, j int) bool {
		a, b := st.Outcomes[i], st.Outcomes[j]
		if a.HookID != b.HookID {
			return a.HookID < b.HookID
		}
		return a.Occurrence < b.Occurrence
	})
	return st
}

// parseOutcome reads "<letter><due ms>:<json>".
func parseOutcome(v string) (lane.Outcome, bool) {
	if v == "" {
		return lane.Outcome{}, false
	}
	due, body, ok := strings.Cut(v[1:], ":")
	standing, known := standings[v[0]]
	var o lane.Outcome
	if !ok || !known || json.Unmarshal([]byte(body), &o) != nil {
		return lane.Outcome{}, false
	}
	o.Standing = standing
	o.DueAt, _ = strconv.ParseInt(due, 10, 64)
	return o, true
}
