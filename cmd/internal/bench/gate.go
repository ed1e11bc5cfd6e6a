package bench

import (
	"encoding/json"
	"net/http"
	"sync"

	"github.com/valyala/fasthttp"
)

// gate holds requests at the sink until it is opened. It starts open.
type gate struct {
	mu     sync.Mutex
	passed chan struct{}
	// waiting are the requests that stand at the gate now, arrived all since it was
	// shut.
	waiting, arrived int
}

// gateState is what the gate knows of itself.
type gateState struct {
	Waiting int `json:"waiting"`
	Arrived int `json:"arrived"`
}

func newGate() *gate {
	g := &gate{passed: make(chan struct{})}
	close(g.passed)
	return g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed, g.arrived = make(chan struct{}), 0
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.passed:
	default:
		close(g.passed)
	}
}

// pass waits until the gate is open.
func (g *gate) pass() {
	g.mu.Lock()
	passed := g.passed
	g.waiting++
	g.arrived++
	g.mu.Unlock()
	<-passed
	g.mu.Lock()
	g.waiting--
	g.mu.Unlock()
}

func (g *gate) serve(ctx *fasthttp.RequestCtx) {
	g.mu.Lock()
	state := gateState{Waiting: g.waiting, Arrived: g.arrived}
	g.mu.Unlock()
	if err := json.NewEncoder(ctx).Encode(state); err != nil {
		ctx.SetStatusCode(http.StatusInternalServerError)
	}
}

// allow answers as a control does.
func allow(ctx *fasthttp.RequestCtx) {
	ctx.SetContentType("application/json")
	ctx.SetBodyString(`{"decision":"allow"}`)
}
