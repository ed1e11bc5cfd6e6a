package approval

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/gantry-hooks/gantry/tasks"
)

// Status is where an approval stands: StatusPending, or the decision of the human
// in the runtime's own words.
type Status string

// The statuses that Gantry itself knows.
const (
	StatusPending  Status = "pending"
	StatusApproved Status = "approved"
	StatusRejected Status = "rejected"
)

// Row is the message of a call that waits for a human.
type Row struct {
	// OperationID and ID name the row: the members of a batch share the operation.
	OperationID string
	ID          string
	// BatchID names the batch that was put to the human together; "" means none.
	BatchID string
	// Status is never "".
	Status Status
	// RequestID is the resolution request that claimed the row; "" while it is pending.
	RequestID string
	// Details is a JSON object with whatever else the runtime knows of the approval;
	// nil means nothing. No transition changes it.
	Details json.RawMessage
	// Content, Error and State are what readers of the message see; nil means absent.
	Content string
	Error   json.RawMessage
	State   json.RawMessage
	// Published says that Content, Error and State were written by a publication.
	Published bool
}

// Answer is what a human answered, or what the result controls made of it.
type Answer struct {
	// Content, Error and State are written together; nil leaves the row's own.
	Content *string         `json:"content,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
	State   json.RawMessage `json:"state,omitempty"`
}

// Empty reports whether there is nothing to write.
func (a Answer) Empty() bool { return a.Content == nil && a.Error == nil && a.State == nil }

// AnswerOf returns a tool's result as an answer: content, and error and state if
// it has them. It is how the replacement of a denied result is published.
func AnswerOf(result tasks.ToolResult) (Answer, error) {
	raw, err := tasks.EncodeToolResult(result)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Content: &result.Content, State: result.State}
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return Answer{}, err
	}
	for _, m := range members {
		if m.Key == "error" {
			answer.Error = m.Value
		}
	}
	return answer, nil
}

// Document returns the row as its readers see it: content, error, state and
// intervention. An answer that is not published is nowhere in it.
func (r *Row) Document() json.RawMessage {
	members := []tasks.Member{text("content", r.Content)}
	for _, m := range []tasks.Member{{Key: "error", Value: r.Error}, {Key: "state", Value: r.State}} {
		if m.Value != nil {
			members = append(members, m)
		}
	}
	return tasks.AppendObject(nil, append(members, tasks.Member{Key: "intervention", Value: r.intervention()}))
}

func (r *Row) intervention() json.RawMessage {
	members := []tasks.Member{text("status", string(r.Status)), text("operationId", r.OperationID)}
	if r.BatchID != "" {
		members = append(members, text("batchId", r.BatchID))
	}
	if r.RequestID != "" {
		members = append(members, text("resolutionRequestId", r.RequestID))
	}
	details, _ := tasks.SplitObject(r.Details)
	return tasks.AppendObject(nil, append(members, details...))
}

func text(key, value string) tasks.Member {
	return tasks.Member{Key: key, Value: tasks.AppendString(nil, value)}
}

// check refuses a row that could not be stored.
func (r *Row) check() error {
	if err := checkNames(r.OperationID, r.ID); err != nil {
		return err
	}
	if r.Status == "" || r.Status == StatusPending && r.RequestID != "" || r.Published {
		return &tasks.InvalidError{
			Code: tasks.InvalidField, Path: "status", Message: "row cannot be opened like this",
			Fix: "open it pending, or decided by a request, and not published",
		}
	}
	for _, s := range []string{r.BatchID, string(r.Status), r.RequestID, r.Content} {
		if !utf8.ValidString(s) {
			return &tasks.InvalidError{Code: tasks.InvalidUTF8, Message: "text is not valid UTF-8"}
		}
	}
	if err := checkDetails(r.Details); err != nil {
		return err
	}
	return Answer{Error: r.Error, State: r.State}.check()
}

func checkDetails(details json.RawMessage) error {
	if details == nil {
		return nil
	}
	members, err := tasks.SplitObject(details)
	if err != nil {
		return refused(err, "details")
	}
	for _, m := range members {
		switch m.Key {
		case "status", "operationId", "batchId", "resolutionRequestId":
			return &tasks.InvalidError{Code: tasks.UnknownField, Path: "details." + m.Key, Message: "field has a place of its own"}
		}
	}
	return nil
}

func (a Answer) check() error {
	if a.Content != nil && !utf8.ValidString(*a.Content) {
		return &tasks.InvalidError{Code: tasks.InvalidUTF8, Path: "content", Message: "content is not valid UTF-8"}
	}
	if a.Error != nil {
		if err := tasks.CheckJSON(a.Error); err != nil {
			return refused(err, "error")
		}
	}
	if a.State != nil {
		if _, err := tasks.SplitObject(a.State); err != nil {
			return refused(err, "state")
		}
	}
	return nil
}

func checkNames(operationID, id string) error {
	if err := tasks.CheckOperationID(operationID); err != nil {
		return err
	}
	return tasks.CheckTaskID(id)
}
