package ingress

import (
	"net/http"
	"net/url"
	"strings"
)

// fallbackPattern takes what no other pattern matches.
const fallbackPattern = "/"

// methods are those that the API knows, in the order of an Allow header.
var methods = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete}

// The mux takes a segment that decodes to a lone slash for a trailing slash. So
// it gets to see slashes and percent signs escaped twice, and shielded ids lose
// the second escape once the route is found.
var (
	shield   = strings.NewReplacer("%2F", "%252F", "%2f", "%252F", "%25", "%2525")
	unshield = strings.NewReplacer("%2F", "/", "%25", "%")
)

// segmentMux decodes the wildcards of its routes after shield.
type segmentMux struct {
	*http.ServeMux
}

// HandleFunc adds a route.
func (m segmentMux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	var names []string
	for segment := range strings.SplitSeq(pattern, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	m.ServeMux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range names {
			r.SetPathValue(name, unshield.Replace(r.PathValue(name)))
		}
		handler(w, r)
	})
}

// shieldPath escapes what the mux would misread.
func shieldPath(r *http.Request, escaped string) {
	shielded := shield.Replace(escaped)
	if shielded == escaped {
		return
	}
	plain, err := url.PathUnescape(shielded)
	if err != nil {
		return // net/http has parsed the path before
	}
	where := *r.URL
	where.Path, where.RawPath = plain, shielded
	r.URL = &where
}

// guard refuses paths that the mux would clean and redirect: an id with a slash,
// or one that is a dot segment, must not turn into another path. Ids stand in
// one escaped segment each, which the mux matches before it decodes.
func guard(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if path == fallbackPattern {
			mux.ServeHTTP(w, r)
			return
		}
		for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if segment == "" || segment == "." || segment == ".." {
				p := newProblem(CodeRouteNotFound,
					"the path has an empty segment or a dot segment; percent-encode an id as one segment (/ is %2F, . is %2E)")
				p.RequestID = exchangeOf(r.Context()).id
				p.write(w)
				return
			}
		}
		shieldPath(r, path)
		mux.ServeHTTP(w, r)
	})
}

// fallback answers what no route matches: 405 when the path has other methods,
// else 404.
func fallback(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p := newProblem(CodeRouteNotFound, "there is no such route; see /openapi.json")
		if allowed := allowedMethods(mux, r); len(allowed) > 0 {
			list := strings.Join(allowed, ", ")
			p = newProblem(CodeMethodNotAllowed, "the route takes "+list+" only").with("Allow", list)
		}
		p.RequestID = exchangeOf(r.Context()).id
		p.write(w)
	}
}

// allowedMethods asks the mux which methods the path of r has.
func allowedMethods(mux *http.ServeMux, r *http.Request) []string {
	var allowed []string
	for _, method := range methods {
		probe := r.Clone(r.Context())
		probe.Method = method
		if _, pattern := mux.Handler(probe); pattern != "" && pattern != fallbackPattern {
			allowed = append(allowed, method)
		}
	}
	return allowed
}
