package stripemock

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel kill the process when the thread that started it
// ends, and so when this process is killed.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
