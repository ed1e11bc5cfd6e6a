package control_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/control"
)

// stuck is a source that answers when nobody wants it any more.
type stuck struct{}

func (stuck) ControlHooks(ctx context.Context, _ string) (json.RawMessage, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Hooks that cannot be read keep nobody waiting beyond the deadline, and permit
// nothing.
func TestASourceThatHangsEndsWithTheQuestion(t *testing.T) {
	t.Parallel()
	c := asker(t, newGround(t).store(t), func(cfg *control.Config) { cfg.Hooks = stuck{} })
	req := request(t)
	req.Chain, req.Timeout = nil, 200*time.Millisecond
	began := time.Now()
	v, err := c.Evaluate(t.Context(), req)
	fails(t, err, context.DeadlineExceeded)
	if took := time.Since(began); took > 2*time.Second || v.Allowed() {
		t.Errorf("it took %v, verdict is %+v", took, v)
	}
}
