package subprocess

import "syscall"

// attributes end a child with its parent, even if the parent is killed. A process
// group of its own keeps Ctrl-C in a terminal from it: the parent stops its
// children itself.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
