//go:build !race

package main_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that waits for orders needs 20 MB, most of it the program itself.
// Much more means that something is unpacked or prepared too early. The race
// detector would be most of it, hence the build tag; make check runs this test.
func TestServe_isSmallWhenIdle(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	a := s.serve(s.with("ADMIN_ADDR=127.0.0.1:0"), "--shutdown-delay", "0")
	require.Equal(t, http.StatusOK, a.ready())
	scraped, _ := get(t, a.admin()+"/metrics")
	require.Equal(t, http.StatusOK, scraped)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
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
	a.stop()
}
