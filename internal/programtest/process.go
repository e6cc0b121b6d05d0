// Package programtest runs the program as a process, with a fake Stripe and a mail server.
package programtest

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

// beProgram makes the test binary run as the program, so that no other build is needed.
const beProgram = "ORDERS_TEST_BE_PROGRAM"

// Main runs the tests, or the program in a process that [Start] has started.
func Main(m *testing.M, program func()) {
	if os.Getenv(beProgram) != "" {
		program()
		os.Exit(0)
	}
	os.Exit(dbtest.Main{M: m}.Run())
}

// WaitTimeout bounds every wait, on a busy machine too.
const WaitTimeout = time.Minute

// Process is a running program.
type Process struct {
	T              *testing.T
	Cmd            *exec.Cmd
	Stdout, Stderr Output
	exited         chan struct{}
}

// Output collects the output of a process.
type Output struct {
	mu     sync.Mutex
	Text   bytes.Buffer
	closed bool
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, os.ErrClosed // exec closes its end of the pipe
	}
	return o.Text.Write(p)
}

// Close closes our end of the pipe at the next output, as if its reader were gone.
func (o *Output) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Text.String()
}

// Start starts the program that the test binary contains, see [Main]. The end of the test kills it.
func Start(t *testing.T, environ []string, args ...string) *Process {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	return StartProgram(t, program, append(slices.Clip(environ), beProgram+"=1"), args...)
}

// StartProgram is [Start] for another program.
func StartProgram(t *testing.T, program string, environ []string, args ...string) *Process {
	t.Helper()
	p := &Process{T: t, Cmd: exec.Command(program, args...), exited: make(chan struct{})}
	p.Cmd.Env = environ
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Stdout, &p.Stderr
	p.Cmd.SysProcAttr = attributes()
	p.Cmd.WaitDelay = WaitTimeout // an orphaned child would keep the output open
	require.NoError(t, p.Cmd.Start())
	waited := make(chan error, 1)
	go func() {
		waited <- p.Cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		<-p.exited
		if err := <-waited; errors.Is(err, exec.ErrWaitDelay) {
			t.Errorf("%v left an orphaned child", args)
		}
		if t.Failed() {
			t.Logf("%v: %s\n%s%s", args, p.Cmd.ProcessState, lastLines(p.Stdout.String()), lastLines(p.Stderr.String()))
		}
	})
	return p
}

func lastLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "")
}

// Signal sends a signal to a process that may have exited.
func (p *Process) Signal(signal syscall.Signal) {
	p.T.Helper()
	if err := p.Cmd.Process.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.T, err)
	}
}

// Wait returns the exit code, -1 after a signal.
func (p *Process) Wait() int {
	p.T.Helper()
	select {
	case <-p.exited:
		return p.Cmd.ProcessState.ExitCode()
	case <-time.After(WaitTimeout):
		require.Fail(p.T, "the process does not exit", "%v", p.Cmd.Args)
		return 0
	}
}

// Stop stops the process and requires the exit code 0.
func (p *Process) Stop() {
	p.T.Helper()
	p.Signal(syscall.SIGTERM)
	require.Zero(p.T, p.Wait(), "%s", &p.Stderr)
}

// WaitFor waits until the output matches, and returns the groups.
func (p *Process) WaitFor(out *Output, pattern string) []string {
	p.T.Helper()
	expression := regexp.MustCompile(pattern)
	var match []string
	Eventually(p.T, func() bool {
		exited := p.HasExited()
		match = expression.FindStringSubmatch(out.String())
		require.True(p.T, match != nil || !exited, "the process exited without printing %s", pattern)
		return match != nil
	})
	return match
}

// HasExited reports whether the process has exited.
func (p *Process) HasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Run runs the program to its end.
func Run(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := Start(t, environ, args...)
	code = p.Wait()
	return code, p.Stdout.String(), p.Stderr.String()
}

// Succeed requires the exit code 0.
func Succeed(t *testing.T, environ []string, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := Run(t, environ, args...)
	require.Zero(t, code, stderr)
	return stdout, stderr
}

// Fail requires the exit code 1 and no output but an error.
func Fail(t *testing.T, environ []string, args ...string) (stderr string) {
	t.Helper()
	code, stdout, stderr := Run(t, environ, args...)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	return stderr
}

// Eventually calls done until it returns true.
func Eventually(t *testing.T, done func() bool) {
	t.Helper()
	EventuallyEvery(t, 10*time.Millisecond, done)
}

// EventuallyEvery is [Eventually] with an interval.
func EventuallyEvery(t *testing.T, interval time.Duration, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	deadline := time.After(WaitTimeout)
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline:
			require.Fail(t, "the condition was not met in time")
		}
	}
}

// Environ returns only these settings and a temporary home.
func Environ(t *testing.T, settings ...string) []string {
	t.Helper()
	home, err := os.MkdirTemp("", "orders-home-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	temporary := filepath.Join(home, "tmp")
	// For root, the private PostgreSQL runs as nobody, which needs access.
	for _, folder := range []string{home, temporary, filepath.Join(home, ".cache"), filepath.Join(home, "Library"), filepath.Join(home, "Library/Caches")} {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.Chmod(folder, 0o755))
	}
	// The race detector sleeps for a second at each exit unless GORACE disables that.
	environ := append([]string{"ADMIN_ADDR=", "GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + temporary}, settings...)
	if Value(environ, "DATABASE_URL") == "" {
		environ = append(environ, "PG_BIN="+ServerPrograms(t))
	}
	return environ
}

// Value returns a variable of an environment.
func Value(environ []string, name string) string {
	found := ""
	for _, setting := range environ {
		if value, ok := strings.CutPrefix(setting, name+"="); ok {
			found = value
		}
	}
	return found
}

// ServerPrograms returns the folder of the PostgreSQL programs, so that no process
// downloads them.
func ServerPrograms(t *testing.T) string {
	t.Helper()
	var folder string
	require.NoError(t, dbtest.Empty(t).QueryRow(t.Context(), "SELECT setting FROM pg_config WHERE name = 'BINDIR'").Scan(&folder))
	if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
		return "" // the server runs on another machine
	}
	return folder
}

// Discard returns a logger without output.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
