package ingress

import (
	"encoding/json"

	"github.com/gantry-hooks/gantry/producer"
	"github.com/gantry-hooks/gantry/tasks"
)

// Statuses shows the table from code to HTTP status to the tests.
func Statuses() map[tasks.Reason]int { return statuses }

// ProblemOf shows the translation of errors to the tests.
func ProblemOf(err error) *Problem { return problemOf(err) }

// DecodeHooks, DecodeEvents and DecodeReplay show the decoders to the fuzzers.
func DecodeHooks(raw []byte) (json.RawMessage, error) { return decodeHooks(raw) }

// DecodeEvents reads lines when lines is set.
func DecodeEvents(operationID string, raw []byte, lines bool) ([]producer.EventRequest, error) {
	kind := bodyJSON
	if lines {
		kind = bodyLines
	}
	return (&eventsDecoder{operationID: operationID, limit: 100}).decode(raw, kind)
}

// DecodeReplay reads the body of a replay.
func DecodeReplay(raw []byte) error {
	_, err := decodeReplay(raw)
	return err
}

// DecodeQuestion, DecodePlaceholder and DecodeCompletion show the decoders of the
// control path to the fuzzers.
func DecodeQuestion(operationID string, raw []byte) (Question, error) {
	return decodeQuestion(operationID, raw)
}

// DecodePlaceholder reads the body that opens a placeholder.
func DecodePlaceholder(raw []byte) (Placeholder, error) { return decodePlaceholder("d", raw) }

// DecodeCompletion reads the body of a callback.
func DecodeCompletion(raw []byte) (Completion, error) { return decodeCompletion("d", raw) }
