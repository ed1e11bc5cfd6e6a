package compat

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/gantry-hooks/gantry/webhook/egress"
)

// Defaults of Config.
const (
	// DefaultMaxBodyBytes is the size of a message on the free plan.
	DefaultMaxBodyBytes = 1 << 20
	// DefaultMaxTimeout is how long a receiver may take on the free plan.
	DefaultMaxTimeout = 15 * time.Minute
	// DefaultParallelism is the number of attempts at a time.
	DefaultParallelism = 100
	// DefaultRegion is what the Upstash-Region header says.
	DefaultRegion = "EU-CENTRAL-1"
)

const (
	// dedupWindow is how long a deduplication id is remembered.
	dedupWindow = 10 * time.Minute
	// A batch may be so many times as large as a message.
	batchBodies = 100
	maxDedupIDs = 10_000
	// What is pending is bounded in number and in size.
	maxPending      = 10_000
	maxPendingBytes = 256 << 20
	maxQueues       = 10_000
)

// Keys are the two keys that sign deliveries.
type Keys struct {
	// Current signs; Next will, after a rotation. Both are needed.
	Current, Next string
}

// Clock tells the time and calls back. The zero Config uses the system's.
type Clock interface {
	// Now returns the time.
	Now() time.Time
	// AfterFunc calls f in a goroutine of its own once d is over, unless stop is
	// called before; stop reports whether it came in time.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Doer sends one request and follows no redirect; *egress.Client is one.
type Doer interface {
	Do(req *http.Request) (*http.Response, error)
}

// Config says how a server behaves. Token and Keys are needed.
type Config struct {
	// Token is the bearer token of every call.
	Token string
	// Keys sign the deliveries.
	Keys Keys
	// Egress sends the deliveries; nil means a client of the server's own that
	// reaches every address, loopback included, since developers' receivers are
	// there. Whoever can reach the server can then reach what it can.
	Egress Doer
	// Clock is the source of time and timers; nil means the system's.
	Clock Clock
	// Speed divides delays, waits before retries and the periods of rate limits, so
	// that a day passes in seconds; 0 means 1. Signatures, timeouts of requests, the
	// deduplication window and the retention of dead letters keep their time.
	Speed float64
	// MaxBodyBytes bounds the body of a message; 0 means DefaultMaxBodyBytes.
	MaxBodyBytes int64
	// MaxTimeout bounds each attempt; 0 means DefaultMaxTimeout. A message can
	// shorten it only.
	MaxTimeout time.Duration
	// Parallelism bounds the attempts at a time, over all messages; 0 means
	// DefaultParallelism.
	Parallelism int
	// Region is the value of the Upstash-Region header; "" means DefaultRegion.
	Region string
	// OnAttempt hears of each attempt once it is judged and before anything follows
	// from it; nil means nobody does. It is called by several goroutines at a time.
	OnAttempt func(Attempt)
}

// Server is the HTTP handler of the API and the sender of what it accepts. It
// must be made by New, and be closed.
type Server struct {
	token       string
	egress      Doer
	clock       Clock
	speed       float64
	maxBody     int64
	maxTimeout  time.Duration
	parallelism int
	region      string
	onAttempt   func(Attempt)

	// ctx ends attempts at Close; running counts them.
	ctx       context.Context
	end       context.CancelFunc
	running   sync.WaitGroup
	closeSend func()

	mu       sync.Mutex
	closed   bool
	keys     Keys
	messages map[string]*message // pending ones
	quiet    chan struct{}       // closed when messages becomes empty
	// pendingBytes is the size of the bodies of the pending messages.
	pendingBytes int

	queues  map[string]*queue
	topics  map[string]*topic
	flows   map[string]*flow
	active  int
	backlog []*message
	dead    []*deadLetter // the oldest first
	events  []event       // the oldest first
	logged  int64
	seen    map[string]sighting
	faults  []Fault
}

// New returns a server without messages, or an error about cfg.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.Token == "":
		return nil, errors.New("check the QStash server: no token")
	case cfg.Keys.Current == "" || cfg.Keys.Next == "":
		return nil, errors.New("check the QStash server: two signing keys are needed")
	case cfg.Speed < 0 || cfg.Parallelism < 0 || cfg.MaxBodyBytes < 0 || cfg.MaxTimeout < 0:
		return nil, errors.New("check the QStash server: a bound is below 0")
	}
	s := &Server{
		token: cfg.Token, egress: cfg.Egress, clock: cfg.Clock, speed: cmp.Or(cfg.Speed, 1),
		maxBody: cmp.Or(cfg.MaxBodyBytes, DefaultMaxBodyBytes), maxTimeout: cmp.Or(cfg.MaxTimeout, DefaultMaxTimeout),
		parallelism: cmp.Or(cfg.Parallelism, DefaultParallelism), region: cmp.Or(cfg.Region, DefaultRegion),
		onAttempt: cfg.OnAttempt, keys: cfg.Keys, closeSend: func() {},
		messages: map[string]*message{}, queues: map[string]*queue{}, topics: map[string]*topic{},
		flows: map[string]*flow{}, seen: map[string]sighting{},
	}
	if s.clock == nil {
		s.clock = systemClock{}
	}
	if s.egress == nil {
		client, err := egress.New(egress.Config{Policy: egress.Trusted()})
		if err != nil {
			return nil, err
		}
		s.egress, s.closeSend = client, client.Close
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s, nil
}

// Close ends what is under way and waits for it. What was not delivered is lost.
// Calls that come later get 503. Close may be called again.
func (s *Server) Close() {
	s.locked(func() {
		s.closed = true
		for _, m := range s.messages {
			if m.stop != nil {
				m.stop()
			}
		}
		for _, f := range s.flows {
			if f.wake != nil {
				f.wake()
			}
		}
	})
	s.end()
	s.running.Wait()
	s.closeSend()
}

// systemClock is the clock of the machine.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

func (s *Server) now() time.Time { return s.clock.Now() }

// scaled is how long a wait really takes.
func (s *Server) scaled(wait time.Duration) time.Duration {
	return time.Duration(float64(wait) / s.speed)
}

func (s *Server) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

var (
	errToken  = refuse(http.StatusUnauthorized, "unable to authenticate: invalid token")
	errRoute  = notFound("no such endpoint")
	errMethod = refuse(http.StatusMethodNotAllowed, "method not allowed")
	errClosed = refuse(http.StatusServiceUnavailable, "the server is ending")
	errQueues = refuse(http.StatusPreconditionFailed, "there are too many queues")
)

// ServeHTTP answers one call of the API. It must be the handler itself: a router
// before it would clean the destination in the path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target := r.RequestURI
	if target == "" {
		target = r.URL.RequestURI() // a request that no server has read
	}
	rt, err := parseRoute(target)
	if !s.authorized(r, rt.token) {
		err = errToken
	}
	if err == nil {
		err = s.serve(w, r, rt)
	}
	if err != nil {
		replyError(w, err)
	}
}

// authorized compares the token of a call, without telling by its time how much
// of it was right.
func (s *Server) authorized(r *http.Request, param string) bool {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		token = param
	}
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt route) error {
	if s.ctx.Err() != nil {
		return errClosed
	}
	if rt.kind != "" {
		if r.Method != http.MethodPost {
			return errMethod
		}
		return s.servePublish(w, r, rt)
	}
	parts := rt.segments()
	if parts[0] == "_faults" && len(parts) == 1 {
		return s.serveFaults(w, r)
	}
	if parts[0] != "v2" || len(parts) < 2 {
		return errRoute
	}
	return s.serveEndpoint(w, r, parts[1:])
}

// serveEndpoint answers the calls below /v2 that are no publish.
func (s *Server) serveEndpoint(w http.ResponseWriter, r *http.Request, parts []string) error {
	rest := parts[1:]
	switch parts[0] {
	case "messages":
		return s.serveMessages(w, r, rest)
	case "queues":
		return s.serveQueues(w, r, rest)
	case "topics":
		return s.serveTopics(w, r, rest)
	case "dlq":
		return s.serveDLQ(w, r, rest)
	case "schedules":
		return refuse(http.StatusNotImplemented, "schedules are not imitated")
	}
	if len(rest) > 0 && (parts[0] != "keys" || rest[0] != "rotate") && parts[0] != "flowControl" {
		return errRoute
	}
	switch parts[0] {
	case "batch":
		if r.Method != http.MethodPost {
			return errMethod
		}
		return s.serveBatch(w, r)
	case "events", "logs":
		if r.Method != http.MethodGet {
			return errMethod
		}
		return s.serveEvents(w, r, parts[0])
	case "keys":
		return s.serveKeys(w, r, len(rest) > 0)
	case "rotate":
		return s.serveKeys(w, r, true)
	case "flowControl":
		return s.serveFlow(w, r, rest)
	}
	return errRoute
}

// serveKeys shows the signing keys, or rolls them: next becomes current, and a
// new next is drawn.
func (s *Server) serveKeys(w http.ResponseWriter, r *http.Request, rotate bool) error {
	if rotate != (r.Method == http.MethodPost) || !rotate && r.Method != http.MethodGet {
		return errMethod
	}
	var keys Keys
	s.locked(func() {
		if rotate {
			s.keys = Keys{Current: s.keys.Next, Next: newID(keyPrefix)}
		}
		keys = s.keys
	})
	reply(w, http.StatusOK, map[string]string{"current": keys.Current, "next": keys.Next})
	return nil
}

// readBody reads the body of a call, up to most bytes.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, errTooLarge(most)
	}
	if err != nil {
		return nil, badRequest("read the body: %v", err)
	}
	return body, nil
}

func errTooLarge(most int64) error {
	return refuse(http.StatusRequestEntityTooLarge, "the message is larger than %d bytes", most)
}

// readJSON reads the body of a call into v.
func (s *Server) readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := s.readBody(w, r, s.maxBody)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return badRequest("invalid body: %v", err)
	}
	return nil
}

// bulkQuery returns the parameters of a bulk call. The ids may stand in the query
// or in a body; a list of ids that is there but empty is refused, because the
// call without ids means everything.
func (s *Server) bulkQuery(w http.ResponseWriter, r *http.Request, ids string) (url.Values, error) {
	query := r.URL.Query()
	raw, err := s.readBody(w, r, s.maxBody)
	if err != nil || len(raw) == 0 {
		return query, err
	}
	var body map[string][]string
	if err := json.Unmarshal(raw, &body); err != nil {
		return nil, badRequest("invalid body: %v", err)
	}
	for name, values := range body {
		if name != ids {
			return nil, badRequest("unknown field %q", name)
		}
		if len(values) == 0 {
			return nil, badRequest("%s is empty", ids)
		}
		query[ids] = append(query[ids], values...)
	}
	return query, nil
}

// callerIP returns the address of the caller without its port.
func callerIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
