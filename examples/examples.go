// Package examples holds what new users try first: the agent run that "gantry
// dev" plays (agent-run) and a Go program that embeds Gantry (embed). The files
// are compiled in, so that the demonstration works wherever the binary does.
package examples

import "embed"

// AgentRun holds agent-run/hooks.json, events.jsonl and questions.jsonl: hooks,
// events and questions of three operations of a made-up agent, one of them started
// by another.
//
//go:embed agent-run
var AgentRun embed.FS

// The files of AgentRun, the receiver's address in its hooks, the number of
// deliveries that its receiver refuses for good, and the number of tool calls that
// its policy denies.
const (
	AgentRunHooks     = "agent-run/hooks.json"
	AgentRunEvents    = "agent-run/events.jsonl"
	AgentRunQuestions = "agent-run/questions.jsonl"
	AgentRunReceiver  = "127.0.0.1:8485"
	AgentRunDead      = 1
	AgentRunDenied    = 1
)
