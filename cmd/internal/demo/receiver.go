package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

const (
	// slowAnswer is what the slow path takes: long enough to be seen.
	slowAnswer = 300 * time.Millisecond
	// flakyFailures is how often the flaky path fails for each operation.
	flakyFailures = 2
	// receiverPorts is how many ports are tried.
	receiverPorts = 20
	maxBody       = 1 << 20
)

// stream is what must arrive in order: the events of one operation at one hook.
type stream struct {
	operation, hook string
	hookType        tasks.HookType
}

// Receiver is the endpoint of the demonstration's hooks. Start it before use.
type Receiver struct {
	token string
	keys  signature.Keys

	listener net.Listener
	server   *http.Server

	mu sync.Mutex
	// arrived are the ids of the events that were answered 2xx, in order, each once.
	arrived  map[stream][]string
	repeated int
	failed   map[string]int
	refused  int
	decided  int
}

// Secrets are what the receiver checks requests with.
type Secrets struct {
	Token      string
	SigningKey string
}

// StartReceiver listens on address, or on one of the next ports if that is
// taken; port 0 takes any.
func StartReceiver(address string, secrets Secrets) (*Receiver, error) {
	keys, err := signature.ParseKeys(secrets.SigningKey)
	if err != nil {
		return nil, fmt.Errorf("read the demonstration's signing key: %w", err)
	}
	r := &Receiver{token: secrets.Token, keys: keys, arrived: map[stream][]string{}, failed: map[string]int{}}
	if r.listener, err = listen(address); err != nil {
		return nil, fmt.Errorf("listen for the demonstration's receiver: %w", err)
	}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = r.server.Serve(r.listener) }() // ends with Stop
	return r, nil
}

func listen(address string) (net.Listener, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	var l net.Listener
	for next := port; next < port+receiverPorts; next++ {
		l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(next)))
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return l, err
}

// Address is host and port of the receiver.
func (r *Receiver) Address() string { return r.listener.Addr().String() }

// Stop ends the receiver.
func (r *Receiver) Stop(ctx context.Context) error {
	if err := r.server.Shutdown(ctx); err != nil {
		return r.server.Close()
	}
	return nil
}

// serve answers one request and remembers it when the answer is a yes.
func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	var payload struct {
		OperationID string         `json:"operationId"`
		HookID      string         `json:"hookId"`
		HookType    tasks.HookType `json:"hookType"`
		Args        struct {
			Amount string `json:"amount"`
		} `json:"args"`
	}
	if json.Unmarshal(raw, &payload) != nil {
		http.Error(w, "the body is no JSON object", http.StatusBadRequest)
		return
	}
	if strings.HasPrefix(req.URL.Path, "/policy/") {
		r.decide(w, payload.Args.Amount)
		return
	}
	status := r.judge(req, raw, payload.OperationID)
	if status == http.StatusNoContent {
		if strings.HasPrefix(req.URL.Path, "/slow/") {
			pause(req.Context(), slowAnswer)
		}
		r.remember(stream{payload.OperationID, payload.HookID, payload.HookType}, req.Header.Get("Gantry-Task-Id"))
	}
	w.WriteHeader(status)
}

// refundLimit is what the policy lets an agent give away.
const refundLimit = 100

// decide answers as a control: an amount that is too large, or that it does not
// understand, is denied.
func (r *Receiver) decide(w http.ResponseWriter, amount string) {
	r.mu.Lock()
	r.decided++
	r.mu.Unlock()
	decision := map[string]string{"decision": "allow"}
	if value, err := strconv.ParseFloat(amount, 64); amount != "" && (err != nil || !(value <= refundLimit)) {
		decision = map[string]string{"decision": "deny", "reason": fmt.Sprintf("More than %d needs a manager.", refundLimit)}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(decision) // a caller that is gone has no use for it
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// judge picks the status by the path.
func (r *Receiver) judge(req *http.Request, raw []byte, operation string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch path := req.URL.Path; {
	case strings.HasPrefix(path, "/flaky/") && r.failed[operation] < flakyFailures:
		r.failed[operation]++
		return http.StatusServiceUnavailable
	case strings.HasPrefix(path, "/gone/"):
		return http.StatusGone
	case strings.HasPrefix(path, "/signed/") && r.keys.Verify(req.Header, raw, time.Now()) != nil,
		path == "/audit" && req.Header.Get("Authorization") != "Bearer "+r.token:
		r.refused++
		return http.StatusUnauthorized
	}
	return http.StatusNoContent
}

func (r *Receiver) remember(s stream, event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.arrived[s], event) {
		r.repeated++
		return
	}
	r.arrived[s] = append(r.arrived[s], event)
}

// seen returns a copy of what arrived on a stream.
func (r *Receiver) seen(s stream) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrived[s])
}
