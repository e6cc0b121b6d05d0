package tour

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child that can be started, killed and started again.
type process struct {
	executable string
	args       []string
	environ    []string
	log        string // both outputs are appended here

	cmd    *exec.Cmd
	exited chan struct{} // nil until the first start
	err    error         // valid once exited is closed
}

func (p *process) start() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { _ = log.Close() }()            // the child has its own
	p.cmd = exec.Command(p.executable, p.args...) //nolint:gosec,noctx // this very program; it is stopped by hand
	p.cmd.Env = p.environ
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		// The child ends with the thread that started it (childAttributes), so
		// that thread is kept for as long as the child lives.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start orders %s: %w", p.args[0], err)
	}
	p.exited = exited
	return nil
}

// ended says whether there is no process, or none any more.
func (p *process) ended() bool {
	if p == nil || p.exited == nil {
		return true
	}
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// kill ends the process as a crash would (SIGKILL) and waits for its end.
func (p *process) kill() error {
	if p.ended() {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill: %w", err)
	}
	<-p.exited
	return nil
}

// stop asks the process to end, and expects it to do so in good order.
func (p *process) stop() error {
	if p.ended() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop orders %s: %w", p.args[0], err)
	}
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("orders %s did not end in good order: %w", p.args[0], p.err)
		}
		return nil
	case <-patience.C:
		return errors.Join(fmt.Errorf("orders %s did not end within a minute", p.args[0]), p.kill())
	}
}

// freeAddress finds a port that a child can listen on, more than once.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
