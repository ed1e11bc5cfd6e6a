package compat

import (
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The headers of a publish that say how to deliver.
const (
	headerMethod          = "Upstash-Method"
	headerRetries         = "Upstash-Retries"
	headerRetryDelay      = "Upstash-Retry-Delay"
	headerDelay           = "Upstash-Delay"
	headerNotBefore       = "Upstash-Not-Before"
	headerTimeout         = "Upstash-Timeout"
	headerCallback        = "Upstash-Callback"
	headerFailureCallback = "Upstash-Failure-Callback"
	headerDedupID         = "Upstash-Deduplication-Id"
	headerContentDedup    = "Upstash-Content-Based-Deduplication"
	headerFlowKey         = "Upstash-Flow-Control-Key"
	headerFlowValue       = "Upstash-Flow-Control-Value"
	headerLabel           = "Upstash-Label"
	headerForwardAll      = "Upstash-Header-Forward"
	headerForward         = "Upstash-Forward-"
	headerUpstash         = "Upstash-"
)

const (
	defaultRetries = 3
	// maxRetries is the greatest number of retries that a public account showed.
	maxRetries = 999
)

// options say how a message is delivered.
type options struct {
	// source are the headers that the options were read from, so that a retry from
	// the DLQ can override single ones.
	source      http.Header
	method      string
	retries     int
	retryDelay  expression
	delay       time.Duration
	notBefore   time.Time
	timeout     time.Duration // 0 means the server's maximum
	dedupID     string
	byContent   bool
	flow        *flowLimit
	labels      []string
	contentType string
	forward     http.Header

	callback, failureCallback *callbackOptions
}

// callbackOptions say where and how the outcome of a message is reported.
type callbackOptions struct {
	url     string
	options options
}

// flowLimit is what a message says about its flow-control key; 0 is no limit.
type flowLimit struct {
	key               string
	parallelism, rate int
	period            time.Duration
}

// parseOptions reads the options of a publish. Refusals are *apiError.
func parseOptions(header http.Header) (options, error) {
	o := options{
		source: header, method: http.MethodPost, retries: defaultRetries,
		dedupID: header.Get(headerDedupID), byContent: header.Get(headerContentDedup) == "true",
		contentType: header.Get("Content-Type"), forward: forwarded(header),
	}
	for _, read := range []func(http.Header) error{
		o.readMethod, o.readRetries, o.readTimes, o.readDedup, o.readFlow, o.readCallbacks,
	} {
		if err := read(header); err != nil {
			return options{}, err
		}
	}
	for label := range strings.SplitSeq(header.Get(headerLabel), ",") {
		if label = strings.TrimSpace(label); label != "" {
			o.labels = append(o.labels, label)
		}
	}
	return o, nil
}

func (o *options) readMethod(header http.Header) error {
	allowed := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	switch method := strings.ToUpper(header.Get(headerMethod)); {
	case method == "":
	case slices.Contains(allowed, method):
		o.method = method
	default:
		return badRequest("invalid method %q, use one of %s", method, strings.Join(allowed, ", "))
	}
	return nil
}

func (o *options) readRetries(header http.Header) (err error) {
	if value := header.Get(headerRetries); value != "" {
		o.retries, err = strconv.Atoi(value)
		if err != nil || o.retries < 0 || o.retries > maxRetries {
			return badRequest("invalid %s: want a number from 0 to %d", headerRetries, maxRetries)
		}
	}
	if value := header.Get(headerRetryDelay); value != "" {
		if o.retryDelay, err = parseExpression(value); err != nil {
			return badRequest("invalid %s: %v", headerRetryDelay, err)
		}
	}
	return nil
}

func (o *options) readTimes(header http.Header) (err error) {
	for name, target := range map[string]*time.Duration{headerDelay: &o.delay, headerTimeout: &o.timeout} {
		value := header.Get(name)
		if value == "" {
			continue
		}
		if *target, err = parseDuration(value); err != nil {
			return badRequest("invalid %s: %v", name, err)
		}
	}
	if value := header.Get(headerNotBefore); value != "" {
		unix, err := strconv.ParseInt(value, 10, 64)
		if err != nil || unix < 0 || unix > 1<<40 {
			return badRequest("invalid %s: want seconds since 1970", headerNotBefore)
		}
		o.notBefore = time.Unix(unix, 0)
	}
	return nil
}

func (o *options) readDedup(http.Header) error {
	if strings.Contains(o.dedupID, ":") {
		return badRequest("DeduplicationId cannot contain ':'")
	}
	return nil
}

func (o *options) readFlow(header http.Header) error {
	key, value := header.Get(headerFlowKey), header.Get(headerFlowValue)
	if key == "" && value == "" {
		return nil
	}
	if key == "" || value == "" {
		return badRequest("%s and %s go together", headerFlowKey, headerFlowValue)
	}
	limit := &flowLimit{key: key, period: time.Second}
	for part := range strings.SplitSeq(value, ",") {
		if err := limit.read(strings.TrimSpace(part)); err != nil {
			return err
		}
	}
	if limit.parallelism == 0 && limit.rate == 0 {
		return badRequest("%s needs parallelism or rate", headerFlowValue)
	}
	o.flow = limit
	return nil
}

func (l *flowLimit) read(part string) error {
	name, value, _ := strings.Cut(part, "=")
	bad := badRequest("invalid %s: %q", headerFlowValue, part)
	if name == "period" {
		period, err := parseDuration(value)
		if count, numeric := strconv.Atoi(value); numeric == nil && count > 0 {
			period, err = seconds(float64(count)), nil
		}
		if l.period = period; err != nil || period <= 0 {
			return bad
		}
		return nil
	}
	count, err := strconv.Atoi(value)
	if err != nil || count < 1 {
		return bad
	}
	switch name {
	case "parallelism":
		l.parallelism = count
	case "rate", "ratePerSecond":
		l.rate = count
	default:
		return bad
	}
	return nil
}

func (o *options) readCallbacks(header http.Header) (err error) {
	if o.callback, err = parseCallback(header, headerCallback); err != nil {
		return err
	}
	o.failureCallback, err = parseCallback(header, headerFailureCallback)
	return err
}

// parseCallback reads the address under name and its options, which are those of
// a publish with name before them. A callback has no callbacks of its own.
func parseCallback(header http.Header, name string) (*callbackOptions, error) {
	address := header.Get(name)
	if address == "" {
		return nil, nil
	}
	if err := checkURL(address); err != nil {
		return nil, badRequest("invalid %s: %v", name, err)
	}
	own := http.Header{"Content-Type": {"application/json"}}
	for key, values := range header {
		suffix, ok := strings.CutPrefix(key, name+"-")
		if !ok || strings.Contains(suffix, "Callback") || strings.Contains(suffix, "Deduplication") {
			continue
		}
		own[headerUpstash+suffix] = values
	}
	parsed, err := parseOptions(own)
	if err != nil {
		return nil, err
	}
	return &callbackOptions{address, parsed}, nil
}

// hopByHop are the headers of one connection, and those that the sender sets
// itself; none is passed on.
var hopByHop = []string{
	"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// forwarded returns the headers to pass on to the destination. A caller cannot
// pass off headers of QStash's own.
func forwarded(header http.Header) http.Header {
	out := http.Header{}
	keep := func(name string, values []string) {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if name != "" && !slices.Contains(hopByHop, name) && !strings.HasPrefix(name, headerUpstash) {
			out[name] = values
		}
	}
	if header.Get(headerForwardAll) == "true" {
		for name, values := range header {
			if name != "Authorization" { // the token of QStash
				keep(name, values)
			}
		}
	}
	for name, values := range header {
		if rest, ok := strings.CutPrefix(name, headerForward); ok {
			keep(rest, values)
		}
	}
	return out
}

// optionHeaders returns the headers that parseOptions reads: those of the
// request, and the query parameters that stand for one that is not there.
func optionHeaders(request, params http.Header) http.Header {
	header := request.Clone()
	for name, values := range params {
		if len(header.Values(name)) == 0 {
			header[name] = values
		}
	}
	return header
}

// checkURL accepts the destinations that something can be sent to.
func checkURL(raw string) error {
	lower := strings.ToLower(raw)
	if !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://") {
		return badRequest("invalid destination url: endpoint has invalid scheme, add http:// or https://")
	}
	if !utf8.ValidString(raw) {
		return badRequest("invalid destination url: it is not UTF-8") // no claim of a signature could name it
	}
	parsed, err := url.Parse(raw)
	if err != nil {
		return badRequest("invalid destination url: %v", err)
	}
	if parsed.Hostname() == "" {
		return badRequest("invalid destination url: no host")
	}
	return nil
}
