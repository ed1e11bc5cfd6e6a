package redisverdict

import (
	"strconv"
	"strings"

	"github.com/gantry-hooks/gantry/control"
	"github.com/gantry-hooks/gantry/tasks"
)

// keys builds every Redis key of one shard. All of them share the hash tag
// {shard}, and so one slot of a cluster.
type keys struct{ prefix string }

func shardKeys(namespace string, shard int) keys {
	return keys{namespace + ":{" + strconv.Itoa(shard) + "}:ctl:"}
}

func (k keys) wake() string           { return k.prefix + "wake" }
func (k keys) inbox(id string) string { return k.prefix + "inbox:" + id }
func (k keys) script() []string       { return []string{k.prefix} }

// operationHashLength is the length of tasks.OperationHash.
const operationHashLength = 22

// questionID is how a question stands in keys and lists.
func questionID(n control.Name) string { return n.Operation + ":" + n.ID }

func parseQuestionID(shard int, qid string) (control.Name, bool) {
	if len(qid) < operationHashLength {
		return control.Name{}, false
	}
	id, ok := strings.CutPrefix(qid[operationHashLength:], ":")
	return control.Name{Shard: shard, Operation: qid[:operationHashLength], ID: id}, ok && id != ""
}

// nameOf places a question where the lanes of its operation are, so that one
// slot has all of it.
func nameOf(operationID, id string, shards int) control.Name {
	return control.Name{Shard: tasks.ShardOf(operationID, shards), Operation: tasks.OperationHash(operationID), ID: id}
}
