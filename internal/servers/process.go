package servers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// pollEvery is how often a starting server is asked whether it is ready.
const pollEvery = 5 * time.Millisecond

// startTries bounds how often a start is repeated after another process took
// the port between its choice and its use.
const startTries = 5

// errPortTaken says that the server ended because its port was in use.
var errPortTaken = errors.New("port is taken")

// process is one running child; done is closed once it has been reaped.
type process struct {
	cmd     *exec.Cmd
	logPath string
	done    chan struct{}
}

// startProcess starts cmd with its output in a log file of dir. The child is
// killed by the kernel when this process ends, as far as the system can do so.
func startProcess(cmd *exec.Cmd, dir string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, "server.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open server log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log

	p := &process{cmd: cmd, logPath: log.Name(), done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	return p, nil
}

// run owns the child from fork to reaping. The kernel ties the parent-death
// signal to the forking thread, so that thread must live as long as the child.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	_ = p.cmd.Wait()
	close(p.done)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// end sends sig, waits for the child, and kills it when it takes too long.
func (p *process) end(sig os.Signal) {
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.cmd.Process.Signal(sig)
	patience := time.NewTimer(5 * time.Second)
	defer patience.Stop()
	select {
	case <-p.done:
	case <-patience.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// ended explains why the child is gone, with the end of its log.
func (p *process) ended() error {
	tail := p.logTail()
	if strings.Contains(tail, "ddress already in use") {
		return fmt.Errorf("%s: %w", filepath.Base(p.cmd.Path), errPortTaken)
	}
	return fmt.Errorf("%s ended at once (%s): %s", filepath.Base(p.cmd.Path), p.cmd.ProcessState, tail)
}

func (p *process) logTail() string {
	const keep = 2048
	f, err := os.Open(p.logPath)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > keep {
		_, _ = f.Seek(-keep, io.SeekEnd)
	}
	text, _ := io.ReadAll(io.LimitReader(f, keep))
	return strings.TrimSpace(string(text))
}

// freePort returns a loopback port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("find a free port: unexpected address %s", l.Addr())
	}
	return addr.Port, nil
}
