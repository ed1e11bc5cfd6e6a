package qstash_test

import (
	"io"
	"log"
	"testing"

	"go.uber.org/goleak"
)

// quiet takes what test servers say about broken handshakes.
var quiet = log.New(io.Discard, "", 0)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
