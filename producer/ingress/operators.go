package ingress

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
)

// maxReplayIDs bounds the letters that one replay names.
const maxReplayIDs = 1000

// lanesInput asks for lanes.
type lanesInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Lanes at most."`
}

type lanesOutput struct {
	Body LaneList
}

// getLanes lists lanes that have something to do.
func (a *API) getLanes(ctx context.Context, in *lanesInput) (*lanesOutput, error) {
	ctx, cancel := a.step(ctx)
	defer cancel()
	infos, err := a.config.Store.Lanes(ctx, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &lanesOutput{Body: LaneList{Lanes: make([]LaneView, 0, len(infos))}}
	for _, info := range infos {
		out.Body.Lanes = append(out.Body.Lanes, newLaneView(info))
	}
	return out, nil
}

type laneOutput struct {
	Body LaneView
}

// getLane shows one lane.
func (a *API) getLane(ctx context.Context, in *operationInput) (*laneOutput, error) {
	if err := operation(in.Op); err != nil {
		return nil, err
	}
	ctx, cancel := a.step(ctx)
	defer cancel()
	info, err := a.config.Store.Lane(ctx, in.Op)
	if errors.Is(err, lane.ErrNotFound) {
		return nil, newProblem(CodeNotFound, "the operation has no lane, or no longer")
	}
	if err != nil {
		return nil, err
	}
	return &laneOutput{Body: newLaneView(info)}, nil
}

// deadInput asks for dead letters.
type deadInput struct {
	Operation string `query:"operation" doc:"Of this operation only."`
	Hook      string `query:"hook" doc:"Of hooks with this id only."`
	Type      string `query:"type" doc:"Of this hook type only."`
	Class     string `query:"class" doc:"With this failure class only."`
	Cursor    string `query:"cursor" doc:"Continues a listing: next of the page before, with the same filter."`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Letters at most."`
}

type deadListOutput struct {
	Body DeadLetterList
}

// getDeadLetters lists dead letters without their content.
func (a *API) getDeadLetters(ctx context.Context, in *deadInput) (*deadListOutput, error) {
	filter := lane.DeadFilter{
		OperationID: in.Operation, HookID: in.Hook, Type: tasks.HookType(in.Type), Class: tasks.FailureClass(in.Class), Limit: in.Limit,
	}
	if err := checkFilter(filter, "query"); err != nil {
		return nil, err
	}
	cursor, ok := openCursor(in.Cursor)
	if !ok {
		return nil, newFault(Fault{
			Path: "query.cursor", Code: CodeInvalidCursor, Message: "cursor did not come from a listing", Fix: "start again without one",
		})
	}
	filter.Cursor = cursor
	ctx, cancel := a.step(ctx)
	defer cancel()
	page, err := a.config.Store.Dead(ctx, filter)
	if err != nil {
		return nil, err
	}
	out := &deadListOutput{Body: DeadLetterList{
		DeadLetters: make([]DeadLetterView, 0, len(page.Letters)), Next: sealCursor(page.Next), Total: page.Total,
	}}
	for _, letter := range page.Letters {
		out.Body.DeadLetters = append(out.Body.DeadLetters, newDeadLetterView(letter))
	}
	return out, nil
}

// sealCursor hides the store's cursor, so that callers do not build their own.
// The checksum tells a typing error apart; it is no protection, and needs none.
func sealCursor(cursor string) string {
	if cursor == "" {
		return ""
	}
	sealed := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(cursor)))
	return base64.RawURLEncoding.EncodeToString(append(sealed, cursor...))
}

// openCursor undoes sealCursor.
func openCursor(sealed string) (cursor string, ok bool) {
	if sealed == "" {
		return "", true
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(raw) < 5 || binary.BigEndian.Uint32(raw) != crc32.ChecksumIEEE(raw[4:]) {
		return "", false
	}
	return string(raw[4:]), true
}

// checkFilter refuses words that no dead letter can have.
func checkFilter(f lane.DeadFilter, where string) error {
	if f.Type != "" && !f.Type.Valid() {
		return &tasks.InvalidError{
			Code: tasks.UnknownType, Path: where + ".type", Message: "type is not known", Fix: "send one of the hook types of docs/events.md",
		}
	}
	if f.Class != "" && !slices.Contains(tasks.FailureClasses(), f.Class) {
		return &tasks.InvalidError{
			Code: tasks.InvalidField, Path: where + ".class", Message: "class is not known", Fix: "send one of the failure classes of docs/http-api.md",
		}
	}
	return nil
}

// letterInput asks for one dead letter.
type letterInput struct {
	ID string `path:"id" doc:"Id of the dead letter."`
}

type letterOutput struct {
	Body DeadLetterView
}

// getDeadLetter shows one dead letter with its content.
func (a *API) getDeadLetter(ctx context.Context, in *letterInput) (*letterOutput, error) {
	ctx, cancel := a.step(ctx)
	defer cancel()
	letter, err := a.config.Store.DeadLetter(ctx, in.ID)
	if errors.Is(err, lane.ErrNotFound) {
		return nil, newProblem(CodeNotFound, "there is no such dead letter, or no longer")
	}
	if err != nil {
		return nil, err
	}
	return &letterOutput{Body: newDeadLetterView(letter).withContent(letter)}, nil
}

// replayRequest is what a replay asks for: exactly one of its parts.
type replayRequest struct {
	ids    []string
	filter *lane.DeadFilter
	all    bool
}

type replayInput struct{}

type replayOutput struct {
	Body ReplayResult
}

// replay puts dead letters back. It goes on when the caller leaves: what was
// started is finished within MaxWait, and repeating the request is safe.
func (a *API) replay(ctx context.Context, _ *replayInput) (*replayOutput, error) {
	raw, err := a.readBody(ctx)
	if err != nil {
		return nil, err
	}
	request, err := decodeReplay(raw)
	if err != nil {
		return nil, err
	}
	limit, cancelWait := a.waiting(ctx, a.config.MaxWait)
	defer cancelWait()
	deadline, _ := limit.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	out := &replayOutput{Body: ReplayResult{NotReplayed: []NotReplayed{}}}
	switch {
	case request.ids != nil:
		out.Body, err = a.replayNamed(ctx, request.ids)
	case request.filter != nil:
		out.Body.Replayed, err = a.config.Store.ReplayMany(ctx, *request.filter, nil)
	default:
		out.Body.Replayed, err = a.config.Store.ReplayMany(ctx, lane.DeadFilter{}, nil)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// replayNamed puts named letters back, those of one hook in the order of their
// events whatever the order of their ids.
func (a *API) replayNamed(ctx context.Context, ids []string) (ReplayResult, error) {
	result := ReplayResult{NotReplayed: []NotReplayed{}}
	var letters []lane.DeadLetter
	for _, id := range ids {
		letter, err := a.config.Store.DeadLetter(ctx, id)
		switch {
		case errors.Is(err, lane.ErrNotFound):
			result.NotReplayed = append(result.NotReplayed, NotReplayed{ID: id, Reason: string(CodeNotFound)})
		case err != nil:
			return result, err
		default:
			letters = append(letters, lane.DeadLetter{ID: id, OperationID: letter.OperationID, Sequence: letter.Sequence})
		}
	}
	slices.SortStableFunc(letters, func(x, y lane.DeadLetter) int {
		if by := strings.Compare(x.OperationID, y.OperationID); by != 0 {
			return by
		}
		return int(min(1, max(-1, x.Sequence-y.Sequence)))
	})
	for _, letter := range letters {
		err := a.config.Store.Replay(ctx, letter.ID)
		switch {
		case errors.Is(err, lane.ErrNotFound):
			result.NotReplayed = append(result.NotReplayed, NotReplayed{ID: letter.ID, Reason: string(CodeNotFound)})
		case errors.Is(err, lane.ErrNotReplayable):
			result.NotReplayed = append(result.NotReplayed, NotReplayed{ID: letter.ID, Reason: "not_replayable"})
		case err != nil:
			return result, err
		default:
			result.Replayed++
		}
	}
	return result, nil
}

// decodeReplay reads {"ids": [...]}, {"filter": {...}} or {"all": true}.
func decodeReplay(raw []byte) (replayRequest, error) {
	var request replayRequest
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return request, err
	}
	for _, m := range members {
		switch m.Key {
		case "ids":
			request.ids, err = decodeIDs(m.Value)
		case "filter":
			request.filter, err = decodeFilter(m.Value)
		case "all":
			request.all = string(m.Value) == "true"
			if !request.all {
				err = &tasks.InvalidError{Code: tasks.InvalidField, Path: "all", Message: "all is not true", Fix: "send true, or leave the key out"}
			}
		default:
			err = &tasks.InvalidError{Code: tasks.UnknownField, Path: m.Key, Message: "key is unknown", Fix: "send ids, filter or all"}
		}
		if err != nil {
			return request, err
		}
	}
	chosen := 0
	for _, given := range []bool{request.ids != nil, request.filter != nil, request.all} {
		if given {
			chosen++
		}
	}
	if chosen != 1 {
		return request, &tasks.InvalidError{
			Code: CodeInvalidRequest, Message: "the letters are not chosen in exactly one way", Fix: "send exactly one of ids, filter and all",
		}
	}
	return request, nil
}

func decodeIDs(raw json.RawMessage) ([]string, error) {
	items, err := elements(raw, "ids")
	if err != nil {
		return nil, err
	}
	if len(items) > maxReplayIDs {
		return nil, newProblem(CodeBatchTooLarge, fmt.Sprintf("more than the limit of %d ids are named", maxReplayIDs))
	}
	ids := make([]string, 0, len(items))
	for i, item := range items {
		id, err := text(item, fmt.Sprintf("ids[%d]", i))
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func decodeFilter(raw json.RawMessage) (*lane.DeadFilter, error) {
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return nil, atPath(err, "filter")
	}
	filter := &lane.DeadFilter{}
	for _, m := range members {
		value, err := text(m.Value, "filter."+m.Key)
		if err != nil {
			return nil, err
		}
		switch m.Key {
		case "operation":
			filter.OperationID = value
		case "hook":
			filter.HookID = value
		case "type":
			filter.Type = tasks.HookType(value)
		case "class":
			filter.Class = tasks.FailureClass(value)
		default:
			return nil, &tasks.InvalidError{
				Code: tasks.UnknownField, Path: "filter." + m.Key, Message: "key is unknown", Fix: "a filter has operation, hook, type and class only",
			}
		}
	}
	if *filter == (lane.DeadFilter{}) {
		return nil, &tasks.InvalidError{
			Code: CodeInvalidRequest, Path: "filter", Message: "filter selects everything", Fix: `send {"all": true} to replay everything`,
		}
	}
	return filter, checkFilter(*filter, "filter")
}
