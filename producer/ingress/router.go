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

// segmentMux decodes the wildcards of its routes after shield, and knows routes
// that end with an id and a verb, such as {id}:open, which the mux itself does not.
type segmentMux struct {
	*http.ServeMux
	// verbs are the handlers of routes with a verb, by pattern without it.
	verbs map[string]map[string]http.HandlerFunc
}

func newSegmentMux(mux *http.ServeMux) segmentMux {
	return segmentMux{ServeMux: mux, verbs: map[string]map[string]http.HandlerFunc{}}
}

// HandleFunc adds a route.
func (m segmentMux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	if base, verb, ok := strings.Cut(pattern, "}:"); ok {
		m.handleVerb(base+"}", verb, handler)
		return
	}
	m.ServeMux.HandleFunc(pattern, decoded(pattern, handler))
}

// handleVerb adds a route whose last segment is an id and a verb.
func (m segmentMux) handleVerb(base, verb string, handler http.HandlerFunc) {
	verbs := m.verbs[base]
	if verbs == nil {
		verbs = map[string]http.HandlerFunc{}
		m.verbs[base] = verbs
		name := base[strings.LastIndexByte(base, '{')+1 : len(base)-1]
		m.ServeMux.HandleFunc(base, func(w http.ResponseWriter, r *http.Request) {
			// The colon of a verb is never escaped, so that an id may hold one.
			escaped := r.URL.EscapedPath()
			verb := escaped[strings.LastIndexAny(escaped, ":/")+1:]
			id, ok := strings.CutSuffix(r.PathValue(name), ":"+verb)
			next := verbs[verb]
			if !ok || next == nil || !strings.HasSuffix(escaped, ":"+verb) {
				p := newProblem(CodeRouteNotFound, "there is no such route; see /openapi.json")
				p.RequestID = exchangeOf(r.Context()).id
				p.write(w)
				return
			}
			r.SetPathValue(name, id)
			r.Pattern = base + ":" + verb
			next(w, r)
		})
	}
	verbs[verb] = decoded(base, handler)
}

// decoded takes the second escape off the wildcards of a pattern.
func decoded(pattern string, handler http.HandlerFunc) http.HandlerFunc {
	var names []string
	for segment := range strings.SplitSeq(pattern, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return func(w http.ResponseWriter, r *http.Request) {
		for _, name := range names {
			r.SetPathValue(name, unshield.Replace(r.PathValue(name)))
		}
		handler(w, r)
	}
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
