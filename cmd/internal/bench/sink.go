package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// SinkStats is what the sink saw since its last reset.
type SinkStats struct {
	// Requests counts all, Delivered the events that were answered 2xx at least
	// once, Repeats those answered 2xx again.
	Requests  int `json:"requests"`
	Delivered int `json:"delivered"`
	Repeats   int `json:"repeats"`
	// Inversions counts first deliveries that came after a later event of the same
	// operation.
	Inversions int `json:"inversions"`
	// LastAt is the Unix time in nanoseconds of the last request.
	LastAt int64 `json:"lastAt"`
	// ResumedMS is the longest time from the mark to the next arrival, over all
	// operations that were not complete at the mark; -1 while one has none.
	ResumedMS float64 `json:"resumedMs"`
	// Latencies are milliseconds from the event's sentAt to its arrival, when asked for.
	Latencies map[string][]float64 `json:"latencies,omitempty"`
}

// sink is an HTTP receiver that checks order. It understands events with
// operationId, stepIndex (from 0) and elapsedMs (the sending time in Unix
// microseconds; 0 for none).
type sink struct {
	mu         sync.Mutex
	stats      SinkStats
	next       map[string]int
	seen       map[string]map[int]bool
	failedOnce map[string]bool
	want       int
	reached    chan struct{}
	// marked is when the mark was set; resumed holds each operation's first arrival
	// after it.
	marked  time.Time
	resumed map[string]time.Time
	gate    *gate
}

func newSink() *sink {
	s := &sink{gate: newGate()}
	s.reset(0)
	return s
}

func (s *sink) reset(want int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats = SinkStats{Latencies: map[string][]float64{}}
	s.next, s.seen, s.failedOnce = map[string]int{}, map[string]map[int]bool{}, map[string]bool{}
	s.want, s.reached = want, make(chan struct{})
	s.marked, s.resumed = time.Time{}, map[string]time.Time{}
}

// RunSink serves a sink until standard input ends, and prints its address first.
// It is the body of the sink's own process. It is as light as an HTTP server can
// be, because what it costs is the same for every contender and hides what they
// cost.
func RunSink(in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s := newSink()
	server := &fasthttp.Server{Handler: s.serve, NoDefaultServerHeader: true, NoDefaultDate: true, Concurrency: 10_000}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(ended)
	}()
	select {
	case err := <-failed:
		return err
	case <-ended:
		return l.Close()
	}
}

func (s *sink) serve(ctx *fasthttp.RequestCtx) {
	switch string(ctx.Path()) {
	case "/hook":
		s.hook(ctx)
	case "/slow":
		pause(20 * time.Millisecond)
		s.hook(ctx)
	case "/hang":
		pause(30 * time.Second)
		ctx.SetStatusCode(http.StatusGatewayTimeout)
	case "/sluggish":
		pause(500 * time.Millisecond)
		s.hook(ctx)
	case "/allow":
		allow(ctx)
	case "/gate":
		s.gate.pass()
		allow(ctx)
	case "/gate/shut":
		s.gate.shut()
	case "/gate/open":
		s.gate.open()
	case "/gate/state":
		s.gate.serve(ctx)
	case "/mark":
		s.mark()
	case "/reset":
		s.reset(ctx.QueryArgs().GetUintOrZero("want"))
	case "/stats":
		s.serveStats(ctx)
	default:
		ctx.SetStatusCode(http.StatusNotFound)
	}
}

func pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

func (s *sink) hook(ctx *fasthttp.RequestCtx) {
	body := ctx.PostBody()
	a := arrival{
		op: stringField(body, `"operationId":"`), step: int(numberField(body, `"stepIndex":`)),
		sent: numberField(body, `"elapsedMs":`), at: time.Now(), failing: string(ctx.URI().QueryString()) == "fail=1",
	}
	if s.record(a) {
		ctx.SetStatusCode(http.StatusInternalServerError)
		return
	}
	ctx.SetStatusCode(http.StatusNoContent)
}

// arrival is one request as the sink read it.
type arrival struct {
	op      string
	step    int
	sent    int64
	at      time.Time
	failing bool
}

// record counts the arrival and reports whether it must fail: one event in a
// hundred does, once.
func (s *sink) record(a arrival) (fail bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Requests++
	s.stats.LastAt = a.at.UnixNano()
	if a.failing {
		id := a.op + "#" + strconv.Itoa(a.step)
		h := fnv.New32a()
		_, _ = h.Write([]byte(id))
		if h.Sum32()%100 == 0 && !s.failedOnce[id] {
			s.failedOnce[id] = true
			return true
		}
	}
	if _, ok := s.resumed[a.op]; !ok && !s.marked.IsZero() {
		s.resumed[a.op] = a.at
	}
	seen := s.seen[a.op]
	if seen == nil {
		seen = map[int]bool{}
		s.seen[a.op] = seen
	}
	if seen[a.step] {
		s.stats.Repeats++
		return false
	}
	seen[a.step] = true
	if a.step < s.next[a.op] {
		s.stats.Inversions++
	} else {
		s.next[a.op] = a.step + 1
	}
	if a.sent > 0 {
		group, _, _ := strings.Cut(a.op, "-")
		s.stats.Latencies[group] = append(s.stats.Latencies[group], float64(a.at.UnixMicro()-a.sent)/1000)
	}
	s.stats.Delivered++
	if s.stats.Delivered == s.want {
		close(s.reached)
	}
	return false
}

func (s *sink) mark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked = time.Now()
}

// resumedMS is the time that the slowest operation took to move again.
func (s *sink) resumedMS() float64 {
	var longest time.Duration
	for op := range s.seen {
		at, ok := s.resumed[op]
		if !ok {
			return -1
		}
		longest = max(longest, at.Sub(s.marked))
	}
	return longest.Seconds() * 1000
}

// serveStats answers at once, or with ?wait=1 when all wanted events arrived.
func (s *sink) serveStats(ctx *fasthttp.RequestCtx) {
	if ctx.QueryArgs().Has("wait") {
		s.mu.Lock()
		reached := s.reached
		s.mu.Unlock()
		<-reached
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.marked.IsZero() {
		s.stats.ResumedMS = s.resumedMS()
	}
	if err := json.NewEncoder(ctx).Encode(s.stats); err != nil {
		ctx.SetStatusCode(http.StatusInternalServerError)
	}
}

func stringField(body []byte, key string) string {
	i := bytes.Index(body, []byte(key))
	if i < 0 {
		return ""
	}
	rest := body[i+len(key):]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		return ""
	}
	return string(rest[:end])
}

func numberField(body []byte, key string) int64 {
	i := bytes.Index(body, []byte(key))
	if i < 0 {
		return 0
	}
	var n int64
	for _, c := range body[i+len(key):] {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// sinkProcess is a sink in a process of its own.
type sinkProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	base  string
	http  *http.Client
}

// startSink runs this program again as a sink.
func startSink(ctx context.Context) (*sinkProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.Command(self, "bench", "sink")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start sink: %w", err)
	}
	p := &sinkProcess{cmd: cmd, stdin: stdin, http: &http.Client{}}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("read sink address: %w", err)
	}
	p.base = "http://" + strings.TrimSpace(line)
	return p, nil
}

func (p *sinkProcess) stop() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

func (p *sinkProcess) reset(ctx context.Context, want int) error {
	return p.call(ctx, http.MethodPost, "/reset?want="+strconv.Itoa(want), nil)
}

// wait returns the stats once all wanted events arrived, or an error with what
// did arrive.
func (p *sinkProcess) wait(ctx context.Context) (SinkStats, error) {
	var s SinkStats
	err := p.call(ctx, http.MethodGet, "/stats?wait=1", &s)
	if err != nil {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if e := p.call(short, http.MethodGet, "/stats", &s); e == nil {
			return s, fmt.Errorf("only %d events arrived: %w", s.Delivered, err)
		}
	}
	return s, err
}

func (p *sinkProcess) stats(ctx context.Context) (SinkStats, error) {
	var s SinkStats
	err := p.call(ctx, http.MethodGet, "/stats", &s)
	return s, err
}

func (p *sinkProcess) call(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.base+path, nil)
	if err != nil {
		return err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
