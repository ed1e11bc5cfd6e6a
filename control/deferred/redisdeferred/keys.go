package redisdeferred

import (
	"strconv"

	"github.com/gantry-hooks/gantry/tasks"
)

// keys builds every Redis key of one shard. All of them share the hash tag
// {shard}, and so one slot of a cluster; it is the tag of the lanes' shard, so that
// a shard moves as a whole.
type keys struct{ prefix string }

func shardKeys(namespace string, shard int) keys {
	return keys{namespace + ":{" + strconv.Itoa(shard) + "}:deferred:"}
}

// shardCountKey holds the number of shards of a namespace. It has no tag: it is
// read alone.
func shardCountKey(namespace string) string { return namespace + ":deferred:shards" }

func (k keys) inbox(name string) string { return k.prefix + "inbox:" + name }
func (k keys) script() []string         { return []string{k.prefix} }

// rowHash names a row in keys: no id can collide with another key.
func rowHash(id string) string { return tasks.OperationHash("deferred\x00" + id) }
