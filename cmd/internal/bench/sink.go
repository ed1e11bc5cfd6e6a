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
}

func newSink() *sink {
	s := &sink{}
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
// It is the body of the sink's own process.
func RunSink(in io.Reader, out io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s := newSink()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook", s.hook)
	mux.HandleFunc("POST /slow", s.slow)
	mux.HandleFunc("POST /hang", hang)
	mux.HandleFunc("POST /mark", s.handleMark)
	mux.HandleFunc("POST /reset", s.handleReset)
	mux.HandleFunc("GET /stats", s.handleStats)
	server := &http.Server{Handler: mux}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		_ = server.Close()
	}()
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	if err := server.Serve(l); err != nil && err != http.ErrServerClosed {
		return err
	}
	return nil
}

// hang answers after 30 seconds, or never when the client leaves.
func hang(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	t := time.NewTimer(30 * time.Second)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
	w.WriteHeader(http.StatusGatewayTimeout)
}

// slow answers as hook does, 20 ms later.
func (s *sink) slow(w http.ResponseWriter, r *http.Request) {
	t := time.NewTimer(20 * time.Millisecond)
	defer t.Stop()
	<-t.C
	s.hook(w, r)
}

func (s *sink) hook(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	at := time.Now()
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	op := stringField(body, `"operationId":"`)
	step := int(numberField(body, `"stepIndex":`))
	sent := numberField(body, `"elapsedMs":`)
	if s.record(arrival{op: op, step: step, sent: sent, at: at, failing: r.URL.RawQuery == "fail=1"}) {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
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

func (s *sink) handleReset(w http.ResponseWriter, r *http.Request) {
	want, _ := strconv.Atoi(r.URL.Query().Get("want"))
	s.reset(want)
	w.WriteHeader(http.StatusNoContent)
}

func (s *sink) handleMark(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marked = time.Now()
	w.WriteHeader(http.StatusNoContent)
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

// handleStats answers at once, or with ?wait=1 when all wanted events arrived.
func (s *sink) handleStats(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery == "wait=1" {
		s.mu.Lock()
		reached := s.reached
		s.mu.Unlock()
		select {
		case <-reached:
		case <-r.Context().Done():
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.marked.IsZero() {
		s.stats.ResumedMS = s.resumedMS()
	}
	_ = json.NewEncoder(w).Encode(s.stats)
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
