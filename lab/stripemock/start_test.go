//go:build linux

// Package stripemock_test sends the requests of package payments to stripe-mock, which
// validates parameters against Stripe's published API description. The fake in
// payments/stripetest does not.
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

// startTimeout is long: an idle machine reads the API description of 8 MB in a second.
const startTimeout = time.Minute

// start returns the URL of a stripe-mock process, which ends with the test or with a
// killed test binary.
func start(t testing.TB) (baseURL string) {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatalf("stripemock: %v", err)
	}

	output, printed := io.Pipe()
	// Without -https-addr it uses its default port. The test's context ends, and kills
	// it, before the cleanups run.
	cmd := exec.CommandContext(t.Context(), binary, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = printed, printed
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	exited := make(chan struct{})
	t.Cleanup(func() { <-exited })
	go func() {
		defer close(exited)
		// Pdeathsig applies when the starting thread ends, so this thread must stay
		// alive.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		printed.CloseWithError(errors.Join(errors.New("stripe-mock exited"), cmd.Run()))
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

// build returns the path of the tool in go.mod. "go tool" would add a process between it
// and the test.
func build() (string, error) {
	out, err := exec.Command("go", "tool", "-n", "stripe-mock").Output()
	return strings.TrimSpace(string(out)), err
}

// follow sends the address of stripe-mock, and reads its output until it ends, because
// each request prints a line.
func follow(output io.Reader, address chan<- string) error {
	last := ""
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		last = lines.Text()
		if a, ok := strings.CutPrefix(last, "Listening for HTTP at address: "); ok {
			address <- a
		}
	}
	return fmt.Errorf("%w; last line: %q", lines.Err(), last)
}
