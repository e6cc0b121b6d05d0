package crash_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// boundariesFile has for each flow its name and then its boundaries, indented and
// numbered from 1.
const boundariesFile = "testdata/boundaries.txt"

func TestBoundaries(t *testing.T) {
	t.Parallel()
	program := build(t)
	recorded := make([]string, len(flows()))
	t.Run("recorded", func(t *testing.T) {
		for i, f := range flows() {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				h := newHarness(t, program, f.age())
				h.setup(f)
				exchanges := &interceptor{}
				victim := h.startVictim(f.actor, exchanges, noFault())
				got := h.await(victim)
				require.True(t, victim.allowed(got), "%v", got)
				recorded[i] = f.name + "\n"
				for n, name := range exchanges.recorded() {
					recorded[i] += fmt.Sprintf("%4d  %s\n", n+1, name)
				}
				if f.customers == nil || f.acted != "" || f.old { // otherwise the customer must act first
					require.Empty(t, h.unfinishedKeys())
				}
			})
		}
	})
	text := strings.Join(recorded, "")
	if *update {
		require.NoError(t, os.WriteFile(boundariesFile, []byte(text), 0o644))
		return
	}
	require.Equal(t, read(t, boundariesFile), text,
		"the boundaries have changed: go -C lab/crash test -run TestBoundaries -args -update")
}

func recordedBoundaries(t testing.TB) map[string][]string {
	t.Helper()
	recorded := map[string][]string{}
	var flow string
	lines := bufio.NewScanner(strings.NewReader(read(t, boundariesFile)))
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, " ") {
			flow = line
			continue
		}
		_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		recorded[flow] = append(recorded[flow], name)
	}
	return recorded
}

func read(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(content)
}
