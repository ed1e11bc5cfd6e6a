package config

import (
	"net/url"
	"regexp"
	"strings"
	"time"
)

var labelPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Receives reports whether the endpoint for tasks from QStash is open.
func (q QStash) Receives() bool { return q.PublicURL != "" }

func checkQStash(p *problems, q QStash) {
	p.oneOf("qstash.keys", q.Keys, KeysProduction, KeysDevelopment)
	checkQStashURL(p, q)
	for _, secret := range []struct {
		path  string
		value Secret
	}{{"qstash.token", q.Token}, {"qstash.current_signing_key", q.CurrentSigningKey}, {"qstash.next_signing_key", q.NextSigningKey}} {
		if strings.ContainsFunc(secret.value.Reveal(), func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			p.add(secret.path, "holds white space or another character that it never has", "copy it once more")
		}
	}
	if q.PublicURL != "" {
		checkPublicURL(p, q)
		p.address("qstash.listen", q.Listen)
	}
	p.within("qstash.retries", q.Retries, 0, 1_000)
	p.atLeast("qstash.timeout", q.Timeout, 100*time.Millisecond)
	if !labelPattern.MatchString(q.Label) {
		p.add("qstash.label", "is not a label", "use 1 to 64 letters, digits, dots, hyphens and underscores")
	}
	if q.MaxBody < 1<<10 || q.MaxBody > 1<<30 {
		p.add("qstash.max_body", "is out of range", "use 1KiB to 1GiB")
	}
	p.atLeast("qstash.patience", q.Patience, time.Second)
}

func checkQStashURL(p *problems, q QStash) {
	parsed, err := url.Parse(q.URL)
	switch {
	case err != nil || parsed.Hostname() == "" || parsed.Scheme != "http" && parsed.Scheme != "https":
		p.add("qstash.url", "is not an http or https URL", "write https://qstash.upstash.io, or the region's address")
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		p.add("qstash.url", "has more than a host", "remove credentials, query and fragment")
	}
}

func checkPublicURL(p *problems, q QStash) {
	parsed, err := url.Parse(q.PublicURL)
	switch {
	case err != nil || parsed.Hostname() == "" || parsed.Scheme != "http" && parsed.Scheme != "https":
		p.add("qstash.public_url", "is not an http or https URL", "write https://gantry.example.com")
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" || strings.HasSuffix(q.PublicURL, "/"):
		p.add("qstash.public_url", "has more than an address", "remove credentials, query, fragment and the slash at its end")
	}
	if q.CurrentSigningKey == "" && q.NextSigningKey == "" {
		p.add("qstash.public_url", "is set, and no signing key is",
			"set QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY, or remove the address")
	}
}
