//go:build !race

package main_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
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
	resident := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	require.NotNil(t, resident)
	kilobytes, err := strconv.Atoi(string(resident[1]))
	require.NoError(t, err)
	require.Less(t, kilobytes, 40<<10)
	t.Logf("%d KiB", kilobytes)
	a.Stop()
}
