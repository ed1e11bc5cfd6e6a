package redislane

import (
	"context"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// hearTimeout bounds one blocking pop of an inbox.
const hearTimeout = 2 * time.Second

// Hear blocks until the inbox gets notices on a shard, and returns them, or none
// after two seconds. One call per process and shard serves all its callers.
func (s *Store) Hear(ctx context.Context, shard int, inbox string) ([]lane.Notice, error) {
	key := s.keys[shard].inbox(inbox)
	rows, err := s.pop(ctx, key, hearTimeout)
	if err != nil || rows == nil {
		return nil, err
	}
	notices := appendNotice(nil, text(rows, 1))
	// What came meanwhile is fetched in one go; an error here loses only hints.
	for _, m := range s.client.LPopCount(ctx, key, 256).Val() {
		notices = appendNotice(notices, m)
	}
	return notices, nil
}

func appendNotice(notices []lane.Notice, raw string) []lane.Notice {
	op, task, ok := strings.Cut(raw, "|")
	if !ok {
		return notices
	}
	return append(notices, lane.Notice{OperationHash: op, TaskID: task})
}
