package stripemock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// startTimeout is long against the second that reading its 8 MB API
// description takes on an idle machine.
const startTimeout = time.Minute

// Start runs stripe-mock on a free port of the loopback interface and returns
// its URL. The process ends with the test, on Linux also when the test binary
// is killed.
func Start(t testing.TB) (baseURL string) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("stripemock: %v", err)
	}

	output, printed := io.Pipe()
	// It would open its standard port for HTTPS if none was named. The context
	// of the test ends, and kills it, before the cleanups run.
	cmd := exec.CommandContext(t.Context(), binary, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = printed, printed
	endWithParent(cmd)

	exited := make(chan struct{})
	t.Cleanup(func() { <-exited })
	go func() {
		defer close(exited)
		// What kills it with its parent watches the thread that started it, so
		// this thread stays until it has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		printed.CloseWithError(errors.Join(errors.New("stripe-mock ended"), cmd.Run()))
	}()

	address := make(chan string, 1)
	failed := make(chan error, 1)
	go func() { failed <- follow(output, address) }()
	select {
	case a := <-address: // printed when it was already listening
		return "http://" + a
	case err := <-failed:
		t.Fatalf("stripemock: %v", err)
	case <-time.After(startTimeout):
		t.Fatalf("stripemock: not listening after %v", startTimeout)
	}
	return ""
}

// build returns the path of the tool pinned in tools/go.mod, building it when
// it is not in the build cache. The path is run directly because "go tool"
// would be one more process between it and the test.
func build() (string, error) {
	root, err := goCommand("", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	flags, err := goCommand("", "env", "GOFLAGS")
	if err != nil {
		return "", err
	}
	if underRace() {
		// The standard library is compiled for the race detector already.
		flags += " -race"
	}
	return goCommand(flags, "-C", filepath.Join(filepath.Dir(root), "tools"), "tool", "-n", "stripe-mock")
}

func goCommand(flags string, args ...string) (string, error) {
	cmd := exec.Command("go", args...) //nolint:noctx // the test has a deadline of its own
	if flags != "" {
		cmd.Env = append(cmd.Environ(), "GOFLAGS="+flags)
	}
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// follow reads what stripe-mock prints until it ends, and hands on the address
// it listens at. It must go on reading: a line is printed for each request.
func follow(output io.Reader, address chan<- string) error {
	last := ""
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		last = lines.Text()
		if a, ok := strings.CutPrefix(last, "Listening for HTTP at address: "); ok {
			address <- a
		}
	}
	return fmt.Errorf("%w, its last line being %q", lines.Err(), last)
}

// underRace says whether this program was built with the race detector.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
