package redislane

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks/lane"
)

// workerTTL is the age at which a worker that no longer publishes is dropped.
const workerTTL = 15 * time.Second

// Publish tells producers what a worker would add to an event. Workers repeat it
// every few seconds.
func (s *Store) Publish(ctx context.Context, w lane.WorkerInfo) error {
	w.SeenAt = 0
	doc, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode worker: %w", err)
	}
	return s.publish(ctx, w.ID, string(doc))
}

// Withdraw takes back what a worker published.
func (s *Store) Withdraw(ctx context.Context, workerID string) error {
	return s.publish(ctx, workerID, "")
}

func (s *Store) publish(ctx context.Context, id, doc string) error {
	err := s.scripts.publish.Run(ctx, s.client, s.keys[0].script(), id, doc, workerTTL.Milliseconds()).Err()
	return unavailable(err)
}

// Workers returns what the live workers published. Workers that died are listed
// until another worker's next Publish drops them.
func (s *Store) Workers(ctx context.Context) ([]lane.WorkerInfo, error) {
	all, err := s.client.HGetAll(ctx, s.keys[0].workers()).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	infos := make([]lane.WorkerInfo, 0, len(all))
	for _, v := range all {
		at, doc, _ := strings.Cut(v, ":")
		var w lane.WorkerInfo
		if err := json.Unmarshal([]byte(doc), &w); err != nil {
			return nil, fmt.Errorf("read worker: %w", err)
		}
		w.SeenAt, _ = strconv.ParseInt(at, 10, 64)
		infos = append(infos, w)
	}
	return infos, nil
}
