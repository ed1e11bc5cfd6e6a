package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisServerEnv names the variable that holds the path of a redis-server to
// use in place of the one on the PATH.
const RedisServerEnv = "GANTRY_REDIS_SERVER"

// ErrRedisMissing says that no redis-server was found on this machine.
var ErrRedisMissing = errors.New("redis-server not found: install the package redis-server (make test does it) or set " + RedisServerEnv)

// AppendFsync says when an append-only file is flushed to disk.
type AppendFsync string

// The flush policies; the zero value means no persistence at all.
const (
	FsyncAlways   AppendFsync = "always"
	FsyncEverySec AppendFsync = "everysec"
	FsyncNo       AppendFsync = "no"
)

// RedisOptions shape one private server. The zero value keeps everything in
// memory and listens on loopback TCP only.
type RedisOptions struct {
	// AppendOnly turns on the append-only file with the given flush policy, so
	// that data survive Kill and Restart; "" means no persistence.
	AppendOnly AppendFsync
	// UnixSocket also listens on a socket in the private directory (Redis.Socket).
	UnixSocket bool
	// Databases is the number of logical databases; 0 means 16.
	Databases int
	// Args are further arguments of redis-server. They must not demand a password.
	Args []string
}

// Redis is one private redis-server. Start one with StartRedis; its methods
// may be called by several goroutines.
type Redis struct {
	binary  string
	dir     string
	options RedisOptions

	mu   sync.Mutex
	port int
	proc *process
}

// StartRedis starts a redis-server of its own and returns once it answers. ctx
// bounds the start only. The error is ErrRedisMissing when there is none.
func StartRedis(ctx context.Context, options RedisOptions) (*Redis, error) {
	binary, err := findRedis()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gantry-redis-")
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	r := &Redis{binary: binary, dir: dir, options: options}
	for range startTries {
		if r.port, err = freePort(); err != nil {
			break
		}
		if err = r.start(ctx); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("start redis: %w", err)
	}
	return r, nil
}

// Addr returns host and port of the server.
func (r *Redis) Addr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addr()
}

// URL returns the redis:// address of database 0.
func (r *Redis) URL() string { return "redis://" + r.Addr() + "/0" }

// Socket returns the path of the unix socket; "" when none was asked for.
func (r *Redis) Socket() string {
	if !r.options.UnixSocket {
		return ""
	}
	return filepath.Join(r.dir, "redis.sock")
}

// Pid returns the process id of the server, also after it has ended.
func (r *Redis) Pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proc.pid()
}

// CPUSeconds returns the user and system time that the running server has used.
func (r *Redis) CPUSeconds() (float64, error) { return cpuSeconds(r.Pid()) }

// Kill ends the server as a crash would (SIGKILL) and returns once it is gone.
// Its directory stays for Restart.
func (r *Redis) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proc.end(syscall.SIGKILL)
}

// Restart starts the server again on the same port and in the same directory,
// so that what it persisted survives. A running server is shut down first. ctx
// bounds the start only.
func (r *Redis) Restart(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proc.end(syscall.SIGTERM)
	if err := r.start(ctx); err != nil {
		return fmt.Errorf("restart redis: %w", err)
	}
	return nil
}

// Stop ends the server and removes its directory. It may be called twice.
func (r *Redis) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proc.end(syscall.SIGTERM)
	_ = os.RemoveAll(r.dir)
}

func (r *Redis) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

func (r *Redis) start(ctx context.Context) error {
	cmd := exec.Command(r.binary, r.args()...)
	cmd.Dir = r.dir
	cmd.SysProcAttr = dieWithParent(syscall.SIGKILL)
	proc, err := startProcess(cmd, r.dir)
	if err != nil {
		return err
	}
	if err := awaitRedis(ctx, proc, r.addr()); err != nil {
		proc.end(syscall.SIGKILL)
		return err
	}
	r.proc = proc
	return nil
}

func (r *Redis) args() []string {
	args := []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(r.port), "--dir", r.dir,
		"--daemonize", "no", "--save", "", "--loglevel", "warning",
	}
	if r.options.AppendOnly != "" {
		args = append(args, "--appendonly", "yes", "--appendfsync", string(r.options.AppendOnly))
	}
	if r.options.UnixSocket {
		args = append(args, "--unixsocket", r.Socket())
	}
	if r.options.Databases > 0 {
		args = append(args, "--databases", strconv.Itoa(r.options.Databases))
	}
	return append(args, r.options.Args...)
}

// awaitRedis returns once proc itself answers at addr: a foreign server that
// won the race for the port answers too, but with another process id.
func awaitRedis(ctx context.Context, proc *process, addr string) error {
	client := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, PoolSize: 1, DialTimeout: time.Second,
	})
	defer func() { _ = client.Close() }()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if client.Ping(ctx).Err() == nil {
			return checkPid(ctx, client, proc)
		}
		select {
		case <-proc.done:
			return proc.ended()
		case <-ctx.Done():
			return fmt.Errorf("await an answer of redis-server: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func checkPid(ctx context.Context, client *redis.Client, proc *process) error {
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("ask redis-server for its process id: %w", err)
	}
	if !strings.Contains(info, "process_id:"+strconv.Itoa(proc.pid())+"\r\n") {
		return errPortTaken
	}
	return nil
}

func findRedis() (string, error) {
	if path := os.Getenv(RedisServerEnv); path != "" {
		if _, err := exec.LookPath(path); err != nil {
			return "", fmt.Errorf("%w (%s=%s: %w)", ErrRedisMissing, RedisServerEnv, path, err)
		}
		return path, nil
	}
	for _, name := range []string{"redis-server", "/usr/bin/redis-server", "/usr/local/bin/redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrRedisMissing
}
