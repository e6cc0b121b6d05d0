package subprocess

import "syscall"

// attributes end a child with its parent. The child has a process group of its own, which Ctrl-C
// does not reach, because the parent stops the child.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
