package compat

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultKind names a way to misbehave. Its text is the one that the command line
// and the control endpoint take.
type FaultKind string

// The faults of a delivery.
const (
	// FaultDuplicate delivers once more after a success, with the same message id.
	FaultDuplicate FaultKind = "duplicate"
	// FaultConcurrent makes each attempt twice at the same time.
	FaultConcurrent FaultKind = "concurrent"
	// FaultLateSecond does not see the answer to an attempt, although the receiver
	// is let work on: the attempt times out and is retried beside the first.
	FaultLateSecond FaultKind = "late-second"
	// FaultSignNext signs with the next key.
	FaultSignNext FaultKind = "sign-next"
	// FaultUnknownKey signs with a key that nobody knows.
	FaultUnknownKey FaultKind = "unknown-key"
	// FaultExpired sends a signature that expired an hour ago.
	FaultExpired FaultKind = "expired"
	// FaultFutureNBF sends a signature that holds in an hour only.
	FaultFutureNBF FaultKind = "future-nbf"
	// FaultWrongSubject signs for another URL.
	FaultWrongSubject FaultKind = "wrong-sub"
	// FaultUnpaddedHash leaves the padding of the body's hash out; it is there
	// otherwise.
	FaultUnpaddedHash FaultKind = "unpadded-hash"
)

// The faults of a publish, an enqueue or a batch.
const (
	// FaultDropped accepts, and closes the connection instead of an answer.
	FaultDropped FaultKind = "dropped"
	// FaultDeduplicated answers 202 as for a duplicate, and accepts nothing.
	FaultDeduplicated FaultKind = "deduplicated"
	// FaultBurstLimit answers 429 with the headers of the burst limit.
	FaultBurstLimit FaultKind = "429-burst"
	// FaultDailyLimit answers 429 with the headers of the daily quota.
	FaultDailyLimit FaultKind = "429-daily"
	// FaultPlanLimit answers 412.
	FaultPlanLimit FaultKind = "412"
	// FaultServerError answers 500 with an error in JSON.
	FaultServerError FaultKind = "500"
	// FaultBadGateway answers 502 with a page of HTML, as a proxy does.
	FaultBadGateway FaultKind = "502-html"
	// FaultPartialBatch accepts a batch without its last item, which gets an error.
	FaultPartialBatch FaultKind = "partial-batch"
	// FaultLoopback refuses destinations on this machine, as the hosted service
	// does.
	FaultLoopback FaultKind = "loopback"
)

var deliveryFaults = []FaultKind{
	FaultDuplicate, FaultConcurrent, FaultLateSecond, FaultSignNext, FaultUnknownKey, FaultExpired, FaultFutureNBF,
	FaultWrongSubject, FaultUnpaddedHash,
}

// refusalFaults refuse a call as a whole, in the order in which they are looked
// at.
var refusalFaults = []FaultKind{
	FaultBadGateway, FaultServerError, FaultPlanLimit, FaultDailyLimit, FaultBurstLimit, FaultLoopback, FaultDeduplicated,
}

// FaultKinds returns every kind of fault, for a command's help.
func FaultKinds() []FaultKind {
	return slices.Concat(deliveryFaults, refusalFaults, []FaultKind{FaultPartialBatch, FaultDropped})
}

// Fault is one misbehaviour to come.
type Fault struct {
	// Kind says what goes wrong; the zero value is refused.
	Kind FaultKind `json:"kind"`
	// Times is how often it goes wrong; 0 means until the faults are cleared.
	Times int `json:"times,omitempty"`
	// URL restricts the fault to destinations that contain this text; "" means all.
	URL string `json:"url,omitempty"`
}

// ParseFault reads a fault as a command line has it: a kind, or kind=times.
func ParseFault(text string) (Fault, error) {
	kind, times, counted := strings.Cut(text, "=")
	f := Fault{Kind: FaultKind(kind)}
	if counted {
		n, err := strconv.Atoi(times)
		if err != nil || n < 1 {
			return Fault{}, fmt.Errorf("read fault %q: want a kind, or kind=times", text)
		}
		f.Times = n
	}
	return f, f.validate()
}

func (f Fault) validate() error {
	if !slices.Contains(FaultKinds(), f.Kind) {
		return fmt.Errorf("read fault: unknown kind %q", f.Kind)
	}
	if f.Times < 0 {
		return fmt.Errorf("read fault %s: times is below 0", f.Kind)
	}
	return nil
}

// faultSet holds what goes wrong with one attempt or one call.
type faultSet map[FaultKind]bool

// Inject arms faults. They come on top of those that are armed already; nothing
// is armed when one is invalid.
func (s *Server) Inject(faults ...Fault) error {
	for _, f := range faults {
		if err := f.validate(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
	return nil
}

// ClearFaults disarms every fault.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Faults returns what is armed, with the times that are left.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// takeFault uses up one time of an armed fault that concerns one of the
// destinations, and reports whether there was one. s.mu is held.
func (s *Server) takeFault(kind FaultKind, destinations ...string) bool {
	i := slices.IndexFunc(s.faults, func(f Fault) bool {
		return f.Kind == kind &&
			slices.ContainsFunc(destinations, func(d string) bool { return strings.Contains(d, f.URL) })
	})
	if i < 0 {
		return false
	}
	switch s.faults[i].Times {
	case 0: // until cleared
	case 1:
		s.faults = slices.Delete(s.faults, i, i+1)
	default:
		s.faults[i].Times--
	}
	return true
}

// takeDeliveryFaults uses up what goes wrong with one attempt. s.mu is held.
func (s *Server) takeDeliveryFaults(destination string) faultSet {
	taken := faultSet{}
	for _, kind := range deliveryFaults {
		if s.takeFault(kind, destination) {
			taken[kind] = true
		}
	}
	return taken
}

// takeRefusal uses up the first fault that refuses a call to the destinations;
// "" is none. s.mu is held.
func (s *Server) takeRefusal(destinations ...string) FaultKind {
	for _, kind := range refusalFaults {
		if kind == FaultLoopback && !slices.ContainsFunc(destinations, isLoopback) {
			continue
		}
		if s.takeFault(kind, destinations...) {
			return kind
		}
	}
	return ""
}

// isLoopback reports whether a destination names this machine as it is spelled.
func isLoopback(destination string) bool {
	parsed, err := url.Parse(destination)
	if err != nil {
		return false
	}
	host := parsed.Hostname()
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

// replyFault answers a call as a refusal fault has it.
func replyFault(w http.ResponseWriter, kind FaultKind, now time.Time) {
	switch kind {
	case FaultBadGateway:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"))
	case FaultServerError:
		reply(w, http.StatusInternalServerError, errorBody{"internal error"})
	case FaultPlanLimit:
		reply(w, http.StatusPreconditionFailed, errorBody{"a limit of the plan is reached"})
	case FaultDailyLimit:
		limit(w, "RateLimit-", "1000", now.Add(day))
		reply(w, http.StatusTooManyRequests, errorBody{"daily quota exceeded"})
	case FaultBurstLimit:
		limit(w, "Burst-RateLimit-", "100", now.Add(time.Second))
		reply(w, http.StatusTooManyRequests, errorBody{"burst rate limit exceeded"})
	case FaultLoopback:
		replyError(w, badRequest("invalid destination url: endpoint resolves to a loopback address: ::1"))
	case FaultDeduplicated:
		reply(w, http.StatusAccepted, accepted{MessageID: newID(messagePrefix), Deduplicated: true})
	}
}

func limit(w http.ResponseWriter, prefix, count string, reset time.Time) {
	w.Header().Set(prefix+"Limit", count)
	w.Header().Set(prefix+"Remaining", "0")
	w.Header().Set(prefix+"Reset", strconv.FormatInt(reset.Unix(), 10))
}

// serveFaults is the control endpoint: GET lists what is armed, POST arms one
// fault or a list of them, DELETE disarms all. It answers with what is armed.
func (s *Server) serveFaults(w http.ResponseWriter, r *http.Request) error {
	switch r.Method {
	case http.MethodGet:
	case http.MethodDelete:
		s.ClearFaults()
	case http.MethodPost:
		raw, err := s.readBody(w, r, s.maxBody)
		if err != nil {
			return err
		}
		var faults []Fault
		if err := json.Unmarshal(raw, &faults); err != nil {
			faults = make([]Fault, 1)
			if err := json.Unmarshal(raw, &faults[0]); err != nil {
				return badRequest("invalid faults: %v", err)
			}
		}
		if err := s.Inject(faults...); err != nil {
			return badRequest("%v", err)
		}
	default:
		return errMethod
	}
	reply(w, http.StatusOK, map[string][]Fault{"faults": append([]Fault{}, s.Faults()...)})
	return nil
}
