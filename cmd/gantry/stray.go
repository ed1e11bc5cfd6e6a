package main

import (
	"bytes"

	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/tasks"
)

// strayLines turns what libraries write to the process-wide log into lines of
// ours, so that a collector can read every line of the process.
type strayLines struct{ log logrus.FieldLogger }

// unsolicited starts a line in which net/http quotes bytes that a receiver sent
// without being asked. They are a stranger's words, and no log of ours repeats
// those.
var unsolicited = []byte("Unsolicited response received on idle HTTP channel")

// Write takes one line.
func (s strayLines) Write(line []byte) (int, error) {
	if bytes.HasPrefix(line, unsolicited) {
		s.log.Debug("process.unsolicited_reply")
	} else {
		s.log.WithField(tasks.LogMessage, string(bytes.TrimSpace(line))).Warn("process.library")
	}
	return len(line), nil
}
