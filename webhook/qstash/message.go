package qstash

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
)

// The options of a message that the SDK does not know.
const (
	headerForward   = "Upstash-Forward-"
	headerLabel     = "Upstash-Label"
	headerFlowKey   = "Upstash-Flow-Control-Key"
	headerFlowValue = "Upstash-Flow-Control-Value"
	headerBackoff   = "Upstash-Retry-Delay"

	headerMethod        = "Upstash-Method"
	headerRetries       = "Upstash-Retries"
	headerTimeout       = "Upstash-Timeout"
	headerDelay         = "Upstash-Delay"
	headerDeduplication = "Upstash-Deduplication-Id"
	headerContentType   = "Content-Type"

	mediaJSON = "application/json"
	oneByOne  = "parallelism=1"
)

// Backoff is how long QStash waits before it repeats an attempt: Initial, and
// Factor times as long each further time, up to Max. The zero value leaves it to
// QStash (docs/behaviour.md §9).
type Backoff struct {
	Initial time.Duration
	// Factor is at least 1; 0 means 1.
	Factor float64
	// Max is never exceeded; 0 means no bound.
	Max time.Duration
}

func (b Backoff) validate() error {
	if b.Initial < 0 || b.Max < 0 || b.Factor != 0 && !(b.Factor >= 1 && b.Factor <= 1000) {
		return errors.New("Backoff must have no negative time and a factor from 1 to 1000")
	}
	return nil
}

// expression writes b in QStash's language: milliseconds, with the number of
// attempts that were repeated so far as "retried".
func (b Backoff) expression() string {
	if b.Initial <= 0 {
		return ""
	}
	text := strconv.FormatInt(b.Initial.Milliseconds(), 10)
	if b.Factor > 1 {
		text += "*pow(" + strconv.FormatFloat(b.Factor, 'f', -1, 64) + ",retried)"
	}
	if b.Max > 0 && b.Factor > 1 {
		text = "min(" + strconv.FormatInt(b.Max.Milliseconds(), 10) + "," + text + ")"
	}
	return text
}

// message is a publication in QStash's words.
type message struct {
	destination   string
	contentType   string
	retries       int
	backoff       string
	timeout       string
	delay         string
	deduplication string
	labels        string
	flow          string
	header        http.Header
}

// message translates pub. A fault says why QStash cannot carry it; it names
// nothing of the hook's.
func (p *Publisher) message(pub *webhook.Publication) (m message, fault string) {
	destination, fault := checkDestination(pub.URL)
	if fault == "" && len(pub.Body) > p.config.MaxBody {
		fault = "body is larger than " + strconv.Itoa(p.config.MaxBody) + " bytes"
	}
	if fault != "" {
		return message{}, fault
	}
	m = message{
		destination: destination, contentType: mediaJSON, retries: p.config.Retries, header: pub.Header,
		labels: p.config.Label, deduplication: plainOrHash(pub.DeliveryID),
	}
	backoff := p.config.Backoff
	if pub.Retry != nil {
		m.retries, backoff = retried(m.retries, backoff, pub.Retry)
	}
	m.backoff = backoff.expression()
	if pub.Type != "" {
		m.labels += "," + plain(string(pub.Type))
	}
	if pub.OperationID != "" {
		m.flow = "gantry." + tasks.OperationHash(p.config.Namespace+"\n"+pub.OperationID)
	}
	if pub.Timeout > 0 {
		m.timeout = seconds(pub.Timeout)
	}
	if pub.Delay > 0 {
		m.delay = seconds(pub.Delay)
	}
	for name, values := range pub.Header {
		if len(values) > 0 && strings.EqualFold(name, headerContentType) {
			m.contentType = values[0]
		}
	}
	return m, ""
}

// retried lays a hook's own policy over the deployment's.
func retried(retries int, backoff Backoff, own *tasks.RetryOptions) (int, Backoff) {
	if own.Attempts > 0 {
		retries = own.Attempts - 1
	}
	if own.InitialDelaySeconds > 0 {
		backoff.Initial = fraction(own.InitialDelaySeconds)
	}
	if own.Factor > 0 {
		backoff.Factor = own.Factor
	}
	if own.MaxDelaySeconds > 0 {
		backoff.Max = fraction(own.MaxDelaySeconds)
	}
	return retries, backoff
}

func fraction(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// seconds writes a duration in whole seconds, rounded up: QStash knows no
// shorter one, and 0 would mean something else.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10) + "s"
}

// checkDestination returns the URL as it stands in the path of the API, which
// becomes the subject of the signature: without its fragment, which never leaves
// a client. A query that QStash would read as its own options is a fault.
func checkDestination(raw string) (destination, fault string) {
	destination, _, _ = strings.Cut(raw, "#")
	scheme, rest, _ := strings.Cut(destination, "://")
	if (scheme != "http" && scheme != "https") || rest == "" || strings.ContainsFunc(destination, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", "destination is no absolute http or https URL"
	}
	_, query, _ := strings.Cut(destination, "?")
	for parameter := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(parameter, "=")
		if name = strings.ToLower(unescaped(name)); name == "qstash_token" || strings.HasPrefix(name, "upstash-") {
			return "", "destination has a query parameter that QStash would take for its own"
		}
	}
	return destination, ""
}

// unescaped decodes what can be decoded of a parameter's name.
func unescaped(name string) string {
	if !strings.Contains(name, "%") {
		return name
	}
	out := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && i+2 < len(name) {
			if c, err := strconv.ParseUint(name[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(c))
				i += 2
				continue
			}
		}
		out = append(out, name[i])
	}
	return string(out)
}

// plainOrHash returns an id that QStash takes, different for different ids: the
// id itself when it is plain enough, else its hash. QStash refuses a colon.
func plainOrHash(id string) string {
	const longest = 128
	if id == "" || len(id) <= longest && plain(id) == id && !strings.HasPrefix(id, "sha256.") {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256." + base64.RawURLEncoding.EncodeToString(sum[:])
}

// plain drops everything but letters, digits and a few marks that mean nothing to
// anybody.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return -1
	}, s)
}

// addTo puts what the SDK does not know, or would rename, into the headers of a
// publish.
func (m *message) addTo(header http.Header) {
	values := []string{m.labels, m.backoff, m.flow, oneByOne}
	header[headerLabel] = values[0:1:1]
	if m.backoff != "" {
		header[headerBackoff] = values[1:2:2]
	}
	if m.flow != "" {
		header[headerFlowKey], header[headerFlowValue] = values[2:3:3], values[3:4:4]
	}
	for name, values := range m.header {
		if forwarded(name) {
			header[headerForward+name] = values
		}
	}
}

// forwarded reports whether a header goes to the destination under its own name
// by a prefix. The content type is that of the publish itself.
func forwarded(name string) bool { return !strings.EqualFold(name, headerContentType) }
