package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// Outcome is how one hook of an event stands when it is not delivered.
type Outcome = lane.Outcome

// Receipt says what became of one event.
type Receipt struct {
	ID        string    `json:"id"`
	Sequence  int64     `json:"sequence"`
	Duplicate bool      `json:"duplicate"`
	Skipped   bool      `json:"skipped"`
	Settled   *bool     `json:"settled,omitempty"`
	Outcomes  []Outcome `json:"outcomes,omitempty"`
}

// EventStatus is how an event stands.
type EventStatus struct {
	ID       string    `json:"id"`
	Sequence int64     `json:"sequence"`
	Settled  bool      `json:"settled"`
	Outcomes []Outcome `json:"outcomes"`
}

// PutHooks replaces the hooks of an operation.
func (c *Client) PutHooks(ctx context.Context, operationID string, hooks json.RawMessage) error {
	return c.call(ctx, request{method: http.MethodPut, path: operation(operationID) + "/hooks", body: hooks}, nil)
}

// Registered reports whether the API has hooks of an operation.
func (c *Client) Registered(ctx context.Context, operationID string) (bool, error) {
	err := c.call(ctx, request{method: http.MethodGet, path: operation(operationID) + "/hooks"}, nil)
	if refused, ok := errors.AsType[*Error](err); ok && refused.Status == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

// PostEvents sends events of one operation, each as the API reads it.
func (c *Client) PostEvents(ctx context.Context, operationID string, events []json.RawMessage) ([]Receipt, error) {
	body := append([]byte{'['}, bytes.Join(toBytes(events), []byte{','})...)
	var answer struct {
		Receipts []Receipt `json:"receipts"`
	}
	err := c.call(ctx, request{method: http.MethodPost, path: operation(operationID) + "/events", body: append(body, ']')}, &answer)
	return answer.Receipts, err
}

func toBytes(raw []json.RawMessage) [][]byte {
	parts := make([][]byte, len(raw))
	for i := range raw {
		parts[i] = raw[i]
	}
	return parts
}

// Event tells how an event stands, after waiting for mode that long at most.
func (c *Client) Event(ctx context.Context, operationID, id string, wait Wait) (EventStatus, error) {
	query := url.Values{"mode": {string(wait.Mode)}, "wait": {wait.For.String()}}
	var status EventStatus
	err := c.call(ctx, request{
		method: http.MethodGet, path: operation(operationID) + "/events/" + escape(id), query: query, wait: wait.For,
	}, &status)
	return status, err
}

// Wait is what to wait for.
type Wait struct {
	Mode lane.WaitMode
	For  time.Duration
}

// Lane shows the lane of an operation.
func (c *Client) Lane(ctx context.Context, operationID string) (lane.Info, error) {
	var info lane.Info
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/lanes/" + escape(operationID)}, &info)
	return info, err
}

// Lanes lists up to limit lanes that have something to do.
func (c *Client) Lanes(ctx context.Context, limit int) ([]lane.Info, error) {
	var answer struct {
		Lanes []lane.Info `json:"lanes"`
	}
	err := c.call(ctx, request{method: http.MethodGet, path: "/v1/lanes", query: limitOf(limit)}, &answer)
	return answer.Lanes, err
}

// Filter selects dead letters; an empty field selects all.
type Filter struct {
	Operation string `json:"operation,omitempty"`
	Hook      string `json:"hook,omitempty"`
	Type      string `json:"type,omitempty"`
	Class     string `json:"class,omitempty"`
}

// DeadLetter is a delivery that was given up. Raw is the whole document as the
// API wrote it.
type DeadLetter struct {
	ID          string          `json:"id"`
	OperationID string          `json:"operationId"`
	EventID     string          `json:"eventId"`
	Sequence    int64           `json:"sequence"`
	At          int64           `json:"at"`
	Outcome     Outcome         `json:"outcome"`
	Task        json.RawMessage `json:"task"`
	Poison      []byte          `json:"poison"`
	Raw         json.RawMessage `json:"-"`
}

// DeadPage is a page of dead letters; Next is "" on the last one.
type DeadPage struct {
	Letters []DeadLetter
	Next    string
	Total   int64
}

// Page says which part of a listing to read.
type Page struct {
	Cursor string
	Limit  int
}

// DeadLetters lists a page of dead letters, oldest first.
func (c *Client) DeadLetters(ctx context.Context, f Filter, p Page) (DeadPage, error) {
	query := limitOf(p.Limit)
	for name, value := range map[string]string{
		"operation": f.Operation, "hook": f.Hook, "type": f.Type, "class": f.Class, "cursor": p.Cursor,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var answer struct {
		DeadLetters []json.RawMessage `json:"deadLetters"`
		Next        string            `json:"next"`
		Total       int64             `json:"total"`
	}
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/dead-letters", query: query}, &answer); err != nil {
		return DeadPage{}, err
	}
	page := DeadPage{Next: answer.Next, Total: answer.Total}
	for _, raw := range answer.DeadLetters {
		letter, err := readLetter(raw)
		if err != nil {
			return DeadPage{}, err
		}
		page.Letters = append(page.Letters, letter)
	}
	return page, nil
}

// DeadLetter reads one dead letter with its content.
func (c *Client) DeadLetter(ctx context.Context, id string) (DeadLetter, error) {
	var raw json.RawMessage
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/dead-letters/" + escape(id)}, &raw); err != nil {
		return DeadLetter{}, err
	}
	return readLetter(raw)
}

func readLetter(raw json.RawMessage) (DeadLetter, error) {
	letter := DeadLetter{Raw: raw}
	err := json.Unmarshal(raw, &letter)
	return letter, err
}

// Replayed says what a replay did.
type Replayed struct {
	Replayed    int `json:"replayed"`
	NotReplayed []struct {
		ID     string `json:"id"`
		Reason string `json:"reason"`
	} `json:"notReplayed"`
}

// Replay puts named letters back.
func (c *Client) Replay(ctx context.Context, ids []string) (Replayed, error) {
	body := []byte(`{"ids":[`)
	for i, id := range ids {
		if i > 0 {
			body = append(body, ',')
		}
		body = tasks.AppendString(body, id)
	}
	var answer Replayed
	err := c.call(ctx, request{method: http.MethodPost, path: "/v1/dead-letters:replay", body: append(body, "]}"...)}, &answer)
	return answer, err
}

func operation(id string) string { return "/v1/operations/" + escape(id) }

// escape makes an id one segment of a path. A segment of dots alone would be
// taken for a relative one.
func escape(id string) string {
	if id == "." || id == ".." {
		return url.PathEscape(id[:len(id)-1]) + "%2E"
	}
	return url.PathEscape(id)
}

func limitOf(limit int) url.Values {
	if limit == 0 {
		return url.Values{}
	}
	return url.Values{"limit": {strconv.Itoa(limit)}}
}
