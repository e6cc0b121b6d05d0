package child

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a program that can be started, killed and started again. Its fields
// are set before, and its methods called by one goroutine.
type Process struct {
	Name       string // for people
	Executable string
	Args       []string
	Environ    []string
	Log        string // path of a file to which both outputs are appended

	cmd    *exec.Cmd
	exited chan struct{} // nil until the first start
	err    error         // valid once exited is closed
}

// Start starts the program.
func (p *Process) Start() error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }()            // the child has its own
	p.cmd = exec.Command(p.Executable, p.Args...) //nolint:gosec,noctx // a program of ours; it is stopped by hand
	p.cmd.Env = p.Environ
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
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.exited = exited
	return nil
}

// Serve starts a program that serves HTTP, and returns when url answers 200.
func (p *Process) Serve(ctx context.Context, url string) error {
	if err := p.Start(); err != nil {
		return err
	}
	const patience = 15 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited for %s", patience))
	defer cancel()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !answers(ctx, transport, url) {
		select {
		case <-ticker.C:
		case <-p.exited:
			return errors.Join(fmt.Errorf("%s ended at its start, see %s", p.Name, p.Log), p.err)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.Name, context.Cause(ctx))
		}
	}
	return nil
}

func answers(ctx context.Context, transport *http.Transport, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits until the program has ended by itself.
func (p *Process) Wait() error {
	<-p.exited
	return p.err
}

// Ended says whether there is no process, or none any more.
func (p *Process) Ended() bool {
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

// Kill ends the process as a crash would (SIGKILL) and waits for its end.
func (p *Process) Kill() error {
	if p.Ended() {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", p.Name, err)
	}
	<-p.exited
	return nil
}

// Stop asks the process to end, and expects it to do so in good order.
func (p *Process) Stop() error {
	if p.Ended() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("%s did not end in good order: %w", p.Name, p.err)
		}
		return nil
	case <-patience.C:
		return errors.Join(fmt.Errorf("%s did not end within a minute", p.Name), p.Kill())
	}
}

// FreeAddress finds a port that a child can listen on, more than once.
func FreeAddress(ctx context.Context) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
