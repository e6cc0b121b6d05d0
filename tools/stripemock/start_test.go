//go:build linux

// Package stripemock_test sends the requests of package payments to stripe-mock, Stripe's
// server that checks requests against the published API description. It checks whether
// parameters exist and have the right type, which the stand-in of payments/stripetest
// cannot do.
//
// The first start on a machine builds stripe-mock, which takes some seconds.
package stripemock_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startTimeout is long compared with the second in which an idle machine reads the API
// description of 8 MB.
const startTimeout = time.Minute

// start runs stripe-mock on a free port of the loopback interface and returns its URL.
// The process ends with the test, or with the test binary if that is killed.
func start(t testing.TB) (baseURL string) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("stripemock: %v", err)
	}

	output, printed := io.Pipe()
	// Without -https-addr it would listen on its default port. The test's context ends,
	// and kills it, before the cleanups run.
	cmd := exec.CommandContext(t.Context(), binary, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = printed, printed
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	exited := make(chan struct{})
	t.Cleanup(func() { <-exited })
	go func() {
		defer close(exited)
		// The kernel kills it when the thread that started it ends, so this thread must
		// live until then.
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

// build returns the path of the tool of go.mod, and builds it if it is not in the build
// cache. "go tool" would be another process between it and the test.
func build() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "stripe-mock").Output()
	return strings.TrimSpace(string(out)), err
}

// follow reads stripe-mock's output until it ends, and sends the address on which it
// listens. It must keep reading, because each request prints a line.
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
