package worker_test

import (
	"context"
	"slices"
	"testing"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

func throughQStash(h *tasks.Hook) { h.Webhook.Delivery = tasks.DeliverQStash }

// An attempt whose publish ended without an answer marks all later ones, on any
// worker; one that was followed by a fetch does not.
func TestUnsettledPublishIsRemembered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	results := map[string][]webhook.Result{
		"lost":    {{Class: tasks.ClassQStash, Message: "unknown"}, {Class: tasks.ClassQStash, Status: 503, Message: "failed"}, ok},
		"fetched": {{Class: tasks.ClassHTTP5xx, Status: 500, FellBack: true, Message: "http_error"}, status(500), ok},
		"plain":   {{Class: tasks.ClassQStash, Message: "a class that no fetch has"}, ok},
	}
	b.receiver.respond = func(_ context.Context, r request) webhook.Result { return results[r.hook][r.attempt-1] }
	b.events("op", 1, hook("lost", throughQStash), hook("fetched", throughQStash), hook("plain"))
	b.start(b.config())
	b.start(b.config())
	for id := range results {
		b.eventually(id, func() bool { return len(b.receiver.sequences("op", id)) == 1 })
	}
	for id, want := range map[string][]bool{"lost": {false, true, true}, "fetched": {false, false, false}, "plain": {false, false}} {
		var got []bool
		b.receiver.mu.Lock()
		for _, r := range b.receiver.requests {
			if r.hook == id {
				got = append(got, r.unsettled)
			}
		}
		b.receiver.mu.Unlock()
		if !slices.Equal(got, want) {
			t.Errorf("%s: unsettled %v, want %v", id, got, want)
		}
	}
}
