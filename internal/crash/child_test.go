package crash_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// timeout bounds every wait. It is longer than any timeout of the program.
const timeout = 30 * time.Second

type child struct {
	t      testing.TB
	cmd    *exec.Cmd
	log    log
	exited chan struct{}
}

func start(t testing.TB, program string, environ []string, args ...string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(program, args...), exited: make(chan struct{})}
	c.log.listening = make(chan string, 1)
	c.cmd.Env = slices.Clone(environ)
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.cmd.SysProcAttr = attributes()
	require.NoError(t, c.cmd.Start())
	go func() {
		_ = c.cmd.Wait()
		close(c.exited)
	}()
	t.Cleanup(func() {
		c.kill()
		if c.log.contains("_secret_") {
			t.Error("the log contains a client secret")
		}
		if t.Failed() {
			t.Logf("orders %s: %s\n%s", strings.Join(args, " "), c.cmd.ProcessState, c.log.tail())
		}
	})
	return c
}

func (c *child) url() string {
	c.t.Helper()
	select {
	case address := <-c.log.listening:
		c.log.listening <- address // for the next call
		return "http://" + address
	case <-c.exited:
		require.Fail(c.t, "the program ended", c.log.tail())
	case <-time.After(timeout):
		require.Fail(c.t, "the program does not listen", c.log.tail())
	}
	return ""
}

func (c *child) signal(s syscall.Signal) {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Errorf("signal %v: %v", s, err)
	}
}

func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.exited
}

// wait returns the exit code, -1 after a signal, or false after the timeout.
func (c *child) wait() (code int, ended bool) {
	select {
	case <-c.exited:
		return c.cmd.ProcessState.ExitCode(), true
	case <-time.After(timeout):
		return 0, false
	}
}

type log struct {
	mu        sync.Mutex
	text      bytes.Buffer
	found     bool
	listening chan string
}

var listening = regexp.MustCompile(`msg=listening address=(\S+)\n`)

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if match := listening.FindSubmatch(l.text.Bytes()); !l.found && match != nil {
		l.found = true
		l.listening <- string(match[1])
	}
	return len(p), nil
}

func (l *log) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.text.Bytes(), []byte(text))
}

func (l *log) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.SplitAfter(l.text.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "")
}

// attributes end a child, also a stopped one, with the test binary. Only Linux has
// Pdeathsig: elsewhere the children of a killed test binary continue.
func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{}
	if signal := reflect.ValueOf(a).Elem().FieldByName("Pdeathsig"); signal.IsValid() {
		signal.SetInt(int64(syscall.SIGKILL))
	}
	return a
}
