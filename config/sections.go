package config

import "time"

// The comments of this file are the manual: Reference prints them, so each
// field says what it is, its special values and what a bad value does.

// Config holds every setting of a deployment. Defaults returns a complete one;
// the zero value is not valid.
type Config struct {
	// EnvFile is the path of a file of KEY=VALUE lines that is laid over the
	// process's environment and read again on SIGHUP. It may hold any variable: those
	// of environment hooks and headers change at once, Gantry's own settings only at
	// the next start. Empty means none.
	EnvFile string `yaml:"env_file" env:"GANTRY_ENV_FILE"`

	Redis   Redis   `yaml:"redis"`
	Lane    Lane    `yaml:"lane"`
	Worker  Worker  `yaml:"worker"`
	Control Control `yaml:"control"`
	Retry   Retry   `yaml:"retry"`
	Webhook Webhook `yaml:"webhook"`
	QStash  QStash  `yaml:"qstash"`
	API     API     `yaml:"api"`
	Enrich  Enrich  `yaml:"enrich"`
	Log     Log     `yaml:"log"`
	Metrics Metrics `yaml:"metrics"`
}

// Redis says where the lanes are kept.
type Redis struct {
	// URL is the address of the server, as redis://, rediss:// (TLS) or unix://,
	// with a database number as its path. Empty means an embedded server that keeps
	// nothing, which only "gantry dev" accepts. A password in it is masked whenever
	// the settings are shown.
	URL RedisURL `yaml:"url" env:"REDIS_URL"`
	// Username is the user of the server's access list; it replaces the one of the
	// URL. Empty means the URL's, else the server's default user.
	Username string `yaml:"username" env:"GANTRY_REDIS_USERNAME"`
	// Password replaces the one of the URL. Empty means the URL's, else none. Set
	// this or the file, not both.
	Password Secret `yaml:"password" env:"GANTRY_REDIS_PASSWORD"`
	// PasswordFile is the path of a file that holds the password; one newline at its
	// end is dropped. It is read once, at start.
	PasswordFile string `yaml:"password_file" env:"GANTRY_REDIS_PASSWORD_FILE"`

	TLS RedisTLS `yaml:"tls"`

	// Namespace starts the name of every key. Deployments that share a server need
	// one each; a change leaves everything stored under the old name behind.
	Namespace string `yaml:"namespace" env:"GANTRY_NAMESPACE"`
	// Shards is the number of slots over which operations are spread: 1 is right for
	// a single server. Each more costs each worker a blocking connection and a sweep.
	// Every process of a namespace must have the same number.
	Shards int `yaml:"shards" env:"GANTRY_SHARDS"`
	// PoolSize bounds the connections of a process, not counting those that wait
	// for work. 0 means ten per processor. Too small a pool makes deliveries queue for
	// a connection; too large a one runs into the server's maxclients.
	PoolSize int `yaml:"pool_size" env:"GANTRY_REDIS_POOL_SIZE"`
}

// RedisTLS refines a rediss:// connection; it is refused for any other.
type RedisTLS struct {
	// CAFile is the path of a PEM file with the authorities to trust. Empty means
	// those of the system.
	CAFile string `yaml:"ca_file" env:"GANTRY_REDIS_TLS_CA_FILE"`
	// CertFile is the path of this client's PEM certificate; it needs a key file.
	// Empty means none.
	CertFile string `yaml:"cert_file" env:"GANTRY_REDIS_TLS_CERT_FILE"`
	// KeyFile is the path of the certificate's PEM key. Empty means none.
	KeyFile string `yaml:"key_file" env:"GANTRY_REDIS_TLS_KEY_FILE"`
	// ServerName is the name that the server's certificate must carry. Empty means
	// the host of the URL.
	ServerName string `yaml:"server_name" env:"GANTRY_REDIS_TLS_SERVER_NAME"`
}

// Lane holds the times of an operation's queue.
type Lane struct {
	// Lease is how long a claimed lane stays with its worker without a sign of
	// life. It must be three heartbeats at least. A longer one delays the recovery of
	// a killed worker's lanes; a shorter one loses lanes to a pause of the process.
	Lease time.Duration `yaml:"lease" env:"GANTRY_LANE_LEASE"`
	// Heartbeat is the time between two signs of life. A shorter one costs Redis
	// more calls for each busy lane.
	Heartbeat time.Duration `yaml:"heartbeat" env:"GANTRY_LANE_HEARTBEAT"`
	// IdempotencyWindow is how long an event's id is remembered. The same id within
	// it is a duplicate and is joined; after it, the event is delivered again. A
	// longer window costs memory for each event.
	IdempotencyWindow time.Duration `yaml:"idempotency_window" env:"GANTRY_IDEMPOTENCY_WINDOW"`
	// OperationIdle is how long an operation without events keeps its registered
	// hooks. Pending deliveries outlive it. Too short a time drops the hooks of a run
	// that only pauses.
	OperationIdle time.Duration `yaml:"operation_idle" env:"GANTRY_OPERATION_IDLE"`
}

// Worker sizes one worker process.
type Worker struct {
	// Concurrency is the number of deliveries that run at the same time. Too many
	// exhaust sockets and memory; too few leave lanes waiting.
	Concurrency int `yaml:"concurrency" env:"GANTRY_WORKER_CONCURRENCY"`
	// Batch is the number of events that are taken from a lane in one round trip.
	// Larger batches hold more payloads in memory at once.
	Batch int `yaml:"batch" env:"GANTRY_WORKER_BATCH"`
	// DrainEvents is the number of events after which a worker leaves a busy lane
	// to let others have the slot. It must not be less than the batch.
	DrainEvents int `yaml:"drain_events" env:"GANTRY_WORKER_DRAIN_EVENTS"`
	// DrainTime is the time after which it does so, whatever the number. A long one
	// lets slow lanes hold slots.
	DrainTime time.Duration `yaml:"drain_time" env:"GANTRY_WORKER_DRAIN_TIME"`
	// Grace is how long a stopping worker lets running deliveries finish before it
	// hands them back. It must be below what the platform waits before it kills (30s
	// on Kubernetes by default), or deliveries are repeated after each stop.
	Grace time.Duration `yaml:"grace" env:"GANTRY_WORKER_GRACE"`
}

// Control says how tool calls are decided about: whether a worker answers
// questions, how many at a time, and what holds when nobody does.
type Control struct {
	// Role says whether workers answer questions as well: on or off. With off at
	// every worker, nobody learns which environment hooks matter, so that each question
	// ends once the time is over, by the onError of its controls or as
	// control.unknown_environment says.
	Role string `yaml:"role" env:"GANTRY_CONTROL_ROLE"`
	// Timeout is what a question has, all of its controls together, when the caller
	// sets no other. Each control gets what is left of it, and its own timeout at
	// most. A long one holds up the agent's tool call; a short one leaves decisions to
	// onError.
	Timeout time.Duration `yaml:"timeout" env:"GANTRY_CONTROL_TIMEOUT"`
	// Slots is the number of questions that a worker answers at the same time, beside
	// its deliveries. Too few make callers wait for a slot within their timeout.
	Slots int `yaml:"slots" env:"GANTRY_CONTROL_SLOTS"`
	// UnknownEnvironment is what a question without an answer comes to when nobody
	// ever learned which environment hooks the workers have: block or continue. With
	// continue, a deployment without a worker lets every such call through.
	UnknownEnvironment string `yaml:"unknown_environment" env:"GANTRY_CONTROL_UNKNOWN_ENVIRONMENT"`
	// Connections bounds the connections to Redis that a process uses for questions,
	// apart from those for events and from those that wait for answers. Thousands of
	// callers share them. Too few make questions queue in the process.
	Connections int `yaml:"connections" env:"GANTRY_CONTROL_CONNECTIONS"`
}

// Retry is the schedule of failed deliveries; a hook's own settings replace
// its parts.
type Retry struct {
	// Initial is the delay before the second attempt. A short one hammers an
	// endpoint that is already in trouble.
	Initial time.Duration `yaml:"initial" env:"GANTRY_RETRY_INITIAL"`
	// Factor multiplies the delay from attempt to attempt; 1 keeps it.
	Factor float64 `yaml:"factor" env:"GANTRY_RETRY_FACTOR"`
	// MaxDelay bounds one delay. It must not be less than the initial one.
	MaxDelay time.Duration `yaml:"max_delay" env:"GANTRY_RETRY_MAX_DELAY"`
	// Jitter is the share of a delay, from 0 to 1, of which a random part is added,
	// so that deliveries which failed together do not return together.
	Jitter float64 `yaml:"jitter" env:"GANTRY_RETRY_JITTER"`
	// Attempts is the number of attempts in all, the first included. After the last
	// one the delivery becomes a dead letter.
	Attempts int `yaml:"attempts" env:"GANTRY_RETRY_ATTEMPTS"`
	// MaxAge bounds the time from the first attempt to the last; a delivery that is
	// older becomes a dead letter, however many attempts it had.
	MaxAge time.Duration `yaml:"max_age" env:"GANTRY_RETRY_MAX_AGE"`
	// ClientErrorAttempts is the number of attempts in all against an endpoint that
	// answers 4xx (other than 408, 425 and 429), where waiting rarely helps. It must
	// not be more than the attempts.
	ClientErrorAttempts int `yaml:"client_error_attempts" env:"GANTRY_RETRY_CLIENT_ERROR_ATTEMPTS"`
}

// Webhook says what deliveries may reach and carry. The base addresses of
// application-relative URLs are read when a delivery is sent, from
// INTERNAL_APP_URL and APP_URL.
type Webhook struct {
	// HeaderEnv lists the variables that header templates of callers' hooks may
	// name; an entry may end with * to allow a prefix. Too wide a list lets a caller
	// read the deployment's own secrets. An empty list allows none.
	HeaderEnv []string `yaml:"header_env" env:"GANTRY_HEADER_ENV"`
	// EgressAllow lists what callers' hooks may reach beyond public addresses, as
	// CIDR ranges (10.1.0.0/16), addresses, host names or *.name for all names below
	// one. Each entry opens a part of the internal network to whoever may register a
	// hook. Empty means public addresses only. Environment hooks and
	// application-relative URLs need no entry.
	EgressAllow []string `yaml:"egress_allow" env:"GANTRY_EGRESS_ALLOW"`
	// UserAgentSuffix is added to the User-Agent of every delivery, for receivers
	// that tell deployments apart. Empty means none.
	UserAgentSuffix string `yaml:"user_agent_suffix" env:"GANTRY_USER_AGENT_SUFFIX"`
}

// QStash says how hooks with "delivery: qstash" are published, and who may hand
// tasks in through QStash. Publishing needs a token. The endpoint for tasks, POST
// /v1/qstash/tasks, is open when there is a public URL and a signing key.
type QStash struct {
	// URL is the base address of QStash's API, that of the account's region. It must
	// be https, except for this machine and for development keys.
	URL string `yaml:"url" env:"QSTASH_URL"`
	// Token is the token of QStash's API. Empty means that nothing is published: such
	// hooks are sent directly, or fail if their fallback is none.
	Token Secret `yaml:"token" env:"QSTASH_TOKEN"`
	// CurrentSigningKey is the key with which QStash signs now.
	CurrentSigningKey Secret `yaml:"current_signing_key" env:"QSTASH_CURRENT_SIGNING_KEY"`
	// NextSigningKey is the key with which QStash signs after the next rotation.
	// Without it, nothing that QStash sends is let in after one.
	NextSigningKey Secret `yaml:"next_signing_key" env:"QSTASH_NEXT_SIGNING_KEY"`
	// Keys says which signing keys are good enough: production refuses the published
	// keys of QStash's local server, with which anybody can sign; development takes
	// them, and a URL without TLS.
	Keys string `yaml:"keys" env:"GANTRY_QSTASH_KEYS"`
	// PublicURL is the address under which QStash reaches this process, without the
	// path of the endpoint. What is signed for any other is refused, to the letter.
	// Empty means that the endpoint is closed.
	PublicURL string `yaml:"public_url" env:"GANTRY_PUBLIC_URL"`
	// Listen is the address and port of the endpoint of a worker, which has no API.
	Listen string `yaml:"listen" env:"GANTRY_QSTASH_LISTEN"`
	// DirectKey is the key with which runtimes sign what they bring to the endpoint
	// themselves when QStash takes nothing: several during a rotation, with spaces
	// between them. Empty means that only QStash comes in.
	DirectKey Secret `yaml:"direct_key" env:"GANTRY_QSTASH_DIRECT_KEY"`
	// Retries is how often QStash repeats a failed attempt, at the pace of the retry
	// section. A hook's own attempts replace it. More than the account's plan allows
	// makes it refuse every message.
	Retries int `yaml:"retries" env:"GANTRY_QSTASH_RETRIES"`
	// Timeout bounds one call of QStash's API.
	Timeout time.Duration `yaml:"timeout" env:"GANTRY_QSTASH_TIMEOUT"`
	// Label names this deployment's messages in QStash's log.
	Label string `yaml:"label" env:"GANTRY_QSTASH_LABEL"`
	// MaxBody bounds a message, both ways. It should be what the account's plan takes.
	MaxBody Size `yaml:"max_body" env:"GANTRY_QSTASH_MAX_BODY"`
	// Patience is how long a task waits for an earlier one of its operation that never
	// came. A short one gives up the order after a short trouble; a long one delays
	// what comes behind a task that is lost.
	Patience time.Duration `yaml:"patience" env:"GANTRY_QSTASH_PATIENCE"`
}

// API is the HTTP door for runtimes and operators.
type API struct {
	// Listen is the address and port to listen on; port 0 takes a free one. An
	// address that others can reach needs tokens.
	Listen string `yaml:"listen" env:"GANTRY_LISTEN"`
	// Tokens lists the bearer tokens as role:token, with the role runtime or
	// operator. Empty means that anybody may call, which only "gantry dev" accepts.
	// Set this or the file, not both.
	Tokens []Secret `yaml:"tokens" env:"GANTRY_TOKENS"`
	// TokensFile is the path of a file with one role:token a line; blank lines and
	// lines that start with # are skipped. It is read once, at start.
	TokensFile string `yaml:"tokens_file" env:"GANTRY_TOKENS_FILE"`
	// MaxBody bounds the body of a request; a larger one is answered with 413. It
	// must hold the largest batch of events that a runtime sends.
	MaxBody Size `yaml:"max_body" env:"GANTRY_MAX_BODY"`
	// ShutdownTimeout is how long a stopping server lets open requests finish.
	// Waiting callers are answered within it.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" env:"GANTRY_SHUTDOWN_TIMEOUT"`
}

// Enrich says where a user's email address comes from, for the payloads that
// carry it.
type Enrich struct {
	// Kind is none, postgres, http or file. With none, payloads carry no address.
	Kind string `yaml:"kind" env:"GANTRY_ENRICH_KIND"`
	// DSN is the connection string of the database, for kind postgres. Set this or
	// the file, not both.
	DSN Secret `yaml:"dsn" env:"GANTRY_ENRICH_DSN"`
	// DSNFile is the path of a file that holds the connection string; one newline
	// at its end is dropped. It is read once, at start.
	DSNFile string `yaml:"dsn_file" env:"GANTRY_ENRICH_DSN_FILE"`
	// Query is the one statement that is run, for kind postgres: $1 is the user's
	// id, the first column of the first row is the address. Empty means the query
	// for a table users(id, email).
	Query string `yaml:"query" env:"GANTRY_ENRICH_QUERY"`
	// StatementTimeout is how long the database works on a lookup before it gives
	// up. A long one delays deliveries while the database is slow.
	StatementTimeout time.Duration `yaml:"statement_timeout" env:"GANTRY_ENRICH_STATEMENT_TIMEOUT"`
	// URL is the address that answers with the user as JSON, for kind http; the
	// text {userId} in it is replaced by the user's id.
	URL string `yaml:"url" env:"GANTRY_ENRICH_URL"`
	// File is the path of a JSON object (.json) or YAML mapping from user id to
	// address, for kind file.
	File string `yaml:"file" env:"GANTRY_ENRICH_FILE"`
}

// Log shapes the log of a process, which goes to standard error.
type Log struct {
	// Level is the least level that is written: debug, info, warn or error. With
	// debug, every attempt costs several lines.
	Level string `yaml:"level" env:"GANTRY_LOG_LEVEL"`
	// Format is text, for people, or json, for collectors.
	Format string `yaml:"format" env:"GANTRY_LOG_FORMAT"`
}

// Metrics says where a process shows how it is doing.
type Metrics struct {
	// Listen is the address and port of a listener of its own for /metrics,
	// /healthz and /readyz, for workers above all, which have no API. Empty means
	// that only the API serves them.
	Listen string `yaml:"listen" env:"GANTRY_METRICS_LISTEN"`
}

// Defaults returns the settings of a deployment that sets nothing.
func Defaults() *Config {
	return &Config{
		Redis: Redis{Namespace: "gantry", Shards: 1},
		Lane: Lane{
			Lease:             4 * time.Second,
			Heartbeat:         time.Second,
			IdempotencyWindow: 24 * time.Hour,
			OperationIdle:     48 * time.Hour,
		},
		Worker: Worker{
			Concurrency: 50,
			Batch:       32,
			DrainEvents: 512,
			DrainTime:   time.Second,
			Grace:       25 * time.Second,
		},
		Control: Control{
			Role:               ControlOn,
			Timeout:            time.Minute,
			Slots:              50,
			UnknownEnvironment: UnknownBlocks,
			Connections:        8,
		},
		Retry: Retry{
			Initial:             5 * time.Second,
			Factor:              3,
			MaxDelay:            6 * time.Hour,
			Jitter:              0.25,
			Attempts:            12,
			MaxAge:              24 * time.Hour,
			ClientErrorAttempts: 5,
		},
		Webhook: Webhook{HeaderEnv: []string{"HOOK_*"}},
		QStash: QStash{
			URL:      "https://qstash.upstash.io",
			Keys:     KeysProduction,
			Listen:   "127.0.0.1:8488",
			Retries:  5,
			Timeout:  10 * time.Second,
			Label:    "gantry",
			MaxBody:  1 << 20,
			Patience: time.Minute,
		},
		API: API{
			Listen:          "127.0.0.1:8484",
			MaxBody:         1 << 20,
			ShutdownTimeout: 10 * time.Second,
		},
		Enrich: Enrich{Kind: EnrichNone, StatementTimeout: 2 * time.Second},
		Log:    Log{Level: "info", Format: "text"},
	}
}
