package redisverdict

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
)

// noHooks stands for a round without a list of hooks.
const noHooks = "-"

// encodeRounds writes rounds as "<length>:<operation id><length>:<hooks>" each, the
// lengths in bytes: hooks keep their bytes, and reading them costs nothing.
func encodeRounds(rounds []tasks.Round) string {
	var b strings.Builder
	for _, r := range rounds {
		b.WriteString(strconv.Itoa(len(r.OperationID)))
		b.WriteByte(':')
		b.WriteString(r.OperationID)
		if r.Hooks == nil {
			b.WriteString(noHooks)
		} else {
			b.WriteString(strconv.Itoa(len(r.Hooks)))
		}
		b.WriteByte(':')
		b.Write(r.Hooks)
	}
	return b.String()
}

var errRounds = errors.New("rounds are damaged")

func decodeRounds(raw string) ([]tasks.Round, error) {
	var rounds []tasks.Round
	for raw != "" {
		operation, rest, ok := cutPart(raw)
		if !ok {
			return nil, errRounds
		}
		round := tasks.Round{OperationID: operation}
		if after, none := strings.CutPrefix(rest, noHooks+":"); none {
			raw = after
		} else {
			var hooks string
			if hooks, raw, ok = cutPart(rest); !ok {
				return nil, errRounds
			}
			round.Hooks = json.RawMessage(hooks)
		}
		rounds = append(rounds, round)
	}
	return rounds, nil
}

func cutPart(raw string) (part, rest string, ok bool) {
	length, rest, ok := strings.Cut(raw, ":")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
