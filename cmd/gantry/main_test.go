package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

// The tests are in the package itself because a command has nothing to import;
// they go through run and through processes only.

// asCommand makes the test binary behave as the command, so that a test can
// start, signal and kill real processes without building another binary.
const asCommand = "TEST_BINARY_IS_GANTRY"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(runMain())
	}
	servertest.Main(m)
}

// patience is far more than anything here takes.
const patience = 30 * time.Second

// result is what a command came to.
type commandResult struct {
	code     int
	out, err string
}

// invoke runs a command line within the test.
func invoke(t *testing.T, env map[string]string, args ...string) commandResult {
	t.Helper()
	return invokeWith(t.Context(), strings.NewReader(""), env, args...)
}

func invokeWith(ctx context.Context, in io.Reader, env map[string]string, args ...string) commandResult {
	var out, errs bytes.Buffer
	names := make([]string, 0, len(env))
	for name := range env {
		names = append(names, name)
	}
	code := run(ctx, args, &process{
		in: in, out: &out, err: &errs, names: names,
		env: func(name string) (string, bool) { value, ok := env[name]; return value, ok },
	})
	return commandResult{code, out.String(), errs.String()}
}

// file writes a file of the test's own.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
	return path
}

// command is a running process of the command.
type command struct {
	*exec.Cmd
	log   *lines
	ended chan error
}

// launch starts a process with nothing in its environment but env, and kills it
// at the end of the test if it still runs.
func launch(t *testing.T, env []string, args ...string) *command {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("find the test binary: %v", err)
	}
	c := &command{Cmd: exec.Command(self, args...), log: newLines(), ended: make(chan error, 1)}
	c.Env = append([]string{asCommand + "=1", "GANTRY_LOG_FORMAT=json"}, env...)
	c.Stdout, c.Stderr = c.log, c.log
	if err := c.Start(); err != nil {
		t.Fatalf("start gantry %s: %v", strings.Join(args, " "), err)
	}
	done := make(chan struct{})
	go func() {
		c.ended <- c.Wait()
		close(done)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		<-done
		if t.Failed() {
			t.Logf("gantry %s wrote:\n%s", strings.Join(args, " "), c.log)
		}
	})
	return c
}

// wait waits for the process's own end.
func (c *command) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-c.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("the process did not end within %s", patience)
		return errors.New("unreachable")
	}
}

// lines gathers output and tells when a text has come.
type lines struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{}
}

func newLines() *lines { return &lines{grown: make(chan struct{}, 1)} }

// Write takes output.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	select {
	case l.grown <- struct{}{}:
	default:
	}
	return len(p), nil
}

// String returns what came so far.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until text has come n times.
func (l *lines) await(t *testing.T, text string, n int) {
	t.Helper()
	deadline := time.After(patience)
	for strings.Count(l.String(), text) < n {
		select {
		case <-l.grown:
		case <-deadline:
			t.Fatalf("waited %s for %q; got:\n%s", patience, text, l)
		}
	}
}
