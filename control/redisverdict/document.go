package redisverdict

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

// A question's document is a row of parts, each "<length in bytes>:<bytes>":
// operation id, phase, timeout in ms, trace, event, and for each round its
// operation id and its hooks, where "-:" stands for no list of hooks. Events and
// hooks keep their bytes, and reading them costs nothing.

// noPart stands for a part that is absent.
const noPart = "-:"

func appendPart(dst []byte, part string) []byte {
	dst = strconv.AppendInt(dst, int64(len(part)), 10)
	return append(append(dst, ':'), part...)
}

func encodeQuestion(q *tasks.Question) []byte {
	size := 64 + len(q.OperationID) + len(q.Trace) + len(q.Event)
	for _, r := range q.Rounds {
		size += 24 + len(r.OperationID) + len(r.Hooks)
	}
	dst := appendPart(make([]byte, 0, size), q.OperationID)
	dst = appendPart(dst, string(q.Type))
	dst = appendPart(dst, strconv.FormatInt(q.Timeout.Milliseconds(), 10))
	dst = appendPart(dst, q.Trace)
	dst = appendPart(dst, string(q.Event))
	for _, r := range q.Rounds {
		dst = appendPart(dst, r.OperationID)
		if r.Hooks == nil {
			dst = append(dst, noPart...)
			continue
		}
		dst = appendPart(dst, string(r.Hooks))
	}
	return dst
}

var errDocument = errors.New("question document is damaged")

// parts reads a row of parts; after a fault it gives empty ones.
type parts struct {
	rest  string
	fault bool
}

// next returns the next part; ok is false when it is absent.
func (p *parts) next() (part string, ok bool) {
	if after, absent := strings.CutPrefix(p.rest, noPart); absent {
		p.rest = after
		return "", false
	}
	length, rest, found := strings.Cut(p.rest, ":")
	n, err := strconv.Atoi(length)
	if !found || err != nil || n < 0 || n > len(rest) {
		p.fault, p.rest = true, ""
		return "", false
	}
	p.rest = rest[n:]
	return rest[:n], true
}

func (p *parts) need() string {
	part, ok := p.next()
	p.fault = p.fault || !ok
	return part
}

// decodeQuestion reads a document. What is readable comes with an error too, so
// that it can be told of.
func decodeQuestion(n control.Name, raw string) (tasks.Question, error) {
	p := parts{rest: raw}
	q := tasks.Question{ID: n.ID, OperationID: p.need(), Type: tasks.HookType(p.need())}
	ms, err := strconv.ParseInt(p.need(), 10, 64)
	q.Timeout = time.Duration(ms) * time.Millisecond
	q.Trace, q.Event = p.need(), json.RawMessage(p.need())
	for p.rest != "" {
		round := tasks.Round{OperationID: p.need()}
		if hooks, ok := p.next(); ok {
			round.Hooks = json.RawMessage(hooks)
		}
		q.Rounds = append(q.Rounds, round)
	}
	switch {
	case p.fault || err != nil:
		return q, errDocument
	case tasks.OperationHash(q.OperationID) != n.Operation:
		return q, errors.New("operation is not the one of the question's name")
	case !q.Type.Controllable():
		return q, fmt.Errorf("type %q cannot be controlled", q.Type)
	}
	return q, nil
}
