package webhook

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook/signature"
)

// environmentToken is the variable that environment hooks authenticate with. No
// hook of a caller can name it, whatever the operator's allow-list says.
const environmentToken = "AGENT_HOOK_WEBHOOK_TOKEN"

const (
	headerContentType = "Content-Type"
	mediaJSON         = "application/json"
)

// forbiddenHeaders belong to the connection or to the relay, in lower case.
var (
	forbiddenHeaders  = []string{"host", "content-length", "connection", "transfer-encoding", "trailer", "upgrade"}
	forbiddenPrefixes = []string{"proxy-", "sec-", "upstash-"}
	signatureHeaders  = []string{
		signature.HeaderID, signature.HeaderTimestamp, signature.HeaderSignature, strings.ToLower(signature.HeaderBody),
	}
)

// envAllowList is the operator's say about variables in hooks of callers.
type envAllowList struct {
	names    map[string]bool
	prefixes []string
}

func parseEnvAllowList(patterns []string) (envAllowList, error) {
	if patterns == nil {
		patterns = []string{"HOOK_*"}
	}
	list := envAllowList{names: map[string]bool{}}
	for _, pattern := range patterns {
		prefix, wild := strings.CutSuffix(pattern, "*")
		if pattern == "" || strings.Contains(prefix, "*") {
			return envAllowList{}, fmt.Errorf("variable pattern %q: want a name, or a prefix and *", pattern)
		}
		if wild {
			list.prefixes = append(list.prefixes, prefix)
		} else {
			list.names[pattern] = true
		}
	}
	return list, nil
}

// allows reports whether a hook of a caller may use the variable.
func (l envAllowList) allows(name string) bool {
	if name == environmentToken {
		return false
	}
	if l.names[name] {
		return true
	}
	return slices.ContainsFunc(l.prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// HeaderSource is where header templates take their variables from.
type HeaderSource struct {
	// Env looks up variables now.
	Env tasks.Environment
	// Allow is the operator's allow-list for hooks of callers, as Config.HeaderEnv.
	Allow []string
}

// ResolveHeaders returns the headers that hook asks for: the JSON content type
// and its configured headers, with variables expanded. A variable is expanded if
// the hook names it in allowedEnvVars, the operator's list has it (environment
// hooks need no such leave for their own token), and it is set. Names keep their
// case and values are Unicode. The error is a *ConfigurationError that never
// shows a value (docs/behaviour.md §7).
func ResolveHeaders(hook *tasks.Hook, source HeaderSource) (http.Header, error) {
	allow, err := parseEnvAllowList(source.Allow)
	if err != nil {
		return nil, &ConfigurationError{Detail: err.Error()}
	}
	return headerResolver{hook: hook, env: source.Env, allow: allow}.resolve()
}

type headerResolver struct {
	hook  *tasks.Hook
	env   tasks.Environment
	allow envAllowList
}

// ownHeaders is how many headers a request gets beside the configured ones.
const ownHeaders = 16

func (r headerResolver) resolve() (http.Header, error) {
	configured := r.hook.Webhook.Headers
	header := make(http.Header, len(configured)+ownHeaders)
	values := make([]string, 0, len(configured)+1)
	seen := make(map[string]bool, len(configured))
	var worst error
	worstName := ""
	for name, template := range configured {
		lower := strings.ToLower(name)
		value, err := r.resolveOne(name, lower, template)
		if err == nil && seen[lower] {
			err = configurationf("header %s: set twice, in different case", quoted(lower))
		}
		// The order of a map is random; the error that is shown should not be.
		if err != nil && (worst == nil || name < worstName) {
			worst, worstName = err, name
		}
		seen[lower] = true
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if worst != nil {
		return nil, worst
	}
	if !seen["content-type"] {
		header[headerContentType] = append(values, mediaJSON)[len(values):]
	}
	return header, nil
}

func (r headerResolver) resolveOne(name, lower, template string) (string, error) {
	if fault := r.nameFault(name, lower); fault != "" {
		return "", configurationf("header %s: %s", quoted(name), fault)
	}
	value, err := expand(template, r.lookup)
	if err != nil {
		return "", configurationf("header %s: %v", quoted(name), err)
	}
	return value, nil
}

func (r headerResolver) nameFault(name, lower string) string {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return "not a header name"
	case slices.Contains(forbiddenHeaders, lower), slices.ContainsFunc(forbiddenPrefixes, func(p string) bool { return strings.HasPrefix(lower, p) }):
		return "not allowed"
	case reservedHeaders[lower], r.signed() && slices.Contains(signatureHeaders, lower):
		return "set by Gantry"
	}
	return ""
}

func (r headerResolver) signed() bool {
	return r.hook.Options != nil && r.hook.Options.SigningKeyEnv != ""
}

// lookup returns a variable for a template, or false when the hook may not have
// it or it is not set; the two look the same from outside on purpose.
func (r headerResolver) lookup(name string) (string, bool) {
	if !slices.Contains(r.hook.Webhook.AllowedEnvVars, name) || !r.permitted(name) {
		return "", false
	}
	return r.env(name)
}

func (r headerResolver) permitted(name string) bool {
	return r.hook.Environment() || r.allow.allows(name)
}

// expand replaces each ${NAME} of template in a single pass, and returns a value
// that may stand in a header. Errors show names, never values.
func expand(template string, lookup func(name string) (string, bool)) (string, error) {
	value := template
	if strings.Contains(template, "${") {
		var out strings.Builder
		rest := template
		for {
			literal, after, found := strings.Cut(rest, "${")
			out.WriteString(literal)
			if !found {
				break
			}
			name, tail, closed := strings.Cut(after, "}")
			if !closed {
				return "", configurationf("template is not closed")
			}
			expanded, ok := lookup(name)
			if !ok {
				return "", configurationf("variable %s is not available", quoted(name))
			}
			out.WriteString(expanded)
			rest = tail
		}
		value = out.String()
	}
	if strings.Contains(value, "${") {
		return "", configurationf("a template is left after expansion")
	}
	value, fault := trimHeaderValue(value)
	if fault != "" {
		return "", &ConfigurationError{Detail: fault}
	}
	return value, nil
}

func trimHeaderValue(value string) (trimmed, fault string) {
	if !utf8.ValidString(value) {
		return "", "value is not valid UTF-8"
	}
	for _, r := range value {
		switch {
		case r > 0xff:
			return "", "value has a character above U+00FF"
		case r < ' ' && r != '\t', r == 0x7f:
			return "", "value has a control character"
		}
	}
	return strings.Trim(value, " \t"), ""
}

// latin1 returns value as its bytes go out: one byte for each character, as the
// fetch rules have it.
func latin1(value string) string {
	if isASCII(value) {
		return value
	}
	out := make([]byte, 0, len(value))
	for _, r := range value {
		out = append(out, byte(r))
	}
	return string(out)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func validHeaderValue(value string) bool {
	return httpguts.ValidHeaderFieldValue(value) && isASCII(value)
}
