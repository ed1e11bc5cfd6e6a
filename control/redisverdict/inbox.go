package redisverdict

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/control"
)

const (
	// hearTimeout bounds one blocking pop of an inbox.
	hearTimeout = 2 * time.Second
	// hearMore is how many notices are taken beside the first.
	hearMore = 255
	// inboxLife is how long a notice waits for its reader.
	inboxLife = time.Minute
)

// Hear blocks until the inbox gets notices on a shard, and returns them, or none
// after two seconds. What gathered meanwhile comes with the first one, in the same
// round trip. A notice that cannot be read is left out: who waits for it looks by
// itself.
func (s *Store) Hear(ctx context.Context, shard int, inbox string) ([]control.Notice, error) {
	// A reply that is much later means a dead connection.
	ctx, cancel := context.WithTimeout(ctx, hearTimeout+time.Second)
	defer cancel()
	key := s.keys[shard].inbox(inbox)
	pipe := s.blocking.Pipeline()
	first := pipe.Do(ctx, "BLPOP", key, seconds(hearTimeout))
	more := pipe.LPopCount(ctx, key, hearMore)
	// Each reply has its own error.
	_, _ = pipe.Exec(ctx)
	reply, err := first.Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	rows, _ := reply.([]any)
	notices := appendNotice(nil, shard, text(rows, 1))
	for _, raw := range more.Val() {
		notices = appendNotice(notices, shard, raw)
	}
	return notices, nil
}

// appendNotice reads "<question>\n<at>\n<digest>\n<verdict>".
func appendNotice(notices []control.Notice, shard int, raw string) []control.Notice {
	qid, rest, ok := strings.Cut(raw, "\n")
	at, rest, ok2 := strings.Cut(rest, "\n")
	digest, doc, ok3 := strings.Cut(rest, "\n")
	name, ok4 := parseQuestionID(shard, qid)
	if !ok || !ok2 || !ok3 || !ok4 {
		return notices
	}
	when, _ := strconv.ParseInt(at, 10, 64)
	verdict, err := decodeVerdict(doc, when)
	if err != nil {
		return notices
	}
	return append(notices, control.Notice{Name: name, Digest: digest, Verdict: verdict})
}

// Rouse makes a call of Hear return.
func (s *Store) Rouse(ctx context.Context, shard int, inbox string) error {
	key := s.keys[shard].inbox(inbox)
	pipe := s.client.Pipeline()
	pipe.RPush(ctx, key, "")
	pipe.PExpire(ctx, key, inboxLife)
	_, err := pipe.Exec(ctx)
	return unavailable(err)
}
