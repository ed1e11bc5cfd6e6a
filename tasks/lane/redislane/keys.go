package redislane

import (
	"strconv"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// operationHashLength is the length of tasks.OperationHash, which lib.lua relies on.
const operationHashLength = 22

// keys builds every Redis key of one shard. All of them share the hash tag
// {shard}, and so one slot of a cluster.
type keys struct{ prefix string }

func shardKeys(namespace string, shard int) keys {
	return keys{namespace + ":{" + strconv.Itoa(shard) + "}:"}
}

// shardCountKey holds the number of shards of a namespace. It has no tag: it is
// read alone.
func shardCountKey(namespace string) string { return namespace + ":shards" }

func (k keys) ready() string           { return k.prefix + "ready" }
func (k keys) wake() string            { return k.prefix + "wake" }
func (k keys) due() string             { return k.prefix + "due" }
func (k keys) dead() string            { return k.prefix + "dead" }
func (k keys) letter(id string) string { return k.prefix + "dead:" + id }
func (k keys) workers() string         { return k.prefix + "workers" }
func (k keys) inbox(id string) string  { return k.prefix + "inbox:" + id }
func (k keys) hooks(op string) string  { return k.prefix + "hooks:" + op }
func (k keys) blocked() string         { return k.prefix + "blocked" }
func (k keys) born() string            { return k.prefix + "born" }
func (k keys) script() []string        { return []string{k.prefix} }

func queueID(q lane.Queue) string {
	if q.Lane() {
		return q.Operation
	}
	return q.Operation + ":" + q.Hook
}

func parseQueueID(shard int, id string) (lane.Queue, bool) {
	if len(id) < operationHashLength {
		return lane.Queue{}, false
	}
	q := lane.Queue{Shard: shard, Operation: id[:operationHashLength]}
	rest := id[operationHashLength:]
	if rest == "" {
		return q, true
	}
	hook, ok := strings.CutPrefix(rest, ":")
	q.Hook = hook
	return q, ok && hook != ""
}

// QueueOf names the lane of an operation.
func (s *Store) QueueOf(operationID string) lane.Queue {
	return lane.Queue{Shard: tasks.ShardOf(operationID, s.shards), Operation: tasks.OperationHash(operationID)}
}
