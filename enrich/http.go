package enrich

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
)

// The defaults of HTTPConfig.
const (
	DefaultHTTPField   = "email"
	DefaultHTTPTimeout = 2 * time.Second
)

// UserIDPlaceholder stands for the user id in HTTPConfig.URL.
const UserIDPlaceholder = "{userId}"

// maxReply bounds the decoded body of a reply, in bytes.
const maxReply = 64 << 10

// errHTTPSilent is the cause of a lookup that took too long.
var errHTTPSilent = errors.New("directory does not answer in time")

// errMalformedURL stands for the errors of net/url, which quote the URL.
var errMalformedURL = errors.New("URL is malformed")

// Doer sends a request; *egress.Client is the one to use.
type Doer interface {
	Do(request *http.Request) (*http.Response, error)
}

// HTTPConfig is what an HTTP directory needs.
type HTTPConfig struct {
	// URL is an absolute http or https URL with UserIDPlaceholder in its path or
	// query, where the percent-encoded user id goes. Required.
	URL string
	// Client sends the requests. Required.
	Client Doer
	// Header is added to each request; its values are secret and never logged.
	Header http.Header
	// Field is the top-level key of the reply that holds the email; "" means
	// DefaultHTTPField.
	Field string
	// Timeout bounds one lookup; 0 means DefaultHTTPTimeout.
	Timeout time.Duration
}

// HTTP finds emails with one GET request each: 200 answers with a JSON object,
// 404 says that the user is unknown. Make one with NewHTTP.
type HTTP struct {
	config HTTPConfig
}

// NewHTTP returns a directory. The error is a refused Config; it never holds
// the URL.
func NewHTTP(config HTTPConfig) (*HTTP, error) {
	if config.Client == nil {
		return nil, errors.New("configure http directory: client is missing")
	}
	if config.Timeout < 0 {
		return nil, fmt.Errorf("configure http directory: timeout %s is negative", config.Timeout)
	}
	if err := checkTemplate(config.URL); err != nil {
		return nil, fmt.Errorf("configure http directory: %w", err)
	}
	if config.Field == "" {
		config.Field = DefaultHTTPField
	}
	if config.Timeout == 0 {
		config.Timeout = DefaultHTTPTimeout
	}
	config.Header = config.Header.Clone()
	return &HTTP{config: config}, nil
}

// Email implements Directory. A null or missing field means that there is no
// email; a field of another type is an error.
func (h *HTTP) Email(ctx context.Context, userID string) (email string, found bool, err error) {
	if userID == "." || userID == ".." {
		// As a path segment it would name another resource, also when encoded.
		return "", false, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, h.config.Timeout, errHTTPSilent)
	defer cancel()
	body, found, err := h.get(ctx, userID)
	if err != nil {
		if errors.Is(context.Cause(ctx), errHTTPSilent) {
			err = errHTTPSilent
		}
		return "", false, fmt.Errorf("ask http directory: %w", err)
	}
	if !found {
		return "", false, nil
	}
	email, found, err = readField(body, h.config.Field)
	if err != nil {
		return "", false, fmt.Errorf("read reply of http directory: %w", err)
	}
	return email, found, nil
}

func (h *HTTP) get(ctx context.Context, userID string) (body []byte, found bool, err error) {
	target := strings.ReplaceAll(h.config.URL, UserIDPlaceholder, percentEncode(userID))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, false, errMalformedURL
	}
	for name, values := range h.config.Header {
		request.Header[name] = values
	}
	request.Header.Set("Accept", "application/json")
	response, err := h.config.Client.Do(request)
	if err != nil {
		return nil, false, withoutURL(err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, false, nil
	default:
		return nil, false, fmt.Errorf("status is %d, not 200 or 404", response.StatusCode)
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	if err != nil {
		return nil, false, withoutURL(err)
	}
	if len(body) > maxReply {
		return nil, false, fmt.Errorf("reply is larger than %d bytes", maxReply)
	}
	return body, true, nil
}

func readField(body []byte, field string) (email string, found bool, err error) {
	members, err := tasks.SplitObject(body)
	if err != nil {
		return "", false, err
	}
	at := lastOf(members, field)
	if at < 0 || string(members[at].Value) == "null" {
		return "", false, nil
	}
	if err := json.Unmarshal(members[at].Value, &email); err != nil {
		return "", false, fmt.Errorf("field %q is not a string", field)
	}
	return email, true, nil
}

// checkTemplate refuses a URL whose placeholder could choose the server.
func checkTemplate(template string) error {
	const probe = "gantry-probe"
	u, err := url.Parse(strings.ReplaceAll(template, UserIDPlaceholder, probe))
	switch {
	case err != nil:
		return errMalformedURL
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("URL is not an absolute http or https URL")
	case strings.Contains(u.Host, probe) || strings.Contains(u.User.String(), probe):
		return errors.New("URL has " + UserIDPlaceholder + " before its path")
	case !strings.Contains(u.EscapedPath()+"?"+u.RawQuery, probe):
		return errors.New("URL lacks " + UserIDPlaceholder + " in its path and query")
	}
	return nil
}

// withoutURL strips the URL that net/http puts into its errors: it may hold a
// key of the directory.
func withoutURL(err error) error {
	var named *url.Error
	if errors.As(err, &named) {
		return named.Err
	}
	return err
}

// percentEncode leaves only the unreserved characters of RFC 3986, so that the
// id stays one segment of a path and one value of a query.
func percentEncode(s string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~", c) >= 0:
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}
