package control

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// Reply is what the answer of a control counts as. The zero value permits
// nothing.
type Reply struct {
	// Class is what it counts as; never "" from ReadReply.
	Class tasks.ControlClass
	// Reason is what a deny shows: the control's own words, or the default of the
	// phase. "" otherwise.
	Reason string
	// Failure is the finer class of an error; "" otherwise.
	Failure tasks.FailureClass
}

// Code returns the contract's code of an error; "" otherwise.
func (r Reply) Code() tasks.TransportCode { return r.Failure.Code() }

const (
	wordAllow = "allow"
	wordDeny  = "deny"
)

var byteOrderMark = []byte("\xef\xbb\xbf")

// ReadReply reads the reply of a control in the given phase by the table of
// docs/behaviour.md §12. body is decoded already and whole; it is not looked at
// when the status has no body. What is not understood is never an allow: a
// decision that is no decision is an error, and a text without one is a
// notification, which neither permits nor forbids.
func ReadReply(phase tasks.HookType, status int, body []byte) Reply {
	switch {
	case status < 200 || status > 299:
		return replyError(webhook.StatusClass(status))
	case !webhook.HasBody(status):
		return Reply{Class: tasks.ControlNotification}
	case len(body) > webhook.MaxReplyBytes:
		return replyError(tasks.ClassResponseTooLarge)
	case !utf8.Valid(body):
		return replyError(tasks.ClassInvalidResponse)
	}
	fields, err := tasks.LastFields(bytes.TrimPrefix(body, byteOrderMark), "decision", "reason")
	if err != nil || fields[0] == nil {
		return Reply{Class: tasks.ControlNotification}
	}
	return readDecision(phase, fields[0], fields[1])
}

// readDecision reads the raw values of the two keys; reason is nil when absent.
func readDecision(phase tasks.HookType, decision, reason json.RawMessage) Reply {
	word, ok := text(decision)
	switch {
	case ok && word == wordAllow:
		return Reply{Class: tasks.ControlAllow}
	case !ok || word != wordDeny:
		return replyError(tasks.ClassInvalidResponse)
	}
	why := ""
	if reason != nil {
		if why, ok = text(reason); !ok {
			return replyError(tasks.ClassInvalidResponse)
		}
	}
	if why == "" {
		why = "Blocked by " + string(phase) + " hook."
	}
	return Reply{Class: tasks.ControlDeny, Reason: why}
}

// text decodes a JSON string; null and everything else is none.
func text(raw json.RawMessage) (string, bool) {
	if raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", false
	}
	return s, true
}

func replyError(class tasks.FailureClass) Reply {
	return Reply{Class: tasks.ControlError, Failure: class}
}
