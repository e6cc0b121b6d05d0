package stripemock_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A killed test binary runs no cleanup. The test starts itself as that binary.
func TestStart_testBinaryKilled(t *testing.T) {
	t.Parallel()
	if os.Getenv("STRIPEMOCK_TO_BE_KILLED") != "" {
		fmt.Println("address", strings.TrimPrefix(start(t), "http://"))
		select {}
	}

	victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	victim.Env = append(os.Environ(), "STRIPEMOCK_TO_BE_KILLED=1")
	output, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())

	address := ""
	for lines := bufio.NewScanner(output); address == "" && lines.Scan(); {
		if a, ok := strings.CutPrefix(lines.Text(), "address "); ok {
			address = a
		}
	}
	require.True(t, listening(address))

	require.NoError(t, victim.Process.Kill())
	require.Error(t, victim.Wait())
	require.Eventually(t, func() bool { return !listening(address) }, 10*time.Second, 10*time.Millisecond)
}

func listening(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
