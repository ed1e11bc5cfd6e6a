package webhook_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/webhook"
	"github.com/gantry-hooks/gantry/webhook/egress"
)

const refusedURL = "configuration"

func TestResolveURL(t *testing.T) {
	t.Parallel()
	both := map[string]string{"INTERNAL_APP_URL": "http://127.0.0.1:3210", "APP_URL": "https://app.test"}
	public := map[string]string{"APP_URL": "https://app.test"}
	tests := map[string]struct {
		raw          string
		vars         map[string]string
		fetch, relay string
	}{
		"two bases":                 {"/api", both, "http://127.0.0.1:3210/api", "https://app.test/api"},
		"public base only":          {"/api", public, "https://app.test/api", "https://app.test/api"},
		"internal base only":        {"/api", map[string]string{"INTERNAL_APP_URL": "http://i.test"}, "http://i.test/api", "http://i.test/api"},
		"empty is unset":            {"/api", map[string]string{"INTERNAL_APP_URL": "", "APP_URL": "https://app.test"}, "https://app.test/api", "https://app.test/api"},
		"no base":                   {"/api", nil, refusedURL, refusedURL},
		"base with a path":          {"/api", map[string]string{"APP_URL": "https://app.test/lobe/"}, "https://app.test/api", "https://app.test/api"},
		"base without scheme":       {"/api", map[string]string{"APP_URL": "app.test"}, refusedURL, refusedURL},
		"base of another scheme":    {"/api", map[string]string{"APP_URL": "ftp://app.test"}, refusedURL, refusedURL},
		"base is a mailbox":         {"/api", map[string]string{"APP_URL": "mailto:a@b"}, refusedURL, refusedURL},
		"base with credentials":     {"/api", map[string]string{"APP_URL": "https://u:p@app.test"}, refusedURL, refusedURL},
		"bad internal base decides": {"/api", map[string]string{"INTERNAL_APP_URL": "nope", "APP_URL": "https://app.test"}, refusedURL, "https://app.test/api"},
		"base does not matter":      {"https://x.test/a", map[string]string{"APP_URL": "nope"}, "https://x.test/a", "https://x.test/a"},
		"query and fragment":        {"/api?a=1#z", public, "https://app.test/api?a=1#z", "https://app.test/api?a=1#z"},
		"dot segments":              {"/a/../b/./c", public, "https://app.test/b/c", "https://app.test/b/c"},
		"host and default port":     {"HTTPS://X.Test:443/a", nil, "https://x.test/a", "https://x.test/a"},
		"other port":                {"http://x.test:8080", nil, "http://x.test:8080/", "http://x.test:8080/"},
		"international host":        {"https://münchen.test/", nil, "https://xn--mnchen-3ya.test/", "https://xn--mnchen-3ya.test/"},
		"number as host":            {"http://0x7f.1/", nil, "http://127.0.0.1/", "http://127.0.0.1/"},
		"IPv6 host":                 {"http://[::FFFF:7F00:1]:81/", nil, "http://[::ffff:7f00:1]:81/", "http://[::ffff:7f00:1]:81/"},
		"path is encoded":           {"https://x.test/a b/ü", nil, "https://x.test/a%20b/%C3%BC", "https://x.test/a%20b/%C3%BC"},

		"tab in the path":      {"/\t/evil.test/x", public, refusedURL, refusedURL},
		"newline":              {"/a\nb", public, refusedURL, refusedURL},
		"scheme without //":    {"https:foo", public, refusedURL, refusedURL},
		"backslash":            {`/\evil.test`, public, refusedURL, refusedURL},
		"backslash in host":    {`https:\\evil.test`, public, refusedURL, refusedURL},
		"two slashes":          {"//evil.test/x", public, refusedURL, refusedURL},
		"credentials":          {"https://user:password@x.test/", nil, refusedURL, refusedURL},
		"user alone":           {"https://user@x.test/", nil, refusedURL, refusedURL},
		"empty":                {"", public, refusedURL, refusedURL},
		"relative":             {"api", public, refusedURL, refusedURL},
		"other scheme":         {"ftp://x.test/", nil, refusedURL, refusedURL},
		"script":               {"javascript:alert(1)", public, refusedURL, refusedURL},
		"port beyond the last": {"http://x.test:65536/", nil, refusedURL, refusedURL},
		"no host":              {"http://", nil, refusedURL, refusedURL},
	}
	for name, test := range tests {
		for way, resolve := range map[string]func(string, tasks.Environment) (string, error){"fetch": webhook.ResolveURL, "relay": webhook.ResolveRelayURL} {
			want := map[string]string{"fetch": test.fetch, "relay": test.relay}[way]
			got, err := resolve(test.raw, environment(test.vars))
			if err != nil {
				got = refusedURL
				var refused *webhook.ConfigurationError
				if !errors.As(err, &refused) {
					t.Errorf("%s: %s: %T", name, way, err)
				}
			}
			if got != want {
				t.Errorf("%s: %s = %q (%v), want %q", name, way, got, err, want)
			}
		}
	}
}

// What goes over the wire is path and query as the URL rules left them, without
// the fragment.
func TestRequestTarget(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	d := newDeliverer(t, nil)
	paths := map[string]string{
		"": "/", "/a?b=c&d#frag": "/a?b=c&d", "/?": "/?", "//x//y": "//x//y", "//x?": "//x?", "/a%2Fb": "/a%2Fb",
		"/[x]|y'z?q='|^": "/[x]|y'z?q=%27|^", "/:80/a@b": "/:80/a@b",
	}
	for path, want := range paths {
		before := len(r.requests())
		if result := d.Deliver(t.Context(), delivery(r.URL+path, nil)); !result.Delivered {
			t.Errorf("%s: %+v", path, result)
			continue
		}
		if got := r.requests()[before].target; got != want {
			t.Errorf("%s: target %q, want %q", path, got, want)
		}
	}
}

// E4: refused before anything is sent, and for good.
func TestHazardousURLsAreConfigurationFailures(t *testing.T) {
	t.Parallel()
	d := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Env = environment(map[string]string{"APP_URL": "http://app.test", "HOOK_TOKEN": secretHeader})
	})
	for _, raw := range []string{"/\t/evil.test", "https:foo", `/\evil.test`, "http://user:" + secretQuery + "@evil.test/", "//evil.test", "/x\x00"} {
		result := d.Deliver(t.Context(), delivery(raw, nil))
		if result.Class != tasks.ClassConfiguration || result.Status != 0 {
			t.Errorf("%q: %+v", raw, result)
		}
		checkSafe(t, result)
	}
}

// E1 and E3: callers' hooks reach public addresses only, whatever the spelling;
// the operator's own hooks and relative paths reach what the operator wants.
func TestEgressByOwner(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	port := r.URL[len("http://127.0.0.1:"):]
	d := newDeliverer(t, func(cfg *webhook.Config) {
		cfg.Callers = newEgress(t, egress.Public())
		cfg.Env = environment(map[string]string{"APP_URL": r.URL, "HOOK_TOKEN": secretHeader, "AGENT_HOOK_WEBHOOK_TOKEN": secretHeader})
	})
	for _, host := range []string{
		"127.0.0.1", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "[fd00:ec2::254]", "0.0.0.0",
		"100.100.100.200", "127.1", "2130706433", "0x7f000001", "localhost", "localhost.", "metadata.google.internal",
		"0x08080808", "8.8.2056", "010.8.8.8", "８.8.8.8", "8.8.8.8.", "%38.8.8.8",
	} {
		for _, qstash := range []tasks.Delivery{tasks.DeliverFetch, tasks.DeliverQStash} {
			result := d.Deliver(t.Context(), delivery("http://"+host+":"+port+"/?q="+secretQuery, func(w *tasks.Webhook) { w.Delivery = qstash }))
			if result.Class != tasks.ClassEgressDenied || result.FellBack != (qstash == tasks.DeliverQStash) {
				t.Errorf("%s %s: %+v", qstash, host, result)
			}
			checkSafe(t, result)
		}
	}
	if n := len(r.requests()); n != 0 {
		t.Fatalf("receiver saw %d requests", n)
	}
	if result := d.Deliver(t.Context(), delivery("/relative", nil)); !result.Delivered {
		t.Errorf("relative path: %+v", result)
	}
	own := delivery("http://127.1:"+port+"/own", nil)
	own.Hook.ID = tasks.ReservedIDPrefix + "onComplete"
	if result := d.Deliver(t.Context(), own); !result.Delivered {
		t.Errorf("environment hook: %+v", result)
	}
}

func TestNoEgressClientRefuses(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	for name, client := range map[string]*egress.Client{"nil": nil, "zero": {}} {
		d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Callers, cfg.Operator = client, client })
		if result := d.Deliver(t.Context(), delivery(r.URL, nil)); result.Class != tasks.ClassEgressDenied {
			t.Errorf("%s client: %+v", name, result)
		}
	}
	if n := len(r.requests()); n != 0 {
		t.Errorf("receiver saw %d requests", n)
	}
}

// A base that changes is seen by the next attempt.
func TestBaseIsReadAtEachAttempt(t *testing.T) {
	t.Parallel()
	first, second := newReceiver(t, nil), newReceiver(t, nil)
	vars := map[string]string{"APP_URL": first.URL, "HOOK_TOKEN": secretHeader}
	d := newDeliverer(t, func(cfg *webhook.Config) { cfg.Env = environment(vars) })
	for range 2 {
		if result := d.Deliver(t.Context(), delivery("/x", nil)); !result.Delivered {
			t.Fatalf("deliver: %+v", result)
		}
	}
	vars["APP_URL"] = second.URL
	if result := d.Deliver(t.Context(), delivery("/x", nil)); !result.Delivered {
		t.Fatalf("deliver: %+v", result)
	}
	if a, b := len(first.requests()), len(second.requests()); a != 2 || b != 1 {
		t.Fatalf("requests: %d and %d", a, b)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]time.Duration{
		0: 30 * time.Second, 5: 5 * time.Second, 0.0004: time.Millisecond, 1.0001: 1001 * time.Millisecond,
		0.001: time.Millisecond, 2147483.647: 2147483647 * time.Millisecond, 1.5: 1500 * time.Millisecond,
	} {
		if got := webhook.Timeout(&tasks.Webhook{Timeout: seconds}); got != want {
			t.Errorf("Timeout(%v) = %v, want %v", seconds, got, want)
		}
	}
}

// D14.
func TestRedirectsFail(t *testing.T) {
	t.Parallel()
	other := newReceiver(t, nil)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, location := range []string{other.URL + "/?q=" + secretRemote, ""} {
			r := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
				if location != "" {
					w.Header().Set("Location", location)
				}
				w.WriteHeader(status)
			})
			result := newDeliverer(t, nil).Deliver(t.Context(), delivery(r.URL, nil))
			if result.Class != tasks.ClassHTTP3xx || result.Status != status || result.Delivered {
				t.Errorf("%d: %+v", status, result)
			}
			checkSafe(t, result)
		}
	}
	if n := len(other.requests()); n != 0 {
		t.Errorf("the other server saw %d requests", n)
	}
}
