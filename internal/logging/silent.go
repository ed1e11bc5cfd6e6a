package logging

import (
	"io"

	"github.com/sirupsen/logrus"
)

// Silent returns a logger for a Config without one. It discards every line, and
// says so by its level, so that whoever asks for that formats none.
func Silent() logrus.FieldLogger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.PanicLevel)
	return log
}
