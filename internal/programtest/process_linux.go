package programtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// attributes give a program a session, which identifies its subprocesses.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// RequireNoProcessLeft waits until the process and those that it started have exited.
func (p *Process) RequireNoProcessLeft() {
	p.T.Helper()
	<-p.exited
	var left []string
	Eventually(p.T, func() bool {
		left = sessionOf(p.T, p.Cmd.Process.Pid)
		return len(left) == 0
	})
}

func sessionOf(t *testing.T, session int) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var list []string
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// pid (command) state parent group session …, where the command may hold anything
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
		fields := strings.Fields(rest)
		if len(fields) > 3 && fields[0] != "Z" && fields[3] == fmt.Sprint(session) {
			list = append(list, string(stat))
		}
	}
	return list
}
