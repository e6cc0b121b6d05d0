package main_test

import (
	"bytes"
	"errors"
	"flag"
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

	orders "example.com/orders-api/cmd/orders"
	"example.com/orders-api/migrations/dbtest"
)

// beProgram makes the test binary run as the program, so that no other build is needed.
const beProgram = "ORDERS_TEST_BE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(beProgram) != "" {
		orders.Main()
		os.Exit(0)
	}
	// The tests mostly wait for processes. The flag -parallel overrides this.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(dbtest.Main{M: m}.Run())
}

const waitTimeout = time.Minute

type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	exited         chan struct{}
}

type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func start(t *testing.T, environ []string, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(program, args...), exited: make(chan struct{})}
	p.cmd.Env = append(slices.Clip(environ), beProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.SysProcAttr = attributes()
	p.cmd.WaitDelay = waitTimeout // an orphaned child would keep the output open
	require.NoError(t, p.cmd.Start())
	waited := make(chan error, 1)
	go func() {
		waited <- p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if err := <-waited; errors.Is(err, exec.ErrWaitDelay) {
			t.Errorf("orders %v left an orphaned child", args)
		}
		if t.Failed() {
			t.Logf("orders %v: %s\n%s%s", args, p.cmd.ProcessState, lastLines(p.stdout.String()), lastLines(p.stderr.String()))
		}
	})
	return p
}

func lastLines(text string) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "")
}

func (p *process) signal(signal syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.t, err)
	}
}

// wait returns the exit code, -1 after a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(waitTimeout):
		require.Fail(p.t, "the process does not exit", "%v", p.cmd.Args)
		return 0
	}
}

func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	require.Zero(p.t, p.wait(), "%s", &p.stderr)
}

func (p *process) waitFor(out *output, pattern string) []string {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	var match []string
	eventually(p.t, func() bool {
		exited := p.hasExited()
		match = expression.FindStringSubmatch(out.String())
		require.True(p.t, match != nil || !exited, "the process exited without printing %s", pattern)
		return match != nil
	})
	return match
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func run(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := start(t, environ, args...)
	code = p.wait()
	return code, p.stdout.String(), p.stderr.String()
}

func succeed(t *testing.T, environ []string, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := run(t, environ, args...)
	require.Zero(t, code, stderr)
	return stdout, stderr
}

func fail(t *testing.T, environ []string, args ...string) (stderr string) {
	t.Helper()
	code, stdout, stderr := run(t, environ, args...)
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	return stderr
}

func eventually(t *testing.T, done func() bool) {
	t.Helper()
	eventuallyEvery(t, 10*time.Millisecond, done)
}

func eventuallyEvery(t *testing.T, interval time.Duration, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	deadline := time.After(waitTimeout)
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline:
			require.Fail(t, "the condition was not met in time")
		}
	}
}

func environ(t *testing.T, settings ...string) []string {
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
	if value(environ, "DATABASE_URL") == "" {
		environ = append(environ, "PG_BIN="+serverPrograms(t))
	}
	return environ
}

func value(environ []string, name string) string {
	found := ""
	for _, setting := range environ {
		if rest, ok := bytes.CutPrefix([]byte(setting), []byte(name+"=")); ok {
			found = string(rest)
		}
	}
	return found
}

// serverPrograms returns the folder of the PostgreSQL programs, so that no process
// downloads them.
func serverPrograms(t *testing.T) string {
	t.Helper()
	var folder string
	require.NoError(t, dbtest.Empty(t).QueryRow(t.Context(), "SELECT setting FROM pg_config WHERE name = 'BINDIR'").Scan(&folder))
	if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
		return "" // the server runs on another machine
	}
	return folder
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
