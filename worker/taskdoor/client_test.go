package taskdoor_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	official "github.com/upstash/qstash-go"

	"github.com/gantry-hooks/gantry/internal/logging"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/webhook/qstash"
	"github.com/gantry-hooks/gantry/webhook/qstash/compat"
	"github.com/gantry-hooks/gantry/worker/taskdoor"
)

// appended keeps what came through the door.
type appended chan string

func (a appended) Append(_ context.Context, operationID string, items []lane.Item) ([]lane.Appended, error) {
	receipts := make([]lane.Appended, len(items))
	for i, item := range items {
		receipts[i] = lane.Appended{ID: item.ID, Sequence: int64(i + 1)}
		a <- operationID + " " + item.ID
	}
	return receipts, nil
}

// What the official client publishes comes through the door, signed for exactly
// its address.
func TestOfficialClientPublishesThroughTheDoor(t *testing.T) {
	t.Parallel()
	no := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	server, err := compat.New(compat.Config{
		Token: qstash.DevToken, Keys: compat.Keys{Current: qstash.DevCurrentKey, Next: qstash.DevNextKey}, Speed: 1e6,
	})
	no(err)
	t.Cleanup(server.Close)
	api := httptest.NewServer(server)
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() }) // the client leaves bodies open
	keys, err := qstash.ParseKeys(qstash.DevCurrentKey, qstash.DevNextKey, qstash.Development)
	no(err)
	verifier, err := qstash.NewVerifier(qstash.VerifierConfig{Keys: keys})
	no(err)
	lanes := make(appended, 10)
	worker := httptest.NewUnstartedServer(nil)
	public := "http://" + worker.Listener.Addr().String() + taskdoor.Path
	worker.Config.Handler, err = taskdoor.New(taskdoor.Config{
		URL: public, Verifier: verifier, Lanes: lanes, Claims: taskdoor.NewMemoryClaims(taskdoor.ClaimsConfig{}), Logger: logging.Silent(),
	})
	no(err)
	worker.Start()
	t.Cleanup(worker.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := official.NewClientWith(official.Options{Url: api.URL, Token: qstash.DevToken, Client: &http.Client{Transport: transport}})
	publish := func(url string) {
		t.Helper()
		task := tasks.Task{
			ID: "evt-1", OperationID: "op", Type: tasks.AfterStep, Event: json.RawMessage(`{"agentId":"a","operationId":"op","userId":"u"}`),
			Hooks: json.RawMessage(`[{"id":"h","type":"afterStep","webhook":{"url":"https://rx.test/h"}}]`),
		}
		document, err := task.Encode()
		no(err)
		_, err = client.Publish(official.PublishOptions{
			Url: url, Body: string(document), Retries: official.RetryCount(0), Headers: map[string]string{"Content-Type": "application/json"},
		})
		no(err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		no(server.Settle(ctx))
	}
	// The same task, signed for another address, stays outside.
	publish(public + "?other=1")
	publish(public)
	close(lanes)
	var came []string
	for what := range lanes {
		came = append(came, what)
	}
	if diff := cmp.Diff([]string{"op evt-1"}, came); diff != "" {
		t.Errorf("what came through the door (-want +got):\n%s", diff)
	}
}
