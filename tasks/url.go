package tasks

import (
	"strings"
	"unicode"

	"github.com/nlnwa/whatwg-url/url"
)

const urlFix = "use an absolute http:// or https:// URL without user and password, or a path that starts with one slash"

// CheckURL reports why raw cannot be a webhook's URL (docs/behaviour.md §2, §6):
// it must be an http or https URL with "://" that the WHATWG rules accept and
// that has no credentials, or a path that starts with one slash; backslashes
// and control characters are refused in both. Private hosts are not refused
// here: that is a matter of egress. An error is an *InvalidError.
func CheckURL(raw string) error {
	if fault := urlFault(raw); fault != "" {
		return &InvalidError{Code: InvalidURL, Message: fault, Fix: urlFix}
	}
	return nil
}

func urlFault(raw string) string {
	switch {
	case raw == "":
		return "url is empty"
	case strings.Contains(raw, `\`):
		return "url holds a backslash"
	case strings.ContainsFunc(raw, unicode.IsControl):
		return "url holds a control character"
	case strings.HasPrefix(raw, "//"):
		return "url names a host without a scheme"
	}
	absolute := raw
	if raw[0] == '/' {
		absolute = "http://relative.invalid" + raw
	} else if !hasWebScheme(raw) {
		return "url is neither http://, https:// nor a rooted path"
	}
	parsed, err := url.Parse(absolute)
	if err != nil || parsed.Hostname() == "" {
		return "url does not parse"
	}
	if parsed.Username() != "" || parsed.Password() != "" {
		return "url holds credentials"
	}
	return ""
}

func hasWebScheme(raw string) bool {
	scheme, _, found := strings.Cut(raw, "://")
	return found && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https"))
}
