package enrich_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// What the composition root plugs together.
var (
	_ webhook.Payloads = (*enrich.Builder)(nil)
	_ enrich.Doer      = (*egress.Client)(nil)
	_ enrich.Directory = (*enrich.Postgres)(nil)
	_ enrich.Directory = (*enrich.HTTP)(nil)
	_ enrich.Directory = (*enrich.File)(nil)
)

var errDirectory = errors.New("directory is down")

// directory answers from a function and remembers whom it was asked about.
type directory struct {
	mu     sync.Mutex
	asked  []string
	answer func(ctx context.Context, userID string) (string, bool, error)
}

func (d *directory) Email(ctx context.Context, userID string) (string, bool, error) {
	d.mu.Lock()
	d.asked = append(d.asked, userID)
	d.mu.Unlock()
	return d.answer(ctx, userID)
}

// taken returns the questions since the last call.
func (d *directory) taken() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := d.asked
	d.asked = nil
	return asked
}

// corp knows ada and owner; blank has an empty email, and nobody else has one.
func corp(_ context.Context, userID string) (string, bool, error) {
	switch userID {
	case "u-ada", "u-owner":
		return userID[2:] + "@corp.test", true, nil
	case "u-blank":
		return "", true, nil
	}
	return "", false, nil
}
