// Package subprocess starts programs that end with the process that started them, kills them
// and starts them again.
package subprocess

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a program. Its methods must be called from one goroutine.
type Process struct {
	Name       string // in errors
	Executable string
	Args       []string
	Environ    []string
	Log        string // path of the file to which stdout and stderr are appended

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
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command(p.Executable, p.Args...) //nolint:gosec,noctx // our own program, which Stop and Kill end
	p.cmd.Env = p.Environ
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = attributes()
	started := make(chan error)
	exited := make(chan struct{})
	go func() {
		// On Linux the child ends with the thread that started it (see attributes).
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

// Serve starts a program that serves HTTP, and returns when a GET of url returns 200.
func (p *Process) Serve(ctx context.Context, url string) error {
	if err := p.Start(); err != nil {
		return err
	}
	const timeout = 15 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("waited for %s", timeout))
	defer cancel()
	for !isReady(ctx, url) {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-p.exited:
			return errors.Join(fmt.Errorf("%s exited during its start, see %s", p.Name, p.Log), p.err)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.Name, context.Cause(ctx))
		}
	}
	return nil
}

func isReady(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits until the program exits by itself.
func (p *Process) Wait() error {
	<-p.exited
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.Name, p.err)
	}
	return nil
}

// Exited reports whether no process is running.
func (p *Process) Exited() bool {
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

// Kill sends SIGKILL, like a crash, and waits for the exit.
func (p *Process) Kill() error {
	if p.Exited() {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	return nil
}

// Stop sends SIGTERM and returns an error unless the process exits with 0 within a minute.
func (p *Process) Stop() error {
	if p.Exited() {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return p.Wait()
	case <-time.After(time.Minute):
		return errors.Join(fmt.Errorf("%s did not stop within a minute", p.Name), p.Kill())
	}
}

func (p *Process) signal(signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	return nil
}

// FreeAddress returns a free loopback address. Its port is below those that the kernel gives to
// listeners without one, so none of them takes it before the caller's process does.
func FreeAddress(ctx context.Context) (string, error) {
	var listener net.Listener
	var err error
	for range 20 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.N(12_000)) //nolint:gosec // no secret
		if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err == nil {
			break
		}
	}
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
