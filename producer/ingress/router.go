package ingress

import (
	"net/http"
	"strings"
)

// fallbackPattern takes what no other pattern matches.
const fallbackPattern = "/"

// methods are those that the API knows, in the order of an Allow header.
var methods = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete}

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
