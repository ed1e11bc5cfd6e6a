package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/sirupsen/logrus"

	"github.com/gantry-hooks/gantry/config"
	"github.com/gantry-hooks/gantry/tasks"
	"github.com/gantry-hooks/gantry/tasks/lane"
	"github.com/gantry-hooks/gantry/tasks/lane/redislane"
)

// connections are the clients of one Redis: one for commands, one for blocking
// pops, which would starve the other's pool, and one for asynq. Questions have a
// pair of their own.
type connections struct {
	commands, blocking, asynq *redis.Client
	control, verdicts         *redis.Client
	embedded                  *embedded
}

// connect opens the clients that a configuration names, or an embedded server
// when it names none.
func connect(cfg *config.Config, log *logrus.Logger) (*connections, error) {
	quietRedis(log)
	c := &connections{}
	url := cfg.Redis.URL.Reveal()
	if url == "" {
		e, err := startEmbedded()
		if err != nil {
			return nil, err
		}
		c.embedded, url = e, "redis://"+e.server.Addr()
	}
	opts, err := redisOptions(cfg, url)
	if err != nil {
		c.close()
		return nil, err
	}
	c.commands = redis.NewClient(opts)
	blocking := *opts
	// A blocking pop answers within two seconds; a reply that is much later means a
	// dead connection.
	blocking.ReadTimeout = 10 * time.Second
	blocking.PoolSize = max(4, 2*cfg.Redis.Shards)
	blocking.MaxRetries = -1
	c.blocking = redis.NewClient(&blocking)
	questions := *opts
	questions.PoolSize = cfg.Control.Connections
	c.control = redis.NewClient(&questions)
	// Those that ask, those that answer, and those that wait for deferred results.
	verdicts := blocking
	verdicts.PoolSize = 3*cfg.Redis.Shards + 1
	c.verdicts = redis.NewClient(&verdicts)
	background := *opts
	background.PoolSize = 10
	// asynq's own scripts are not safe to send twice.
	background.MaxRetries = -1
	c.asynq = redis.NewClient(&background)
	return c, nil
}

func redisOptions(cfg *config.Config, url string) (*redis.Options, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		// The error of ParseURL may quote the URL, which may hold a password.
		return nil, errors.New("redis.url is not a usable Redis address; want redis://host:port/db, rediss:// or unix://")
	}
	password, err := cfg.Redis.ReadPassword()
	if err != nil {
		return nil, err
	}
	if cfg.Redis.Username != "" {
		opts.Username = cfg.Redis.Username
	}
	if p := password.Reveal(); p != "" {
		opts.Password = p
	}
	if err := refineTLS(opts, cfg.Redis.TLS); err != nil {
		return nil, err
	}
	opts.PoolSize = cfg.Redis.PoolSize
	if opts.PoolSize == 0 {
		opts.PoolSize = 32
	}
	opts.ContextTimeoutEnabled = true
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	// Every transition may be repeated after a lost reply.
	opts.MaxRetries = 2
	opts.MinRetryBackoff, opts.MaxRetryBackoff = 20*time.Millisecond, 200*time.Millisecond
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = 2*time.Second, 3*time.Second, 3*time.Second
	return opts, nil
}

func refineTLS(opts *redis.Options, t config.RedisTLS) error {
	if opts.TLSConfig == nil {
		return nil
	}
	opts.TLSConfig.MinVersion = tls.VersionTLS12
	if t.ServerName != "" {
		opts.TLSConfig.ServerName = t.ServerName
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return fmt.Errorf("read redis.tls.ca_file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("redis.tls.ca_file %s holds no PEM certificate", t.CAFile)
		}
		opts.TLSConfig.RootCAs = pool
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return fmt.Errorf("load redis client certificate: %w", err)
		}
		opts.TLSConfig.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// store agrees with Redis on the shards. It retries while Redis is away, so that
// the start order of a deployment does not matter.
func (c *connections) store(ctx context.Context, cfg *config.Config, log logrus.FieldLogger) (*redislane.Store, error) {
	lanes := redislane.Config{
		Client: c.commands, Blocking: c.blocking, Namespace: cfg.Redis.Namespace, Shards: cfg.Redis.Shards,
		Lease: cfg.Lane.Lease, Window: cfg.Lane.IdempotencyWindow, IdleTTL: cfg.Lane.OperationIdle,
		Embedded: c.embedded != nil,
	}
	var s *redislane.Store
	err := retrying(ctx, log, func() (err error) {
		s, err = redislane.Open(ctx, lanes)
		return err
	}, lane.ErrUnavailable)
	return s, err
}

func (c *connections) close() {
	for _, client := range []*redis.Client{c.commands, c.blocking, c.asynq, c.control, c.verdicts} {
		if client != nil {
			_ = client.Close()
		}
	}
	if c.embedded != nil {
		c.embedded.stop()
	}
}

// embedded is a miniredis whose clock ticks: without that, nothing in it would
// ever expire.
type embedded struct {
	server *miniredis.Miniredis
	done   chan struct{}
	wg     sync.WaitGroup
}

// embeddedTick is how far apart expiries may be noticed.
const embeddedTick = 250 * time.Millisecond

func startEmbedded() (*embedded, error) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("start embedded redis: %w", err)
	}
	e := &embedded{server: server, done: make(chan struct{})}
	e.wg.Add(1)
	go func() {
		defer e.wg.Done()
		tick := time.NewTicker(embeddedTick)
		defer tick.Stop()
		last := time.Now()
		for {
			select {
			case now := <-tick.C:
				server.FastForward(now.Sub(last))
				last = now
			case <-e.done:
				return
			}
		}
	}()
	return e, nil
}

func (e *embedded) stop() {
	close(e.done)
	e.wg.Wait()
	e.server.Close()
}

// redisLog hands go-redis's own lines to our log, where they belong at debug:
// every fault that matters is reported once by whoever met it.
type redisLog struct{ log *logrus.Logger }

// Printf implements go-redis's logging interface.
func (l redisLog) Printf(_ context.Context, format string, args ...any) {
	l.log.WithField(tasks.LogMessage, fmt.Sprintf(format, args...)).Debug("redis.client")
}

var redisLogOnce sync.Once

// quietRedis replaces go-redis's package-wide logger, once per process.
func quietRedis(log *logrus.Logger) { redisLogOnce.Do(func() { redis.SetLogger(redisLog{log}) }) }
