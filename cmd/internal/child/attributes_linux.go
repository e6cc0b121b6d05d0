package child

import "syscall"

// childAttributes let a child end with us, even when we are killed, and not
// before: Ctrl-C in a terminal is for the tour, which then ends its children.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
