package config

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of email enrichment.
const (
	EnrichNone     = "none"
	EnrichPostgres = "postgres"
	EnrichHTTP     = "http"
	EnrichFile     = "file"
)

// The values of Control.Role.
const (
	ControlOn  = "on"
	ControlOff = "off"
)

// The values of Control.UnknownEnvironment.
const (
	UnknownBlocks    = "block"
	UnknownContinues = "continue"
)

// The values of QStash.Keys.
const (
	KeysProduction  = "production"
	KeysDevelopment = "development"
)

// longestQuestion bounds the time of a question: what waits longer is no answer
// but a gate.
const longestQuestion = time.Hour

// leaseBeats is the least number of heartbeats in a lease: with fewer, one lost
// call costs a worker its lane.
const leaseBeats = 3

// maxShards keeps the per-shard connections and sweeps of a worker affordable.
const maxShards = 256

// Validate checks every rule, the readability of secret files included, and
// returns all problems joined; nil means valid. Load calls it already.
func (c *Config) Validate() error { return c.check().err() }

// RequireRedis refuses settings without a server, as every command but
// "gantry dev" must.
func (c *Config) RequireRedis() error {
	if c.Redis.URL != "" {
		return nil
	}
	return &SettingError{
		Path: "redis.url", Wrong: "is empty, and an embedded server keeps nothing",
		Right: "set REDIS_URL, or use gantry dev",
	}
}

// RequireTokens refuses an API that anybody may call, as every command but
// "gantry dev" must.
func (c *Config) RequireTokens() error {
	if len(c.API.Tokens) > 0 || c.API.TokensFile != "" {
		return nil
	}
	return &SettingError{
		Path: "api.tokens", Wrong: "is empty, so that anybody may call the API",
		Right: "set GANTRY_TOKENS or GANTRY_TOKENS_FILE, or use gantry dev",
	}
}

func (c *Config) check() problems {
	var p problems
	checkRedis(&p, c.Redis)
	checkLane(&p, c.Lane)
	checkWorker(&p, c.Worker)
	checkControl(&p, c.Control)
	checkRetry(&p, c.Retry)
	checkWebhook(&p, c.Webhook)
	checkQStash(&p, c.QStash)
	checkAPI(&p, c.API)
	checkEnrich(&p, c.Enrich)
	p.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	p.oneOf("log.format", c.Log.Format, "text", "json")
	if c.Metrics.Listen != "" {
		p.address("metrics.listen", c.Metrics.Listen)
	}
	return p
}

var namespacePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func checkRedis(p *problems, r Redis) {
	tls := checkRedisURL(p, r.URL)
	p.secret("redis.password", r.Password, r.PasswordFile)
	if r.TLS != (RedisTLS{}) && !tls {
		p.add("redis.tls", "is set for a connection without TLS", "write the URL with rediss://, or remove the section")
	}
	if (r.TLS.CertFile == "") != (r.TLS.KeyFile == "") {
		p.add("redis.tls", "has only one of cert_file and key_file", "set both or neither")
	}
	if !namespacePattern.MatchString(r.Namespace) {
		p.add("redis.namespace", "is not a namespace",
			"use 1 to 64 letters, digits, dots, hyphens and underscores")
	}
	p.within("redis.shards", r.Shards, 1, maxShards)
	p.within("redis.pool_size", r.PoolSize, 0, 100_000)
}

// checkRedisURL reports whether the address asks for TLS.
func checkRedisURL(p *problems, address RedisURL) (tls bool) {
	if address == "" {
		return false
	}
	const right = "write redis://host:6379/0, rediss://host:6379/0 or unix:///path"
	parsed, err := url.Parse(address.Reveal())
	switch {
	case err != nil:
		// The parser's own text would quote the address, password and all.
		p.add("redis.url", "is not a URL", right)
		return false
	case parsed.Scheme == "unix":
		if parsed.Path == "" {
			p.add("redis.url", "names no socket", right)
		}
	case parsed.Scheme != "redis" && parsed.Scheme != "rediss":
		p.add("redis.url", "does not start with a scheme of Redis", right)
	case parsed.Hostname() == "":
		p.add("redis.url", "names no host", right)
	default:
		if _, err := strconv.ParseUint(strings.Trim(parsed.Path, "/"), 10, 16); err != nil && strings.Trim(parsed.Path, "/") != "" {
			p.add("redis.url", "has a path that is not a database number", right)
		}
	}
	return parsed.Scheme == "rediss"
}

func checkLane(p *problems, l Lane) {
	p.atLeast("lane.heartbeat", l.Heartbeat, 10*time.Millisecond)
	if least := leaseBeats * l.Heartbeat; l.Lease < least {
		p.add("lane.lease", "is "+l.Lease.String()+", under three heartbeats of "+l.Heartbeat.String(),
			"use "+shortDuration(least)+" at least, or a shorter heartbeat")
	}
	p.atLeast("lane.idempotency_window", l.IdempotencyWindow, time.Minute)
	p.atLeast("lane.operation_idle", l.OperationIdle, time.Minute)
}

func checkWorker(p *problems, w Worker) {
	p.within("worker.concurrency", w.Concurrency, 1, 10_000)
	p.within("worker.batch", w.Batch, 1, 1_000)
	if w.DrainEvents < w.Batch {
		p.add("worker.drain_events", "is less than worker.batch", "use "+strconv.Itoa(w.Batch)+" at least")
	}
	p.atLeast("worker.drain_time", w.DrainTime, time.Millisecond)
	p.atLeast("worker.grace", w.Grace, 0)
}

func checkControl(p *problems, c Control) {
	p.oneOf("control.role", c.Role, ControlOn, ControlOff)
	p.atLeast("control.timeout", c.Timeout, 10*time.Millisecond)
	if c.Timeout > longestQuestion {
		p.add("control.timeout", "is too long", "use "+shortDuration(longestQuestion)+" at most")
	}
	p.within("control.slots", c.Slots, 1, 10_000)
	p.oneOf("control.unknown_environment", c.UnknownEnvironment, UnknownBlocks, UnknownContinues)
	p.within("control.connections", c.Connections, 1, 1_000)
}

func checkRetry(p *problems, r Retry) {
	p.atLeast("retry.initial", r.Initial, time.Millisecond)
	if !(r.Factor >= 1 && r.Factor <= 100) {
		p.add("retry.factor", "is out of range", "use 1 to 100")
	}
	if r.MaxDelay < r.Initial {
		p.add("retry.max_delay", "is less than retry.initial", "use "+shortDuration(r.Initial)+" at least")
	}
	if !(r.Jitter >= 0 && r.Jitter <= 1) {
		p.add("retry.jitter", "is out of range", "use 0 to 1")
	}
	p.within("retry.attempts", r.Attempts, 1, 1_000)
	p.atLeast("retry.max_age", r.MaxAge, time.Second)
	switch {
	case r.ClientErrorAttempts < 1:
		p.add("retry.client_error_attempts", "is out of range", "use 1 at least")
	case r.ClientErrorAttempts > r.Attempts:
		p.add("retry.client_error_attempts", "is more than retry.attempts",
			"use "+strconv.Itoa(r.Attempts)+" at most")
	}
}

var (
	headerEnvPattern = regexp.MustCompile(`^(\*|[A-Za-z_][A-Za-z0-9_]*\*?)$`)
	hostPattern      = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*$`)
	digitsAndDots    = regexp.MustCompile(`^[0-9.]+$`)
	printableText    = regexp.MustCompile(`^[\x20-\x7e]*$`)
)

func checkWebhook(p *problems, w Webhook) {
	for _, entry := range w.HeaderEnv {
		if !headerEnvPattern.MatchString(entry) {
			p.add("webhook.header_env", strconv.Quote(entry)+" is not the name of a variable",
				"write a name, or a prefix that ends with *")
		}
	}
	for _, entry := range w.EgressAllow {
		if right := checkEgressEntry(entry); right != "" {
			p.add("webhook.egress_allow", strconv.Quote(entry)+" cannot be allowed as it stands", right)
		}
	}
	if !printableText.MatchString(w.UserAgentSuffix) {
		p.add("webhook.user_agent_suffix", "holds characters that a header cannot carry", "use printable ASCII")
	}
}

// checkEgressEntry returns what would be right, or "" for a good entry.
func checkEgressEntry(entry string) (right string) {
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		switch {
		case prefix.Addr().Is4In6():
			return "write an IPv4 range as IPv4"
		case prefix != prefix.Masked():
			return "write " + prefix.Masked().String()
		}
		return ""
	}
	if addr, err := netip.ParseAddr(entry); err == nil {
		if addr.Is4In6() || addr.Zone() != "" {
			return "write an IPv4 address as IPv4, and an IPv6 address without a zone"
		}
		return ""
	}
	// 127.1 is an address to some resolvers: as a host name it would open more
	// than it says.
	if name := strings.TrimPrefix(entry, "*."); hostPattern.MatchString(name) && !digitsAndDots.MatchString(name) {
		return ""
	}
	return "write 10.1.0.0/16, 10.1.2.3, hooks.internal or *.internal, without scheme and port"
}

func checkAPI(p *problems, a API) {
	p.address("api.listen", a.Listen)
	if len(a.Tokens) > 0 && a.TokensFile != "" {
		p.add("api.tokens", "and api.tokens_file are both set", "keep one of them")
	} else if _, err := a.ReadTokens(); err != nil {
		*p = append(*p, SettingErrors(err)...)
	}
	if a.MaxBody < 1<<10 || a.MaxBody > 1<<30 {
		p.add("api.max_body", "is out of range", "use 1KiB to 1GiB")
	}
	p.atLeast("api.shutdown_timeout", a.ShutdownTimeout, 0)
}

// userIDPlaceholder is what package enrich replaces.
const userIDPlaceholder = "{userId}"

func checkEnrich(p *problems, e Enrich) {
	p.oneOf("enrich.kind", e.Kind, EnrichNone, EnrichPostgres, EnrichHTTP, EnrichFile)
	p.secret("enrich.dsn", e.DSN, e.DSNFile)
	p.atLeast("enrich.statement_timeout", e.StatementTimeout, time.Millisecond)
	switch e.Kind {
	case EnrichPostgres:
		if e.DSN == "" && e.DSNFile == "" {
			p.add("enrich.dsn", "is empty", "set it or enrich.dsn_file for kind postgres")
		}
	case EnrichHTTP:
		parsed, err := url.Parse(e.URL)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" {
			p.add("enrich.url", "is not an http or https URL", "write https://host/path/{userId}")
		} else if !strings.Contains(e.URL, userIDPlaceholder) {
			p.add("enrich.url", "does not say where the user's id goes", "write https://host/path/{userId}")
		} else if parsed.User != nil {
			p.add("enrich.url", "carries credentials, which would be logged with it", "remove them")
		}
	case EnrichFile:
		if e.File == "" {
			p.add("enrich.file", "is empty", "name a JSON or YAML file for kind file")
		}
	}
}

func (p *problems) oneOf(path, value string, allowed ...string) {
	if slices.Contains(allowed, value) {
		return
	}
	p.add(path, "is not one of its values",
		"use "+strings.Join(allowed[:len(allowed)-1], ", ")+" or "+allowed[len(allowed)-1])
}

func (p *problems) within(path string, value, least, most int) {
	if value < least || value > most {
		p.add(path, "is out of range", "use "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
	}
}

func (p *problems) atLeast(path string, value, least time.Duration) {
	if value < least {
		p.add(path, "is too short", "use "+shortDuration(least)+" at least")
	}
}

func (p *problems) address(path, value string) {
	host, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || strings.ContainsAny(host, " /") {
		p.add(path, "is not an address to listen on", "write host:port, such as 127.0.0.1:8484 or :8484")
	}
}
