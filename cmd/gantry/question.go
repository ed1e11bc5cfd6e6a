package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/cmd/internal/feed"
	"github.com/gantry-hooks/gantry/tasks"
)

// The phases of a tool call, as flags name them.
const (
	phaseBefore = "before"
	phaseAfter  = "after"
	phaseBoth   = "both"
)

var phaseTypes = map[string]tasks.HookType{phaseBefore: tasks.BeforeToolCall, phaseAfter: tasks.AfterToolCall}

// madeUp stands for what a question from the command line has no native id for.
const madeUp = "gantry-cli"

// toolCall is a tool call from the command line.
type toolCall struct {
	operation string
	// tool is identifier/apiName.
	tool string
	// args and result are JSON or text; "" means none.
	args, result string
}

// event builds the event of a phase. Its ids are made up, which is right for a
// trial only.
func (c toolCall) event(phase string) (json.RawMessage, error) {
	identifier, apiName, ok := strings.Cut(c.tool, "/")
	if !ok || identifier == "" || apiName == "" {
		return nil, usagef("the tool is not identifier/apiName, such as mail/send")
	}
	args := json.RawMessage("{}")
	if c.args != "" {
		args = json.RawMessage(c.args)
		if _, err := tasks.SplitObject(args); err != nil || tasks.CheckJSON(args) != nil {
			return nil, usagef(`--args is no JSON object; write one like '{"to":"lena"}'`)
		}
	}
	members := []tasks.Member{
		{Key: "operationId", Value: tasks.AppendString(nil, c.operation)},
		{Key: "toolCallId", Value: tasks.AppendString(nil, madeUp)},
		{Key: "assistantMessageId", Value: tasks.AppendString(nil, madeUp)},
		{Key: "identifier", Value: tasks.AppendString(nil, identifier)},
		{Key: "apiName", Value: tasks.AppendString(nil, apiName)},
		{Key: "args", Value: args},
		{Key: "callIndex", Value: []byte("1")},
		{Key: "stepIndex", Value: []byte("0")},
		{Key: "executor", Value: []byte(`"server"`)},
	}
	if phase == phaseAfter {
		members = append(members, tasks.Member{Key: "mocked", Value: []byte("false")}, tasks.Member{Key: "result", Value: resultOf(c.result)})
	}
	return tasks.AppendObject(nil, members), nil
}

// resultOf takes a JSON object for the whole result, and any other text for the
// content of a successful one.
func resultOf(text string) json.RawMessage {
	raw := json.RawMessage(text)
	if _, err := tasks.SplitObject(raw); err == nil && tasks.CheckJSON(raw) == nil {
		return raw
	}
	return tasks.AppendObject(nil, []tasks.Member{
		{Key: "content", Value: tasks.AppendString(nil, text)}, {Key: "success", Value: []byte("true")},
	})
}

// maxEventFile bounds a file with one event.
const maxEventFile = 16 << 20

// readEvent reads a file with one event object.
func readEvent(p *process, path string) (json.RawMessage, error) {
	in, name, err := openInput(p, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	raw, err := io.ReadAll(io.LimitReader(in, maxEventFile))
	if err != nil {
		return nil, err
	}
	raw = bytes.TrimSpace(raw)
	if _, err := tasks.SplitObject(raw); err != nil || tasks.CheckJSON(raw) != nil {
		return nil, usagef("%s does not hold one event as a JSON object", name)
	}
	return raw, nil
}

// questionDocument is what a question holds beside its event; zero fields are
// left out.
type questionDocument struct {
	phase   string
	id      string
	timeout time.Duration
	// chain are the operations whose hooks are asked; nil means the question's own.
	chain []string
	// hooks replaces what is registered for the operations that it names.
	hooks *feed.Hooks
}

// document writes a question as the API reads it.
func (d questionDocument) document(operationID string, event json.RawMessage) json.RawMessage {
	members := []tasks.Member{{Key: "type", Value: tasks.AppendString(nil, string(phaseTypes[d.phase]))}}
	if d.id != "" {
		members = append(members, tasks.Member{Key: "id", Value: tasks.AppendString(nil, d.id)})
	}
	if d.timeout > 0 {
		members = append(members, tasks.Member{Key: "timeout", Value: tasks.AppendString(nil, d.timeout.String())})
	}
	chain := d.chain
	if chain == nil && d.hooks != nil {
		chain = []string{operationID}
	}
	if chain != nil {
		members = append(members, tasks.Member{Key: "chain", Value: d.links(chain)})
	}
	return tasks.AppendObject(nil, append(members, tasks.Member{Key: "event", Value: event}))
}

func (d questionDocument) links(chain []string) json.RawMessage {
	list := []byte{'['}
	for i, id := range chain {
		if i > 0 {
			list = append(list, ',')
		}
		link := []tasks.Member{{Key: "operationId", Value: tasks.AppendString(nil, id)}}
		if d.hooks != nil {
			if hooks, ok := d.hooks.For(id); ok {
				link = append(link, tasks.Member{Key: "hooks", Value: hooks})
			}
		}
		list = tasks.AppendObject(list, link)
	}
	return append(list, ']')
}
