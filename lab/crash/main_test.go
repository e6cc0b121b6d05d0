package crash_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

const (
	slice = "slice"
	all   = "all"
)

var (
	matrix = flag.String("matrix", slice, "the cases to run: "+slice+" or "+all)
	update = flag.Bool("update", false, "write "+boundariesFile)
)

func TestMain(m *testing.M) {
	// The cases mostly wait for processes. -parallel on the command line takes
	// precedence.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := dbtest.Main{M: m}.Run()
	if program.folder != "" {
		_ = os.RemoveAll(program.folder)
	}
	os.Exit(code)
}

var program struct {
	once   sync.Once
	folder string
	err    error
}

func build(t testing.TB) string {
	t.Helper()
	program.once.Do(func() {
		if program.folder, program.err = os.MkdirTemp("", "orders-crash-"); program.err == nil {
			program.err = goBuild(filepath.Join(program.folder, "orders"))
		}
	})
	require.NoError(t, program.err)
	return filepath.Join(program.folder, "orders")
}

func goBuild(file string, flags ...string) error {
	// Without debug tables and the version, linking takes half the time.
	args := append([]string{"build", "-ldflags=-s -w", "-buildvcs=false", "-o", file}, flags...)
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/orders")...)
	cmd.Dir = filepath.Join("..", "..") // a relative path, because a clone may rename the module
	cmd.Stderr = os.Stderr
	return cmd.Run()
}
