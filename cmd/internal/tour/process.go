package tour

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
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
	exited chan struct{}
	err    error // valid once exited is closed
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
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start orders %s: %w", p.args[0], err)
	}
	p.exited = make(chan struct{})
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return nil
}

// kill ends the process as a crash would (SIGKILL) and waits for its end.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	<-p.exited
	return nil
}

// stop asks the process to end, and expects it to do so in good order.
func (p *process) stop() error {
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	select {
	case <-p.exited:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
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
		return fmt.Errorf("orders %s did not end within a minute: %w", p.args[0], p.kill())
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
