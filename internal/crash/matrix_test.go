package crash_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/migrations/dbtest"
)

func TestMatrix(t *testing.T) {
	t.Parallel()
	program := build(t)
	cases := allCases(t)
	if *matrix != all {
		cases = sample(cases)
	}
	var ran, failed atomic.Int64
	start := time.Now()
	t.Cleanup(func() {
		fmt.Printf("crash matrix: %d cases, %d failed, %v\n", ran.Load(), failed.Load(), time.Since(start).Round(time.Second))
	})
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			ran.Add(1)
			defer func() {
				if t.Failed() {
					failed.Add(1)
					t.Logf("the fault: %s\nagain: go test ./internal/crash -run '^TestMatrix$/%s' -args -matrix=all", c.where(), c)
				}
			}()
			wrong, err := c.run(t, program)
			require.NoError(t, err)
			require.Empty(t, wrong, strings.Join(wrong, "\n"))
		})
	}
}

// matrixCase is a case of any kind.
type matrixCase interface {
	fmt.Stringer
	run(t testing.TB, program string) (wrong []string, err error)
	where() string // the boundary of the fault
	kind() string  // a sample has one case of each kind
}

func allCases(t testing.TB) (all []matrixCase) {
	t.Helper()
	recorded := recordedBoundaries(t)
	for _, c := range faultCases(t, recorded) {
		all = append(all, c)
	}
	for _, c := range lostCases(recorded) {
		all = append(all, c)
	}
	for _, c := range clockCases(recorded) {
		all = append(all, c)
	}
	for _, c := range newerCases(recorded) {
		all = append(all, c)
	}
	return all
}

// faultCases returns the cases of one fault. In the flow "paid", each actor that can
// recover the key does so in its own case. In the other flows the actors take turns, as
// do the customers.
func faultCases(t testing.TB, recorded map[string][]string) (cases []testCase) {
	t.Helper()
	for _, f := range flows() {
		boundaries := recorded[f.name]
		require.NotEmpty(t, boundaries, "%s is not recorded", f.name)
		for i, boundary := range boundaries {
			for _, m := range []moment{before, after} {
				actors := f.recoveries(boundaries, i+1, m)
				for k, fault := range f.faults() {
					recoveries := actors
					if f.name != "paid" {
						turn := (i + k + len(m)) % len(actors)
						recoveries = actors[turn : turn+1]
					}
					c := testCase{flow: f, n: i + 1, boundary: boundary, moment: m, fault: fault}
					if f.customers != nil {
						c.customer = f.customers[(2*i+k+len(m))%len(f.customers)]
						c.late = fault != hold && (i+k)%2 > 0
					}
					for _, c.recovery = range recoveries {
						cases = append(cases, c)
					}
				}
			}
		}
	}
	return cases
}

// sample keeps one case of each kind. That of a flow has its fault after the last
// provider call, where the recovery is longest, and the faults take turns. Those of the
// other kinds are spread over the flows and boundaries.
func sample(cases []matrixCase) (sampled []matrixCase) {
	last, turn := map[string]int{}, map[string]int{}
	for i, f := range flows() {
		turn[f.name] = i
	}
	for _, c := range cases {
		if c, ok := c.(testCase); ok && c.side() == provider {
			last[c.flow.name] = c.n
		}
	}
	var kinds []string
	byKind := map[string][]matrixCase{}
	for _, c := range cases {
		if c, ok := c.(testCase); ok {
			all := c.flow.faults()
			fault := slices.Index(all, c.fault) + turn[c.flow.name]
			if c.n != last[c.flow.name] || c.moment != after || fault%len(all) > 0 || byKind[c.kind()] != nil {
				continue
			}
		}
		if byKind[c.kind()] == nil {
			kinds = append(kinds, c.kind())
		}
		byKind[c.kind()] = append(byKind[c.kind()], c)
	}
	for i, kind := range kinds {
		same := byKind[kind]
		sampled = append(sampled, same[i*len(same)/len(kinds)])
	}
	return sampled
}

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
