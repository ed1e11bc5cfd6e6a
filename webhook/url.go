package webhook

import (
	"net/netip"
	"net/url"
	"strings"
	"sync"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"github.com/gantry-hooks/gantry/tasks"
)

// The variables that hold the deployment's own addresses.
const (
	envInternalAppURL = "INTERNAL_APP_URL"
	envAppURL         = "APP_URL"
)

// ResolveURL returns the absolute URL that a fetch of raw goes to, by the WHATWG
// rules and with query and fragment kept. An application-relative path is
// resolved against INTERNAL_APP_URL, else APP_URL, as env has them now; empty
// means unset. The error is a *ConfigurationError (docs/behaviour.md §6).
func ResolveURL(raw string, env tasks.Environment) (string, error) {
	t, err := parseTarget(raw, fetchBase(env))
	if err != nil {
		return "", err
	}
	return t.href, nil
}

// ResolveRelayURL is ResolveURL for a destination that a relay reaches from
// outside: APP_URL comes first, because the internal address would mean nothing
// there (docs/behaviour.md §6).
func ResolveRelayURL(raw string, env tasks.Environment) (string, error) {
	t, err := parseTarget(raw, relayBase(env))
	if err != nil {
		return "", err
	}
	return t.href, nil
}

func fetchBase(env tasks.Environment) string { return firstSet(env, envInternalAppURL, envAppURL) }

func relayBase(env tasks.Environment) string { return firstSet(env, envAppURL, envInternalAppURL) }

func firstSet(env tasks.Environment, names ...string) string {
	for _, name := range names {
		if value, ok := env(name); ok && value != "" {
			return value
		}
	}
	return ""
}

// target is a resolved URL, ready to be sent to. It is shared between attempts
// and never changed.
type target struct {
	// href is the whole URL, fragment included.
	href string
	// url is what the transport gets.
	url *url.URL
	// spelled is the host as configured when the URL rules turned it into another
	// spelling of an IPv4 address; "" otherwise. The egress policy must see it.
	spelled string
}

func relative(raw string) bool { return strings.HasPrefix(raw, "/") }

func parseTarget(raw, base string) (*target, error) {
	if err := tasks.CheckURL(raw); err != nil {
		return nil, configurationf("url is not valid")
	}
	parsed, err := resolveReference(raw, base)
	switch {
	case err != nil:
		return nil, err
	case parsed.Scheme() != "http" && parsed.Scheme() != "https", parsed.Hostname() == "":
		return nil, configurationf("url does not resolve to an http or https address")
	case parsed.Username() != "" || parsed.Password() != "":
		return nil, configurationf("url resolves to an address with credentials")
	}
	t := &target{href: parsed.Href(false), url: transportURL(parsed)}
	if !relative(raw) {
		t.spelled = oddIPv4(raw, parsed.Hostname())
	}
	return t, nil
}

func resolveReference(raw, base string) (*whatwg.Url, error) {
	if !relative(raw) {
		parsed, err := whatwg.Parse(raw)
		if err != nil {
			return nil, configurationf("url does not parse")
		}
		return parsed, nil
	}
	if base == "" {
		return nil, configurationf("url is a path, but neither %s nor %s is set", envInternalAppURL, envAppURL)
	}
	root, err := whatwg.Parse(base)
	if err != nil {
		return nil, configurationf("%s or %s does not parse", envInternalAppURL, envAppURL)
	}
	parsed, err := root.Parse(raw)
	if err != nil {
		return nil, configurationf("url does not parse")
	}
	return parsed, nil
}

// transportURL hands path and query over as they are: net/url would encode some
// characters that the WHATWG rules leave alone, and refuse others.
func transportURL(parsed *whatwg.Url) *url.URL {
	u := &url.URL{Scheme: parsed.Scheme(), Host: parsed.Host()}
	rest := strings.TrimPrefix(parsed.Href(true), u.Scheme+"://"+u.Host)
	if !strings.HasPrefix(rest, "//") {
		u.Opaque = rest
		return u
	}
	// An opaque part that starts with two slashes would be taken for a host.
	path, query, found := strings.Cut(rest, "?")
	u.RawPath, u.RawQuery, u.ForceQuery = path, query, found
	if plain, err := url.PathUnescape(path); err == nil {
		u.Path = plain
	} else {
		u.Path = path
	}
	return u
}

// oddIPv4 returns the host of raw if it is not hostname itself although hostname
// is an IPv4 address, such as 0x7f000001 for 127.0.0.1.
func oddIPv4(raw, hostname string) string {
	if addr, err := netip.ParseAddr(hostname); err != nil || !addr.Is4() {
		return ""
	}
	_, rest, _ := strings.Cut(raw, "://")
	rest = strings.TrimLeft(rest, "/")
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	rest = rest[strings.LastIndexByte(rest, '@')+1:]
	if colon := strings.LastIndexByte(rest, ':'); colon >= 0 {
		rest = rest[:colon]
	}
	if rest == hostname {
		return ""
	}
	return rest
}

// maxTargets bounds the cache of parsed URLs. When it is full it starts anew:
// parsing is cheap enough for that, and there is nothing to keep in order.
const maxTargets = 4096

type targetKey struct{ raw, base string }

// targetCache remembers how URLs resolved. Keys hold the base that was in force,
// so that a changed environment is seen at once.
type targetCache struct {
	mu      sync.RWMutex
	targets map[targetKey]*target
}

func (c *targetCache) resolve(raw, base string) (*target, error) {
	key := targetKey{raw: raw}
	if relative(raw) {
		key.base = base
	}
	c.mu.RLock()
	t := c.targets[key]
	c.mu.RUnlock()
	if t != nil {
		return t, nil
	}
	t, err := parseTarget(raw, base)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.targets == nil || len(c.targets) >= maxTargets {
		c.targets = make(map[targetKey]*target)
	}
	c.targets[key] = t
	return t, nil
}
