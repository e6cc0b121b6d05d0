package main_test

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/payments/stripetest"
)

// openTerminal returns both ends of a new terminal: that of the user and that of the
// program.
func openTerminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = user.Close() })
	control := func(request uintptr, argument *int32) {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, user.Fd(), request, uintptr(unsafe.Pointer(argument)))
		require.Zero(t, errno)
	}
	var locked, number int32
	control(syscall.TIOCSPTLCK, &locked)
	control(syscall.TIOCGPTN, &number)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return user, program
}

// A terminal shows the progress of a long run. The output does not contain it.
func TestReconcile_progressBar(t *testing.T) {
	t.Parallel()
	f := newFixtureAnHourAgo(t)
	for range 150 {
		f.createIntent(url.Values{"amount": {"500"}, "currency": {"usd"}})
	}
	run := func() (stdout, stderr string) {
		user, program := openTerminal(t)
		path, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), path, "reconcile", "--since", "2h")
		cmd.Env = append(f.environ[:len(f.environ):len(f.environ)], beProgram+"=1")
		cmd.Stderr = program
		seen := make(chan string)
		go func() {
			text, _ := io.ReadAll(user) // ends with an error when the program has closed its end
			seen <- string(text)
		}()
		out, err := cmd.Output()
		require.NoError(t, err)
		require.NoError(t, program.Close())
		return string(out), <-seen
	}

	stdout, stderr := run()
	require.Contains(t, stdout, "Foreign intents: 150,")
	require.Empty(t, stderr, "a short run has no bar")

	f.stripe.Inject(stripetest.Rule{Fault: stripetest.Slow, Endpoint: listEndpoint, Delay: 1200 * time.Millisecond, Times: stripetest.Always})
	stdout, stderr = run()
	require.Contains(t, stdout, "Foreign intents: 150,")
	require.NotContains(t, stdout, "comparing")
	require.Regexp(t, `comparing +\d\d% \|█+ +\|`, stderr)
	require.Regexp(t, `\r +\r$`, stderr, "the bar is removed at the end")
}
