package bench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// runSink runs a sink in this process and returns a way to talk to it.
func runSink(t *testing.T) *sinkProcess {
	t.Helper()
	in, end := io.Pipe()
	read, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- RunSink(in, out) }()
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Errorf("sink ended with %v", err)
		}
	})
	return &sinkProcess{base: "http://" + strings.TrimSpace(line), http: http.DefaultClient}
}

func (p *sinkProcess) send(t *testing.T, path string, step int) int {
	t.Helper()
	body := fmt.Sprintf(`{"operationId":"op-1","stepIndex":%d}`, step)
	resp, err := p.http.Post(p.base+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestSinkSeesOrder(t *testing.T) {
	t.Parallel()
	p := runSink(t)
	if err := p.reset(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	// 1 comes after 2: one inversion; 3 comes twice: one repeat.
	for _, step := range []int{0, 2, 1, 3, 3} {
		if code := p.send(t, "/hook", step); code != http.StatusNoContent {
			t.Errorf("step %d: status %d", step, code)
		}
	}
	stats, err := p.wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Delivered != 4 || stats.Inversions != 1 || stats.Repeats != 1 || stats.Requests != 5 {
		t.Errorf("stats = %+v, want 4 delivered, 1 inversion, 1 repeat, 5 requests", stats)
	}
}

func TestSinkFailsSomeEventsOnce(t *testing.T) {
	t.Parallel()
	p := runSink(t)
	if err := p.reset(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for step := range 1000 {
		for p.send(t, "/hook?fail=1", step) != http.StatusNoContent {
			failed++
		}
	}
	stats, err := p.wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if failed == 0 || failed > 40 {
		t.Errorf("%d of 1000 failed, want about one in a hundred", failed)
	}
	if stats.Requests != 1000+failed || stats.Inversions != 0 {
		t.Errorf("stats = %+v, want each failed event repeated once, in order", stats)
	}
}

func TestSinkMeasuresHowLongOperationsStoodStill(t *testing.T) {
	t.Parallel()
	p := runSink(t)
	if err := p.reset(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	p.send(t, "/hook", 0)
	if err := p.call(t.Context(), http.MethodPost, "/mark", nil); err != nil {
		t.Fatal(err)
	}
	stats, err := p.stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.ResumedMS != -1 {
		t.Errorf("resumed after %v ms before anything came, want -1", stats.ResumedMS)
	}
	p.send(t, "/hook", 1)
	if stats, err = p.stats(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stats.ResumedMS <= 0 {
		t.Errorf("resumed after %v ms, want a positive time", stats.ResumedMS)
	}
}

func TestGateHoldsAndLetsPass(t *testing.T) {
	t.Parallel()
	p := runSink(t)
	state := func() (g gateState) {
		t.Helper()
		if err := p.call(t.Context(), http.MethodGet, "/gate/state", &g); err != nil {
			t.Fatal(err)
		}
		return g
	}
	do := func(what string) {
		t.Helper()
		if err := p.call(t.Context(), http.MethodPost, "/gate/"+what, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/allow", "/gate"} {
		if code := p.send(t, path, 1); code != http.StatusOK {
			t.Errorf("%s is answered %d", path, code)
		}
	}
	do("shut")
	passed := make(chan int, 1)
	go func() { passed <- p.send(t, "/gate", 1) }()
	for state().Waiting == 0 {
	}
	select {
	case code := <-passed:
		t.Fatalf("the gate is shut, and answers %d", code)
	default:
	}
	if got := state(); got != (gateState{Waiting: 1, Arrived: 1}) {
		t.Errorf("state is %+v", got)
	}
	do("open")
	do("open")
	if code := <-passed; code != http.StatusOK {
		t.Errorf("the gate answers %d", code)
	}
}
