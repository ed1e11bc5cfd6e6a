package feed

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
)

// maxLine bounds one line, so that a file that is no JSONL fails at once.
const maxLine = 16 << 20

// Event is one line of an events file.
type Event struct {
	// Line counts from 1.
	Line        int
	OperationID string
	// ID is the idempotency key, the file's or one made from the content.
	ID string
	// Parsed is the event itself.
	Parsed *tasks.Event
	// Document is the event as the API takes it.
	Document json.RawMessage
}

// Source is a file of events.
type Source struct {
	// Name stands before the line in messages.
	Name   string
	Reader io.Reader
	// Run tells deliberate repetitions apart: the same file with another run gives
	// other ids, and so other deliveries. "" is a run as well.
	Run string
}

// ReadEvents reads every line, a JSON object with type, event and, if wanted,
// operationId, id, delay and trace. Lines that are blank are skipped. A bad line
// is a *config.FileError among faults and not among events; err is a file that
// cannot be read.
func ReadEvents(s Source) (events []Event, faults []error, err error) {
	r := &eventsReader{run: s.Run, seen: map[[sha256.Size]byte]int{}}
	lines := bufio.NewScanner(s.Reader)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	number := 0
	for lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		event, err := r.read(line)
		if err != nil {
			faults = append(faults, &config.FileError{File: s.Name, Line: number, Err: err})
			continue
		}
		event.Line = number
		events = append(events, event)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = &config.FileError{File: s.Name, Line: number + 1, Err: errors.New("is longer than 16 MiB; write one event a line")}
		}
		return nil, nil, err
	}
	return events, faults, nil
}

// eventsReader numbers equal events, so that each has an id of its own.
type eventsReader struct {
	run  string
	seen map[[sha256.Size]byte]int
}

// line is one line before the event in it is judged.
type line struct {
	operationID, id, hookType string
	event                     json.RawMessage
	// rest are the members that pass through to the API.
	rest []tasks.Member
}

const lineFix = "a line has type, event, operationId, id, delay and trace only"

func (r *eventsReader) read(raw []byte) (Event, error) {
	l, err := splitLine(raw)
	if err != nil {
		return Event{}, err
	}
	parsed, err := tasks.ParseEvent(tasks.HookType(l.hookType), l.operationID, l.event)
	if invalid := (*tasks.InvalidError)(nil); errors.As(err, &invalid) && invalid.Path != "type" {
		return Event{}, invalid.Under("event")
	}
	if err != nil {
		return Event{}, err
	}
	if l.id == "" {
		l.id = r.draw(parsed)
	} else if err := tasks.CheckTaskID(l.id); err != nil {
		return Event{}, err
	}
	members := append([]tasks.Member{
		{Key: "id", Value: tasks.AppendString(nil, l.id)},
		{Key: "type", Value: tasks.AppendString(nil, l.hookType)},
		{Key: "event", Value: parsed.Raw},
	}, l.rest...)
	return Event{
		OperationID: parsed.OperationID, ID: l.id, Parsed: parsed, Document: tasks.AppendObject(nil, members),
	}, nil
}

func splitLine(raw []byte) (line, error) {
	var l line
	members, err := tasks.SplitObject(raw)
	if err != nil {
		return l, err
	}
	for _, m := range members {
		switch m.Key {
		case "operationId":
			l.operationID, err = text(m)
		case "id":
			l.id, err = text(m)
		case "type":
			l.hookType, err = text(m)
		case "event":
			l.event = m.Value
		case "delay", "trace":
			l.rest = append(l.rest, tasks.Member{Key: m.Key, Value: bytes.Clone(m.Value)})
		default:
			err = &tasks.InvalidError{Code: tasks.UnknownField, Path: m.Key, Message: "key is unknown", Fix: lineFix}
		}
		if err != nil {
			return l, err
		}
	}
	if l.event == nil {
		return l, &tasks.InvalidError{Code: tasks.MissingField, Path: "event", Message: "event is missing", Fix: lineFix}
	}
	return l, nil
}

func text(m tasks.Member) (string, error) {
	var value string
	if json.Unmarshal(m.Value, &value) != nil || value == "" {
		return "", &tasks.InvalidError{Code: tasks.InvalidField, Path: m.Key, Message: m.Key + " is no text", Fix: "write a string that is not empty"}
	}
	return value, nil
}

// draw makes an id from the run, the event's content, and how often that content
// came before in the file.
func (r *eventsReader) draw(event *tasks.Event) string {
	h := sha256.New()
	for _, part := range [...]string{r.run, event.OperationID, string(event.Type)} {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part) // a hash never fails
	}
	h.Write(event.Raw)
	var content [sha256.Size]byte
	h.Sum(content[:0])
	n := r.seen[content]
	r.seen[content]++
	if n > 0 {
		h.Write([]byte("#" + strconv.Itoa(n)))
		h.Sum(content[:0])
	}
	return "evt_" + base64.RawURLEncoding.EncodeToString(content[:16])
}
