package redisapproval

import (
	"strconv"

	"github.com/gantry-hooks/gantry/tasks"
)

// keys builds every Redis key of one shard. All of them share the hash tag
// {shard}, and so one slot of a cluster; it is the tag of the lanes' shard, so that
// a shard moves as a whole.
type keys struct{ prefix string }

func shardKeys(namespace string, shard int) keys {
	return keys{namespace + ":{" + strconv.Itoa(shard) + "}:approval:"}
}

// shardCountKey holds the number of shards of a namespace. It has no tag: it is
// read alone.
func shardCountKey(namespace string) string { return namespace + ":approval:shards" }

func (k keys) row(name string) string    { return k.prefix + "row:" + name }
func (k keys) answer(name string) string { return k.prefix + "answer:" + name }
func (k keys) script() []string          { return []string{k.prefix} }

// rowName names a row in keys: no id can collide with another key.
func rowName(operationID, id string) string {
	return tasks.OperationHash(operationID) + ":" + tasks.OperationHash("approval\x00"+id)
}
