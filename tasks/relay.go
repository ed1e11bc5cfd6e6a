package tasks

import (
	"encoding/json"
	"strconv"
)

// Relay is what a task says of its way when a relay carries it to a worker: the
// relay may repeat it, and may bring a later one first (docs/wire.md). The zero
// value says nothing.
type Relay struct {
	// Stream names a numbering of messages; Sequence is the message's number in it,
	// from 1. 0 means that the message has no order to keep.
	Stream   string
	Sequence int64
	// Hook is the key of the one hook that the message is for; "" means every hook of
	// the task.
	Hook string
	// Retries is how often the relay repeats an attempt that failed.
	Retries int
}

// relayField is the member of the task document that holds a Relay.
const relayField = "relay"

const (
	maxRelayWord = 128
	// maxRelayNumber is what every reader of JSON can hold.
	maxRelayNumber = 1<<53 - 1
)

// SetRelay writes r into the document's extra fields.
func (t *Task) SetRelay(r Relay) {
	raw := []byte(`{"stream":`)
	raw = AppendString(raw, r.Stream)
	raw = strconv.AppendInt(appendKey(raw, "sequence"), r.Sequence, 10)
	if r.Hook != "" {
		raw = AppendString(appendKey(raw, "hook"), r.Hook)
	}
	raw = strconv.AppendInt(appendKey(raw, "retries"), int64(r.Retries), 10)
	if t.Extra == nil {
		t.Extra = map[string]json.RawMessage{}
	}
	t.Extra[relayField] = append(raw, '}')
}

// TakeRelay reads the document's Relay and takes it out, because it means
// nothing once the message has arrived. Without one it returns the zero value. An
// error is an *InvalidError.
func (t *Task) TakeRelay() (Relay, error) {
	raw, there := t.Extra[relayField]
	if !there {
		return Relay{}, nil
	}
	delete(t.Extra, relayField)
	var r Relay
	members, err := SplitObject(raw)
	if err != nil {
		return Relay{}, relayFault("")
	}
	for _, m := range members {
		good := true
		switch m.Key {
		case "stream":
			r.Stream, good = relayWord(m.Value)
		case "hook":
			r.Hook, good = relayWord(m.Value)
		case "sequence":
			r.Sequence, good = relayNumber(m.Value)
		case "retries":
			var n int64
			n, good = relayNumber(m.Value)
			r.Retries = int(min(n, maxAttempts))
		}
		if !good {
			return Relay{}, relayFault("." + m.Key)
		}
	}
	if r.Sequence > 0 && r.Stream == "" {
		return Relay{}, relayFault(".stream")
	}
	return r, nil
}

func relayFault(path string) error {
	return taskFault(relayField+path, relayField+" is not as it must be", "see docs/wire.md")
}

func relayWord(raw json.RawMessage) (string, bool) {
	if !isString(raw) || len(raw) > maxRelayWord {
		return "", false
	}
	return decodeString(raw), true
}

func relayNumber(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && n >= 0 && n <= maxRelayNumber
}
