// Package programtest builds the program and runs it as a process, with a database and
// the fake Stripe.
package programtest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

// Timeout bounds every wait, on a busy machine too.
const Timeout = time.Minute

// program is the path that [Main] sets. It is a package variable because tests share no
// other state.
var program string

// Main builds the program, runs the tests and stops their database server:
//
//	func TestMain(m *testing.M) { os.Exit(programtest.Main{M: m}.Run()) }
type Main struct{ *testing.M }

// Run returns the exit code.
func (m Main) Run() int {
	folder, err := os.MkdirTemp("", "orders-program-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	program = filepath.Join(folder, "orders")
	build := exec.Command("go", "build", "-o", folder, "./cmd/orders", "./cmd/playground") //nolint:noctx // go test bounds it
	build.Dir = filepath.Join("..", "..")
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n%s", build, err, output)
		return 1
	}
	return dbtest.Main{M: m.M}.Run()
}

// Program returns the path of the program.
func Program() string { return program }

// Playground returns the path of the playground, which runs everything in one process.
func Playground() string { return filepath.Join(filepath.Dir(program), "playground") }

// Output collects the output of a process.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Process is a running program.
type Process struct {
	Stdout, Stderr Output

	t      *testing.T
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts the program. The end of the test kills it.
func Start(t *testing.T, environ []string, args ...string) *Process {
	t.Helper()
	return StartProgram(t, program, environ, args...)
}

// StartProgram is [Start] for the program of another version.
func StartProgram(t *testing.T, path string, environ []string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.CommandContext(t.Context(), path, args...), exited: make(chan struct{})}
	p.cmd.Env = environ
	p.cmd.Stdout, p.cmd.Stderr = &p.Stdout, &p.Stderr
	p.cmd.WaitDelay = Timeout // an orphaned child would keep the output open
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait() // Wait returns the exit code
	}()
	t.Cleanup(func() {
		<-p.exited
		if t.Failed() {
			t.Logf("orders %v: %s\n%s%s", args, p.cmd.ProcessState, &p.Stdout, &p.Stderr)
		}
	})
	return p
}

// Run requires the exit code 0 and returns the standard output.
func Run(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	p := Start(t, environ, args...)
	require.Zero(t, p.Wait(), "orders %v: %s", args, &p.Stderr)
	return p.Stdout.String()
}

// Signal sends a signal to a process that may have exited.
func (p *Process) Signal(signal syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); !errors.Is(err, os.ErrProcessDone) {
		require.NoError(p.t, err)
	}
}

// Wait returns the exit code, -1 after a signal.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(Timeout):
		require.Fail(p.t, "the process does not exit", "%v", p.cmd.Args)
		return 0
	}
}

// Stop stops the process and requires the exit code 0.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	require.Zero(p.t, p.Wait(), "%s", &p.Stderr)
}

// WaitFor waits until the output matches, and returns the groups.
func (p *Process) WaitFor(out *Output, pattern string) []string {
	p.t.Helper()
	expression := regexp.MustCompile(pattern)
	var match []string
	Eventually(p.t, func() bool {
		exited := p.hasExited()
		match = expression.FindStringSubmatch(out.String())
		require.True(p.t, match != nil || !exited, "the process exited without printing %s", pattern)
		return match != nil
	})
	return match
}

func (p *Process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Eventually calls done until it returns true.
func Eventually(t *testing.T, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(Timeout)
	for !done() {
		select {
		case <-ticker.C:
		case <-deadline:
			require.Fail(t, "the condition was not met in time")
		}
	}
}

// FreePort returns a random port of 127.0.0.1 below the system's ephemeral ports, so that a
// restarted server can probably use it again.
func FreePort() (int, error) {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		offset, err := rand.Int(rand.Reader, big.NewInt(20_000))
		if err != nil {
			return 0, err
		}
		port := 10_000 + int(offset.Int64())
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, listener.Close()
		}
		if attempt == attempts {
			return 0, err
		}
	}
}

// Environ returns only these settings and a temporary home.
func Environ(t *testing.T, settings ...string) []string {
	t.Helper()
	home, err := os.MkdirTemp("", "orders-home-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(home)) })
	// PostgreSQL does not run as root and needs access.
	temporary := filepath.Join(home, "tmp")
	for _, folder := range []string{home, temporary, filepath.Join(home, ".cache"), filepath.Join(home, "Library"), filepath.Join(home, "Library/Caches")} {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		require.NoError(t, os.Chmod(folder, 0o755))
	}
	environ := append([]string{"ADMIN_ADDR=", "LISTEN_ADDR=127.0.0.1:0", "PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + temporary}, settings...)
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

// ServerPrograms returns the folder of the tests' PostgreSQL programs. A temporary home
// would download them again.
func ServerPrograms(t *testing.T) string {
	t.Helper()
	var folder string
	require.NoError(t, dbtest.Empty(t).QueryRow(t.Context(), "SELECT setting FROM pg_config WHERE name = 'BINDIR'").Scan(&folder))
	if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
		return "" // the server runs on another machine
	}
	return folder
}
