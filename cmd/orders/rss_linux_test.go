//go:build !race

package main_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/orders-api/internal/programtest"
)

// An idle process uses about 27 MiB, and more with the race detector.
func TestServe_idleMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.serve(f.with("ADMIN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
	programtest.Eventually(t, func() bool { return a.Ready() == http.StatusOK })
	scraped, _ := programtest.Get(t, a.Admin()+"/metrics")
	require.Equal(t, http.StatusOK, scraped)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.Cmd.Process.Pid))
	require.NoError(t, err)
	var kilobytes int
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			_, err := fmt.Sscan(rest, &kilobytes)
			require.NoError(t, err)
		}
	}
	require.Positive(t, kilobytes)
	require.Less(t, kilobytes, 40<<10)
	t.Logf("%d KiB", kilobytes)
	a.Stop()
}
