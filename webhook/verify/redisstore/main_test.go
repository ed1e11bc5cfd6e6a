package redisstore_test

import (
	"os"
	"testing"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

// asReceiver makes the test binary behave as a receiver that dies in the middle
// of its work.
const asReceiver = "TEST_BINARY_IS_RECEIVER_AT"

func TestMain(m *testing.M) {
	if address := os.Getenv(asReceiver); address != "" {
		os.Exit(runReceiver(address))
	}
	servertest.Main(m)
}
