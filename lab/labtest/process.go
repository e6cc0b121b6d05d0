// Package labtest builds the programs and runs them as processes, with a database and the fake
// Stripe.
package labtest

import (
	"crypto/rand"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
	"example.com/orders-api/migrations/dbtest"
)

// program is the path that [Main] sets. It is a package variable because tests share no
// other state.
var program string

// Main builds the program, runs the tests and stops their database server:
//
//	func TestMain(m *testing.M) { os.Exit(labtest.Main{M: m}.Run()) }
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

// Start starts the program. The end of the test kills it.
func Start(t *testing.T, environ []string, args ...string) *programtest.Process {
	t.Helper()
	return programtest.StartProgram(t, program, environ, args...)
}

// Run requires the exit code 0 and returns the standard output.
func Run(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	p := Start(t, environ, args...)
	require.Zero(t, p.Wait(), "orders %v: %s", args, &p.Stderr)
	return p.Stdout.String()
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
