package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// PostgresBinEnv names the variable that holds the directory of initdb and
// postgres to use in place of the installed ones.
const PostgresBinEnv = "GANTRY_POSTGRES_BIN"

// ErrPostgresMissing says that no PostgreSQL server was found on this machine.
var ErrPostgresMissing = errors.New("initdb and postgres not found: install the package postgresql (make test does it) or set " + PostgresBinEnv)

// Postgres is one private PostgreSQL server with an empty database "postgres",
// open to anybody on loopback. Start one with StartPostgres.
type Postgres struct {
	root  string
	bin   string
	port  int
	owner *owner
	proc  *process
}

// owner is the user that runs the server when this process is root, which
// PostgreSQL refuses; nil means the current user.
type owner struct{ uid, gid int }

// StartPostgres makes a new cluster, starts a server on it and returns once it
// accepts connections. ctx bounds the start only. The error is
// ErrPostgresMissing when there is none.
func StartPostgres(ctx context.Context) (*Postgres, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin}
	if p.owner, err = serverOwner(); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if p.root, err = os.MkdirTemp("", "gantry-pg-"); err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	if err := p.create(ctx); err != nil {
		_ = os.RemoveAll(p.root)
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return p, nil
}

// DSN returns the connection URL of the database, over loopback TCP.
func (p *Postgres) DSN() string {
	return "postgres://postgres@" + p.Addr() + "/postgres?sslmode=disable"
}

// SocketDSN returns the connection URL of the database, over the unix socket.
func (p *Postgres) SocketDSN() string {
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s&port=%d&sslmode=disable", p.root, p.port)
}

// Addr returns host and port of the server.
func (p *Postgres) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// Dir returns the private directory with socket, log and data.
func (p *Postgres) Dir() string { return p.root }

// Stop ends the server and removes its data. It may be called twice.
func (p *Postgres) Stop() {
	// SIGQUIT skips the checkpoint: nothing of the data is wanted any more.
	p.proc.end(syscall.SIGQUIT)
	_ = os.RemoveAll(p.root)
}

func (p *Postgres) data() string { return filepath.Join(p.root, "data") }

func (p *Postgres) create(ctx context.Context) error {
	if p.owner != nil {
		if err := os.Chown(p.root, p.owner.uid, p.owner.gid); err != nil {
			return fmt.Errorf("hand over the data directory: %w", err)
		}
	}
	initdb, err := p.command("initdb", "--pgdata="+p.data(), "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	proc, err := startProcess(initdb, p.root)
	if err != nil {
		return err
	}
	select {
	case <-proc.done:
	case <-ctx.Done():
		proc.end(syscall.SIGKILL)
		return fmt.Errorf("await initdb: %w", context.Cause(ctx))
	}
	if !initdb.ProcessState.Success() {
		return proc.ended()
	}
	for range startTries {
		if p.port, err = freePort(); err != nil {
			return err
		}
		if err = p.start(ctx); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

func (p *Postgres) start(ctx context.Context) error {
	// A private server of a test has nothing to lose: durability is off.
	cmd, err := p.command("postgres", "-D", p.data(), "-p", strconv.Itoa(p.port), "-k", p.root,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "synchronous_commit=off",
		"-c", "full_page_writes=off", "-c", "shared_buffers=16MB", "-c", "max_connections=50")
	if err != nil {
		return err
	}
	proc, err := startProcess(cmd, p.root)
	if err != nil {
		return err
	}
	if err := p.awaitReady(ctx, proc); err != nil {
		proc.end(syscall.SIGQUIT)
		return err
	}
	p.proc = proc
	return nil
}

// awaitReady reads the state that the server itself writes into its pid file.
func (p *Postgres) awaitReady(ctx context.Context, proc *process) error {
	const statusLine = 7
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(filepath.Join(p.data(), "postmaster.pid"))
		lines := strings.Split(string(text), "\n")
		if err == nil && len(lines) > statusLine && lines[0] == strconv.Itoa(proc.pid()) &&
			strings.TrimSpace(lines[statusLine]) == "ready" {
			return nil
		}
		select {
		case <-proc.done:
			return proc.ended()
		case <-ctx.Done():
			return fmt.Errorf("await the start of postgres: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func (p *Postgres) command(name string, args ...string) (*exec.Cmd, error) {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = p.root
	cmd.Env = append(os.Environ(), "HOME="+p.root, "LC_ALL=C")
	cmd.SysProcAttr = dieWithParent(syscall.SIGQUIT)
	if p.owner == nil {
		return cmd, nil
	}
	return cmd, runAs(cmd.SysProcAttr, uint32(p.owner.uid), uint32(p.owner.gid))
}

func serverOwner() (*owner, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("read the ids of user %s: %w", name, err)
		}
		return &owner{uid: uid, gid: gid}, nil
	}
	return nil, errors.New("run postgres as root: no user postgres or nobody to run it as")
}

func findPostgres() (string, error) {
	candidates := []string{os.Getenv(PostgresBinEnv)}
	if candidates[0] == "" {
		candidates = nil
		if path, err := exec.LookPath("postgres"); err == nil {
			candidates = append(candidates, filepath.Dir(path))
		}
		installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
		// The newest release stands last in the listing.
		slices.Reverse(installed)
		candidates = append(candidates, installed...)
	}
	for _, dir := range candidates {
		_, initdbErr := exec.LookPath(filepath.Join(dir, "initdb"))
		_, postgresErr := exec.LookPath(filepath.Join(dir, "postgres"))
		if initdbErr == nil && postgresErr == nil {
			return dir, nil
		}
	}
	return "", ErrPostgresMissing
}
