package compat

import (
	"net/http"
	"net/url"
	"strings"
)

const (
	publishPrefix = "/v2/publish/"
	enqueuePrefix = "/v2/enqueue/"
	tokenParam    = "qstash_token"
	optionPrefix  = "upstash-"
)

// route is a request line taken apart. No router takes part in it: each one
// cleans paths, and would send a client from /v2/publish/https://host to
// /v2/publish/https:/host.
type route struct {
	// kind is "publish", "enqueue" or "" for everything else.
	kind string
	// path is the undecoded path of everything else.
	path string
	// queue is the queue of an enqueue.
	queue string
	// destination is what to deliver to: a URL, byte for byte, or the name of a URL
	// group.
	destination string
	// token and options are what was given as query parameters, options under the
	// canonical names of the headers they stand for.
	token   string
	options http.Header
}

// parseRoute takes a request line's target apart.
func parseRoute(target string) (route, error) {
	target = originForm(target)
	path, query, asked := strings.Cut(target, "?")
	r := route{path: path, options: http.Header{}}
	rest, publish := strings.CutPrefix(path, publishPrefix)
	if !publish {
		queued, enqueue := strings.CutPrefix(path, enqueuePrefix)
		if !enqueue {
			r.takeOptions(query)
			return r, nil
		}
		r.kind = "enqueue"
		r.queue, rest, _ = strings.Cut(queued, "/")
		if name, err := url.PathUnescape(r.queue); err == nil {
			r.queue = name
		}
	} else {
		r.kind = "publish"
	}
	destination, err := decodedWhole(rest)
	if err != nil {
		return route{}, err
	}
	kept := r.takeOptions(query)
	switch {
	case kept == "" && (query != "" || !asked):
	case strings.Contains(destination, "?"):
		destination += "&" + kept // the query of a destination that came encoded
	default:
		destination += "?" + kept
	}
	r.destination = destination
	return r, nil
}

// originForm cuts the scheme and the host off a target in absolute form, as a
// client sends it through a proxy.
func originForm(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	_, rest, ok := strings.Cut(target, "://")
	if !ok {
		return target
	}
	if i := strings.IndexAny(rest, "/?"); i >= 0 && rest[i] == '/' {
		return rest[i:]
	}
	return "/"
}

// decodedWhole undoes the encoding of a destination that was escaped as a whole,
// as clients made by hand do; any other is left alone, so that %2F stays %2F.
func decodedWhole(destination string) (string, error) {
	lower := strings.ToLower(destination[:min(len(destination), len("https%3a"))])
	if !strings.HasPrefix(lower, "http%3a") && lower != "https%3a" {
		return destination, nil
	}
	decoded, err := url.PathUnescape(destination)
	if err != nil {
		return "", badRequest("invalid destination url: %v", err)
	}
	return decoded, nil
}

// takeOptions moves QStash's own parameters from a query into r and returns the
// rest, undecoded and in order.
func (r *route) takeOptions(query string) (kept string) {
	var others []string
	for part := range strings.SplitSeq(query, "&") {
		rawName, rawValue, _ := strings.Cut(part, "=")
		name := strings.ToLower(unescaped(rawName))
		switch {
		case name == tokenParam:
			r.token = unescaped(rawValue)
		case strings.HasPrefix(name, optionPrefix):
			r.options.Add(name, unescaped(rawValue))
		default:
			others = append(others, part)
		}
	}
	return strings.Join(others, "&")
}

// unescaped decodes a part of a query, or returns it as it is if it cannot be.
func unescaped(text string) string {
	if decoded, err := url.QueryUnescape(text); err == nil {
		return decoded
	}
	return text
}

// segments splits the path of an endpoint and decodes its parts.
func (r *route) segments() []string {
	parts := strings.Split(strings.TrimPrefix(r.path, "/"), "/")
	for i, part := range parts {
		if decoded, err := url.PathUnescape(part); err == nil {
			parts[i] = decoded
		}
	}
	return parts
}
